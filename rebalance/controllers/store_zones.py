"""Zones whose copies are kept by the engine ``store``: which these are, and what is assigned in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from catalog.core.zone import DEFAULT_LOSS_POLICY, STORE_ENGINE, Zone, ZoneId, ZoneIntent, zone_engine
from rebalance.controllers.partitions import ASSIGNMENT_FIELDS
from rebalance.core.assignments.guarded_write import Observed
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.hosting.background import Background
from rebalance.metastore.mirror import KeyspaceMirror, Listener
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore
from rebalance.store.core.ring_reading import assigned_lists
from rebalance.store.core.ring_zones import AssignedZone


@dataclass(frozen=True, slots=True)
class ClusterMirrors:
    """Mirrors of the zones that are wanted and of the nodes that are there; kept by their maker."""

    intents: KeyspaceMirror
    nodes: KeyspaceMirror


class StoreZones:
    """``follow`` keeps a mirror of each such zone's partitions. A zone that the ring has is one, whatever its
    nodes say by now."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        mirrors: ClusterMirrors,
        background: Background,
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._intents = mirrors.intents
        self._nodes = mirrors.nodes
        self._background = background
        self._unreadable = UnreadableLog()
        self._zones: dict[ZoneId, Zone] = {}
        self._mirrors: dict[ZoneId, KeyspaceMirror] = {}
        self._tasks: dict[ZoneId, asyncio.Task[None]] = {}
        self._moved: set[ZoneId] = set()
        self._placed: dict[ZoneId, AssignedZone] = {}
        self.dropped: frozenset[ZoneId] = frozenset()

    def look(self, opened: Collection[ZoneId]) -> None:
        """Read intents and nodes again. ``opened``: zones of the ring."""
        nodes = tuple(
            record.node
            for item in self._nodes.below(self._keyspace.nodes)
            if not isinstance(record := read(item, NodeRecord.decode), Unreadable)
        )
        zones: dict[ZoneId, Zone] = {}
        dropped: set[ZoneId] = set()
        for item in self._intents.below(self._keyspace.intents):
            intent = read(item, ZoneIntent.decode)
            if isinstance(intent, Unreadable):
                # The controllers' rounds say so. What the ring has of the zone stays.
                continue
            zone = intent.zone
            if intent.dropped:
                dropped.add(zone.zone_id)
            elif zone.zone_id in opened or zone_engine(zone, nodes) == STORE_ENGINE:
                zones[zone.zone_id] = zone
        self._moved |= {zone_id for zone_id, zone in zones.items() if zone != self._zones.get(zone_id)}
        self._zones, self.dropped = zones, frozenset(dropped)

    @property
    def ids(self) -> Collection[ZoneId]:
        """Return the ids of the zones as of the last look."""
        return self._zones.keys()

    def follow(self, tasks: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        """Begin mirrors of new zones in ``tasks`` and end those of others. ``changed``: some assignment is."""
        for zone_id in self._tasks.keys() - self._zones.keys():
            self._tasks.pop(zone_id).cancel()
            del self._mirrors[zone_id]
            self._placed.pop(zone_id, None)
        for zone_id in self._zones.keys() - self._tasks.keys():
            mirror = KeyspaceMirror(self._metastore, self._keyspace.zone_partitions(zone_id))
            mirror.listen(self._noting(zone_id, changed))
            self._mirrors[zone_id] = mirror
            keep = self._background.keep(f"leader: store zone {zone_id}", mirror.run)
            self._tasks[zone_id] = tasks.create_task(keep)

    def _noting(self, zone_id: ZoneId, changed: Callable[[], None]) -> Listener:
        def note(_changed: frozenset[str]) -> None:
            self._moved.add(zone_id)
            changed()

        return note

    def forget(self) -> None:
        """The mirrors have ended with their tasks."""
        self._tasks.clear()
        self._mirrors.clear()
        self._placed.clear()

    @property
    def placed(self) -> Mapping[ZoneId, AssignedZone]:
        """Return what is assigned now; without zones that cannot be read."""
        for zone_id in tuple(self._moved):
            self._moved.discard(zone_id)
            mirror, zone = self._mirrors.get(zone_id), self._zones.get(zone_id)
            if mirror is None or zone is None or not mirror.is_loaded:
                continue
            try:
                lists = assigned_lists(self._keyspace, mirror.below(mirror.prefix))
            except RecordNotReadableError as error:
                self._unreadable.waits(zone_id, error)
                self._placed.pop(zone_id, None)
                continue
            self._unreadable.goes_on(zone_id)
            policy = zone.loss_policy or DEFAULT_LOSS_POLICY
            self._placed[zone_id] = AssignedZone(
                zone_id, zone.partitions, lists, mirror.revision, policy, zone.life
            )
        return self._placed

    async def refresh(self, zone_id: ZoneId) -> bool:
        """Read what is assigned as of a revision of now, though nothing may have changed for long. False: it
        cannot be told. Raises MetastoreError."""
        placed = self.placed.get(zone_id)
        if placed is None or not placed.is_complete:
            return False
        snapshot = await self._metastore.range(self._keyspace.zone_partitions(zone_id))
        lists = assigned_lists(self._keyspace, snapshot.items)
        self._placed[zone_id] = replace(placed, lists=lists, revision=snapshot.revision)
        return True

    def revision(self, zone_id: ZoneId) -> int:
        """Return the revision at which the zone's assignments were read."""
        return self._mirrors[zone_id].revision

    def moving(self, zone_id: ZoneId) -> Iterable[tuple[int, Observed]]:
        """Partitions with something pending, and their assignment keys as of one revision."""
        mirror = self._mirrors[zone_id]
        pending = (
            parsed[0].partition
            for item in mirror.below(mirror.prefix)
            if (parsed := self._keyspace.parse_partition(item.key)) is not None
            and ASSIGNMENT_FIELDS.get(parsed[1]) == "pending"
        )
        for number in pending:
            keys = self._keyspace.partition(PartitionId(zone_id, number))
            yield number, Observed.of(keys, mirror.get)

    async def until(self, zone_id: ZoneId, revision: int, timeout_s: float) -> None:
        """Wait until a write of that revision is seen, for at most ``timeout_s``."""
        mirror = self._mirrors.get(zone_id)
        if mirror is not None:
            await mirror.wait_until(lambda: mirror.revision >= revision, timeout_s)
