"""Members that count as held by a node, and what stands in the metastore of one that is to be removed. Over a
copy, in any thread.

A node that lives deletes what it holds, and then the record of it. One that is gone can do neither: its records
stay until it is back or removed, and what counts is whether the partition still counts on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from app.views.unreadable_keys import decoded_data_nodes
from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership


def held_members(mirror: KeyspaceCopy, keyspace: Keyspace, alive: AbstractSet[str]) -> Counter[str]:
    """Count the members that each node holds; 0 for one that is gone and has nothing but records."""
    counts = Counter[str]()
    for item in mirror.below(keyspace.members):
        parsed = keyspace.parse_member(item.key)
        if parsed is not None:
            counts[parsed[1]] += parsed[1] in alive or counts_on(mirror, keyspace, *parsed)
    return counts


def counts_on(mirror: KeyspaceCopy, keyspace: Keyspace, partition: PartitionId, node: str) -> bool:
    """Check whether the partition is, or is to be, on the node; True, too, where its keys cannot be read."""
    keys = keyspace.partition(partition)
    assigned = (mirror.get(key) for key in (keys.stable, keys.pending, keys.planned))
    return _names(assigned, node, _assigned) or _names((mirror.get(keys.configuration),), node, _configured)


def _names(items: Iterable[KeyValue | None], node: str, decode: Callable[[bytes], AbstractSet[str]]) -> bool:
    """True if one of ``items`` names the node, or contains its name and cannot be read. Only those that
    contain the name are decoded, which few do."""
    letters = node.encode()
    for item in items:
        if item is not None and letters in item.value:
            named = read(item, decode)
            if isinstance(named, Unreadable) or node in named:
                return True
    return False


def _assigned(value: bytes) -> AbstractSet[str]:
    return Assignments.decode(value).nodes


def _configured(value: bytes) -> AbstractSet[str]:
    return ConfigurationRecord.decode(value).members.keys()


KEPT_OF_PARTITION = ("restart", "kept")
"""Folders below a partition that have a key for each node."""


def counting_zones(
    copy: KeyspaceCopy, keyspace: Keyspace, ownership: StoreOwnership, node: str
) -> Counter[ZoneId]:
    """Zones that count on the node, each with the number of its partitions that do; 0: it is chosen for some
    of them, or the record that would say so cannot be read."""
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
