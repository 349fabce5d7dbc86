"""Keys that cannot be read and for which the cluster, a node or a zone as a whole waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.admission.move_admission import AdmissionRecord, Limits
from rebalance.core.admission.removed_node import RemovedNode
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, unreadable_among
from rebalance.core.keyspace.records import FailureRecord, NodeRecord
from rebalance.core.moves.drain import Drain
from rebalance.core.topology.data_nodes import DataNodes, DataNodesHistory
from rebalance.core.topology.node_presence import Topology
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ring_records import decode_ring

T = TypeVar("T")

DECODED_MAX = 20_000


def unreadable_of_cluster(mirror: KeyspaceCopy, keys: Keyspace) -> list[Unreadable]:
    """Keys of the whole cluster that cannot be read, for which all zones or a node wait; keys of zones and
    partitions are reported with their zones and partitions."""
    single: list[tuple[str, Callable[[bytes], object]]] = [
        (keys.epoch, EpochRecord.decode),
        (keys.topology, Topology.decode),
        (keys.limits, Limits.decode),
        (keys.admissions, AdmissionRecord.decode),
        (keys.exchange_ring, decode_ring),
    ]
    records = [read(item, decode) for name, decode in single if (item := mirror.get(name)) is not None]
    records += [read(item, NodeRecord.decode) for item in mirror.below(keys.nodes)]
    records += [read(item, Drain.decode) for item in mirror.below(keys.drains)]
    records += [read(item, RemovedNode.decode) for item in mirror.below(keys.removed_nodes)]
    records += [read(item, FailureRecord.decode) for item in mirror.below(keys.failures)]
    return [record for record in records if isinstance(record, Unreadable)]


def unreadable_of_zone(mirror: KeyspaceCopy, keys: Keyspace, zone_id: ZoneId) -> Unreadable | None:
    """The first key of the zone as a whole that cannot be read: the zone waits for it."""
    get = mirror.get
    return unreadable_among(
        (
            read(get(keys.intent(zone_id)), ZoneIntent.decode),
            read(get(keys.data_nodes(zone_id)), decoded_data_nodes),
            read(get(keys.data_nodes_history(zone_id)), DataNodesHistory.decode),
            read(get(keys.target_pointer(zone_id)), TargetPointer.decode),
        )
    )


@lru_cache(DECODED_MAX)
def decoded_data_nodes(value: bytes) -> DataNodes:
    """Decode data nodes, with a cache: each list of zones reads those of every zone, and they seldom change."""
    return DataNodes.decode(value)
