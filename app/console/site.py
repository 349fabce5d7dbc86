"""The console's application: its pages, what feeds them, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from fastapi import FastAPI, Response
from nicegui import Client, core, ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from app.api.services import Services
from app.console.browser import KEPT
from app.console.feed import PartitionFeed
from app.console.guard import SocketGuard, ViewerMiddleware, is_kept
from app.console.shared import Site
from app.console.viewer import current_viewer
from app.security.policy import PAGES, check_console
from rebalance.hosting.background import Background

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" '
    'fill="#0b6e6e"/><g fill="#fff"><rect x="6" y="6" width="8" height="8" rx="2"/><rect x="18" y="6" '
    'width="8" height="8" rx="2" opacity=".55"/><rect x="6" y="18" width="8" height="8" rx="2" opacity=".55"/>'
    '<rect x="18" y="18" width="8" height="8" rx="2"/></g></svg>'
)
RECONNECT_S = 15.0
COMPRESSION = 3
"""Level of compression, of nine: a script of a megabyte is packed in a fifth of the time, and a tenth
larger."""


@asynccontextmanager
async def serving(services: Services, background: Background) -> AsyncIterator[ASGIApp]:
    """The application, as long as the context is entered. One at a time: NiceGUI's own is a global."""
    # What an earlier one of this process has put on.
    core.app.middleware_stack = None
    core.app.user_middleware.clear()
    # No page of another origin gets an answer that it can read; the edge refuses those that ask.
    core.sio.eio.cors_allowed_origins = []
    site = Site(services, PartitionFeed(services.mirror, services.views.keyspace))
    for module in dict.fromkeys(page.module for page in PAGES.values()):
        import_module(f"app.console.{module}").register(site)
    check_console(Client.page_routes.values(), core.sio.handlers["/"])
    application = FastAPI(openapi_url=None)
    application.add_api_route(f"{KEPT}/{{page}}", _kept)
    ui.run_with(
        application,
        title="Zonekeeper",
        favicon=FAVICON,
        dark=None,
        language="en-US",
        # Nothing is bound: pages are drawn when something has changed.
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        tailwind=False,
        show_welcome_message=False,
        gzip_middleware_factory=lambda app: GZipMiddleware(app, compresslevel=COMPRESSION),
    )
    feeding = asyncio.create_task(background.keep("console feed", site.feed.run))
    warming = asyncio.create_task(background.attempt("the console's warm-up", site.warm_up))
    works = [feeding, warming]
    try:
        async with application.router.lifespan_context(application):
            if services.sessions is None:
                yield application
                return
            guard = SocketGuard(services.sessions)
            works.append(asyncio.create_task(background.keep("console sockets", guard.run)))
            with guard.installed():
                yield ViewerMiddleware(application, services.sessions)
    finally:
        for task in works:
            task.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        # What sends to a page may miss its cancellation, and would keep the process from its end.
        for client in list(Client.instances.values()):
            client.delete()


async def _kept(page: str) -> Response:
    return Response(status_code=204 if is_kept(page, current_viewer()) else 410)
