"""What clients see of zones, partitions, nodes and progress: read models over the keyspace mirror.

Pure functions of a mirror; a mirror holds one revision, so each answer is consistent in itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.assignments import Assignments
from rebalance.core.data_nodes import DataNodes
from rebalance.core.guarded_write import decode_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.move_status import MoveState, PartitionView, partition_status
from rebalance.core.records import ConfigurationRecord, MemberRecord, NodeRecord, Stage
from rebalance.core.target import StoredTarget, TargetPointer, is_target_of
from rebalance.metastore.mirror import KeyspaceCopy

Json = dict[str, Any]

DECODED_MAX = 20_000


@dataclass(frozen=True, slots=True)
class PlacedZone:
    """A zone's newest target as the mirror has it; ``targets`` by partition number."""

    pointer: TargetPointer
    targets: tuple[Assignments, ...]


class KeyspaceViews:
    """Read models over one mirror of the whole keyspace, or over a copy of it (then in any one thread)."""

    def __init__(self, mirror: KeyspaceCopy, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._decoded: dict[ZoneId, tuple[int, PlacedZone]] = {}

    @property
    def keyspace(self) -> Keyspace:
        return self._keyspace

    def nodes(self) -> list[Json]:
        """Living nodes, and those that are gone but still hold or should hold replicas."""
        alive = self.live_records()
        members = Counter(node for _, node, _ in self._members(self._keyspace.members))
        known = {*alive, *members, *self._data_nodes_of_all_zones()}
        return [self._node(name, alive.get(name), members[name]) for name in sorted(known)]

    def live_records(self) -> dict[str, NodeRecord]:
        found = (NodeRecord.decode(item.value) for item in self._mirror.below(self._keyspace.nodes))
        return {record.node.name: record for record in found}

    def data_nodes(self, zone_id: ZoneId) -> DataNodes | None:
        value = self._mirror.value(self._keyspace.data_nodes(zone_id))
        return _data_nodes(value) if value is not None else None

    def intent(self, zone_id: ZoneId) -> ZoneIntent | None:
        value = self._mirror.value(self._keyspace.intent(zone_id))
        return ZoneIntent.decode(value) if value is not None else None

    def version_of(self, zone: Zone, catalog_version: int) -> int:
        """The version that made ``zone`` what it is; the catalog's own while the intent is on its way."""
        intent = self.intent(zone.zone_id)
        return intent.version if intent is not None and intent.zone == zone else catalog_version

    def zone(self, zone: Zone, catalog_version: int) -> Json:
        data_nodes = self.data_nodes(zone.zone_id)
        return {
            "zone_id": zone.zone_id,
            "name": zone.name,
            "partitions": zone.partitions,
            "replicas": "ALL" if zone.replicas == ALL_REPLICAS else zone.replicas,
            "quorum_size": data_nodes.quorum if data_nodes else zone.quorum_size,
            "storage_profiles": list(zone.storage_profiles),
            "catalog_version": self.version_of(zone, catalog_version),
            "data_nodes": list(data_nodes.nodes) if data_nodes else [],
        }

    def partitions(self, zone_id: ZoneId, count: int) -> list[Json]:
        placed, alive = self.placed(zone_id), frozenset(self.live_records())
        return [self._partition(PartitionId(zone_id, number), placed, alive) for number in range(count)]

    def partition(self, partition: PartitionId) -> Json:
        placed, alive = self.placed(partition.zone_id), frozenset(self.live_records())
        return self._partition(partition, placed, alive)

    def progress(self, zone_id: ZoneId, version: int, zone: Zone | None = None) -> Json:
        """How far the zone is on its way to catalog ``version`` (or a later one).

        ``zone`` is the catalog's, needed for an intent below ``version``: it may be on its way, or the version
        was another zone's and changed nothing here.
        """
        intent = self.intent(zone_id)
        if intent is None or (intent.version < version and intent.zone != zone):
            known = intent.zone if intent else zone
            total = known.partitions if known else 0
            return self._progress(zone_id, intent, Counter(WAITING=total), Counter(INTENT_NOT_PUBLISHED=total))
        if intent.dropped:
            return self._progress_of_drop(zone_id, intent)
        placed, data_nodes = self.placed(zone_id), self.data_nodes(zone_id)
        if data_nodes is not None and not data_nodes.nodes:
            total = intent.zone.partitions
            return self._progress(zone_id, intent, Counter(WAITING=total), Counter(NO_DATA_NODES=total))
        if placed is None or data_nodes is None or not is_target_of(placed.pointer, intent, data_nodes):
            total = intent.zone.partitions
            return self._progress(
                zone_id, intent, Counter(WAITING=total), Counter(PLACEMENT_NOT_COMPUTED=total)
            )
        states: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        alive = frozenset(self.live_records())
        for number in range(placed.pointer.partitions):
            view, _ = self.view(PartitionId(zone_id, number), placed)
            status = partition_status(view, alive)
            states[status.state.value] += 1
            if status.cause:
                causes[status.cause] += 1
        return self._progress(zone_id, intent, states, causes, placed.pointer.engine)

    def _progress_of_drop(self, zone_id: ZoneId, intent: ZoneIntent) -> Json:
        alive = frozenset(self.live_records())
        left = [each for each in self._members(self._keyspace.zone_members(zone_id)) if each[1] in alive]
        busy = {partition for partition, _, _ in left}
        causes = Counter(f"CLEAN_UP: {node}" for _, node, _ in left)
        total = intent.zone.partitions
        states = Counter(DONE=total - len(busy), MOVING=len(busy))
        return self._progress(zone_id, intent, states, causes)

    @staticmethod
    def _progress(
        zone_id: ZoneId,
        intent: ZoneIntent | None,
        states: Counter[str],
        causes: Counter[str],
        engine: str | None = None,
    ) -> Json:
        done, moving, waiting = (states[state.value] for state in MoveState)
        converged = intent is not None and not moving and not waiting and not causes
        return {
            "zone_id": zone_id,
            "zone": intent.zone.name if intent else None,
            "catalog_version": intent.version if intent else None,
            "state": "CONVERGED" if converged else "MOVING",
            "partitions": {
                "total": done + moving + waiting,
                "done": done,
                "moving": moving,
                "waiting": waiting,
            },
            "causes": [{"cause": cause, "partitions": count} for cause, count in sorted(causes.items())],
            "engine": engine,
        }

    def placed(self, zone_id: ZoneId) -> PlacedZone | None:
        """The zone's newest target, decoded once for each pointer."""
        item = self._mirror.get(self._keyspace.target_pointer(zone_id))
        if item is None:
            return None
        cached = self._decoded.get(zone_id)
        if cached is not None and cached[0] == item.mod_revision:
            return cached[1]
        pointer = TargetPointer.decode(item.value)
        below = self._mirror.below(self._keyspace.target(zone_id, pointer.event_revision))
        target = StoredTarget(pointer, tuple(chunk.value for chunk in below))
        placed = PlacedZone(pointer, tuple(target.assignments()))
        self._decoded[zone_id] = (item.mod_revision, placed)
        return placed

    def view(self, partition: PartitionId, placed: PlacedZone | None) -> tuple[PartitionView, int | None]:
        """All that is known of a partition, and the event revision that it has processed."""
        keys = self._keyspace.partition(partition)
        trigger_value = self._mirror.value(keys.trigger)
        trigger = decode_trigger(trigger_value) if trigger_value is not None else None
        configuration = self._mirror.value(keys.configuration)
        view = PartitionView(
            target=placed.targets[partition.partition] if placed else None,
            stable=_assignments(self._mirror.value(keys.stable)),
            pending=_assignments(self._mirror.value(keys.pending)),
            planned=_assignments(self._mirror.value(keys.planned)),
            processed=placed is not None and trigger is not None and trigger >= placed.pointer.event_revision,
            members=self.members(partition),
            configuration=ConfigurationRecord.decode(configuration) if configuration is not None else None,
        )
        return view, trigger

    def members(self, partition: PartitionId) -> dict[str, MemberRecord]:
        prefix = self._keyspace.member(partition, "")
        return {node: record for _, node, record in self._members(prefix)}

    def _partition(self, partition: PartitionId, placed: PlacedZone | None, alive: frozenset[str]) -> Json:
        view, trigger = self.view(partition, placed)
        status, configuration = partition_status(view, alive), view.configuration
        return {
            "partition": partition.partition,
            "stable": _roles(view.stable),
            "pending": _roles(view.pending),
            "planned": _roles(view.planned),
            "target": _roles(view.target),
            "trigger_revision": trigger,
            "leader": configuration.leader if configuration else None,
            "term": configuration.term if configuration else None,
            "stage": (configuration.stage if configuration else Stage.NONE).value,
            "members": [_member(view, node, alive) for node in sorted(view.members)],
            "status": {"state": status.state.value, "cause": status.cause},
        }

    def _members(self, prefix: str) -> Iterator[tuple[PartitionId, str, MemberRecord]]:
        for item in self._mirror.below(prefix):
            parsed = self._keyspace.parse_member(item.key)
            if parsed is not None:
                yield (*parsed, MemberRecord.decode(item.value))

    def _data_nodes_of_all_zones(self) -> Iterator[str]:
        for item in self._mirror.below(self._keyspace.all_data_nodes):
            yield from DataNodes.decode(item.value).nodes

    @staticmethod
    def _node(name: str, record: NodeRecord | None, members: int) -> Json:
        node = record.node if record else None
        return {
            "name": name,
            "alive": record is not None,
            "attributes": dict(node.attributes) if node else {},
            "profiles": list(node.profiles) if node else [],
            "member_limit": node.member_limit if node else None,
            "weight": node.weight if node else None,
            "failure_domain": node.failure_domain if node else None,
            "members": members,
            "pid": record.pid if record else None,
        }


@lru_cache(DECODED_MAX)
def _data_nodes(value: bytes) -> DataNodes:
    """Read for every zone by every list of zones, and seldom changed."""
    return DataNodes.decode(value)


def _assignments(value: bytes | None) -> Assignments | None:
    return Assignments.decode(value) if value is not None else None


def _roles(assignments: Assignments | None) -> Json | None:
    if assignments is None:
        return None
    return {"peers": list(assignments.peers), "learners": list(assignments.learners)}


def _member(view: PartitionView, node: str, alive: frozenset[str]) -> Json:
    record = view.members[node]
    configured = view.configuration.members.get(node) if view.configuration else None
    return {
        "node": node,
        "state": record.state.value if node in alive else "NODE_DOWN",
        "role": configured.role.value if configured else None,
        "peer_url": record.peer_url,
        "client_url": record.client_url,
        "reason": record.reason,
    }
