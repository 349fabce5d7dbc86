"""The console below ``/console``: NiceGUI is imported once the API answers, or when a page is requested before
that.

NiceGUI keeps its application in a global, so a process has one console at a time; it is started and stopped by
``run``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.security.login_check import AGAIN_S
from rebalance.hosting.background import Background

if TYPE_CHECKING:
    from app.api.services import Services

    Serving = Callable[[Services, Background], AbstractAsyncContextManager[ASGIApp]]

START_S = 20.0
REST_S = 3.0
"""Seconds after the server's start: first everything else is there, then the pages."""


class Console:
    """An ASGI application; ``run`` must run beside the server. ``rest_s``: seconds after the keyspace was read,
    in which only a visitor starts the pages."""

    def __init__(self, rest_s: float = REST_S, background: Background | None = None) -> None:
        self._background = background or Background()
        self._rest_s = rest_s
        self._visit = asyncio.Event()
        self._started = asyncio.Event()
        self._pages: ASGIApp | None = None

    async def run(self, services: Services) -> None:
        """Run until cancelled: starts the pages and what feeds them, when the server stands or a visitor
        comes."""
        await self._visited(services)
        # Half a second of imports, which other requests need not wait for.
        serving = await asyncio.to_thread(_serving)
        async with serving(services, self._background) as application:
            self._pages = application
            self._started.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                # Before pages are forgotten: told that it is gone, one would be loaded anew, from a server that
                # ends.
                self._pages = None

    async def started(self) -> None:
        """Returns when there are pages."""
        await self._started.wait()

    async def _visited(self, services: Services) -> None:
        """Or the keyspace was read, some seconds ago."""
        loaded = asyncio.create_task(services.mirror.loaded())
        visited = asyncio.create_task(self._visit.wait())
        try:
            await asyncio.wait((loaded, visited), return_when=asyncio.FIRST_COMPLETED)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest_s):
                    await self._visit.wait()
        finally:
            loaded.cancel()
            visited.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._visit.set()
        try:
            async with asyncio.timeout(START_S):
                await self._started.wait()
            pages, state = self._pages, "is stopping"
        except TimeoutError:
            pages, state = None, "is still starting"
        if pages is None:
            text = f"the console {state}: this page reloads automatically"
            pages = PlainTextResponse(text, 503, {"Refresh": f"{AGAIN_S}", "Retry-After": f"{AGAIN_S}"})
        await pages(scope, receive, send)


def _serving() -> Serving:
    from app.console.site import serving

    return serving
