"""A partition's primary: which writes are pending, who has acknowledged what, and what waits for them.

Pure: positions in, outcomes out. A write is settled when every copy that is waited for, this one included, has
it on its disk; only then it is answered, and only then reads of its keys go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.store.core.log_records import LogRecord, WriteId
from rebalance.store.core.store_messages import ReadRequest

Asker = tuple[int, int, bool]
"""Client, its request's number, and whether it repeated a write that was pending already."""


@dataclass(slots=True)
class PendingWrite:
    """``reads`` wait for it: (client, request). ``since_ms``: when it was sent last."""

    record: LogRecord
    askers: list[Asker]
    since_ms: int
    made_ms: int = 0
    reads: list[tuple[int, ReadRequest]] = field(default_factory=list)


@dataclass(slots=True)
class Leading:
    """``epoch``: of this primary. ``targets``: copies that it waits for besides its own. ``unlevelled``: owners
    that have less than the highest position found, this server too: nothing is served until there are none.
    ``base_ms`` at ``since_ms``: the time of the last record when this primary began, read when it is needed, as
    thousands of partitions begin together. Its records go on from there by its own clock, which cannot jump, so
    that ids expire no sooner than they may.
    ``stored`` and ``acknowledged``: up to where the log is on the own disk and on the others'."""

    epoch: int
    targets: frozenset[str]
    unlevelled: set[str] = field(default_factory=set)
    stored: StorePosition = NO_RECORD
    acknowledged: dict[str, StorePosition] = field(default_factory=dict)
    pending: deque[PendingWrite] = field(default_factory=deque)
    by_id: dict[WriteId, PendingWrite] = field(default_factory=dict)
    base_ms: int | None = None
    since_ms: int = 0
    by_key: dict[bytes, PendingWrite] = field(default_factory=dict)
    """The last pending write of each key."""
    settled: StorePosition = NO_RECORD
    """A target that has not acknowledged anything since the exchange is not ahead of this."""

    def add(self, record: LogRecord, askers: Iterable[Asker], now_ms: int) -> None:
        write = PendingWrite(record, list(askers), now_ms, now_ms)
        self.pending.append(write)
        self.by_id[record.write] = write
        for item in record.changes:
            self.by_key[item.key] = write

    def acknowledge(self, peer: str, position: StorePosition) -> None:
        if position > self.acknowledged.get(peer, NO_RECORD):
            self.acknowledged[peer] = position

    def settle(self, alive: Container[str]) -> list[PendingWrite]:
        """The writes that are settled now, in order. ``alive``: targets that the ring has not removed."""
        reached = self.stored
        for peer in self.targets:
            if peer in alive:
                reached = min(reached, self.acknowledged.get(peer, self.settled))
        writes = []
        while self.pending and self.pending[0].record.position <= reached:
            write = self.pending.popleft()
            del self.by_id[write.record.write]
            for item in write.record.changes:
                if self.by_key.get(item.key) is write:
                    del self.by_key[item.key]
            writes.append(write)
        self.settled = max(self.settled, reached)
        return writes

    def lagging(self, alive: Container[str]) -> Iterable[str]:
        """Yield the peers that have not acknowledged the oldest pending write."""
        if not self.pending:
            return ()
        oldest = self.pending[0].record.position
        return [
            peer
            for peer in sorted(self.targets)
            if peer in alive and self.acknowledged.get(peer, self.settled) < oldest
        ]

    def missing_at(self, peer: str) -> tuple[LogRecord, ...]:
        """Return the records to send again to a peer whose connection was lost."""
        known = self.acknowledged.get(peer, self.settled)
        return tuple(item.record for item in self.pending if item.record.position > known)
