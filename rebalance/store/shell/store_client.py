"""Writes and reads of store zones that outlive moves and kills: each attempt goes to one server, and what it
answers says whether another one follows. Each request says how long it is waited for.

A write keeps its id over all attempts, so it is applied once. It ends with success; with
``OutcomeUnknownError`` (40003) only where some attempt may have been applied and no later one told; and with
``StoreRefusedError`` where nothing was written. On the connection to one server requests go out as they come,
and answers come in any order.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import (
    ConditionFailedError,
    EndpointSource,
    GroupError,
    GroupFullError,
    OperationAbandonedError,
    OutcomeUnknownError,
    Route,
    ValueRefusedError,
)
from rebalance.store.core.log_records import KeyChange, PartitionKey, WriteId
from rebalance.store.core.store_messages import (
    AnswerCode,
    CopiesAnswer,
    CopiesRequest,
    CopyReadAnswer,
    CopyReadRequest,
    KeyRead,
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


log = logging.getLogger(__name__)

TIME_LIMIT_S = 15.0
ATTEMPT_LIMITS_S = (1.0, 2.0, 4.0)
"""A server that is alive answers, or holds the request until an exchange is over; a repeated write does no
harm."""
RETRY = Backoff(0.02, 0.25, jitter=0.5)

FINAL = frozenset(
    {
        AnswerCode.CONFLICT,
        AnswerCode.TOO_OLD,
        AnswerCode.NO_ROOM,
        AnswerCode.TOO_LARGE,
        AnswerCode.RESTING,
        AnswerCode.LOST,
    }
)
"""Codes after which nothing was done, and the same request would be refused again."""


class StoreRefusedError(GroupError):
    """A request of which nothing was written or read. ``code``: of the last answer; NOT_SERVING: no server was
    reached."""

    def __init__(self, message: str, code: AnswerCode) -> None:
        super().__init__(message)
        self.code = code


class StoreClient:
    """One per process and event loop; ``close`` it. ``source``: the servers of a partition by their
    ``server_url``, the primary first."""

    def __init__(
        self, source: EndpointSource, *, time_limit_s: float = TIME_LIMIT_S, tls: TlsFiles | None = None
    ) -> None:
        self._source = source
        self._time_limit_s = time_limit_s
        self._tls = tls
        self._channels: dict[str, StoreChannel] = {}
        self._random = random.Random()

    async def close(self) -> None:
        channels = tuple(self._channels.values())
        await asyncio.gather(*(channel.close() for channel in channels))

    async def write(
        self,
        partition: PartitionId,
        changes: Sequence[KeyChange],
        write: str,
        *,
        limit_s: float | None = None,
        terms: WriteTerms = ANY,
    ) -> StoreAnswer:
        """Applied once for one ``write``. The answer is DONE; ``repeated``: an earlier attempt, or an earlier
        call, had done it. ``terms`` are of the only change, if they have a condition.

        Raises OutcomeUnknownError, StoreRefusedError, and of it GroupFullError and ValueRefusedError in its
        place where there is no room and where a value is too large; ConditionFailedError,
        OperationAbandonedError, and ValueError for an id that is empty or abandons itself."""
        terms.check_operation(write)
        deadline = time.monotonic() + (self._time_limit_s if limit_s is None else limit_s)
        reads: tuple[KeyRead, ...] = ()
        if terms.is_conditional:
            (change,) = changes
            reads = (KeyRead(change.key, await self._wanted(partition, change.key, terms, deadline)),)
        request = WriteRequest(
            request=0,
            write=WriteId(write),
            zone=partition.zone_id,
            partition=partition.partition,
            changes=tuple(changes),
            reads=reads,
            abandons=tuple(map(WriteId, terms.abandons)),
        )
        return await self._answer(partition, request, deadline - time.monotonic(), terms)

    async def _wanted(
        self, partition: PartitionId, key: bytes, terms: WriteTerms, deadline: float
    ) -> StorePosition:
        """The position at which the row must be. A row that has another revision now may have it by this very
        write, so that the primary is asked all the same, for a position that no row has."""
        if terms.if_revision is None:
            return NO_RECORD
        row = await self.read(partition, key, limit_s=deadline - time.monotonic())
        is_there = row.value is not None and row.position is not None
        if is_there and row.position is not None and row.position.counter == terms.if_revision:
            return row.position
        return StorePosition(0, terms.if_revision)

    async def read(self, partition: PartitionId, key: bytes, *, limit_s: float | None = None) -> StoreAnswer:
        """Linearizable. The answer is DONE; ``value`` None: there is no such key. Raises StoreRefusedError."""
        request = ReadRequest(0, partition.zone_id, partition.partition, key)
        return await self._answer(partition, request, limit_s)

    async def read_copy(self, url: str, request: CopyReadRequest, limit_s: float) -> CopyReadAnswer:
        """One attempt at one server. Raises StoreUnreachableError."""
        return await self._channel(url).read_copy(request, limit_s)

    async def _answer(
        self,
        partition: PartitionId,
        request: ReadRequest | WriteRequest,
        limit_s: float | None,
        terms: WriteTerms = ANY,
    ) -> StoreAnswer:
        limit_s = self._time_limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        route, retry, attempts, turn = self._source.route(partition), RETRY, 0, 0
        reason, code, may_be_done = "", AnswerCode.NOT_SERVING, False
        while (remaining_s := deadline - time.monotonic()) > 0:
            if not route.voters:
                await self._source.wait_for_change(partition, route, min(remaining_s, 1.0))
                route = self._source.route(partition)
                continue
            url = route.voters[turn % len(route.voters)]
            call_s = min(ATTEMPT_LIMITS_S[min(attempts, len(ATTEMPT_LIMITS_S) - 1)], remaining_s)
            attempts, turn = attempts + 1, turn + 1
            try:
                timed = replace(request, left_ms=max(int(remaining_s * 1000), 1))
                answer = await self._channel(url).ask(timed, call_s)
            except StoreUnreachableError as error:
                reason, code = str(error), AnswerCode.NOT_SERVING
                may_be_done |= error.was_sent
            else:
                if answer.code is AnswerCode.DONE:
                    return answer
                reason, code = f"{answer.code.label}: {answer.detail or url}", answer.code
                if answer.abandoned:
                    raise OperationAbandonedError(f"partition {partition}: {answer.detail}")
                if code is AnswerCode.CONFLICT and terms.is_conditional:
                    raise _failed_condition(partition, terms, may_be_done=may_be_done)
                may_be_done |= code is AnswerCode.UNKNOWN
                turn = _turn_of(route, answer.primary, turn)
                if code in FINAL and not (may_be_done and isinstance(request, WriteRequest)):
                    raise _refused(partition, code, reason)
            log.debug("attempt %d of partition %s failed: %s", attempts, partition, reason)
            self._source.doubt(partition)
            # Another server is asked at once: it may lead by now. When all were asked, a pause lets the
            # exchange end.
            if turn >= len(route.voters):
                retry = retry.failed()
                pause_s = min(retry.delay_s(self._random.random()), max(deadline - time.monotonic(), 0))
                await self._source.wait_for_change(partition, route, pause_s)
                turn = 0
            if (current := self._source.route(partition)) != route:
                route, turn = current, 0
        if not attempts:
            raise _refused(
                partition,
                code,
                "no server could be reached in time" + ("" if route.voters else ": no server leads it"),
            )
        message = f"no answer within {limit_s:.3g} s after {attempts} attempts; last: {reason}"
        if may_be_done and isinstance(request, WriteRequest):
            raise OutcomeUnknownError(f"partition {partition}: {message}")
        raise _refused(partition, code, message)

    def _channel(self, url: str) -> StoreChannel:
        channel = self._channels.get(url)
        if channel is None:
            gone = [known for known, other in self._channels.items() if other.is_idle]
            for known in gone:
                del self._channels[known]
            channel = self._channels[url] = StoreChannel(url, self._tls)
        return channel


def _turn_of(route: Route, primary: str, turn: int) -> int:
    """Return the turn of the server that the one before named, if it comes later."""
    later = range(turn, len(route.voters)) if primary else range(0)
    return next((place for place in later if names_server(route.voters[place], primary)), turn)


def _failed_condition(partition: PartitionId, terms: WriteTerms, *, may_be_done: bool) -> GroupError:
    """Return the error of a write whose condition failed; unknown where an earlier attempt may yet be done, as
    it is once somebody has deleted the key. A position never comes again."""
    if not terms.if_absent:
        message = f"partition {partition}: the key is not at revision {terms.if_revision}, or is being written"
        return ConditionFailedError(message, wants_absence=False)
    message = f"partition {partition}: the key exists"
    if may_be_done:
        return OutcomeUnknownError(f"{message}, and an earlier attempt may yet be carried out")
    return ConditionFailedError(message, wants_absence=True)


def _refused(partition: PartitionId, code: AnswerCode, reason: str) -> GroupError:
    message = f"partition {partition}: {reason}"
    if code is AnswerCode.NO_ROOM:
        return GroupFullError(message)
    if code is AnswerCode.TOO_LARGE:
        return ValueRefusedError(message)
    return StoreRefusedError(message, code)
