"""Counts all partitions in the background, for gauges: those that changed, and never in a scrape.

A listener of the mirror notes what has changed. A round reads that, in slices that hold the event loop for some
milliseconds, with pauses between them; when nothing changes a round costs nothing. Nothing is said before the
first round is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import structlog
from sortedcontainers import SortedList

from app.metrics.zone_tally import ZoneCounts, ZoneSeries, ZoneTally, zone_series
from app.views.keyspace_views import KeyspaceViews
from app.views.placed_zone import PlacedZone
from app.views.wait_causes import WaitCauses
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.controllers.clock import WallClock
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.assignments import nodes_of
from rebalance.core.causes import labels_of
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.metric_rows import Metric
from rebalance.core.move_status import MoveState, PartitionView
from rebalance.core.partition_facts import UNREAD, MoveStage, PartitionFacts, facts_of
from rebalance.core.readable import Unreadable, read
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from rebalance.ports.measures import Measures
from rebalance.store.core.ownership import StoreOwnership

log = structlog.get_logger(__name__)

ROUND_S = 2.0
SLICE_S = 0.003
"""The event loop is held for so long, and the time of one more partition."""
SHARE = 0.25
"""Of a core, while there is something to read."""
HELD_BACK_S = 30.0
"""What limits hold back is read again so often: windows open, and other moves end."""


@dataclass(slots=True)
class _Changes:
    """Since the round before."""

    partitions: dict[ZoneId, set[int]] = field(default_factory=dict)
    zones: set[ZoneId] = field(default_factory=set)
    nodes: bool = False
    limits: bool = False


class PartitionCount:
    """``run`` must run beside the mirror."""

    def __init__(
        self, mirror: KeyspaceMirror, keyspace: Keyspace, ring: RingReader, measures: Measures
    ) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._ring = ring
        self._measures = measures
        self._tally = ZoneCounts()
        self._changes = _Changes()
        self._ownership = StoreOwnership()
        self._alive: frozenset[str] = frozenset()
        self._bits: dict[str, int] = {}
        self._shared: dict[PartitionFacts, PartitionFacts] = {}
        self._counted_at: float | None = None
        self._held_back_at = 0.0
        self._slice_ends = 0.0

    def probe(self) -> None:
        """Says how old the count is."""
        if self._counted_at is not None:
            self._measures.set(Metric.COUNT_AGE_SECONDS, time.monotonic() - self._counted_at)

    async def run(self) -> None:
        """Until cancelled."""
        await self._mirror.loaded()
        stop = self._mirror.listen(self._on_change)
        try:
            intents = self._mirror.below(self._keyspace.intents)
            zone_ids = (self._keyspace.parse_intent(item.key) for item in intents)
            self._changes = _Changes(zones={zone_id for zone_id in zone_ids if zone_id is not None}, nodes=True)
            while True:
                await self.round()
                await asyncio.sleep(ROUND_S)
        finally:
            stop()

    async def round(self) -> None:
        """Reads what has changed, and says what there is."""
        begun = time.monotonic()
        changes, self._changes = self._changes, _Changes()
        views = self._views()
        self._begin_slice()
        self._note_nodes(changes)
        await self._note_zones(changes, views)
        self._note_owners(changes)
        self._note_held_back(changes, begun)
        has_changed = bool(changes.partitions or changes.zones or changes.nodes)
        for zone_id, numbers in changes.partitions.items():
            await self._read_zone(zone_id, numbers, views)
        self._counted_at = begun
        if has_changed:
            self._measures.set(Metric.COUNT_SECONDS, time.monotonic() - begun)
            # Only this task changes the tally, and it waits.
            series, named = await asyncio.to_thread(self._series)
            self._publish(series, named)
        ages = self._tally.oldest(time.monotonic()).items()
        self._measures.replace(Metric.MOVE_OLDEST_SECONDS, (((stage.value,), age) for stage, age in ages))
        self.probe()

    def _views(self) -> KeyspaceViews:
        """Of one round: what they remember goes with them."""
        ownership = self._ring.shown
        return KeyspaceViews(self._mirror, self._keyspace, waits=self._waits(), ownership=lambda: ownership)

    def _waits(self) -> WaitCauses:
        """What pauses, windows and the order of operations hold back. How full nodes are is left out: that
        takes a walk over all that moves."""
        keys = self._keyspace
        prefixes = (keys.limits, keys.operations, keys.nodes, keys.admissions)
        held = self._mirror.get(keys.limits) is not None
        items = {item.key: item for prefix in prefixes for item in self._mirror.below(prefix)} if held else {}
        copy = KeyspaceCopy(self._mirror.prefix, self._mirror.revision, items, SortedList(items))
        return WaitCauses(copy, keys, WallClock().now_ms)

    def _note_nodes(self, changes: _Changes) -> None:
        if not changes.nodes:
            return
        prefix = self._keyspace.nodes
        alive = frozenset(item.key.removeprefix(prefix) for item in self._mirror.below(prefix))
        moved = self._bits_of(alive ^ self._alive)
        self._alive = alive
        for zone_id, zone in self._tally.zones.items():
            if numbers := self._tally.depending_on(zone, moved):
                changes.partitions.setdefault(zone_id, set()).update(numbers)

    async def _note_zones(self, changes: _Changes, views: KeyspaceViews) -> None:
        """Zones that are new, changed or gone."""
        for zone_id in changes.zones:
            await self._turn()
            intent = read(self._mirror.get(self._keyspace.intent(zone_id)), ZoneIntent.decode)
            if isinstance(intent, Unreadable):
                continue
            known = self._tally.zones.get(zone_id)
            if intent is None or intent.dropped:
                self._tally.forget(zone_id)
                changes.partitions.pop(zone_id, None)
                continue
            if known is None or len(known.facts) != intent.zone.partitions:
                self._tally.forget(zone_id)
                self._tally.zones[zone_id] = ZoneTally.of(intent.zone.name, intent.zone.partitions)
            else:
                known.name = intent.zone.name
            numbers = set(range(intent.zone.partitions))
            if views.placed(zone_id) is None:
                whole = PartitionFacts(
                    MoveState.WAITING, MoveStage.PLACEMENT, labels_of(views.whole_wait(intent)).cause
                )
                await self._note_whole(zone_id, whole)
                changes.partitions.pop(zone_id, None)
            else:
                changes.partitions[zone_id] = numbers

    async def _note_whole(self, zone_id: ZoneId, facts: PartitionFacts) -> None:
        """Nothing is known of its partitions but that."""
        shared, now = self._one_of(facts), time.monotonic()
        for number in range(len(self._tally.zones[zone_id].facts)):
            await self._turn()
            self._tally.note(PartitionId(zone_id, number), shared, 0, 0, now)

    def _note_owners(self, changes: _Changes) -> None:
        """Exchanges say who has partitions of store zones, and write no key of each."""
        before, self._ownership = self._ownership, self._ring.shown
        if self._ownership is not before:
            for zone_id in self._tally.zones:
                if numbers := set(self._ownership.changed_since(before, zone_id)):
                    changes.partitions.setdefault(zone_id, set()).update(numbers)

    def _note_held_back(self, changes: _Changes, now: float) -> None:
        if changes.limits or now - self._held_back_at >= HELD_BACK_S:
            self._held_back_at = now
            for partition in self._tally.at(MoveStage.ADMISSION):
                changes.partitions.setdefault(partition.zone_id, set()).add(partition.partition)

    async def _read_zone(self, zone_id: ZoneId, numbers: Iterable[int], views: KeyspaceViews) -> None:
        for number in numbers:
            await self._turn()
            placed = views.placed(zone_id)
            self._read(PartitionId(zone_id, number), placed, views)

    def _read(self, partition: PartitionId, placed: PlacedZone | None, views: KeyspaceViews) -> None:
        """What this build cannot read is counted as such: the others are counted all the same."""
        size = nodes = 0
        try:
            view, _ = views.view(partition, placed)
            facts = self._one_of(facts_of(view, self._alive))
            nodes = self._bits_of(_named(view))
            size = view.configuration.size_bytes if view.configuration is not None else 0
        except Exception as error:
            log.warning("a partition is not counted", partition=str(partition), error=str(error))
            facts = UNREAD
        self._tally.note(partition, facts, nodes, size, time.monotonic())

    async def _turn(self) -> None:
        """Lets others have the event loop when the slice is over."""
        now = time.perf_counter()
        if now >= self._slice_ends:
            await asyncio.sleep(SLICE_S * (1 / SHARE - 1))
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._slice_ends = time.perf_counter() + SLICE_S

    def _one_of(self, facts: PartitionFacts) -> PartitionFacts:
        return self._shared.setdefault(facts, facts)

    def _bits_of(self, nodes: Iterable[str]) -> int:
        """A set of nodes as one number; whoever was named once keeps its bit."""
        return reduce(or_, (self._bits.setdefault(node, 1 << len(self._bits)) for node in nodes), 0)

    def _series(self) -> tuple[ZoneSeries, frozenset[str]]:
        """Of zones, and which nodes partitions name."""
        zones = self._tally.zones.values()
        named = reduce(or_, (bits for zone in zones for bits in zone.nodes), 0)
        return zone_series(zones), frozenset(node for node, bit in self._bits.items() if named & bit)

    def _publish(self, series: ZoneSeries, named: frozenset[str]) -> None:
        tally, replace, put = self._tally, self._measures.replace, self._measures.set
        replace(Metric.PARTITIONS, (((state.value,), tally.states[state]) for state in MoveState))
        moves = tally.moves.items()
        replace(Metric.MOVES, (((stage.value, cause.value), count) for (stage, cause), count in moves))
        put(Metric.PARTITIONS_WITHOUT_MAJORITY, tally.without_majority)
        put(Metric.PARTITIONS_WITHOUT_LEADER, tally.without_leader)
        put(Metric.PARTITIONS_LOST, tally.lost)
        put(Metric.PARTITIONS_UNREADABLE, tally.unreadable)
        put(Metric.ZONES, len(tally.zones))
        put(Metric.STORE_FILLING, tally.filling)
        replace(Metric.ZONE_PARTITIONS, series.partitions.items())
        replace(Metric.ZONE_WITHOUT_MAJORITY, series.without_majority.items())
        replace(Metric.ZONE_WITHOUT_LEADER, series.without_leader.items())
        replace(Metric.ZONE_BYTES, series.bytes.items())
        self._publish_nodes(named)

    def _publish_nodes(self, named: frozenset[str]) -> None:
        drains = self._keyspace.drains
        down = named - self._alive
        drained = {node for node in self._alive | down if self._mirror.get(f"{drains}{node}") is not None}
        draining = len(self._alive & drained)
        states = {"alive": len(self._alive) - draining, "draining": draining, "down": len(down)}
        self._measures.replace(Metric.NODES, (((state,), count) for state, count in states.items()))
        # Nobody misses a node that is drained, and switched off.
        missed = sorted(down - drained)
        nodes = [*((node, 0.0) for node in missed), *((node, 1.0) for node in sorted(self._alive))]
        self._measures.replace(Metric.NODE_UP, (((node,), up) for node, up in nodes[:NODES_SHOWN_MAX]))

    def _on_change(self, changed: frozenset[str]) -> None:
        keys, changes = self._keyspace, self._changes
        whole_zones = (keys.intents, keys.pointers, keys.all_data_nodes)
        for key in changed:
            if key.startswith((keys.partitions, keys.members)):
                parsed = keys.parse_partition(key) or keys.parse_member(key)
                if parsed is not None:
                    changes.partitions.setdefault(parsed[0].zone_id, set()).add(parsed[0].partition)
            elif key.startswith(whole_zones):
                zone_id = keys.parse_intent(keys.intents + key.rpartition("/")[2])
                if zone_id is not None:
                    changes.zones.add(zone_id)
            elif key.startswith((keys.nodes, keys.drains)):
                changes.nodes = True
            elif key == keys.limits:
                changes.limits = True


NODES_SHOWN_MAX = 200
"""So many nodes have a series of their own, those that are down first."""


def _named(view: PartitionView) -> frozenset[str]:
    """Nodes whose coming or going changes what the partition is."""
    assigned = nodes_of(view.stable, view.pending, view.planned, view.target)
    return assigned | view.members.keys()
