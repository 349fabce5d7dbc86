"""The headers of every answer: what browsers may make of it, and to programs the version of this server."""

from __future__ import annotations

from app.process.build import own_version

VERSION_FIELD = "Zonekeeper-Version"
"""Clients compare it with their own."""
CONSOLE = "/console"
DOCS = "/docs"

ALWAYS = "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'none'"

API_POLICY = f"default-src 'none'; {ALWAYS}"
"""Of what is no page: nothing of it is run, drawn or framed."""

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


def headers_of(path: str) -> tuple[tuple[bytes, bytes], ...]:
    """As ASGI has them, for an answer to a request for ``path``."""
    if path == CONSOLE or path.startswith(f"{CONSOLE}/"):
        return _CONSOLE
    return _DOCS if path == DOCS or path.startswith(f"{DOCS}/") else _API


def _headers(policy: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )


_DOCS, _CONSOLE = map(_headers, (DOCS_POLICY, CONSOLE_POLICY))
_API = (*_headers(API_POLICY), (VERSION_FIELD.lower().encode(), own_version().encode()))
