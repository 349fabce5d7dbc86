"""What stands in the metastore of a node that is to be removed. Over a copy, in any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.views.held_members import counts_on
from app.views.unreadable_keys import decoded_data_nodes
from catalog.core.zone import ZoneId
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership

KEPT_OF_PARTITION = ("restart", "kept")
"""Below a partition: the key of one node each."""


def counting_zones(
    copy: KeyspaceCopy, keyspace: Keyspace, ownership: StoreOwnership, node: str
) -> Counter[ZoneId]:
    """Zones that count on the node, with how many of their partitions do; 0: it is to have some, or may."""
    counts = Counter[ZoneId]()
    for item in copy.below(keyspace.all_data_nodes):
        data_nodes = read(item, decoded_data_nodes)
        if isinstance(data_nodes, Unreadable) or node in data_nodes.nodes:
            counts[_zone(item.key)] += 0
    for item in copy.below(keyspace.pointers):
        pointer = read(item, TargetPointer.decode)
        if isinstance(pointer, Unreadable) or node in pointer.nodes:
            counts[_zone(item.key)] += 0
    known: PartitionId | None = None
    for item in copy.below(keyspace.partitions):
        parsed = keyspace.parse_partition(item.key)
        if parsed is not None and parsed[0] != known:
            known = parsed[0]
            if counts_on(copy, keyspace, known, node):
                counts[known.zone_id] += 1
    counts.update(zone_id for zone_id, _ in ownership.held_by(node))
    return counts


def records_of(copy: KeyspaceCopy, keyspace: Keyspace, node: str) -> Iterator[str]:
    """Keys that are the node's own, or are kept for it, without the mark that it is leaving."""
    yield from (
        *(keyspace.fence(node), keyspace.node_map(node), keyspace.failures_of(node)),
        *(keyspace.finished(node), keyspace.eviction(node)),
    )
    for item in copy.below(keyspace.members):
        parsed = keyspace.parse_member(item.key)
        if parsed is not None and parsed[1] == node:
            yield item.key
    for item in copy.below(keyspace.partitions):
        parts = keyspace.parse_partition(item.key)
        field, _, name = parts[1].partition("/") if parts is not None else ("", "", "")
        if field in KEPT_OF_PARTITION and name.partition("@")[0] == node:
            yield item.key


def _zone(key: str) -> ZoneId:
    return ZoneId(int(key.rpartition("/")[2]))
