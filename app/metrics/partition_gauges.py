"""Gauges of the count of all partitions, and of nodes that they keep replicas on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from app.counts.partition_count import PartitionCount
from app.counts.zone_tally import number_of, states_of
from rebalance.core.causes import Cause
from rebalance.core.metric_row import OTHER
from rebalance.core.metric_rows import Metric
from rebalance.core.move_status import MoveState
from rebalance.core.partition_facts import MoveStage, PartitionFacts
from rebalance.ports.measures import Measures

NODES_SHOWN_MAX = 200
"""So many nodes have a series of their own, those that are down first."""


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
        put(Metric.PARTITIONS_WITHOUT_MAJORITY, _without_majority(counts))
        put(Metric.PARTITIONS_WITHOUT_LEADER, _without_leader(counts))
        put(Metric.PARTITIONS_LOST, number_of(counts, lambda facts: facts.is_lost))
        put(Metric.PARTITIONS_UNREADABLE, number_of(counts, lambda facts: facts.is_unreadable))
        put(Metric.STORE_FILLING, number_of(counts, lambda facts: facts.is_filling))
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
        lacking = ((name, _without_majority(counts)) for name, counts, _ in zones)
        replace(Metric.ZONE_WITHOUT_MAJORITY, (((name,), number) for name, number in lacking))
        leaderless = ((name, _without_leader(counts)) for name, counts, _ in zones)
        replace(Metric.ZONE_WITHOUT_LEADER, (((name,), number) for name, number in leaderless))
        replace(Metric.ZONE_BYTES, (((name,), size) for name, _, size in zones))

    def _put_nodes(self) -> None:
        count, replace = self._count, self._measures.replace
        draining = len(count.alive & count.drained)
        down = len(count.tally.replicas.keys() - count.alive)
        states = {"alive": len(count.alive) - draining, "draining": draining, "down": down}
        replace(Metric.NODES, (((state,), number) for state, number in states.items()))
        missing, alive = sorted(count.missing), sorted(count.alive)
        nodes = [*((node, 0.0) for node in missing), *((node, 1.0) for node in alive)]
        replace(Metric.NODE_UP, (((node,), up) for node, up in nodes[:NODES_SHOWN_MAX]))


def _without_majority(counts: Mapping[PartitionFacts, int]) -> int:
    return number_of(counts, lambda facts: facts.lacks_majority)


def _without_leader(counts: Mapping[PartitionFacts, int]) -> int:
    return number_of(counts, lambda facts: facts.lacks_leader)
