"""Entrances for scrapers: with the token beside the login of a server, and to a process without an API."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.headers import Fields
from app.metrics.exposition import Exposition
from app.metrics.request_meter import ROUTE
from app.security.console_login import SECURE_SCHEMES
from app.security.login_check import uncached
from app.security.token_secrets import ScrapeToken

METRICS = "/metrics"

Admission = Callable[[str], bool]
"""Check that a request with this ``Authorization`` header, empty without one, is given the metrics."""


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
            answer = Response(await self._metrics.scraped(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
            await answer(scope, receive, uncached(send))
            return
        await self._app(scope, receive, send)


def scrape_app(metrics: Exposition, admits: Admission) -> ASGIApp:
    """All that a process without an API answers: ``GET /metrics`` and ``GET /livez``."""

    async def measured(request: Request) -> Response:
        shown = request.headers.getlist("authorization")
        if not admits(shown[0] if len(shown) == 1 else ""):
            challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
            return PlainTextResponse("Unauthorized\n", 401, challenge)
        return Response(await metrics.scraped(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def living(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Router([Route(METRICS, measured), Route("/livez", living)], redirect_slashes=False)
