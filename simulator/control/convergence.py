"""Convergence on the last target that was set: the invariant of the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from catalog.core.zone import Node, Zone, ZoneIntent
from catalog.core.zone_options import may_use
from catalog.filters.json_path import JSON_PATH
from rebalance.core.assignments.target import is_target_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.operations.operation import Operation
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.core.topology.node_presence import Topology
from simulator.control.invariants import (
    AppliedConfigurations,
    Auditor,
    ObservedStore,
    ZoneFacts,
    assignments_at,
)


def unfinished(
    store: ObservedStore,
    keyspace: Keyspace,
    auditor: Auditor,
    configurations: AppliedConfigurations,
    intents: Iterable[ZoneIntent],
    living: Iterable[Node],
) -> Iterator[str]:
    """Yield what is missing until each zone is as in ``intents``, cheap checks first; nothing when all is
    done."""
    nodes = tuple(living)
    for intent in intents:
        zone_id = intent.zone.zone_id
        if intent.dropped:
            for prefix in (keyspace.zone_partitions(zone_id), keyspace.zone_members(zone_id)):
                left = store.range_now(prefix).items
                if left:
                    yield f"dropped zone {zone_id}: {len(left)} keys are left, {left[0].key}"
            continue
        facts = auditor.zones.get(zone_id)
        missing = _target_missing(store, keyspace, intent, facts, nodes)
        if missing or facts is None:
            yield f"zone {zone_id}: {missing}"
        elif facts.pending.any():
            yield f"zone {zone_id}: {int(facts.pending.sum())} partitions have pending"
        else:
            yield from _partitions(store, keyspace, intent.zone, facts, configurations)


def not_over(store: ObservedStore, keyspace: Keyspace) -> Iterator[str]:
    """Operations that go on although their targets are reached."""
    for item in store.range_now(keyspace.operations).items:
        operation = Operation.decode(item.value)
        if not operation.is_over:
            yield f"operation {operation.operation_id} is {operation.state.value}"


def not_joined(store: ObservedStore, keyspace: Keyspace, names: Iterable[str]) -> Iterator[str]:
    """Nodes that are to run and that the controllers have not seen since their last start: their joining is an
    event that is still to come."""
    topology = store.peek(keyspace.topology)
    nodes = Topology.decode(topology.value).seen if topology is not None else ()
    seen = {node.node.name: node.incarnation for node in nodes}
    for name in names:
        record = store.peek(keyspace.node(name))
        if record is None:
            yield f"node {name} is not registered"
        elif NodeRecord.decode(record.value).incarnation != seen.get(name):
            yield f"node {name} has joined and is not in the topology"


def _target_missing(
    store: ObservedStore,
    keyspace: Keyspace,
    intent: ZoneIntent,
    facts: ZoneFacts | None,
    living: tuple[Node, ...],
) -> str:
    zone = intent.zone
    stored = store.peek(keyspace.intent(zone.zone_id))
    if stored is None or ZoneIntent.decode(stored.value).version != intent.version:
        return f"version {intent.version} is not published"
    data_nodes_key = store.peek(keyspace.data_nodes(zone.zone_id))
    if facts is None or data_nodes_key is None:
        return "no target"
    data_nodes = DataNodes.decode(data_nodes_key.value)
    absent = [
        node.name for node in living if may_use(zone, node, JSON_PATH) and node.name not in data_nodes.nodes
    ]
    if absent:
        return f"living nodes are not data nodes: {absent[:5]}"
    if not is_target_of(facts.pointer, intent, data_nodes):
        return f"target {facts.pointer.event_revision} is not that of version {intent.version}"
    return ""


def _partitions(
    store: ObservedStore,
    keyspace: Keyspace,
    zone: Zone,
    facts: ZoneFacts,
    configurations: AppliedConfigurations,
) -> Iterator[str]:
    for number in range(zone.partitions):
        partition = PartitionId(zone.zone_id, number)
        keys, target = keyspace.partition(partition), facts.target(number)
        if assignments_at(store, keys.stable) != target:
            yield f"{partition}: stable is not the target"
        elif store.peek(keys.planned) is not None:
            yield f"{partition}: planned is there"
        elif configurations.applied(partition) != (frozenset(target.peers), frozenset()):
            yield f"{partition}: the group is not the target"
        elif configurations.mirrors(partition) not in (None, frozenset(target.learners)):
            yield f"{partition}: the mirrors are not the target's learners"
