"""Single attempts at the servers of a store zone: the answer of one says whether another attempt follows. Each
request says how long it is waited for.

A write ends with ``OutcomeUnknownError`` (40003) only where some attempt may have been applied and no later one
told; and with ``StoreRefusedError`` where nothing was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.data.attempts import AttemptFailedError, DataRequest
from rebalance.groups.calls.data_client import AppliedWrite, Datum
from rebalance.groups.calls.group_checks import CopyUnreadError
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import (
    ConditionFailedError,
    GroupError,
    GroupFullError,
    OperationAbandonedError,
    OutcomeUnknownError,
    Route,
    ValueRefusedError,
)
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
from rebalance.store.shell.store_client import StoreChannel, StoreUnreachableError, names_server

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
PAGE_BYTES = 256 << 10


class StoreRefusedError(GroupError):
    """A request of which nothing was written or read. ``code``: of the last answer; NOT_SERVING: no server was
    reached."""

    def __init__(self, code: AnswerCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreAttempts:
    """Each raises AttemptFailedError, StoreRefusedError, and in its place GroupFullError where there is no room
    and ValueRefusedError where a value is too large."""

    limits_s = (1.0, 2.0, 4.0)
    """A server that is alive answers, or holds the request until an exchange is over; a repeated write does no
    harm."""

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        self._channels: dict[str, StoreChannel] = {}

    async def put(
        self, request: DataRequest, key: bytes, value: bytes | None, operation_id: str, terms: WriteTerms
    ) -> AppliedWrite:
        """Raises ConditionFailedError, OperationAbandonedError and OutcomeUnknownError besides."""
        reads: tuple[KeyRead, ...] = ()
        if terms.is_conditional:
            reads = (KeyRead(key, await self._wanted(request, key, terms)),)
        zone_id, number = request.partition
        message = WriteRequest(
            request=0,
            write=WriteId(operation_id),
            zone=zone_id,
            partition=number,
            changes=(KeyChange(key, value),),
            reads=reads,
            abandons=tuple(map(WriteId, terms.abandons)),
        )
        answer = await self._answer(request, message, terms)
        return AppliedWrite(answer.position.counter if answer.position is not None else 0, answer.repeated)

    async def get(self, request: DataRequest, key: bytes) -> Datum:
        answer = await self._answer(request, ReadRequest(0, *request.partition, key))
        position = answer.position
        return Datum(answer.value, position.counter if position is not None and answer.value is not None else 0)

    def unasked(self, request: DataRequest) -> GroupError:
        why = "" if request.route.voters else ": no server leads it"
        message = f"partition {request.partition}: no server could be reached in time{why}"
        return StoreRefusedError(AnswerCode.NOT_SERVING, message)

    def channel(self, url: str) -> StoreChannel:
        channel = self._channels.get(url)
        if channel is None:
            gone = [known for known, other in self._channels.items() if other.is_idle]
            for known in gone:
                del self._channels[known]
            channel = self._channels[url] = StoreChannel(url, self._tls)
        return channel

    async def close(self) -> None:
        channels = tuple(self._channels.values())
        await asyncio.gather(*(channel.close() for channel in channels))

    async def _wanted(self, request: DataRequest, key: bytes, terms: WriteTerms) -> StorePosition:
        """The position at which the row must be. A row that has another revision now may have it by this very
        write, so that the primary is asked all the same, for a position that no row has."""
        if terms.if_revision is None:
            return NO_RECORD
        row = await self._answer(request, ReadRequest(0, *request.partition, key))
        is_there = row.value is not None and row.position is not None
        if is_there and row.position is not None and row.position.counter == terms.if_revision:
            return row.position
        return StorePosition(0, terms.if_revision)

    async def _answer(
        self, request: DataRequest, message: ReadRequest | WriteRequest, terms: WriteTerms = ANY
    ) -> StoreAnswer:
        """The answer is DONE."""
        left_s, partition, writes = request.left_s, request.partition, isinstance(message, WriteRequest)
        timed = replace(message, left_ms=max(int(left_s * 1000), 1))
        try:
            answer = await self.channel(request.url).ask(timed, min(request.limit_s, left_s))
        except StoreUnreachableError as error:
            request.may_be_done |= writes and error.was_sent
            refusal = partial(_refused, AnswerCode.NOT_SERVING)
            raise AttemptFailedError(str(error), refusal, is_well=True) from error
        code = answer.code
        if code is AnswerCode.DONE:
            return answer
        if answer.abandoned:
            raise OperationAbandonedError(f"partition {partition}: {answer.detail}")
        if code is AnswerCode.CONFLICT and terms.is_conditional:
            raise _failed_condition(partition, terms, may_be_done=request.may_be_done)
        request.may_be_done |= writes and code is AnswerCode.UNKNOWN
        reason = f"{code.label}: {answer.detail or request.url}"
        if code in FINAL and not request.may_be_done:
            raise _refused(code, f"partition {partition}: {reason}")
        leader = _url_of(request.route, answer.primary)
        raise AttemptFailedError(reason, partial(_refused, code), is_well=True, leader=leader)


class StoreCopyReads:
    """A ``CopyReads`` of one partition: each copy is read from its own server. Both raise CopyUnreadError."""

    def __init__(self, stores: StoreAttempts, partition: PartitionId) -> None:
        self._stores = stores
        self._partition = partition

    async def own_keys(self, url: str, after: bytes, limit: int, timeout_s: float) -> list[bytes]:
        keys: list[bytes] = []
        while len(keys) < limit:
            page = (await self._asked(url, after, timeout_s, PAGE_BYTES)).keys
            if not page:
                break
            keys += page
            after = page[-1]
        return keys[:limit]

    async def own_values(self, url: str, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        answers = await asyncio.gather(*(self._asked(url, key, timeout_s) for key in keys))
        return [answer.value for answer in answers]

    async def _asked(self, url: str, key: bytes, timeout_s: float, keys_bytes: int = 0) -> CopyReadAnswer:
        request = CopyReadRequest(0, *self._partition, key, keys_bytes)
        try:
            return await self._stores.channel(url).read_copy(request, timeout_s)
        except StoreUnreachableError as error:
            raise CopyUnreadError(str(error)) from error


def _url_of(route: Route, server: str) -> str:
    return next((url for url in route.voters if names_server(url, server)), "") if server else ""


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


def _refused(code: AnswerCode, message: str) -> GroupError:
    if code is AnswerCode.NO_ROOM:
        return GroupFullError(message)
    if code is AnswerCode.TOO_LARGE:
        return ValueRefusedError(message)
    return StoreRefusedError(code, message)
