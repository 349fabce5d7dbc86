"""The copies on one server: rows, update counters, and an index over all of them.

Beside them a server's write-ahead log as an exchange needs it: checkpoints, reservations, truncation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.partition_map import CopyReport, SingleMap, changed_state
from rebalance.core.topology_version import TopologyVersion

PartitionKey = tuple[ZoneId, int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``position``: of its record in the log. ``counters``: of every partition when it was made (PME-053)."""

    position: int
    counters: Mapping[PartitionKey, int]


class WriteAheadLog:
    """Records ``start`` to ``end`` exist; a record is (partition, update). ``reserved`` is a position: nothing
    from there on is cut off until it is released (PME-054)."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[PartitionKey, int]] = []
        self.checkpoints: list[Checkpoint] = []
        self.reserved: Checkpoint | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def append(self, partition: PartitionKey, update: int) -> None:
        self.records.append((partition, update))

    def checkpoint(self, counters: Mapping[PartitionKey, int]) -> Checkpoint:
        made = Checkpoint(self.end, dict(counters))
        self.checkpoints.append(made)
        return made

    def truncate(self, position: int) -> int:
        """Cut off what is before ``position``, as far as that is allowed; returns where the log begins now."""
        limit = self.reserved.position if self.reserved is not None else self.end
        begin = max(self.start, min(position, limit))
        self.records = self.records[begin - self.start :]
        self.start = begin
        return begin

    def reserve(self) -> dict[PartitionKey, int]:
        """Reserve the earliest checkpoint whose record is still in the log (PME-052): by partition the earliest
        counter from which updates can be replayed (PME-055). Empty without a checkpoint."""
        self.reserved = next((each for each in self.checkpoints if each.position >= self.start), None)
        return dict(self.reserved.counters) if self.reserved is not None else {}

    def release(self) -> None:
        self.reserved = None

    def updates_after(self, partition: PartitionKey, counter: int) -> frozenset[int]:
        """The updates of a partition above ``counter`` that the log holds."""
        return frozenset(update for key, update in self.records if key == partition and update > counter)


@dataclass(slots=True)
class StoredCopy:
    """``rows``: numbers of the updates that are in. ``complete``: up to here none is missing. ``counter``: the
    highest number that it counts as having, which is above ``complete`` while it is filled (PME-101).
    ``doomed``: rows that are being removed before the copy is filled anew, or because nobody needs it."""

    state: CopyState
    rows: set[int] = field(default_factory=set)
    complete: int = 0
    counter: int = 0
    doomed: set[int] = field(default_factory=set)

    @property
    def report(self) -> CopyReport:
        counter = self.counter if self.state in (CopyState.OWNING, CopyState.LOST) else self.complete
        return CopyReport(self.state, counter, len(self.rows))


class CopyStore:
    """Survives its server when the cluster is persistent. ``sequence`` grows with every change of a state."""

    def __init__(self) -> None:
        self.copies: dict[PartitionKey, StoredCopy] = {}
        self.index: set[tuple[ZoneId, int, int]] = set()
        self.sequence = 0

    def state(self, key: PartitionKey) -> CopyState | None:
        found = self.copies.get(key)
        return found.state if found is not None else None

    def of_state(self, *states: CopyState) -> Iterator[tuple[PartitionKey, StoredCopy]]:
        """In the order of zones and partitions."""
        for key in sorted(self.copies):
            if self.copies[key].state in states:
                yield key, self.copies[key]

    def put(self, key: PartitionKey, update: int) -> None:
        copy = self.copies[key]
        copy.rows.add(update)
        copy.doomed.discard(update)
        copy.counter = max(copy.counter, update)
        if copy.state is CopyState.OWNING:
            copy.complete = copy.counter
        self.index.add((*key, update))

    def remove(self, key: PartitionKey, update: int) -> None:
        self.copies[key].rows.discard(update)
        self.copies[key].doomed.discard(update)
        self.index.discard((*key, update))

    def create(self, key: PartitionKey) -> None:
        """A copy to be filled, where there is none or one that was on its way out (PME-113)."""
        self.set_state(key, CopyState.MOVING)
        copy = self.copies[key]
        copy.complete, copy.doomed = 0, set(copy.rows)

    def set_state(self, key: PartitionKey, state: CopyState) -> None:
        """Raises ImpossibleTransitionError."""
        before = self.copies.get(key)
        changed_state(before.state if before is not None else None, state)
        if before is None:
            before = self.copies[key] = StoredCopy(state)
        elif before.state is state:
            return
        before.state = state
        self.sequence += 1

    def own(self, key: PartitionKey) -> None:
        """Nothing is missing any more."""
        self.set_state(key, CopyState.OWNING)
        copy = self.copies[key]
        copy.complete = copy.counter = max(copy.counter, copy.complete)

    def found(self, key: PartitionKey, counter: int) -> None:
        """It owns because the exchange says so: a new partition, or what is left of a lost one. Rows above the
        counter came without those before them, and other owners do not have them."""
        self.set_state(key, CopyState.OWNING)
        copy = self.copies[key]
        for row in sorted(copy.rows):
            if row > counter:
                self.remove(key, row)
        copy.complete = copy.counter = counter
        copy.doomed.clear()

    def drop_evicted(self) -> None:
        """Marks without data, once everybody may know of them."""
        for key, _ in list(self.of_state(CopyState.EVICTED)):
            del self.copies[key]

    def single_maps(
        self, node: str, version: TopologyVersion, zones: Collection[ZoneId]
    ) -> Mapping[ZoneId, SingleMap]:
        by_zone: dict[ZoneId, dict[int, CopyReport]] = {zone: {} for zone in zones}
        for (zone, partition), copy in self.copies.items():
            if zone in by_zone:
                by_zone[zone][partition] = copy.report
        return {zone: SingleMap(zone, node, version, self.sequence, copies) for zone, copies in by_zone.items()}
