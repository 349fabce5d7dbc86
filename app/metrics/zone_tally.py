"""Counts of partitions that are kept while single partitions change, so that nobody has to walk all of them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from catalog.core.zone import ZoneId
from rebalance.core.causes import Cause
from rebalance.core.keys import PartitionId
from rebalance.core.metric_row import OTHER, ZONES_SHOWN_MAX
from rebalance.core.move_status import MoveState
from rebalance.core.partition_facts import MoveStage, PartitionFacts

ZoneGauges = dict[tuple[str, ...], float]


@dataclass(slots=True)
class ZoneTally:
    """One zone. ``facts`` by partition number; None: not read yet. ``nodes``: a set of bits, those whose coming
    or going changes what the partition is."""

    name: str
    facts: list[PartitionFacts | None]
    nodes: list[int]
    sizes: array[int]
    states: dict[MoveState, int] = field(default_factory=dict)
    without_majority: int = 0
    without_leader: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, name: str, partitions: int) -> ZoneTally:
        return cls(name, [None] * partitions, [0] * partitions, array("q", bytes(8 * partitions)))

    @property
    def rank(self) -> tuple[int, int, int, int, str]:
        """The worst zone has the smallest."""
        waiting, moving = (self.states.get(state, 0) for state in (MoveState.WAITING, MoveState.MOVING))
        return -self.without_majority, -self.without_leader, -waiting, -moving, self.name


class ZoneCounts:
    """All zones. ``moves`` counts partitions by stage and cause."""

    def __init__(self) -> None:
        self.zones: dict[ZoneId, ZoneTally] = {}
        self.states: Counter[MoveState] = Counter()
        self.moves: Counter[tuple[MoveStage, Cause]] = Counter()
        self.without_majority = self.without_leader = self.lost = self.unreadable = self.filling = 0
        self._since: dict[MoveStage, dict[PartitionId, float]] = {}

    def note(self, partition: PartitionId, facts: PartitionFacts, nodes: int, size: int, now: float) -> None:
        """The partition is so at ``now`` (seconds, never falling). Of a zone that is not in ``zones``, or of a
        number beyond it, nothing is kept."""
        zone = self.zones.get(partition.zone_id)
        if zone is None or partition.partition >= len(zone.facts):
            return
        before = zone.facts[partition.partition]
        zone.bytes += size - zone.sizes[partition.partition]
        zone.nodes[partition.partition], zone.sizes[partition.partition] = nodes, size
        if before is not None and before == facts:
            return
        if before is not None:
            self._add(zone, before, -1)
        self._add(zone, facts, 1)
        zone.facts[partition.partition] = facts
        self._move_stage(partition, before, facts, now)

    def forget(self, zone_id: ZoneId) -> None:
        """The zone is gone, and its series with it."""
        zone = self.zones.pop(zone_id, None)
        if zone is None:
            return
        for number, facts in enumerate(zone.facts):
            if facts is not None:
                self._add(zone, facts, -1)
                self._since.get(facts.stage, {}).pop(PartitionId(zone_id, number), None)

    def depending_on(self, zone: ZoneTally, nodes: int) -> Iterable[int]:
        """Numbers of the zone's partitions that name one of ``nodes``, a set of bits."""
        return [number for number, named in enumerate(zone.nodes) if named & nodes]

    def at(self, stage: MoveStage) -> list[PartitionId]:
        """Partitions at a stage, the one first that came first."""
        return list(self._since.get(stage, ()))

    def oldest(self, now: float) -> dict[MoveStage, float]:
        """For how many seconds the partition that came to a stage first has been there."""
        return {
            stage: now - next(iter(partitions.values()))
            for stage, partitions in self._since.items()
            if partitions
        }

    def _add(self, zone: ZoneTally, facts: PartitionFacts, by: int) -> None:
        zone.states[facts.state] = zone.states.get(facts.state, 0) + by
        zone.without_majority += by * facts.lacks_majority
        zone.without_leader += by * facts.lacks_leader
        self.states[facts.state] += by
        self.without_majority += by * facts.lacks_majority
        self.without_leader += by * facts.lacks_leader
        self.lost += by * facts.is_lost
        self.unreadable += by * facts.is_unreadable
        self.filling += by * facts.is_filling
        if facts.stage is not MoveStage.REST or facts.cause is not Cause.NONE:
            key = facts.stage, facts.cause
            self.moves[key] += by
            if not self.moves[key]:
                del self.moves[key]

    def _move_stage(
        self, partition: PartitionId, before: PartitionFacts | None, facts: PartitionFacts, now: float
    ) -> None:
        """Whoever comes to a stage is its youngest: the first one of each is the oldest."""
        if before is not None and before.stage is facts.stage:
            return
        if before is not None:
            self._since.get(before.stage, {}).pop(partition, None)
        if facts.stage is not MoveStage.REST:
            self._since.setdefault(facts.stage, {})[partition] = now


def shown_zones(zones: Iterable[ZoneTally]) -> tuple[list[ZoneTally], list[ZoneTally]]:
    """Those with series of their own, the worst first, and all others."""
    known = list(zones)
    shown = nsmallest(ZONES_SHOWN_MAX, known, key=lambda zone: zone.rank)
    names = {id(zone) for zone in shown}
    return shown, [zone for zone in known if id(zone) not in names]


@dataclass(frozen=True, slots=True)
class ZoneSeries:
    """The gauges of zones, each as labels -> value."""

    partitions: ZoneGauges = field(default_factory=dict)
    without_majority: ZoneGauges = field(default_factory=dict)
    without_leader: ZoneGauges = field(default_factory=dict)
    bytes: ZoneGauges = field(default_factory=dict)


def zone_series(zones: Iterable[ZoneTally]) -> ZoneSeries:
    """At most ``ZONES_SHOWN_MAX`` zones by name, and ``_other``: the sums of all zones are the totals."""
    shown, rest = shown_zones(zones)
    series = ZoneSeries()
    for name, zone in [*((zone.name, zone) for zone in shown), *((OTHER, zone) for zone in rest)]:
        for state in MoveState:
            _plus(series.partitions, (name, state.value), zone.states.get(state, 0))
        _plus(series.without_majority, (name,), zone.without_majority)
        _plus(series.without_leader, (name,), zone.without_leader)
        _plus(series.bytes, (name,), zone.bytes)
    return series


def _plus(values: ZoneGauges, labels: tuple[str, ...], value: float) -> None:
    values[labels] = values.get(labels, 0) + value
