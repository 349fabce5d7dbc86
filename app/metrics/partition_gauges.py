"""Gauges of the count of all partitions, and of nodes that they keep replicas on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from app.counts.partition_count import PartitionCount
from app.counts.zone_tally import number_of, states_of
from rebalance.core.causes.cause import Cause
from rebalance.core.moves.move_status import MoveState
from rebalance.core.moves.partition_facts import MoveStage, PartitionFacts
from rebalance.ports.measures import Measures
from rebalance.ports.metric_row import OTHER
from rebalance.ports.metric_rows import Metric

NODES_SHOWN_MAX = 200
"""So many nodes have a series of their own, those that are down first."""

_OF_ZONES: Mapping[Metric, Callable[[PartitionFacts], bool]] = {
    Metric.ZONE_WITHOUT_MAJORITY: lambda facts: facts.lacks_majority,
    Metric.ZONE_WITHOUT_LEADER: lambda facts: facts.lacks_leader,
    Metric.ZONE_REPLICAS_MISSING: lambda facts: facts.is_short,
    Metric.ZONE_REPLICAS_BROKEN: lambda facts: facts.is_broken,
    Metric.ZONE_DEGRADED: lambda facts: facts.is_degraded,
}
_TOTALS: Mapping[Metric, Callable[[PartitionFacts], bool]] = {
    Metric.PARTITIONS_WITHOUT_MAJORITY: lambda facts: facts.lacks_majority,
    Metric.PARTITIONS_WITHOUT_LEADER: lambda facts: facts.lacks_leader,
    Metric.PARTITIONS_REPLICAS_MISSING: lambda facts: facts.is_short,
    Metric.PARTITIONS_REPLICAS_BROKEN: lambda facts: facts.is_broken,
    Metric.PARTITIONS_LOST: lambda facts: facts.is_lost,
    Metric.PARTITIONS_UNREADABLE: lambda facts: facts.is_unreadable,
    Metric.STORE_FILLING: lambda facts: facts.is_filling,
}


class PartitionGauges:
    """``probe`` is called in each scrape, and says nothing before the first count is complete."""

    def __init__(self, count: PartitionCount, measures: Measures) -> None:
        self._count = count
        self._measures = measures
        self._said_at: float | None = None

    def probe(self) -> None:
        count, put = self._count, self._measures.set
        if count.counted_at is None:
            return
        if count.changed_at != self._said_at:
            self._said_at = count.changed_at
            put(Metric.COUNT_SECONDS, count.took_s)
            self._put_totals()
            self._put_zones()
            self._put_nodes()
        now = time.monotonic()
        put(Metric.COUNT_AGE_SECONDS, now - count.counted_at)
        ages = count.tally.oldest(now).items()
        self._measures.replace(Metric.MOVE_OLDEST_SECONDS, (((stage.value,), age) for stage, age in ages))

    def _put_totals(self) -> None:
        tally, replace, put = self._count.tally, self._measures.replace, self._measures.set
        counts, moves = tally.counts, Counter[tuple[str, str]]()
        for facts, number in counts.items():
            if facts.stage is not MoveStage.REST or facts.cause is not Cause.NONE:
                moves[facts.stage.value, facts.cause.value] += number
        replace(Metric.MOVES, moves.items())
        states = states_of(counts)
        replace(Metric.PARTITIONS, (((state.value,), states[state]) for state in MoveState))
        for metric, holds in _TOTALS.items():
            put(metric, number_of(counts, holds))
        put(Metric.ZONES, len(tally.zones))

    def _put_zones(self) -> None:
        """The worst zones by name; all others are ``_other``, so that the sums of all are the totals."""
        tally, replace = self._count.tally, self._measures.replace
        shown = tally.shown()
        zones = [(zone.name, zone.counts, zone.bytes) for zone in shown]
        if len(tally.zones) > len(shown):
            rest = tally.counts.copy()
            for zone in shown:
                rest.subtract(zone.counts)
            zones.append((OTHER, rest, tally.bytes - sum(zone.bytes for zone in shown)))
        by_state = [(name, states_of(counts)) for name, counts, _ in zones]
        series = (((name, state.value), states[state]) for name, states in by_state for state in MoveState)
        replace(Metric.ZONE_PARTITIONS, series)
        for metric, holds in _OF_ZONES.items():
            replace(metric, (((name,), number_of(counts, holds)) for name, counts, _ in zones))
        replace(Metric.ZONE_BYTES, (((name,), size) for name, _, size in zones))

    def _put_nodes(self) -> None:
        count, replace = self._count, self._measures.replace
        draining = len(count.alive & count.drained)
        down = len((count.tally.named.keys() | count.tally.data_nodes.keys()) - count.alive)
        states = {"alive": len(count.alive) - draining, "draining": draining, "down": down}
        replace(Metric.NODES, (((state,), number) for state, number in states.items()))
        missing, alive = sorted(count.missing), sorted(count.alive)
        nodes = [*((node, 0.0) for node in missing), *((node, 1.0) for node in alive)]
        replace(Metric.NODE_UP, (((node,), up) for node, up in nodes[:NODES_SHOWN_MAX]))
