"""The metastore's contract in memory: for the simulator and for unit tests, never a product mode."""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import takewhile

from sortedcontainers import SortedDict

from rebalance.core.keyspace.txn import (
    OPERATIONS_MAX,
    Compare,
    CompareOp,
    Delete,
    DeleteRange,
    Get,
    KeyValue,
    Operation,
    Put,
    Txn,
    TxnResult,
    operation_count,
)
from rebalance.ports.metastore import (
    Condition,
    HistoryGoneError,
    KeyEvent,
    LeaseLostError,
    MetastoreUnavailableError,
    Newest,
    Snapshot,
    WatchBatch,
    WatchReset,
)

_HOLDS: dict[CompareOp, Callable[[int, int], bool]] = {
    CompareOp.EQUAL: operator.eq,
    CompareOp.LESS: operator.lt,
    CompareOp.GREATER: operator.gt,
}


HISTORY_REVISIONS = 1_000
"""Revisions back to which it can be read; etcd keeps them by time."""

Observer = Callable[[int, tuple[KeyEvent, ...]], None]


class MemoryMetastore:
    """One store in one event loop. ``pause``/``resume`` stand for a metastore that does not answer."""

    def __init__(self) -> None:
        self._items: SortedDict[str, KeyValue] = SortedDict()
        self.revision = 1
        self._observers: dict[str, list[Observer]] = {}
        self._leases: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._leased: dict[int, list[str]] = {}
        self._lease_ids = 0
        self.is_paused = False
        self._before: deque[tuple[int, dict[str, KeyValue | None]]] = deque(maxlen=HISTORY_REVISIONS)

    def observe(self, observer: Observer, prefix: str = "") -> Callable[[], None]:
        """``observer`` hears of each new revision that changes a key below ``prefix``, and of those changes,
        before any watch does; the returned function ends that."""
        observers = self._observers.setdefault(prefix, [])
        observers.append(observer)
        return lambda: observers.remove(observer)

    def peek(self, key: str) -> KeyValue | None:
        """The stored item, also while the store is paused: for auditors."""
        item: KeyValue | None = self._items.get(key)
        return item

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    async def get(self, key: str) -> KeyValue | None:
        return self.get_now(key)

    async def range(self, prefix: str) -> Snapshot:
        return self.range_now(prefix)

    async def range_at(self, prefix: str, revision: int) -> Snapshot:
        self._check_answers()
        if self._before and revision < self._before[0][0] - 1:
            raise HistoryGoneError(f"revision {revision} is compacted")
        items = {item.key: item for item in self._below(prefix)}
        for at, before in reversed(self._before):
            if at <= revision:
                break
            for key, item in before.items():
                if not key.startswith(prefix):
                    continue
                if item is None:
                    items.pop(key, None)
                else:
                    items[key] = item
        return Snapshot(revision, tuple(items[key] for key in sorted(items)))

    async def newest(self, prefix: str) -> Newest:
        return self.newest_now(prefix)

    async def commit(self, txn: Txn) -> TxnResult:
        return self.commit_now(txn)

    def get_now(self, key: str) -> KeyValue | None:
        self._check_answers()
        return self.peek(key)

    def range_now(self, prefix: str) -> Snapshot:
        self._check_answers()
        return Snapshot(self.revision, tuple(self._below(prefix)))

    def newest_now(self, prefix: str) -> Newest:
        self._check_answers()
        revisions = [item.mod_revision for item in self._below(prefix)]
        return Newest(len(revisions), max(revisions, default=0))

    def commit_now(self, txn: Txn) -> TxnResult:
        self._check_answers()
        count = operation_count(txn)
        if count > OPERATIONS_MAX:
            raise ValueError(f"a transaction of {count} operations: {OPERATIONS_MAX} is the most")
        for put in _puts(txn):
            if put.lease and put.lease not in self._leases:
                raise LeaseLostError(f"lease {put.lease} is no more")
        events: list[KeyEvent] = []
        succeeded, responses = self._run(txn, self.revision + 1, events)
        self._publish(events)
        return _with_revision(TxnResult(succeeded, 0, responses), self.revision)

    async def watch(self, prefix: str) -> AsyncIterator[WatchReset | WatchBatch]:
        queue: asyncio.Queue[WatchBatch] = asyncio.Queue()
        forget = self.observe(lambda revision, events: queue.put_nowait(WatchBatch(revision, events)), prefix)
        try:
            yield WatchReset(Snapshot(self.revision, tuple(self._below(prefix))))
            while True:
                yield await queue.get()
        finally:
            forget()

    async def grant_lease(self, ttl_s: int) -> int:
        return self.grant_lease_now(ttl_s)

    async def keep_lease(self, lease: int, within_s: float) -> None:
        self.keep_lease_now(lease)

    async def revoke_lease(self, lease: int) -> None:
        self.revoke_lease_now(lease)

    def grant_lease_now(self, ttl_s: int) -> int:
        self._check_answers()
        self._lease_ids += 1
        self._leases[self._lease_ids] = (ttl_s, self._expiry(self._lease_ids, ttl_s))
        return self._lease_ids

    def keep_lease_now(self, lease: int) -> None:
        self._check_answers()
        if lease not in self._leases:
            raise LeaseLostError(f"lease {lease} is no more")
        ttl_s, timer = self._leases[lease]
        timer.cancel()
        self._leases[lease] = (ttl_s, self._expiry(lease, ttl_s))

    def revoke_lease_now(self, lease: int) -> None:
        entry = self._leases.pop(lease, None)
        if entry is None:
            return
        entry[1].cancel()
        events: list[KeyEvent] = []
        for key in self._leased.pop(lease, ()):
            held = self._items.get(key)
            if held is not None and held.lease == lease:
                self._delete(key, self.revision + 1, events)
        self._publish(events)

    async def condition(self) -> Condition:
        return Condition(f"{id(self):x}")

    async def close(self) -> None:
        for _, timer in self._leases.values():
            timer.cancel()
        self._leases.clear()

    def _check_answers(self) -> None:
        if self.is_paused:
            raise MetastoreUnavailableError("the metastore is paused")

    def _expiry(self, lease: int, ttl_s: int) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ttl_s, self.revoke_lease_now, lease)

    def _below(self, prefix: str) -> Iterator[KeyValue]:
        # Code points and UTF-8 bytes, by which etcd orders, give the same order.
        following = self._items.irange(prefix)
        return (self._items[key] for key in takewhile(lambda key: key.startswith(prefix), following))

    def _run(
        self, txn: Txn, revision: int, events: list[KeyEvent]
    ) -> tuple[bool, tuple[TxnResult | tuple[KeyValue, ...] | None, ...]]:
        succeeded = all(self._holds(compare) for compare in txn.compares)
        branch = txn.success if succeeded else txn.failure
        return succeeded, tuple(self._apply(operation, revision, events) for operation in branch)

    def _apply(
        self, operation: Operation, revision: int, events: list[KeyEvent]
    ) -> TxnResult | tuple[KeyValue, ...] | None:
        match operation:
            case Put():
                self._put(operation, revision, events)
            case Delete(key):
                self._delete(key, revision, events)
            case DeleteRange(start, end):
                for key in tuple(self._items.irange(start, end, (True, False))):
                    self._delete(key, revision, events)
            case Get(key):
                return (self._items[key],) if key in self._items else ()
            case Txn():
                succeeded, responses = self._run(operation, revision, events)
                return TxnResult(succeeded, 0, responses)
        return None

    def _holds(self, compare: Compare) -> bool:
        if not compare.below:
            return _compares(compare, self._items.get(compare.key))
        items = tuple(self._below(compare.key))
        return all(_compares(compare, item) for item in items or (None,))

    def _put(self, put: Put, revision: int, events: list[KeyEvent]) -> None:
        before = self._items.get(put.key)
        created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
        item = KeyValue(put.key, put.value, created, revision, version, put.lease)
        self._remember(put.key, before, revision)
        self._items[put.key] = item
        if put.lease:
            self._leased.setdefault(put.lease, []).append(put.key)
        events.append(KeyEvent(put.key, item, revision))

    def _delete(self, key: str, revision: int, events: list[KeyEvent]) -> None:
        before = self._items.pop(key, None)
        if before is not None:
            self._remember(key, before, revision)
            events.append(KeyEvent(key, None, revision))

    def _remember(self, key: str, before: KeyValue | None, revision: int) -> None:
        if not self._before or self._before[-1][0] != revision:
            self._before.append((revision, {}))
        self._before[-1][1].setdefault(key, before)

    def _publish(self, events: list[KeyEvent]) -> None:
        if not events:
            return
        self.revision += 1
        for prefix, observers in tuple(self._observers.items()):
            # Compared once for all who look at the same part.
            below = tuple(event for event in events if event.key.startswith(prefix))
            if below:
                for observer in tuple(observers):
                    observer(self.revision, below)


def _compares(compare: Compare, item: KeyValue | None) -> bool:
    return _HOLDS[compare.op](item.mod_revision if item else 0, compare.operand)


def _puts(txn: Txn) -> Iterator[Put]:
    for operation in (*txn.success, *txn.failure):
        if isinstance(operation, Put):
            yield operation
        elif isinstance(operation, Txn):
            yield from _puts(operation)


def _with_revision(result: TxnResult, revision: int) -> TxnResult:
    inner = tuple(
        _with_revision(response, revision) if isinstance(response, TxnResult) else response
        for response in result.responses
    )
    return TxnResult(result.succeeded, revision, inner)
