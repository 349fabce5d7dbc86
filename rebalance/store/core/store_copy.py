"""One copy on a store server while the server runs: what its head says, its stream of writes, and its role.

A primary knows which writes are pending, who has acknowledged what, and what waits for them. Pure: positions
in, outcomes out. A write is settled when every copy that is waited for, this one included, has it on its disk;
only then it is answered, and only then reads of its keys go on.

A server lists its copies for people in packed columns.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyReport, CopyState, StorePosition
from rebalance.store.core.filling import Filling, epochs_until
from rebalance.store.core.log_records import (
    CopyHead,
    EpochTable,
    LogRecord,
    PartitionKey,
    WriteId,
    extended,
    reaching,
)
from rebalance.store.core.store_messages import CopiesAnswer, ReadRequest, RefillAnswer

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


@dataclass(slots=True)
class ServedCopy:
    """``tail``, ``epochs``, ``log_start``, ``is_clean`` and ``state`` are those of the head, which is as of
    what was asked of the disk. ``stored``: up to where the stream is on the disk.

    ``stream``: the last write that came from the primary, in order; a MOVING copy's begins after the position
    at which its owners were when the exchange ended. ``life``: counts what makes steps that are under way void.
    """

    partition: PartitionKey
    state: CopyState
    tail: StorePosition = NO_RECORD
    epochs: EpochTable = ()
    log_start: StorePosition = NO_RECORD
    is_clean: bool = True
    stored: StorePosition = NO_RECORD
    stream: StorePosition = NO_RECORD
    epoch: int = 0
    life: int = 0
    settled: StorePosition = NO_RECORD
    last_ms: int = 0
    refills: int = 0
    """Number of further exchanges in which it asks to be filled anew."""
    leading: Leading | None = None
    filling: Filling | None = None
    reported: CopyReport | None = None
    """The last ``report``: maps of thousands of copies are made again and again."""

    @classmethod
    def from_head(cls, partition: PartitionKey, head: CopyHead) -> ServedCopy:
        return cls(
            partition,
            head.state,
            head.tail,
            head.epochs,
            head.log_start,
            head.is_clean,
            stored=head.tail,
            stream=head.tail,
            last_ms=head.last_ms,
        )

    @property
    def head(self) -> CopyHead:
        return CopyHead(self.state, self.tail, self.is_clean, self.log_start, self.epochs, self.last_ms)

    @property
    def stored_head(self) -> CopyHead:
        """Return an owner's head, as far as its log is on the disk."""
        tail = min(self.stored, self.tail)
        return CopyHead(self.state, tail, self.is_clean, self.log_start, epochs_until(self.epochs, tail))

    @property
    def report(self) -> CopyReport:
        """A copy that must be cleared is complete up to nothing, and still not new."""
        tail, size = (self.tail, 0) if self.is_clean else (NO_RECORD, 1)
        known, refill = self.reported, self.refills > 0
        is_same = known is not None and (known.state, known.size, known.refill) == (self.state, size, refill)
        if known is not None and is_same and known.position == tail:
            return known
        self.reported = CopyReport(self.state, tail.counter, epoch=tail.epoch, size=size, refill=refill)
        return self.reported

    def follows(self, records: Sequence[LogRecord]) -> tuple[LogRecord, ...] | None:
        """The records that the stream does not have yet; None where one is missing before them. Those that it
        has are told by their positions: within an epoch there is one primary."""
        fresh = tuple(item for item in records if item.position > self.stream)
        return None if fresh and fresh[0].previous != self.stream else fresh

    def take(self, records: Sequence[LogRecord]) -> None:
        """Take the next records of the stream."""
        for record in records:
            self.stream = record.position
            self.last_ms = record.time_ms
            if self.state is not CopyState.MOVING:
                self.extend(record)

    def extend(self, record: LogRecord) -> None:
        """The complete part goes on with a record. Raises ValueError for one that does not follow."""
        self.epochs, self.tail = extended(self.epochs, self.tail, record), record.position

    def joined_up(self) -> None:
        """A copy that is filled up to where its stream began owns all of it."""
        if self.stream > self.tail:
            self.epochs, self.tail = reaching(self.epochs, self.tail, self.stream), self.stream
        self.state, self.is_clean, self.filling = CopyState.OWNING, True, None

    def empty(self) -> None:
        """Forget all that the copy had."""
        self.tail = self.stream = self.stored = self.log_start = NO_RECORD
        self.epochs, self.is_clean = (), True

    def rewind(self, to: StorePosition) -> None:
        self.tail = to
        self.log_start = min(self.log_start, to)
        self.epochs = tuple(item for item in self.epochs if item.after < to.counter)


STATES = tuple(CopyState)


@dataclass(frozen=True, slots=True)
class ListedCopy:
    """``position``: of the newest record that the copy has; ``filled``: up to where it has all of them."""

    zone: ZoneId
    partition: int
    state: str
    is_primary: bool
    position: StorePosition
    filled: StorePosition


def list_copies(
    copies: Iterable[ServedCopy], request: int, refills: tuple[RefillAnswer, ...] = ()
) -> CopiesAnswer:
    rows = list(copies)
    filled = [copy.tail if copy.is_clean else NO_RECORD for copy in rows]
    return CopiesAnswer(
        request,
        tuple(state.value for state in STATES),
        _packed("i", (copy.partition[0] for copy in rows)),
        _packed("i", (copy.partition[1] for copy in rows)),
        bytes(STATES.index(copy.state) for copy in rows),
        bytes(copy.leading is not None for copy in rows),
        _packed("q", (number for copy in rows for number in max(copy.stream, copy.tail))),
        _packed("q", (number for position in filled for number in position)),
        refills,
    )


def listed_copies(answer: CopiesAnswer) -> Iterator[ListedCopy]:
    """Yield the rows, ordered by zone and partition. Raises ValueError for columns of different lengths."""
    columns = zip(
        _unpacked("i", answer.zones),
        _unpacked("i", answer.partitions),
        answer.codes,
        answer.primaries,
        _positions(answer.positions),
        _positions(answer.filled),
        strict=True,
    )
    for zone, partition, code, is_primary, position, filled in sorted(columns):
        state = answer.states[code]
        yield ListedCopy(ZoneId(zone), partition, state, bool(is_primary), position, filled)


def _packed(kind: str, numbers: Iterable[int]) -> bytes:
    """Little-endian."""
    values = tuple(numbers)
    return struct.pack(f"<{len(values)}{kind}", *values)


def _unpacked(kind: str, column: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack(f"<{len(column) // struct.calcsize(f'<{kind}')}{kind}", column)
    except struct.error as error:
        raise ValueError(f"not a column: {error}") from error


def _positions(column: bytes) -> list[StorePosition]:
    numbers = _unpacked("q", column)
    return [StorePosition(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
