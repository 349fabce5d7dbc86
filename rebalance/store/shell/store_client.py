"""A client's connection to one store server: requests go out as they come, and answers come in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from rebalance.hosting.tls import TlsFiles
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.store_messages import (
    CopiesAnswer,
    CopiesRequest,
    CopyReadAnswer,
    CopyReadRequest,
    ReadRequest,
    StoreAnswer,
    StoreHello,
    WriteRequest,
)
from rebalance.store.shell.frame_connection import FrameConnection, StoreRefused, WireMessage

SCHEME = "store"
CLIENT = StoreHello("", 0, "")
"""A client has no name."""
DIAL_S = 2.0

ChannelRequest = ReadRequest | WriteRequest
ChannelAnswer = StoreAnswer | CopiesAnswer | CopyReadAnswer
A = TypeVar("A", bound=ChannelAnswer)


class StoreUnreachableError(Exception):
    """A request without an answer. ``was_sent``: the request may have arrived."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


def server_url(host: str, port: int, name: str = "", incarnation: str = "") -> str:
    """Return the address of one incarnation of a server; empty: any that listens there."""
    place = f"[{host}]" if ":" in host else host
    return f"{SCHEME}://{place}:{port}/{quote(name, safe='')}/{quote(incarnation, safe='')}"


def names_server(url: str, name: str) -> bool:
    """Check that the address is of a server of that name."""
    return f"/{quote(name, safe='')}/" in urlsplit(url).path


class StoreChannel:
    """Dials when it is first asked, and again after a connection was lost. ``url``: of ``server_url``; another
    incarnation that answers there is not asked anything. Without an incarnation any is."""

    def __init__(self, url: str, tls: TlsFiles | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.hostname or not parts.port:
            raise ValueError(f"a store server is at {SCHEME}://HOST:PORT/NAME/INCARNATION, not at {url}")
        self.url = url
        self._address = parts.hostname, parts.port
        self._incarnation = unquote(parts.path.rpartition("/")[2])
        self._tls = tls
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[ChannelAnswer]] = {}
        self._connection: FrameConnection | None = None
        self._greeted: asyncio.Future[FrameConnection] | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._is_flush_due = False

    async def ask(self, request: ChannelRequest, limit_s: float) -> StoreAnswer:
        """``request`` gets a number of this connection. Raises StoreUnreachableError."""
        return await self._asked(request, limit_s, StoreAnswer)

    async def copies(self, limit_s: float, refills: tuple[PartitionKey, ...] = ()) -> CopiesAnswer:
        """All that the server has; ``refills`` are asked of it besides. Raises StoreUnreachableError."""
        return await self._asked(CopiesRequest(0, refills), limit_s, CopiesAnswer)

    async def read_copy(self, request: CopyReadRequest, limit_s: float) -> CopyReadAnswer:
        """Read the server's own copy, as ``request`` asks. Raises StoreUnreachableError."""
        return await self._asked(request, limit_s, CopyReadAnswer)

    async def _asked(
        self, request: ChannelRequest | CopiesRequest | CopyReadRequest, limit_s: float, kind: type[A]
    ) -> A:
        was_sent = False
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        answer: asyncio.Future[ChannelAnswer] = loop.create_future()
        try:
            async with asyncio.timeout(limit_s):
                connection = self._connection
                if connection is None:
                    connection = await asyncio.shield(self._standing())
                self._waiting[number] = answer
                was_sent = True
                connection.send(replace(request, request=number))
                if not self._is_flush_due:
                    # All that is asked in one round of the loop goes in one frame.
                    self._is_flush_due = True
                    loop.call_soon(self._flush)
                given = await answer
                assert isinstance(given, kind)
                return given
        except TimeoutError:
            message = f"{self.url}: no answer within {limit_s:.3g} s"
            raise StoreUnreachableError(message, was_sent=was_sent) from None
        except ConnectionError as error:
            raise StoreUnreachableError(f"{self.url}: {error}", was_sent=was_sent) from error
        finally:
            self._waiting.pop(number, None)

    @property
    def is_idle(self) -> bool:
        """Check that the connection neither stands nor is being dialled."""
        return self._connection is None and self._greeted is None

    async def close(self) -> None:
        """Close the channel; requests under way fail."""
        if self._dialling is not None:
            self._dialling.cancel()
            with suppress(asyncio.CancelledError):
                await self._dialling
        if self._connection is not None:
            self._connection.abort()

    # Of the connection's owner

    def opened(self, connection: FrameConnection) -> None:
        connection.send(CLIENT)
        connection.flush()

    def received(self, connection: FrameConnection, messages: Sequence[WireMessage]) -> None:
        for message in messages:
            match message:
                case StoreAnswer() | CopiesAnswer() | CopyReadAnswer():
                    answer = self._waiting.pop(message.request, None)
                    if answer is not None and not answer.done():
                        answer.set_result(message)
                case StoreHello():
                    self._welcomed(connection, message)
                case StoreRefused():
                    connection.close()
                case _:
                    pass  # a later build says more to clients than this one knows of

    def lost(self, connection: FrameConnection) -> None:
        refusal = connection.refusal
        reason = f"{refusal.code.value}: accepted: {refusal.accepted}" if refusal else "the connection was lost"
        if self._connection is connection:
            self._connection = None
            waiting, self._waiting = self._waiting, {}
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(reason))
        else:
            self._end_greeting(ConnectionError(reason))

    # Dialling

    def _standing(self) -> asyncio.Future[FrameConnection]:
        """Return the dialling under way, or begin one."""
        if self._greeted is None:
            loop = asyncio.get_running_loop()
            self._greeted = loop.create_future()
            # Whoever asked may have gone.
            self._greeted.add_done_callback(lambda greeted: greeted.cancelled() or greeted.exception())
            self._dialling = loop.create_task(self._dial())
        return self._greeted

    async def _dial(self) -> None:
        connection, greeted = FrameConnection(self, lambda: 0), self._standing()
        try:
            async with asyncio.timeout(DIAL_S):
                context = None if self._tls is None else self._tls.context()
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: connection, *self._address, ssl=context)
                await asyncio.wait((greeted,))
        except TimeoutError:
            self._end_greeting(ConnectionError(f"no connection within {DIAL_S:g} s"))
        except (OSError, ValueError) as error:
            # ValueError: files of a certificate that do not belong together.
            self._end_greeting(ConnectionError(str(error)))
        finally:
            if self._connection is not connection:
                connection.close()

    def _welcomed(self, connection: FrameConnection, hello: StoreHello) -> None:
        if self._incarnation not in ("", hello.incarnation):
            self._end_greeting(ConnectionError(f"incarnation {hello.incarnation} of {hello.name} answers"))
            connection.close()
            return
        self._connection = connection
        greeted, self._greeted = self._greeted, None
        if greeted is not None and not greeted.done():
            greeted.set_result(connection)

    def _end_greeting(self, error: ConnectionError) -> None:
        greeted, self._greeted = self._greeted, None
        if greeted is not None and not greeted.done():
            greeted.set_exception(error)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._connection is not None:
            self._connection.flush()
