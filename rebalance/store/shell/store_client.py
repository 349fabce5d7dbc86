"""Writes and reads of store zones that outlive moves and kills: each attempt goes to one server, and what it
answers says whether another one follows. Each request says how long it is waited for.

A write keeps its id over all attempts, so it is applied once. It ends with success; with
``OutcomeUnknownError`` (40003) only where some attempt may have been applied and no later one told; and with
``StoreRefusedError`` where nothing was written.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import (
    EndpointSource,
    GroupError,
    GroupFullError,
    OutcomeUnknownError,
    Route,
    ValueRefusedError,
)
from rebalance.ports.write_refusals import ConditionFailedError, OperationAbandonedError
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.core.store_messages import (
    AnswerCode,
    CopyReadAnswer,
    CopyReadRequest,
    KeyRead,
    ReadRequest,
    StoreAnswer,
    WriteRequest,
)
from rebalance.store.shell.store_channel import (
    StoreChannel,
    StoreUnreachableError,
    names_server,
)

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

    @property
    def is_final(self) -> bool:
        """Asking again does not help until somebody has done something about it."""
        return self.code in FINAL


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
