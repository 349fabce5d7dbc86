"""Rules by which requests are refused before the application sees any of them. Pure: ``refusal_of`` decides.

A page of another site can make a browser send what HTML forms send, with the method GET, HEAD or POST and one
of three media types, and sees no answer. So requests that change something need more: JSON
(``app.api.bodies``), or the header that SQL drivers send, and no foreign ``Origin``. A page whose host's name
is made to resolve to this server's address has the server's origin: so the name must be one that the server
knows.

Limits on the size of a request, and on the time that it may take to arrive, are in ``HttpLimits``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from app.edge.headers import SQL_PROTOCOL, SQL_USER, Fields, Header
from app.edge.trust import PORTS, RequestOrigin, Trust, is_forwarded
from app.requests.errors import MEDIA_TYPE, problem
from catalog.core.errors import ErrorKind, RefusedError, StatementError

HEADER_BYTES_MAX = 64 << 10
"""Drivers send their prepared statements in headers."""
HEADER_LINES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """``header_s`` and ``body_s``: from the first byte of each to the last, whatever comes in between; a TLS
    handshake has ``header_s``, too. ``idle_s``: the time for which an idle connection is kept, longer than
    clients keep one (httpx: 5 s), or they would send a request while it is being closed.
    ``connections_max``: open at once from one address on all ports, but for sockets of pages, once they are let
    in, and for proxies that are trusted."""

    body_bytes_max: int = 4 << 20
    header_s: float = 10.0
    body_s: float = 30.0
    idle_s: int = 15
    connections_max: int = 100


SOCKET_ANSWER = "websocket.http.response"
OWN_SITE = frozenset({"same-origin", "none"})
SHOWN_CHARS_MAX = 80
DIGITS_MAX = 18


def refusal_of(
    scope: Scope, fields: Fields, sent_hosts: Sequence[str], trust: Trust, limits: HttpLimits
) -> RefusedError | None:
    """Refusal of the request as its client addressed it; ``sent_hosts`` are the Host headers that arrived,
    which a proxy in between has chosen. None: it may pass."""
    return (
        _of_hosts([*sent_hosts, *fields.all(b"host")], trust)
        or _of_origins(scope, fields, trust)
        or _of_framing(scope, fields)
        or _of_size(fields, limits)
        or _of_statement(scope, fields)
    )


def forwarded_refusal(fields: Fields, trust: Trust) -> RefusedError | None:
    """Refusal of the request as it arrived, if a proxy has forwarded it and ``trust`` refuses that. None: it
    may pass."""
    if not trust.refuses_forwarded or not is_forwarded(fields):
        return None
    message = (
        "a proxy has forwarded the request, and nobody has to log in here (--no-auth): let users log in, or "
        "list the proxy in ZONEKEEPER_TRUSTED_PROXIES"
    )
    return RefusedError(ErrorKind.FORWARDED_REFUSED, message)


def too_large(limits: HttpLimits) -> RefusedError:
    message = f"a request's body has at most {limits.body_bytes_max} bytes (ZONEKEEPER_HTTP_BODY_BYTES_MAX)"
    return RefusedError(ErrorKind.REQUEST_TOO_LARGE, message)


def too_slow(part: str, limit_s: float) -> RefusedError:
    message = f"the request's {part} did not arrive within {limit_s:g} s"
    return RefusedError(ErrorKind.REQUEST_TOO_SLOW, message)


def _of_hosts(hosts: Sequence[str], trust: Trust) -> RefusedError | None:
    """A request without the header is none of a browser: old health checks send such."""
    for host in hosts:
        if host and not trust.knows(host):
            message = (
                f"this server is not known as {_shown(host)}: it answers to IP addresses, "
                "localhost and the names in ZONEKEEPER_ALLOWED_HOSTS"
            )
            return RefusedError(ErrorKind.HOST_REFUSED, message)
    return None


def _of_origins(scope: Scope, fields: Fields, trust: Trust) -> RefusedError | None:
    for text in fields.all(b"origin"):
        try:
            origin = RequestOrigin.parse(text)
        except ValueError:
            # `null` is what pages in sandboxes, files and redirected requests say.
            pass
        else:
            if origin == _own(scope, fields) or origin in trust.origins:
                continue
        message = (
            f"the request is of a page of {_shown(text)}, but this server was addressed as "
            f"{_shown(_address(scope, fields))}; behind a proxy, ZONEKEEPER_TRUSTED_PROXIES names the proxy"
        )
        return RefusedError(ErrorKind.ORIGIN_REFUSED, message)
    # Without an Origin: a picture, a script, an answer that cannot be read. No page elsewhere is made of parts
    # of this server; links to it are followed.
    site = fields.first(b"sec-fetch-site", "none")
    if site not in OWN_SITE and fields.first(b"sec-fetch-mode") != "navigate" and b"origin" not in fields.lines:
        message = f"a page of another site ({_shown(site)}) may not embed what this server has"
        return RefusedError(ErrorKind.ORIGIN_REFUSED, message)
    return None


def _of_size(fields: Fields, limits: HttpLimits) -> RefusedError | None:
    if fields.size > HEADER_BYTES_MAX:
        message = f"a request's headers have at most {HEADER_BYTES_MAX} bytes, not {fields.size}"
        return RefusedError(ErrorKind.HEADERS_TOO_LARGE, message)
    length = fields.first(b"content-length", "0")
    # Python reads no number of thousands of digits.
    if len(length) > DIGITS_MAX or (length.isdecimal() and int(length) > limits.body_bytes_max):
        return too_large(limits)
    return None


def _of_framing(scope: Scope, fields: Fields) -> RefusedError | None:
    """Refuse a body whose end is ambiguous: if two headers say where it ends, a proxy may have read another one
    than this server would. The same holds for chunks in HTTP/1.0."""
    if b"transfer-encoding" not in fields.lines:
        return None
    if b"content-length" in fields.lines:
        message = "a request has Content-Length or Transfer-Encoding, and not both"
    elif scope.get("http_version") == "1.0":
        message = "a request of HTTP/1.0 has no Transfer-Encoding"
    else:
        return None
    return RefusedError(ErrorKind.REQUEST_MALFORMED, message)


def _of_statement(scope: Scope, fields: Fields) -> RefusedError | None:
    """No form can send the header that drivers send. Pages after the first are requested by addresses that
    cannot be guessed."""
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(SQL_PROTOCOL):
        return None
    if fields.first(SQL_USER.lower().encode()).strip():
        return None
    return RefusedError(ErrorKind.USER_REQUIRED, f"the request has no header {SQL_USER}")


def _own(scope: Scope, fields: Fields) -> RequestOrigin | None:
    try:
        return RequestOrigin.parse(_address(scope, fields))
    except ValueError:
        return None


def _address(scope: Scope, fields: Fields) -> str:
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    assert scheme in PORTS, "uvicorn serves HTTP"
    return f"{scheme}://{fields.first(b'host')}"


def _shown(text: str) -> str:
    """Text from a client for use in a message: cut, and without characters that a terminal would act on."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
    return "".join(character for character in cut if character.isprintable())


def answer(refusal: StatementError) -> tuple[int, list[Header], bytes]:
    """Status, headers and body. The connection ends with it: what else is on the way is not read."""
    body = json.dumps(problem(refusal)).encode()
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    return refusal.kind.http_status, headers, body


async def send_refusal(
    refusal: StatementError, scope: Scope, receive: Receive, send: Send, more: Iterable[Header] = ()
) -> None:
    """Answers a request, or a socket that is not open yet. ``more``: headers besides."""
    status, headers, body = answer(refusal)
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind = SOCKET_ANSWER
    await send({"type": f"{kind}.start", "status": status, "headers": [*headers, *more]})
    await send({"type": f"{kind}.body", "body": body})
