"""Guard of the console where users log in: the viewer of each request, how much of the console one user may
hold (drawing takes time of all, pages memory, sockets files), and its sockets, each of which belongs to a
session and to a page that was drawn for it.

NiceGUI accepts a page's id as proof. Here the socket's own session counts: events on it are for its own page
alone, are carried out for the user who has logged in, and only while the session is valid. The socket is closed
when the session ends or privileges change; the page is then drawn anew, for the user who is logged in by then.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

import structlog
from nicegui import Client, core
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.browser import call
from app.console.viewer import Viewer, renewed, viewing
from app.requests.context import current_actor, current_login, current_request_id
from app.security.console_login import FILES
from app.security.login_check import refuse
from app.security.session_view import SessionView
from catalog.core.audit import Actor, Channel
from catalog.core.authorisation import Principal
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError

log = structlog.get_logger(__name__)

LOOK_S = 0.25
"""Seconds between looks: with a second of ``FreshValue`` and a reading of the catalog, what has ended is closed
within two."""
LEAVE_S = 0.2
"""A browser has so long to be told to load the page anew."""

Handler = Callable[..., Any]
_RELOAD = "() => window.location.reload()"


@dataclass(slots=True)
class _Socket:
    """``page``: its client's id; empty: it has not said which."""

    viewer: Viewer
    page: str = ""


class SocketGuard:
    """Guard between the sockets and NiceGUI, while ``installed``."""

    def __init__(self, sessions: SessionView) -> None:
        self._sessions = sessions
        self._sockets: dict[str, _Socket] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        before: dict[str, Handler] = dict(core.sio.handlers["/"])
        self._install(before)
        try:
            yield
        finally:
            for name, handler in before.items():
                core.sio.on(name, handler)

    def _install(self, handlers: Mapping[str, Handler]) -> None:
        connect, shake, leave = (handlers[name] for name in ("connect", "handshake", "disconnect"))

        async def on_connect(socket_id: str, _sent: object, *rest: Any) -> Any:
            # What a browser sends by the name of this event is none.
            trusted: dict[str, Any] = core.sio.get_environ(socket_id) or {}
            viewer = trusted.get("asgi.scope", {}).get("viewer")
            if socket_id in self._sockets or not isinstance(viewer, Viewer):
                return False
            query = {name: values[0] for name, values in parse_qs(trusted.get("QUERY_STRING", "")).items()}
            self._sockets[socket_id] = _Socket(viewer)
            if query.get("implicit_handshake") == "true" and not self._bind(socket_id, query.get("client_id")):
                del self._sockets[socket_id]
                return False
            return await _done(connect(socket_id, trusted, *rest))

        async def on_handshake(socket_id: str, data: dict[str, Any]) -> Any:
            return self._bind(socket_id, data.get("client_id")) and await _done(shake(socket_id, data))

        async def on_disconnect(socket_id: str, *_reason: Any) -> None:
            if core.sio.manager.is_connected(socket_id, "/"):
                # It only says so: it is disconnected, and comes back here.
                await core.sio.disconnect(socket_id)
                return
            self._sockets.pop(socket_id, None)
            await _done(leave(socket_id))

        core.sio.on("connect", on_connect)
        core.sio.on("handshake", on_handshake)
        core.sio.on("disconnect", on_disconnect)
        for name in ("event", "javascript_response", "ack", "log"):
            core.sio.on(name, self._guarded(handlers[name], is_use=name == "event"))

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            open_now = list(self._sockets.items())
            over = [(socket_id, socket) for socket_id, socket in open_now if not await self._holds(socket)]
            await asyncio.gather(*(self._close(socket_id, socket) for socket_id, socket in over))

    def _guarded(self, handler: Handler, *, is_use: bool) -> Handler:
        async def guarded(socket_id: str, message: dict[str, Any]) -> None:
            socket = self._sockets.get(socket_id)
            if socket is None or not socket.page or message.get("client_id") != socket.page:
                log.warning("a socket spoke for another page")
                return
            try:
                viewer = await renewed(socket.viewer, self._sessions)
                if is_use:
                    await self._sessions.note_use(viewer.login)
            except StatementError as error:
                log.info("an event of the console is refused", name=error.kind.name)
                return
            with viewing(viewer):
                await _done(handler(socket_id, message))

        return guarded

    def _bind(self, socket_id: str, page: object) -> bool:
        """Bind a socket to a page; True if it has its page now."""
        socket = self._sockets.get(socket_id)
        if socket is None or socket.page not in ("", page) or not is_kept(page, socket.viewer):
            return False
        socket.page = str(page)
        return True

    async def _holds(self, socket: _Socket) -> bool:
        try:
            viewer = await renewed(socket.viewer, self._sessions)
        except RefusedError:
            return False
        except StatementError:
            # Nothing can be read: events and timers are refused, and what is shown grows old.
            return True
        return viewer.rights == socket.viewer.rights

    async def _close(self, socket_id: str, socket: _Socket) -> None:
        client = Client.instances.get(socket.page)
        if client is not None:
            with client:
                call(_RELOAD)
            await asyncio.sleep(LEAVE_S)
        await core.sio.disconnect(socket_id)
        self._sockets.pop(socket_id, None)
        if client is not None and client.id in Client.instances:
            client.delete()
        log.info("a page of the console was closed", user=socket.viewer.actor.name)


def is_kept(page: object, viewer: Viewer | None) -> bool:
    """Check that this server has the page, drawn for the viewer's session, and showing what they may see now;
    if not, its browser has to load it anew. ``viewer``: None where no login is required."""
    client = Client.instances.get(str(page))
    if client is None or viewer is None:
        return client is not None
    drawn_for = client.request.scope.get("viewer")
    if drawn_for is None or drawn_for.session != viewer.session:
        log.warning("a browser asked for a page of another session", user=viewer.actor.name)
        return False
    return bool(drawn_for.rights == viewer.rights)


async def _done(result: Any | Awaitable[Any]) -> Any:
    return await result if inspect.isawaitable(result) else result


DRAWN_AT_ONCE = 2
"""Pages drawn at once for one user; the next ones wait, and requests of others go between."""
UNSEEN_MAX = 50
"""Pages that were sent, and that no browser shows: of more the oldest are forgotten, and load anew when one
does."""
SOCKETS_MAX = 100


def _forget_unseen(user: Principal) -> None:
    def is_unseen(page: Client) -> bool:
        viewer = page.request.scope.get("viewer")
        is_own = isinstance(viewer, Viewer) and viewer.caller.principal == user
        return is_own and not page.has_socket_connection

    unseen = list(filter(is_unseen, Client.instances.values()))
    for page in unseen[: max(0, len(unseen) - UNSEEN_MAX)]:
        page.delete()


class ViewerMiddleware:
    """Middleware that makes the logged-in user the viewer of what the request draws, and puts them in its scope
    as ``viewer``."""

    def __init__(self, app: ASGIApp, sessions: SessionView) -> None:
        self._app = app
        self._sessions = sessions
        self._sockets: Counter[Principal] = Counter()
        self._drawing: WeakValueDictionary[Principal, asyncio.Semaphore] = WeakValueDictionary()

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
                await self._draw(user, scope, receive, send)

    async def _answer_socket(self, user: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        if self._sockets[user] >= SOCKETS_MAX:
            message = f"{user.name} has {SOCKETS_MAX} pages of the console open already"
            await refuse(RefusedError(ErrorKind.CONSOLE_SOCKET_LIMIT, message), scope, receive, send)
            return
        self._sockets[user] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._sockets[user] -= 1
            if not self._sockets[user]:
                del self._sockets[user]

    async def _draw(self, user: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in the user's turn, which is over when the answer begins: a slow reader of it does not hold
        up the next."""
        turn = self._drawing.setdefault(user, asyncio.Semaphore(DRAWN_AT_ONCE))
        await turn.acquire()
        with ExitStack() as held:
            held.callback(turn.release)

            async def sent(message: Message) -> None:
                held.close()
                await send(message)

            _forget_unseen(user)
            await self._app(scope, receive, sent)
