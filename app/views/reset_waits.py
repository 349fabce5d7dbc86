"""What automatic resets of HIGH_AVAILABILITY zones wait for, as the keys tell it (core: ``loss_clock``)."""

from __future__ import annotations

from functools import lru_cache

from catalog.core.zone import ConsistencyMode, ZoneIntent
from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.admission.move_admission import Limits, utc
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.loss_clock import AbsentNode, LossClock, ResetRule, judge
from rebalance.core.topology.isolation import FenceRecord, fence_ms_of
from rebalance.core.topology.node_presence import Presence, Topology
from rebalance.metastore.mirror import KeyspaceCopy


def nodes_behind(keys: KeyspaceCopy, keyspace: Keyspace, limits: Limits, lease_s: int) -> list[str]:
    """Living nodes that have not published that they keep to ``limits.ha_reset_s``, by name: a partition that
    loses them waits for what they do keep to, and for ever where they have published nothing.
    ``lease_s``: of nodes."""
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
    """Why a partition of a HIGH_AVAILABILITY zone that has lost its majority is not founded anew yet: from when
    on it may be, by the times that topology has recorded, or whose silence nobody may count on. Empty: it has
    a majority, or waits for nobody but an operator. What a controller counts may be later than what is shown.
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
