"""Waits of partitions: moves that are not admitted, counted from the same keys that the controllers count, and
automatic resets of HIGH_AVAILABILITY zones, as the keys show them (core: ``loss_clock``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache

from catalog.core.zone import STORE_ENGINE, ConsistencyMode, ZoneId, ZoneIntent, zone_engine
from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.admission.move_admission import (
    AdmissionRecord,
    Limits,
    Loads,
    Rooms,
    buckets_of,
    load_of,
    move_of,
    utc,
    without_members,
)
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.operations.operation import Operation
from rebalance.core.recovery.loss_clock import AbsentNode, LossClock, ResetRule, judge
from rebalance.core.topology.fencing import FenceRecord, fence_ms_of
from rebalance.core.topology.node_presence import Presence, Topology
from rebalance.metastore.mirror import KeyspaceCopy


def nodes_behind(keys: KeyspaceCopy, keyspace: Keyspace, limits: Limits, lease_s: int) -> list[str]:
    """Living nodes that have not published that they keep to ``limits.ha_reset_s``, by name. A partition that
    loses them waits for the time to which they do keep, and for ever where they have published none.
    ``lease_s``: the lease of nodes."""
    fence_ms = fence_ms_of(limits.ha_reset_s or RESET_S, lease_s)
    names = [item.key.removeprefix(keyspace.nodes) for item in keys.below(keyspace.nodes)]
    return [name for name in names if not _keeps_to(keys, keyspace, name, fence_ms)]


def _keeps_to(keys: KeyspaceCopy, keyspace: Keyspace, name: str, fence_ms: int) -> bool:
    node = read(keys.get(keyspace.node(name)), NodeRecord.decode)
    fence = read(keys.get(keyspace.fence(name)), FenceRecord.decode)
    if node is None or fence is None or isinstance(node, Unreadable) or isinstance(fence, Unreadable):
        return False
    return fence.incarnation == node.incarnation and fence.fence_ms <= fence_ms


def reset_wait(keys: KeyspaceCopy, keyspace: Keyspace, partition: PartitionId, view: PartitionView) -> str:
    """Cause for which a partition of a HIGH_AVAILABILITY zone that has lost its majority is not founded anew
    yet: the time from which it may be, by the times that topology has recorded, or the node that may still
    serve though it is silent. Empty: the partition has a majority, or waits for an operator alone. A controller
    may count a later time than the one shown.
    """
    members = frozenset(view.configuration.members) if view.configuration is not None else frozenset()
    alive = frozenset(name for name in members if keys.get(keyspace.node(name)) is not None)
    is_forced = view.pending is not None and view.pending.forced
    if (
        alive == members
        or is_forced
        or read(keys.get(keyspace.intent(partition.zone_id)), _helps_itself) is not True
    ):
        return ""
    limits = Limits.of(keys.get(keyspace.limits))
    topology = read(keys.get(keyspace.topology), _topology)
    if limits.unreadable or topology is None or isinstance(topology, Unreadable):
        return limits.unreadable or (topology.cause if isinstance(topology, Unreadable) else "")
    clock, absent = LossClock(), {}
    for name in members - alive:
        presence = topology.get(name)
        if presence is not None and presence.absent_ms is not None:
            item = keys.get(keyspace.fence(name))
            absent[name] = AbsentNode(presence.incarnation, read(item, FenceRecord.decode))
            clock = clock.noticed(presence.absent_ms, [name])
    loss = judge(view, alive, absent, clock, 0, ResetRule(limits.ha_reset_s or RESET_S))
    if loss is None:
        return ""
    return loss.cause or f"automatic reset from {utc(loss.due_ms or 0)} on"


@lru_cache(64)
def _helps_itself(value: bytes) -> bool:
    return ZoneIntent.decode(value).zone.consistency_mode is ConsistencyMode.HIGH_AVAILABILITY


@lru_cache(1)
def _topology(value: bytes) -> dict[str, Presence]:
    return {presence.node.name: presence for presence in Topology.decode(value).nodes}


DECODED_MAX = 20_000
COUNTED_ANEW_MS = 1_000
"""Longest time for which a count of moves is used: it is made anew after a millisecond for each partition, and
after this time at the latest, since it walks over the keys of all partitions."""


class WaitCauses:
    """Causes of waits over a mirror of the whole keyspace or a copy of it. ``now_ms`` decides which pauses
    hold."""

    def __init__(self, mirror: KeyspaceCopy, keyspace: Keyspace, now_ms: Callable[[], int]) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._now_ms = now_ms
        self._seen: tuple[bytes | None, int] = (None, 0)
        self._rooms: Rooms | None = None
        self._counted_revision = -1
        self._holds_ms = COUNTED_ANEW_MS
        self._loads = Loads()

    def rooms(self) -> Rooms | None:
        """Room that the limits leave for moves to begin now; None: no limits hold."""
        item, now_ms = self._mirror.get(self._keyspace.limits), self._now_ms()
        if item is None:
            return None
        value = item.value
        known, at_ms = self._seen
        if known != value or not 0 <= now_ms - at_ms < self._holds_ms:
            self._seen = value, now_ms
            self._rooms = self._rooms_of(Limits.of(item), now_ms)
        return self._rooms

    def of_view(
        self,
        partition: PartitionId,
        view: PartitionView,
        keys: KeyspaceCopy,
        seen: Collection[ZoneId] | None = None,
    ) -> PartitionView:
        """``view``, which was read from ``keys``, with the cause for which its move or automatic reset waits.
        ``seen``: the zones that the cause may name; None: all."""
        wait = reset_wait(keys, self._keyspace, partition, view)
        view = replace(view, reset_wait=wait) if wait else view
        target, stable = view.target, view.stable
        if view.processed or view.pending is not None or target is None or stable is None or stable == target:
            return view
        # A move that has not begun may be held back by limits.
        rooms = self.rooms()
        if rooms is None:
            return replace(view, admission="")
        if seen is not None:
            rooms = rooms.seen_by(seen)
        move = move_of(stable, target)
        is_stored = view.owners is not None
        cause = rooms.cause(partition.zone_id, without_members(move) if is_stored else move)
        return replace(view, admission=cause)

    def _rooms_of(self, limits: Limits, now_ms: int) -> Rooms | None:
        if not limits.holds(now_ms):
            return None
        if self._counted_revision != self._mirror.revision:
            self._loads, self._counted_revision = self._count(), self._mirror.revision
        first = self._first() if limits.one_operation else None
        admission = read(self._mirror.get(self._keyspace.admissions), AdmissionRecord.decode)
        if isinstance(admission, Unreadable):
            limits, admission = replace(limits, unreadable=admission.cause), None
        buckets = buckets_of(admission)
        return Rooms(limits, self._loads, self._member_limits(), now_ms, first, buckets)

    def _member_limits(self) -> dict[str, int]:
        """Limit of members by living node; 0 for a node whose record cannot be read: it takes no more."""
        prefix, limits = self._keyspace.nodes, {}
        for item in self._mirror.below(prefix):
            record = read(item, NodeRecord.decode)
            limit = 0 if isinstance(record, Unreadable) else record.node.member_limit
            limits[item.key.removeprefix(prefix)] = limit
        return limits

    def _first(self) -> tuple[ZoneId, str] | None:
        """The operation that goes first where only one may, as the controllers choose it."""
        parsed = (read(item, Operation.decode) for item in self._mirror.below(self._keyspace.operations))
        known = (operation for operation in parsed if not isinstance(operation, Unreadable))
        first = min(
            (operation for operation in known if operation.kind.moves_data and not operation.is_over),
            key=lambda operation: (operation.event_revision, operation.zone_id),
            default=None,
        )
        return (first.zone_id, first.operation_id) if first is not None else None

    def _count(self) -> Loads:
        loads, keys, stored = Loads(), self._keyspace, self._stored()
        partitions = 0
        for item in self._mirror.below(keys.partitions):
            if not item.key.endswith("/assignments/stable"):
                continue
            parsed = keys.parse_partition(item.key)
            if parsed is None:
                continue
            partitions += 1
            names, get = keys.partition(parsed[0]), self._mirror.get
            read_keys = [read(key, _decoded) for key in (item, get(names.pending), get(names.planned))]
            stable, pending, planned = (
                None if isinstance(record, Unreadable) else record for record in read_keys
            )
            if parsed[0].zone_id not in stored:
                loads.members.update(nodes_of(stable, pending, planned))
            if stable is not None and pending is not None:
                loads.add(parsed[0].zone_id, load_of(stable, pending, planned))
        self._holds_ms = min(partitions, COUNTED_ANEW_MS)
        return loads

    def _stored(self) -> frozenset[ZoneId]:
        """Zones that store servers keep, by the engines that living nodes have now."""
        records = (read(item, NodeRecord.decode) for item in self._mirror.below(self._keyspace.nodes))
        nodes = [record.node for record in records if not isinstance(record, Unreadable)]
        if not any(engine == STORE_ENGINE for node in nodes for _, engine in node.engines):
            return frozenset()
        intents = (read(item, ZoneIntent.decode) for item in self._mirror.below(self._keyspace.intents))
        zones = (intent.zone for intent in intents if not isinstance(intent, Unreadable))
        return frozenset(zone.zone_id for zone in zones if zone_engine(zone, nodes) == STORE_ENGINE)


@lru_cache(DECODED_MAX)
def _decoded(value: bytes) -> Assignments:
    return Assignments.decode(value)
