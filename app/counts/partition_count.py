"""Count of all partitions, kept in the background by those that changed, and never made on request.

A listener of the mirror notes what has changed. A round reads that, in slices that hold the event loop for some
milliseconds, with pauses between them; when nothing changes a round costs nothing. Gauges and alerts read the
same numbers, so they cannot contradict each other.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

import structlog
from sortedcontainers import SortedList

from app.counts.zone_tally import Reading, ZoneCounts, ZoneTally
from app.views.keyspace_views import KeyspaceViews, PlacedZone
from app.views.waits import WaitCauses
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.controllers.clock import WallClock
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.assignments.assignment import nodes_of
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.causes.cause import Cause, labels_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.moves.move_status import MoveState, PartitionView
from rebalance.core.moves.partition_state import UNREAD, MoveStage, PartitionFacts, facts_of, full_nodes
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror, names_below
from rebalance.store.core.ownership import StoreOwnership

log = structlog.get_logger(__name__)

ROUND_S = 2.0
SLICE_S = 0.002
"""The event loop is held for so long, and the time of one more partition."""
SHARE = 0.4
"""Share of a core that is used while there is something to read."""
INTENTS = 500
"""Number of intents that are read in one step."""
HELD_BACK_S = 30.0
"""Seconds after which partitions that limits hold back are read again: windows open, and other moves end."""


@dataclass(slots=True)
class _Changes:
    """Changes since the round before. ``whole``: zones of which every partition is read."""

    partitions: dict[ZoneId, set[int]] = field(default_factory=dict)
    zones: set[ZoneId] = field(default_factory=set)
    whole: set[ZoneId] = field(default_factory=set)
    nodes: bool = False
    limits: bool = False

    def add(self, partition: PartitionId) -> None:
        self.partitions.setdefault(partition.zone_id, set()).add(partition.partition)


class PartitionCount:
    """``run`` must run beside the mirror, or its caller calls ``round``."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace, ring: RingReader) -> None:
        self.tally = ZoneCounts()
        self.alive: frozenset[str] = frozenset()
        self.drained: frozenset[str] = frozenset()
        self.counted_at: float | None = None
        """Time (monotonic) at which the last complete round began; None: there was none yet."""
        self.changed_at: float | None = None
        """Time (monotonic) at which the last round with a change began; None: there was none yet. ``took_s``:
        how long it took."""
        self.took_s = 0.0
        self._mirror = mirror
        self._keyspace = keyspace
        self._ring = ring
        self._unread: deque[frozenset[str]] = deque()
        self._is_new = True
        self._ownership = StoreOwnership()
        self._held_back_at = 0.0
        self._slice_ends = 0.0
        mirror.listen(self._unread.append)

    @property
    def missing(self) -> dict[str, int]:
        """Replicas by node that is gone though partitions or zones count on it: 0, where only zones do. A node
        that was drained and switched off is not missing."""
        tally = self.tally
        gone = (tally.named.keys() | tally.data_nodes.keys()) - self.alive - self.drained
        return {node: tally.replicas[node] for node in gone}

    def sizes(self) -> dict[ZoneId, int]:
        """Numbers of partitions."""
        return {zone_id: len(zone.facts) for zone_id, zone in self.tally.zones.items()}

    def since_ms(self, partition: PartitionId) -> int | None:
        """Unix time, in milliseconds, since which the partition has waited for what it waits for now, and has
        served or not, as this server has seen it; None: it was not read yet."""
        zone = self.tally.zones.get(partition.zone_id)
        known = zone is not None and partition.partition < len(zone.since_ms)
        return (zone.since_ms[partition.partition] or None) if known and zone is not None else None

    async def run(self) -> None:
        """Count until cancelled, a round every ``ROUND_S`` seconds; the first one reads all partitions."""
        self._is_new = True
        await self._mirror.loaded()
        while True:
            await self.round()
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        """Reads what has changed. One at a time."""
        begun = time.monotonic()
        self._begin_slice()
        changes = await self._changes()
        views = self._views()
        await self._note_nodes(changes)
        await self._note_zones(changes)
        await self._note_owners(changes)
        await self._note_held_back(changes, begun)
        for zone_id in changes.whole:
            await self._read_zone(zone_id, range(len(self.tally.zones[zone_id].facts)), views)
        for zone_id, numbers in changes.partitions.items():
            if zone_id in self.tally.zones and zone_id not in changes.whole:
                await self._read_zone(zone_id, numbers, views)
        self._is_new, self.counted_at = False, begun
        if changes.partitions or changes.zones or changes.nodes:
            self.changed_at, self.took_s = begun, time.monotonic() - begun

    async def _changes(self) -> _Changes:
        """Collect the changes that the mirror has reported since the round before; in the first round, all
        zones and nodes."""
        keys, changes = self._keyspace, _Changes(nodes=self._is_new)
        if self._is_new:
            self._unread.clear()
            changes.zones.update(self.tally.zones)
            last = ""
            while intents := list(islice(self._mirror.below(keys.intents, last), INTENTS)):
                known = (keys.parse_intent(item.key) for item in intents)
                changes.zones.update(zone_id for zone_id in known if zone_id is not None)
                last = intents[-1].key
                await self._turn()
        while self._unread:
            for key in self._unread.popleft():
                await self._turn()
                self._note_key(key, changes)
        return changes

    def _note_key(self, key: str, changes: _Changes) -> None:
        keys = self._keyspace
        if key.startswith((keys.partitions, keys.members)):
            parsed = keys.parse_partition(key) or keys.parse_member(key)
            if parsed is not None:
                changes.add(parsed[0])
        elif key.startswith((keys.intents, keys.pointers, keys.all_data_nodes)):
            zone_id = keys.parse_intent(keys.intents + key.rpartition("/")[2])
            if zone_id is not None:
                changes.zones.add(zone_id)
        elif key.startswith((keys.nodes, keys.drains)):
            changes.nodes = True
        elif key == keys.limits:
            changes.limits = True

    def _views(self) -> KeyspaceViews:
        """Make the views of one round: what they have cached is dropped with them."""
        ownership = self._ring.shown
        return KeyspaceViews(self._mirror, self._keyspace, waits=self._waits(), ownership=lambda: ownership)

    def _waits(self) -> WaitCauses:
        """Causes of waiting by pauses, windows and the order of operations. How full nodes are is left out:
        that takes a walk over all moves."""
        keys = self._keyspace
        prefixes = (keys.limits, keys.operations, keys.nodes, keys.admissions)
        held = self._mirror.get(keys.limits) is not None
        items = {item.key: item for prefix in prefixes for item in self._mirror.below(prefix)} if held else {}
        copy = KeyspaceCopy(self._mirror.prefix, self._mirror.revision, items, SortedList(items))
        return WaitCauses(copy, keys, WallClock().now_ms)

    async def _note_nodes(self, changes: _Changes) -> None:
        """Partitions that name a node that came or went."""
        if not changes.nodes:
            return
        before, self.alive = self.alive, names_below(self._mirror, self._keyspace.nodes)
        self.drained = names_below(self._mirror, self._keyspace.drains)
        if moved := self.tally.bits.of(self.alive ^ before):
            for zone_id, zone in self.tally.zones.items():
                for numbers in zone.depending_on(moved):
                    if numbers:
                        changes.partitions.setdefault(zone_id, set()).update(numbers)
                    await self._turn()

    async def _note_zones(self, changes: _Changes) -> None:
        """Zones that are new, changed or gone."""
        zones = self.tally.zones
        for zone_id in changes.zones:
            await self._turn()
            shape, known = self._shape(zone_id), zones.get(zone_id)
            if known is not None and (shape is None or len(known.facts) != shape[1]):
                for _ in self.tally.forget(zone_id):
                    await self._turn()
            if shape is None:
                changes.partitions.pop(zone_id, None)
                continue
            if zone_id not in zones:
                zones[zone_id] = ZoneTally.of(*shape)
            zones[zone_id].name = shape[0]
            nodes = read(self._mirror.get(self._keyspace.data_nodes(zone_id)), DataNodes.decode)
            if not isinstance(nodes, Unreadable):
                self.tally.note_data_nodes(zone_id, nodes.nodes if nodes is not None else ())
            changes.whole.add(zone_id)

    def _shape(self, zone_id: ZoneId) -> tuple[str, int] | None:
        """Name and number of partitions of a zone; None: it is gone. Where its intent cannot be read they are
        as they were counted, at first its id and the partitions of its target."""
        intent = read(self._mirror.get(self._keyspace.intent(zone_id)), ZoneIntent.decode)
        if not isinstance(intent, Unreadable):
            if intent is None or intent.dropped:
                return None
            return intent.zone.name, intent.zone.partitions
        if (known := self.tally.zones.get(zone_id)) is not None:
            return known.name, len(known.facts)
        pointer = read(self._mirror.get(self._keyspace.target_pointer(zone_id)), TargetPointer.decode)
        return str(zone_id), pointer.partitions if isinstance(pointer, TargetPointer) else 1

    async def _note_owners(self, changes: _Changes) -> None:
        """Note new owners of partitions of store zones, which exchanges name without a key for each."""
        before, self._ownership = self._ownership, self._ring.shown
        if self._ownership is not before:
            for zone_id in self.tally.zones:
                if numbers := self._ownership.changed_since(before, zone_id):
                    changes.partitions.setdefault(zone_id, set()).update(numbers)
                await self._turn()

    async def _note_held_back(self, changes: _Changes, now: float) -> None:
        if changes.limits or now - self._held_back_at >= HELD_BACK_S:
            self._held_back_at = now
            for partition in self.tally.at(MoveStage.ADMISSION):
                changes.add(partition)
                await self._turn()

    async def _read_zone(self, zone_id: ZoneId, numbers: Iterable[int], views: KeyspaceViews) -> None:
        """Read partitions of a zone. Without a target the zone as a whole waits for something; if none of its
        partitions has a key, which there may be very many of, their keys are not looked up one by one."""
        placed, whole, nothing = views.placed(zone_id), Cause.NONE, None
        if placed is None:
            intent = views.intent(zone_id)
            wait = Cause.RECORD_NOT_READABLE.text() if intent is None else views.whole_wait(intent)
            whole = labels_of(wait).cause
            if next(self._mirror.below(self._keyspace.zone_partitions(zone_id)), None) is None:
                nothing = Reading(PartitionFacts(MoveState.WAITING, MoveStage.PLACEMENT, whole))
        for number in numbers:
            await self._turn()
            partition = PartitionId(zone_id, number)
            reading = nothing or self._reading(partition, views.placed(zone_id), whole, views)
            self.tally.note(partition, reading, time.monotonic())
        self.tally.rank(zone_id)

    def _reading(
        self, partition: PartitionId, placed: PlacedZone | None, whole: Cause, views: KeyspaceViews
    ) -> Reading:
        """Read one partition. One that this build cannot read is counted as unreadable, so that the others are
        counted all the same."""
        try:
            view, _ = views.view(partition, placed)
            facts = facts_of(view, self.alive)
            if placed is None and not facts.is_unreadable:
                facts = replace(facts, cause=whole)
            of = self.tally.bits.of
            size = view.configuration.size_bytes if view.configuration is not None else 0
            kept = nodes_of(view.stable, view.pending)
            return Reading(facts, of(_named(view)), of(kept), of(full_nodes(view)), size)
        except Exception as error:
            log.warning("a partition is not counted", partition=str(partition), error=str(error))
            return Reading(UNREAD)

    async def _turn(self) -> None:
        """Lets others have the event loop when the slice is over."""
        if time.perf_counter() >= self._slice_ends:
            await asyncio.sleep(SLICE_S * (1 / SHARE - 1))
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._slice_ends = time.perf_counter() + SLICE_S


def _named(view: PartitionView) -> frozenset[str]:
    """Nodes whose coming or going changes what the partition is."""
    assigned = nodes_of(view.stable, view.pending, view.planned, view.target)
    return assigned | view.members.keys()
