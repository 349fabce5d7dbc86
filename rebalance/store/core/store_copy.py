"""One copy on a store server while the server runs: what its head says, its stream of writes, and its role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.partition_map import CopyReport
from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.store.core.filling import Filling, epochs_until
from rebalance.store.core.leading import Leading
from rebalance.store.core.log_records import CopyHead, EpochStart, EpochTable, LogRecord, PartitionKey


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
        if record.previous != self.tail or record.position.counter != self.tail.counter + 1:
            raise ValueError(
                f"record {record.position} follows {record.previous}, and the log ends at {self.tail}"
            )
        if not self.epochs or self.epochs[-1].epoch < record.position.epoch:
            self.epochs = (*self.epochs, EpochStart(record.position.epoch, self.tail.counter))
        self.tail = record.position

    def joined_up(self) -> None:
        """A copy that is filled up to where its stream began owns all of it."""
        if self.stream > self.tail and (not self.epochs or self.epochs[-1].epoch < self.stream.epoch):
            self.epochs = (*self.epochs, EpochStart(self.stream.epoch, self.tail.counter))
        self.tail = max(self.tail, self.stream)
        self.state, self.is_clean, self.filling = CopyState.OWNING, True, None

    def rewind(self, to: StorePosition) -> None:
        self.tail = to
        self.log_start = min(self.log_start, to)
        self.epochs = tuple(item for item in self.epochs if item.after < to.counter)
