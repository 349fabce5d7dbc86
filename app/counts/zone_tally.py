"""Counts of partitions that are kept while single partitions change, so that no reader has to walk over all of
them."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice, takewhile
from operator import or_
from typing import NamedTuple

from sortedcontainers import SortedList

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import MoveState
from rebalance.core.moves.partition_state import MoveStage, PartitionFacts
from rebalance.ports.metric_rows import ZONES_SHOWN_MAX

DEPENDENTS = 5_000
"""Number of partitions that are read in one step, which takes less than a millisecond."""


class Rank(NamedTuple):
    """The worst zone has the smallest. ``unserved``: minus its partitions that are lost or have no majority."""

    unserved: int = 0
    leaderless: int = 0
    waiting: int = 0
    moving: int = 0
    name: str = ""
    zone_id: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts that are kept of one partition. Sets of nodes are bits (``NodeBits``): ``named``, whose coming or
    going changes what the partition is; ``kept``, of stable and pending; ``full``, whose member found no
    space."""

    facts: PartitionFacts
    named: int = 0
    kept: int = 0
    full: int = 0
    size: int = 0


class NodeBits:
    """Sets of nodes as numbers; a node that was named once keeps its bit."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._names: list[str] = []

    def of(self, nodes: Iterable[str]) -> int:
        return reduce(or_, map(self._bit, nodes), 0)

    def names(self, bits: int) -> Iterator[str]:
        while bits:
            lowest = bits & -bits
            yield self._names[lowest.bit_length() - 1]
            bits ^= lowest

    def _bit(self, node: str) -> int:
        bit = self._bits.get(node)
        if bit is None:
            bit = self._bits[node] = 1 << len(self._names)
            self._names.append(node)
        return bit


@dataclass(slots=True)
class ZoneTally:
    """One zone. ``facts`` by partition number; None: not read yet. ``since_ms``: since when its cause, and
    whether it serves, are as they are, Unix. ``counts``: partitions by what they are."""

    name: str
    facts: list[PartitionFacts | None]
    named: list[int]
    kept: list[int]
    sizes: array[int]
    since_ms: array[int]
    counts: Counter[PartitionFacts] = field(default_factory=Counter)
    data_nodes: int = 0
    bytes: int = 0
    rank: Rank | None = None

    @classmethod
    def of(cls, name: str, partitions: int) -> ZoneTally:
        none = [0] * partitions
        numbers = array("q", bytes(8 * partitions))
        return cls(name, [None] * partitions, none, [*none], numbers, numbers[:])

    def ranked(self, zone_id: ZoneId) -> Rank:
        """Rank of the zone by its present counts."""
        states = states_of(self.counts)
        return Rank(
            -number_of(self.counts, lambda facts: facts.lacks_majority or facts.is_lost),
            -number_of(self.counts, lambda facts: facts.lacks_leader),
            -states[MoveState.WAITING],
            -states[MoveState.MOVING],
            self.name,
            zone_id,
        )

    def depending_on(self, nodes: int) -> Iterator[list[int]]:
        """Numbers of partitions that name one of ``nodes``, step by step."""
        for start in range(0, len(self.named), DEPENDENTS):
            named = self.named[start : start + DEPENDENTS]
            yield [number for number, bits in enumerate(named, start) if bits & nodes]


class ZoneCounts:
    """All zones. ``replicas``, ``named`` and ``full`` are numbers of partitions by node: those that keep a
    replica there, those that name the node at all, and those whose member found no space. ``data_nodes``: zones
    by node that they place replicas on."""

    def __init__(self) -> None:
        self.zones: dict[ZoneId, ZoneTally] = {}
        self.counts: Counter[PartitionFacts] = Counter()
        self.replicas: Counter[str] = Counter()
        self.named: Counter[str] = Counter()
        self.full: Counter[str] = Counter()
        self.data_nodes: Counter[str] = Counter()
        self.bits = NodeBits()
        self.bytes = 0
        self._full: dict[PartitionId, int] = {}
        self._ranks: SortedList = SortedList()
        self._since: dict[MoveStage, dict[PartitionId, float]] = {}
        self._shared: dict[PartitionFacts, PartitionFacts] = {}

    def note(self, partition: PartitionId, reading: Reading, now: float) -> None:
        """Note a partition's state at ``now`` (seconds, never falling). One of a zone that is not in ``zones``,
        or with a number beyond it, is not kept."""
        zone, number = self.zones.get(partition.zone_id), partition.partition
        if zone is None or number >= len(zone.facts):
            return
        self._note_nodes(zone, partition, reading)
        more = reading.size - zone.sizes[number]
        zone.sizes[number] = reading.size
        zone.bytes += more
        self.bytes += more
        self._note_facts(zone, partition, reading.facts, now)

    def note_data_nodes(self, zone_id: ZoneId, nodes: Iterable[str]) -> None:
        """The zone, which is in ``zones``, places replicas on ``nodes``."""
        zone, bits = self.zones[zone_id], self.bits.of(nodes)
        self._count_nodes(self.data_nodes, zone.data_nodes, bits)
        zone.data_nodes = bits

    def rank(self, zone_id: ZoneId) -> None:
        """Give the zone its place among the others; to be called after its partitions were noted."""
        zone = self.zones.get(zone_id)
        if zone is None or zone.rank == (rank := zone.ranked(zone_id)):
            return
        if zone.rank is not None:
            self._ranks.remove(zone.rank)
        zone.rank = rank
        self._ranks.add(rank)

    def forget(self, zone_id: ZoneId) -> Iterator[None]:
        """The zone is gone when that is exhausted; it may have many partitions."""
        zone = self.zones.get(zone_id)
        if zone is None:
            return
        for number, facts in enumerate(zone.facts):
            if facts is not None:
                partition = PartitionId(zone_id, number)
                self._add(zone, facts, -1)
                self._since.get(facts.stage, {}).pop(partition, None)
                self._note_nodes(zone, partition, Reading(facts))
                zone.facts[number] = None
            yield
        self.bytes -= zone.bytes
        self.note_data_nodes(zone_id, ())
        if zone.rank is not None:
            self._ranks.remove(zone.rank)
        del self.zones[zone_id]

    def shown(self) -> list[ZoneTally]:
        """Zones with series of their own, the worst first."""
        return [self.zones[ZoneId(rank.zone_id)] for rank in islice(self._ranks, ZONES_SHOWN_MAX)]

    def unserved(self) -> dict[str, int]:
        """Partitions without a majority, and those that are lost, by the zone's name."""
        worst: Iterable[Rank] = takewhile(lambda rank: rank.unserved < 0, self._ranks)
        return {rank.name: -rank.unserved for rank in worst}

    def by_zone(self, holds: Callable[[PartitionFacts], bool]) -> dict[str, int]:
        """Partitions that are so, by the zone's name; zones without any are left out."""
        if not number_of(self.counts, holds):
            return {}
        numbers = ((zone.name, number_of(zone.counts, holds)) for zone in self.zones.values())
        return {name: number for name, number in numbers if number}

    def at(self, stage: MoveStage) -> list[PartitionId]:
        """Partitions at a stage, the one first that came first."""
        return list(self._since.get(stage, ()))

    def oldest(self, now: float) -> dict[MoveStage, float]:
        """Age of the oldest partition at each stage: seconds since it came to that stage."""
        known = self._since.items()
        return {stage: now - next(iter(partitions.values())) for stage, partitions in known if partitions}

    def _note_nodes(self, zone: ZoneTally, partition: PartitionId, reading: Reading) -> None:
        number, full = partition.partition, self._full.get(partition, 0)
        named, kept = zone.named[number], zone.kept[number]
        if named != reading.named:
            zone.named[number] = reading.named
            self._count_nodes(self.named, named, reading.named)
        if kept != reading.kept:
            # One object for both sets while they are equal: most partitions rest.
            zone.kept[number] = reading.named if reading.kept == reading.named else reading.kept
            self._count_nodes(self.replicas, kept, reading.kept)
        if full != reading.full:
            self._full[partition] = reading.full
            self._count_nodes(self.full, full, reading.full)
        if not reading.full:
            self._full.pop(partition, None)

    def _count_nodes(self, counts: Counter[str], before: int, after: int) -> None:
        counts.update(self.bits.names(after & ~before))
        for node in self.bits.names(before & ~after):
            counts[node] -= 1
            if not counts[node]:
                del counts[node]

    def _note_facts(self, zone: ZoneTally, partition: PartitionId, facts: PartitionFacts, now: float) -> None:
        before = zone.facts[partition.partition]
        if before is not None and before == facts:
            return
        if before is not None:
            self._add(zone, before, -1)
        if before is None or _told(before) != _told(facts):
            zone.since_ms[partition.partition] = time.time_ns() // 1_000_000
        facts = self._shared.setdefault(facts, facts)
        self._add(zone, facts, 1)
        zone.facts[partition.partition] = facts
        # Whoever comes to a stage is its youngest: the first one of each is the oldest.
        if before is not None and before.stage is not facts.stage:
            self._since.get(before.stage, {}).pop(partition, None)
        if facts.stage is not MoveStage.REST and (before is None or before.stage is not facts.stage):
            self._since.setdefault(facts.stage, {})[partition] = now

    def _add(self, zone: ZoneTally, facts: PartitionFacts, by: int) -> None:
        for counts in (zone.counts, self.counts):
            counts[facts] += by
            if not counts[facts]:
                del counts[facts]


def _told(facts: PartitionFacts) -> tuple[object, ...]:
    """Facts that are shown to people with the time since which they hold."""
    return facts.cause, facts.is_unserved, facts.is_degraded


def number_of(counts: Mapping[PartitionFacts, int], holds: Callable[[PartitionFacts], bool]) -> int:
    """Number of partitions for which ``holds`` is true."""
    return sum(number for facts, number in counts.items() if holds(facts))


def states_of(counts: Mapping[PartitionFacts, int]) -> Counter[MoveState]:
    """Partitions by state."""
    states: Counter[MoveState] = Counter()
    for facts, number in counts.items():
        states[facts.state] += number
    return states
