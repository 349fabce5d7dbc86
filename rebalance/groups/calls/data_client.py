"""One attempt of a write or a get at one member of a partition's group, and the connections for it.

Keys in a group's store: ``g`` its identity, ``d/<key>`` a datum, ``o/<operation id>`` the mark of an applied or
abandoned write (under a lease, so marks expire), ``t`` the leader's time, ``f`` the generation of a group that
a recovery has founded; ``m/<copy>`` is a mirror's own. A write is one transaction: identity and generation
right, mark absent, terms met -> datum and mark, and marks of what it abandons. So it may be repeated at any
member, as often as wanted, while the mark lives.

``generation``, of all methods: of the group that the caller was sent to; None takes any.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aetcd import rpc

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.moves.safe_time import Beat, ReplicaProgress, decode_time
from rebalance.groups.calls.etcd_api import (
    IDENTITY_KEY,
    CallFailedError,
    FailureKind,
    absent,
    answer,
    delete,
    get,
    get_newest,
    items_of,
    open_channel,
    prefix_end,
    put,
    put_if_absent,
    unchanged,
)
from rebalance.groups.calls.group_guard import GroupGuard
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import ConditionFailedError, OperationAbandonedError

DATUM_PREFIX = b"d/"
OPERATION_PREFIX = b"o/"
SAFE_TIME_KEY = b"t"
MARKER_PREFIX = b"m/"
ABANDONED = b"abandoned"
"""Value of the mark of a write that was not applied, and must not be."""
LEASE_TTL_S = 120
LEASE_ROTATION_S = 40.0
"""A lease takes new marks for this long, so a mark lives for at least LEASE_TTL_S - LEASE_ROTATION_S."""
CLOSE_GRACE_S = 2.5
KEYS_PER_REQUEST = 100
"""etcd takes 128 operations in one request."""


@dataclass(frozen=True, slots=True)
class Datum:
    """``value`` is None for a key that was never put; ``revision`` is the group's own."""

    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """``revision``: of the group, at which it was applied. ``repeated``: by an earlier attempt or call.
    ``attempts``: of this call."""

    revision: int
    repeated: bool = False
    attempts: int = 1


class Connections:
    """One channel per client URL, shared by all partitions; closed when no partition lists the URL any more."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self._channels: dict[str, Any] = {}
        self._listed: dict[PartitionId, frozenset[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def channel(self, url: str) -> Any:
        channel = self._channels.get(url)
        if channel is None:
            channel = self._channels[url] = open_channel(url, self._tls)
        return channel

    def use(self, partition: PartitionId, urls: Iterable[str]) -> None:
        """The partition's present endpoints; channels that nobody lists any more are closed."""
        now = frozenset(urls)
        before = self._listed.get(partition, frozenset())
        if now == before:
            return
        self._listed[partition] = now
        for url in before - now:
            if not any(url in listed for listed in self._listed.values()):
                self._close(url)

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*self._closing, *(channel.close() for channel in channels))

    def _close(self, url: str) -> None:
        channel = self._channels.pop(url, None)
        if channel is not None:
            # Calls under way may end: a put that is cut off would have to be repeated.
            task = asyncio.create_task(channel.close(CLOSE_GRACE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class PartitionClient:
    """Puts and gets of one partition; keeps the lease that its marks are under."""

    def __init__(self, partition: PartitionId, connections: Connections) -> None:
        self._partition = partition
        self._connections = connections
        self._lease = 0
        self._lease_since = 0.0
        self._lease_lock = asyncio.Lock()

    async def put(
        self,
        url: str,
        key: bytes,
        value: bytes | None,
        operation_id: str,
        timeout_s: float,
        generation: int | None = None,
        terms: WriteTerms = ANY,
    ) -> AppliedWrite:
        """``value`` None deletes the key. Raises CallFailedError; where this attempt wrote nothing,
        WrongGroupError, WrongGenerationError, ConditionFailedError and OperationAbandonedError."""
        deadline = time.monotonic() + timeout_s
        guard = GroupGuard(self._partition, generation)
        lease = await self._current_lease(url, guard, deadline, is_new=bool(terms.abandons))
        datum, mark = DATUM_PREFIX + key, OPERATION_PREFIX + operation_id.encode()
        abandoned = (OPERATION_PREFIX + other.encode() for other in terms.abandons)
        marks = [put(mark, b"", lease), *(put_if_absent(other, ABANDONED, lease) for other in abandoned)]
        request = rpc.TxnRequest(
            compare=[*guard.compares(), absent(mark), *_conditions(datum, terms)],
            success=[delete(datum) if value is None else put(datum, value), *marks],
            failure=[get(mark), get(datum, keys_only=True), *guard.reads()],
        )
        try:
            reply = await answer(self._kv(url).Txn(request, timeout=_left_s(deadline)))
        except CallFailedError as failed:
            if failed.kind is FailureKind.LEASE_NOT_FOUND and self._lease == lease:
                self._lease = 0
            if failed.kind is FailureKind.NO_SPACE:
                applied = await self._mark(url, guard, mark, _left_s(deadline))
                if applied is not None and applied.value != ABANDONED:
                    # The very write that reached the quota is applied and answered with an error.
                    return AppliedWrite(applied.mod_revision)
            raise
        if reply.succeeded:
            return AppliedWrite(reply.header.revision)
        applied_marks, data, *identity = items_of(reply)
        guard.check(url, *identity)
        if applied_marks and applied_marks[0].value == ABANDONED:
            why = "a later write of its key named it, or it was refused"
            raise OperationAbandonedError(f"operation {operation_id} was abandoned: {why}")
        if applied_marks:
            return AppliedWrite(applied_marks[0].mod_revision, repeated=True)
        if terms.is_conditional:
            raise _failed_condition(terms, data[0].mod_revision if data else 0)
        raise CallFailedError(FailureKind.OTHER, "neither applied nor marked: repeated")

    async def get(self, url: str, key: bytes, timeout_s: float, generation: int | None = None) -> Datum:
        """Linearizable. Raises CallFailedError, WrongGroupError, WrongGenerationError."""
        guard = GroupGuard(self._partition, generation)
        (items,) = items_of(await self._read(url, guard, [get(DATUM_PREFIX + key)], timeout_s))
        return Datum(items[0].value, items[0].mod_revision) if items else Datum(None, 0)

    async def abandon(
        self, url: str, operation_id: str, timeout_s: float, generation: int | None = None
    ) -> AppliedWrite | None:
        """No attempt of the operation that is still on its way is carried out after this; the write, if one
        was before. Raises CallFailedError, WrongGroupError, WrongGenerationError."""
        deadline = time.monotonic() + timeout_s
        guard = GroupGuard(self._partition, generation)
        lease = await self._current_lease(url, guard, deadline, is_new=True)
        mark = OPERATION_PREFIX + operation_id.encode()
        request = rpc.TxnRequest(
            compare=[*guard.compares(), absent(mark)],
            success=[put(mark, ABANDONED, lease)],
            failure=[get(mark), *guard.reads()],
        )
        reply = await answer(self._kv(url).Txn(request, timeout=_left_s(deadline)))
        if reply.succeeded:
            return None
        marks, *identity = items_of(reply)
        guard.check(url, *identity)
        return None if marks[0].value == ABANDONED else AppliedWrite(marks[0].mod_revision, repeated=True)

    async def _mark(self, url: str, guard: GroupGuard, mark: bytes, timeout_s: float) -> Any | None:
        (marks,) = items_of(await self._read(url, guard, [get(mark)], timeout_s))
        return marks[0] if marks else None

    async def revision(self, url: str, timeout_s: float, generation: int | None = None) -> int:
        """The group's revision as of now, linearizably. Raises CallFailedError, WrongGroupError,
        WrongGenerationError."""
        guard = GroupGuard(self._partition, generation)
        return int((await self._read(url, guard, [get(IDENTITY_KEY)], timeout_s)).header.revision)

    async def progress(
        self, url: str, timeout_s: float, *, mirrored: bool, generation: int | None = None
    ) -> ReplicaProgress:
        """Up to where the replica itself may be read. What a voter has applied is safe; of a mirror it is
        what it has repeated: its store could have gone further by itself, as when leases end while its node
        stands still. A mirror that goes on from an earlier generation has the later one once it has repeated
        its founding. Raises CallFailedError, WrongGroupError, WrongGenerationError."""
        guard = GroupGuard(self._partition, generation)
        reads = [get(SAFE_TIME_KEY, serializable=True), get_newest(MARKER_PREFIX, serializable=True)]
        reply = await self._read(url, guard, reads, timeout_s, serializable=True)
        beats, markers = items_of(reply)
        beat = Beat(decode_time(beats[0].value), beats[0].mod_revision) if beats else Beat()
        if mirrored and markers and marked_revision(markers[0]) != markers[0].mod_revision:
            return ReplicaProgress(0, Beat())
        repeated = max(markers[0].mod_revision if markers else 0, beat.revision)
        return ReplicaProgress(repeated if mirrored else reply.header.revision, beat)

    async def get_at(self, url: str, key: bytes, revision: int, timeout_s: float) -> Datum:
        """Read ``key`` as of ``revision``, from the replica alone; value None, revision 0: no such key then.
        Raises CallFailedError (COMPACTED)."""
        request = rpc.RangeRequest(key=DATUM_PREFIX + key, revision=revision, serializable=True)
        reply = await answer(self._kv(url).Range(request, timeout=timeout_s))
        return Datum(reply.kvs[0].value, reply.kvs[0].mod_revision) if reply.kvs else Datum(None, 0)

    async def own_keys(self, url: str, after: bytes, limit: int, timeout_s: float) -> list[bytes]:
        """List at most ``limit`` keys that the replica itself has now, in order, from the one after ``after``
        on (empty: from the first). Raises CallFailedError, WrongGroupError."""
        data = rpc.RangeRequest(
            key=DATUM_PREFIX + after + (b"\0" if after else b""),
            range_end=prefix_end(DATUM_PREFIX),
            limit=limit,
            keys_only=True,
            serializable=True,
        )
        (items,) = await self._own(url, [rpc.RequestOp(request_range=data)], timeout_s)
        return [item.key.removeprefix(DATUM_PREFIX) for item in items]

    async def own_values(self, url: str, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        """Read the values that the replica itself has now, in the order of ``keys``; None: no such key. Raises
        CallFailedError, WrongGroupError."""
        values: list[bytes | None] = []
        for start in range(0, len(keys) or 1, KEYS_PER_REQUEST):
            reads = [
                get(DATUM_PREFIX + key, serializable=True) for key in keys[start : start + KEYS_PER_REQUEST]
            ]
            values += [items[0].value if items else None for items in await self._own(url, reads, timeout_s)]
        return values

    async def _own(self, url: str, reads: Sequence[Any], timeout_s: float) -> list[Any]:
        """Answers of one replica of our group, which asks nobody else."""
        guard = GroupGuard(self._partition)
        return items_of(await self._read(url, guard, reads, timeout_s, serializable=True))

    async def _read(
        self,
        url: str,
        guard: GroupGuard,
        reads: Sequence[Any],
        timeout_s: float,
        *,
        serializable: bool = False,
    ) -> Any:
        """The reply, whose responses are those of ``reads``. ``serializable``: all of them are."""
        request = rpc.TxnRequest(
            compare=guard.compares(), success=reads, failure=guard.reads(serializable=serializable)
        )
        reply = await answer(self._kv(url).Txn(request, timeout=timeout_s))
        if not reply.succeeded:
            guard.check(url, *items_of(reply))
            raise CallFailedError(FailureKind.OTHER, "neither of this group nor of another one: repeated")
        return reply

    async def _current_lease(self, url: str, guard: GroupGuard, deadline: float, *, is_new: bool) -> int:
        """``is_new``: one that ends after all that were given before, so that the mark of an abandoned write
        outlives the lease which that write itself needs."""
        try:
            async with asyncio.timeout(_left_s(deadline)):
                await self._lease_lock.acquire()
        except TimeoutError as error:
            raise CallFailedError(FailureKind.NO_ANSWER, "no lease in time") from error
        try:
            is_fresh = time.monotonic() - self._lease_since < LEASE_ROTATION_S
            if is_new or not (self._lease and is_fresh):
                # No leases are left behind in other groups.
                await self._read(url, guard, [get(IDENTITY_KEY)], _left_s(deadline))
                stub = rpc.LeaseStub(self._connections.channel(url))
                grant = rpc.LeaseGrantRequest(TTL=LEASE_TTL_S)
                reply = await answer(stub.LeaseGrant(grant, timeout=_left_s(deadline)))
                self._lease, self._lease_since = reply.ID, time.monotonic()
            return self._lease
        finally:
            self._lease_lock.release()

    def _kv(self, url: str) -> Any:
        return rpc.KVStub(self._connections.channel(url))


def marked_revision(marker: Any) -> int:
    """The group's revision that a mirror meant to repeat when it wrote its marker; 0 for what is no marker."""
    return int(marker.value) if marker.value.isdigit() else 0


def _left_s(deadline: float) -> float:
    """A call that begins too late fails at once."""
    return max(deadline - time.monotonic(), 0.0)


def _conditions(datum: bytes, terms: WriteTerms) -> list[Any]:
    if terms.if_absent:
        return [absent(datum)]
    return [] if terms.if_revision is None else [unchanged(datum, terms.if_revision)]


def _failed_condition(terms: WriteTerms, revision: int) -> ConditionFailedError:
    """``revision``: of the key's last write; 0: there is no such key."""
    now = f"is at revision {revision}" if revision else "does not exist"
    wanted = "no such key" if terms.if_absent else f"revision {terms.if_revision}"
    return ConditionFailedError(f"the key {now}; wanted: {wanted}", wants_absence=terms.if_absent)
