"""The token of scrapers: whoever shows it reads what processes measure, and may do nothing else.

It is in a file, and in no catalog: scrapes are answered while the catalog is away.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.fields import Fields
from app.metrics.exposition import CONTENT_TYPE, Exposition
from app.metrics.request_meter import ROUTE
from app.security.console_door import SECURE_SCHEMES
from app.security.refusing import uncached
from rebalance.hosting.private_files import replace_privately

TOKEN_CHARS_MIN = 32
METRICS = "/metrics"


class ScrapeToken:
    """The token in ``path``, which is read each time: it may be replaced at any time. While it cannot be read,
    or is shorter than ``TOKEN_CHARS_MIN``, nobody shows it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_in(self, authorization: str) -> bool:
        """Whether a header ``Authorization: Bearer ...`` shows the token."""
        scheme, _, shown = authorization.strip().partition(" ")
        try:
            token = self._path.read_bytes().strip()
        except OSError:
            return False
        if scheme.lower() != "bearer" or len(token) < TOKEN_CHARS_MIN:
            return False
        return hmac.compare_digest(shown.strip().encode(), token)


class ScrapeDoor:
    """An ASGI application around the one that asks for a login: scrapers with the token come in, over HTTPS as
    all who log in, and get no further than the metrics."""

    def __init__(self, app: ASGIApp, token: ScrapeToken, metrics: Exposition) -> None:
        self._app = app
        self._token = token
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("GET", METRICS):
            await self._app(scope, receive, send)
            return
        shown = Fields.of(scope).all(b"authorization")
        if scope["scheme"] in SECURE_SCHEMES and len(shown) == 1 and self._token.is_in(shown[0]):
            if ROUTE in scope:
                scope[ROUTE][0] = METRICS
            answer = Response(await self._metrics.scraped(), media_type=CONTENT_TYPE)
            await answer(scope, receive, uncached(send))
            return
        await self._app(scope, receive, send)


def keep_scrape_token(path: Path) -> None:
    """Makes the file when it is not there. Raises OSError."""
    if not path.exists():
        replace_privately(path, f"{secrets.token_urlsafe(TOKEN_CHARS_MIN)}\n".encode())
