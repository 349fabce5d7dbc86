"""Headers: a request's, read once, as every request passes the edge; and those of every answer, which tell
browsers what they may make of it, and programs the version of this server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from starlette.types import Message, Scope, Send

from app.process.build import own_version

JSON = "application/json"
SQL_PROTOCOL = "/v1/"
"""Below it is what drivers ask."""
SQL_USER = "X-Trino-User"
SQL_ROLE = "X-Trino-Role"


Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Fields:
    """``lines``: values by lower-cased name, in their order. ``size`` counts the bytes of all."""

    lines: dict[bytes, list[bytes]]
    size: int

    @classmethod
    def of(cls, scope: Scope) -> Self:
        lines: dict[bytes, list[bytes]] = {}
        size = 0
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            lines.setdefault(name, []).append(value)
        return cls(lines, size)

    def all(self, name: bytes) -> list[str]:
        values = self.lines.get(name)
        return [] if values is None else [value.decode("latin-1") for value in values]

    def first(self, name: bytes, otherwise: str = "") -> str:
        values = self.lines.get(name)
        return otherwise if values is None else values[0].decode("latin-1")

    @property
    def media_type(self) -> str:
        return self.first(b"content-type").partition(";")[0].strip().lower()

    @property
    def has_body(self) -> bool:
        return self.lines.get(b"content-length", [b"0"])[0] != b"0" or b"transfer-encoding" in self.lines


VERSION_FIELD = "Zonekeeper-Version"
"""Clients compare it with their own."""
CONSOLE = "/console"
DOCS = "/docs"

ALWAYS = "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'none'"

API_POLICY = f"default-src 'none'; {ALWAYS}"
"""Policy for answers that are not pages: nothing in them is run, drawn or framed."""

DOCS_POLICY = "; ".join(
    (
        "default-src 'none'",
        # The page starts Swagger UI by a script in itself, which holds nothing but addresses of this server.
        "script-src 'self' 'unsafe-inline'",
        # Swagger UI sets styles of elements.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        ALWAYS,
    )
)

CONSOLE_POLICY = "; ".join(
    (
        "default-src 'none'",
        # 'unsafe-inline': NiceGUI's page has its import map, its elements and its start as scripts in itself,
        # other ones for each visit, and knows no nonces. 'unsafe-eval': its handlers and what
        # ui.run_javascript sends come as text, and Vue compiles the templates of components in the browser.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        # Quasar, ECharts and CodeMirror set styles of elements, and NiceGUI's page has style sheets in itself.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        ALWAYS,
    )
)


def is_at(root: str, path: str) -> bool:
    """``path`` is ``root``, or below it."""
    return path == root or path.startswith(f"{root}/")


def headers_of(path: str) -> tuple[Header, ...]:
    """Headers, as ASGI has them, for an answer to a request for ``path``."""
    return _CONSOLE if is_at(CONSOLE, path) else _DOCS if is_at(DOCS, path) else _API


def with_headers(send: Send, ours: Iterable[Header]) -> Send:
    """An answer's own headers go before ours."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.setdefault("headers", [])
            there = {name.lower() for name, _ in own}
            message["headers"] = [*own, *(header for header in ours if header[0] not in there)]
        await send(message)

    return sent


def _headers(policy: str) -> tuple[Header, ...]:
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )


_DOCS, _CONSOLE = map(_headers, (DOCS_POLICY, CONSOLE_POLICY))
_API = (*_headers(API_POLICY), (VERSION_FIELD.lower().encode(), own_version().encode()))
