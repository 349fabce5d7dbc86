"""Trust: names and origins that are the server's own, and proxies that speak for others; and the addresses that
a server tells its clients of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import Scope

from app.edge.headers import Fields

PORTS = {"http": 80, "https": 443}
SECURE = {"http": "https", "ws": "wss"}
PLAIN = {secure: plain for plain, secure in SECURE.items()}
LOOPBACK = "localhost"
FORWARDING = (b"forwarded", b"x-real-ip")
FORWARDED = b"x-forwarded-"


class RequestOrigin(NamedTuple):
    """Origin, as browsers compare them. ``parse`` raises ValueError for a text that is not an origin, as
    ``null``."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        url = urlsplit(text.strip())
        host, scheme = url.hostname, url.scheme.lower()
        has_more = url.path not in ("", "/") or url.query or url.fragment or "@" in url.netloc
        if scheme not in PORTS or not host or has_more:
            raise ValueError(f"{text!r} is not an origin such as https://zones.example:8443")
        return cls(scheme, _name(host), url.port or PORTS[scheme])


@dataclass(frozen=True, slots=True)
class Trust:
    """``hosts``: names by which the server is addressed, besides IP addresses and loopback names. ``origins``:
    those of its pages, besides the one by which it was addressed. ``proxies``: those whose ``X-Forwarded-*``
    and ``identity_header`` are trusted; these headers of others are removed from the request.
    ``refuses_forwarded``: a request that has them is refused, since anyone behind the proxy would be let in
    without a login. ``any_host``: it may be addressed by any name."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[RequestOrigin] = frozenset()
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    identity_header: str = ""
    refuses_forwarded: bool = False
    any_host: bool = False

    @classmethod
    def parse(cls, hosts: str = "", origins: str = "", proxies: str = "", identity_header: str = "") -> Self:
        """Parse comma-separated lists. Raises ValueError, naming the part that is wrong."""
        names = _parts(hosts)
        for name in names:
            if host_of(name) != _name(name):
                raise ValueError(f"{name!r} is not a host name such as zones.example, without scheme and port")
        try:
            networks = tuple(ip_network(part) for part in _parts(proxies))
        except ValueError as error:
            raise ValueError(f"a proxy is an IP address or a network such as 10.0.0.0/8: {error}") from error
        if identity_header and not networks:
            raise ValueError("an identity header is trusted from listed proxies only, and none is listed")
        return cls(
            frozenset(map(_name, names)),
            frozenset(map(RequestOrigin.parse, _parts(origins))),
            networks,
            identity_header,
        )

    def knows(self, host: str) -> bool:
        """``host`` as the header has it, with or without a port. Rebinding a name to another address needs a
        name: an IP address cannot be rebound, and names of the loopback are resolved by the browser itself."""
        name, is_own = _name_of_nobody_else(host)
        return self.any_host or is_own or name in self.hosts

    def is_proxy(self, address: str) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self.proxies)


@lru_cache(maxsize=256)
def _name_of_nobody_else(host: str) -> tuple[str | None, bool]:
    """The name, and whether it can mean this machine or this address alone."""
    name = host_of(host)
    if name is None:
        return None, False
    return name, name == LOOPBACK or name.endswith(f".{LOOPBACK}") or _is_address(name)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def host_of(header: str) -> str | None:
    """The name or address in a Host header, lower-cased, without port and brackets; None: it is malformed."""
    try:
        url = urlsplit(f"//{header}")
        _ = url.port
    except ValueError:
        return None
    if not url.hostname or url.netloc != header or "@" in header:
        return None
    return _name(url.hostname)


def is_forwarded(fields: Fields) -> bool:
    return any(name.startswith(FORWARDED) or name in FORWARDING for name in fields.lines)


def as_addressed(scope: Scope, fields: Fields, trust: Trust) -> Scope:
    """The request as its client sent it to the listed proxy in between; without one, what only a proxy may say
    is taken off. Of several values the last counts, which the listed proxy itself has written."""
    identity = trust.identity_header.lower().encode()
    claimed = {
        name for name in fields.lines if name.startswith(FORWARDED) or name in FORWARDING or name == identity
    }
    if not claimed:
        return scope
    if trust.is_proxy(scope["client"][0] if scope.get("client") else ""):
        return _forwarded(scope, fields, trust)
    return {**scope, "headers": [header for header in scope["headers"] if header[0] not in claimed]}


def _forwarded(scope: Scope, fields: Fields, trust: Trust) -> Scope:
    scheme: str = scope["scheme"]
    match _values(fields, b"x-forwarded-proto")[-1:]:
        case ["https" | "wss"]:
            scheme = SECURE.get(scheme, scheme)
        case ["http" | "ws"]:
            scheme = PLAIN.get(scheme, scheme)
    changed = MutableHeaders(raw=list(scope["headers"]))
    hosts = _values(fields, b"x-forwarded-host")
    if hosts:
        changed["host"] = hosts[-1]
    client = scope["client"]
    # From the right: each address was written by the proxy after it.
    for address in reversed(_values(fields, b"x-forwarded-for")):
        if not _is_address(address):
            break
        client = (address, 0)
        if not trust.is_proxy(address):
            break
    return {**scope, "scheme": scheme, "client": client, "headers": changed.raw}


def _values(fields: Fields, name: bytes) -> list[str]:
    return [part for line in fields.all(name) for part in _parts(line)]


def _parts(text: str) -> list[str]:
    return [part for item in text.split(",") if (part := item.strip())]


def _name(host: str) -> str:
    return host.lower().removesuffix(".")


def url_of(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def https_url(host: str, port: int, scope: Scope) -> str:
    """HTTPS of a server that listens on ``host``, as the client of this request reaches it: of one that listens
    on every address, by the one that the client has used."""
    used = host_of(Fields.of(scope).first(b"host"))
    return url_of("https", used if used and is_every_address(host) else host, port)


def is_every_address(host: str) -> bool:
    """Check that ``host`` stands for all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
