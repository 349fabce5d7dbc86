"""The addresses that a server tells its clients of."""

from __future__ import annotations

from ipaddress import ip_address

from starlette.types import Scope

from app.edge.fields import Fields
from app.edge.trust import host_of


def url_of(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def https_url(host: str, port: int, scope: Scope) -> str:
    """HTTPS of a server that listens on ``host``, as the client of this request reaches it: of one that listens
    on every address, by the one that the client has used."""
    used = host_of(Fields.of(scope).first(b"host"))
    return url_of("https", used if used and is_every_address(host) else host, port)


def is_every_address(host: str) -> bool:
    """Whether who listens on ``host`` listens on all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
