"""Every request that the server answers, counted by the template of its route: outside of the login, inside of
the edge. A path is never a label: it holds names, and there is no end of them."""

from __future__ import annotations

import re
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.headers import CONSOLE, SQL_PROTOCOL, is_at
from app.security.policy import PAGES
from rebalance.ports.metric_rows import OTHER, Measures, Metric

METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
ROUTE = "zonekeeper.route"
"""Key of the scope under which the route that answers enters its template."""
GONE = "gone"
"""The status of a request whose client left before it was answered."""


class RequestMeter:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, measures: Measures) -> None:
        self._app = app
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, path, route = time.perf_counter(), scope["path"], [""]
        status = GONE

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app({**scope, ROUTE: route}, receive, noted)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._measures.count(Metric.HTTP_REQUESTS, route[0] or page_of(path), method, status)
            self._measures.observe(Metric.HTTP_REQUEST_SECONDS, time.perf_counter() - begun, area_of(path))


def area_of(path: str) -> str:
    if is_at(CONSOLE, path):
        return "console"
    if path.startswith("/api/"):
        return "api"
    return "sql" if path.startswith(SQL_PROTOCOL) else "health"


def note_route(scope: MutableMapping[str, Any]) -> None:
    """Called by each route of the API, before anything else."""
    if ROUTE in scope:
        scope[ROUTE][0] = scope["route"].path


def page_of(path: str) -> str:
    """The template of a page of the console; its files and sockets, which are no pages, are one. ``_other``: it
    reached neither a route nor the console."""
    if area_of(path) != "console":
        return OTHER
    inner = path.removeprefix(CONSOLE) or "/"
    return CONSOLE + next((template for template, known in _PAGES if known.fullmatch(inner)), "/*")


_PAGES = tuple((template, re.compile(re.sub(r"\{[^}]+\}", "[^/]+", template))) for template in PAGES)
