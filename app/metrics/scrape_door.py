"""Where scrapers with the token come in, beside the login."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.fields import Fields
from app.metrics.exposition import CONTENT_TYPE, Exposition
from app.metrics.request_meter import ROUTE
from app.security.console_door import SECURE_SCHEMES
from app.security.refusing import uncached
from app.security.scrape_token import ScrapeToken

METRICS = "/metrics"


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
