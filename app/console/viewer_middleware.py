"""Viewer of each request, for what draws the console's pages, and how much of it one user may hold."""

from __future__ import annotations

from contextlib import ExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from app.console.viewer import Viewer, viewing
from app.console.viewer_room import ViewerRoom
from app.requests.actor import current_actor
from app.requests.login import current_login
from app.requests.request_id import current_request_id
from app.security.console_door import FILES
from app.security.refusing import refuse
from app.security.session_view import SessionView
from catalog.core.audit import Actor, Channel
from catalog.core.errors import RefusedError, StoreError
from catalog.core.principals import Principal


class ViewerMiddleware:
    """Middleware that makes the logged-in user the viewer of what the request draws, and puts them in its scope
    as ``viewer``."""

    def __init__(self, app: ASGIApp, sessions: SessionView) -> None:
        self._app = app
        self._sessions = sessions
        self._room = ViewerRoom()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        login = current_login()
        if login is None or scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            grants = await self._sessions.access.grants()
        except StoreError as error:
            await refuse(error, scope, receive, send)
            return
        client = scope.get("client")
        address, request_id = client[0] if client else "", current_request_id()
        actor = Actor(
            login.shown_name, True, Channel.CONSOLE, address, caller=login.caller, request_id=request_id
        )
        viewer = Viewer(login, grants, actor.because(current_actor().reason))
        user, scope = login.caller.principal, {**scope, "viewer": viewer}
        with viewing(viewer):
            if scope["type"] == "websocket":
                await self._answer_socket(user, scope, receive, send)
            elif scope["path"].startswith(FILES):
                await self._app(scope, receive, send)
            else:
                await self._room.draw(user, self._app, scope, receive, send)

    async def _answer_socket(self, user: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            try:
                held.enter_context(self._room.socket(user))
            except RefusedError as error:
                await refuse(error, scope, receive, send)
                return
            await self._app(scope, receive, send)
