"""Room that one user may hold of the console: drawing takes time of all, pages memory, sockets files."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from nicegui import Client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.viewer import Viewer
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.principals import Principal

DRAWN_AT_ONCE = 2
"""Pages drawn at once for one user; the next ones wait, and requests of others go between."""
UNSEEN_MAX = 50
"""Pages that were sent, and that no browser shows: of more the oldest are forgotten, and load anew when one
does."""
SOCKETS_MAX = 100


class ViewerRoom:
    """One per server."""

    def __init__(self) -> None:
        self._sockets: Counter[Principal] = Counter()
        self._drawing: WeakValueDictionary[Principal, asyncio.Semaphore] = WeakValueDictionary()

    @contextmanager
    def socket(self, user: Principal) -> Iterator[None]:
        """Raises RefusedError (CONSOLE_SOCKET_LIMIT)."""
        if self._sockets[user] >= SOCKETS_MAX:
            message = f"{user.name} has {SOCKETS_MAX} pages of the console open already"
            raise RefusedError(ErrorKind.CONSOLE_SOCKET_LIMIT, message)
        self._sockets[user] += 1
        try:
            yield
        finally:
            self._sockets[user] -= 1
            if not self._sockets[user]:
                del self._sockets[user]

    async def draw(self, user: Principal, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """``app`` answers when it is its turn, which is over when the answer begins: who reads it slowly keeps
        nobody waiting."""
        turn = self._drawing.setdefault(user, asyncio.Semaphore(DRAWN_AT_ONCE))
        await turn.acquire()
        is_over = False

        def leave() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                turn.release()

        async def sent(message: Message) -> None:
            leave()
            await send(message)

        try:
            _forget_unseen(user)
            await app(scope, receive, sent)
        finally:
            leave()


def _forget_unseen(user: Principal) -> None:
    unseen = [
        page for page in Client.instances.values() if not page.has_socket_connection and _is_of(page, user)
    ]
    for page in unseen[: max(0, len(unseen) - UNSEEN_MAX)]:
        page.delete()


def _is_of(page: Client, user: Principal) -> bool:
    viewer = page.request.scope.get("viewer")
    return isinstance(viewer, Viewer) and viewer.caller.principal == user
