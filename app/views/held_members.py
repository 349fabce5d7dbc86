"""Which members count as held by a node.

One that lives deletes what it holds, and then the record of it. One that is gone can do neither: its records
stay until it is back or removed, and what counts is whether the partition still counts on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.mirror import KeyspaceCopy


def held_members(mirror: KeyspaceCopy, keyspace: Keyspace, alive: AbstractSet[str]) -> Counter[str]:
    """How many members each node holds; 0 for one that is gone and has nothing but records."""
    counts = Counter[str]()
    for item in mirror.below(keyspace.members):
        parsed = keyspace.parse_member(item.key)
        if parsed is not None:
            counts[parsed[1]] += is_held(mirror, keyspace, *parsed, alive)
    return counts


def is_held(
    mirror: KeyspaceCopy, keyspace: Keyspace, partition: PartitionId, node: str, alive: AbstractSet[str]
) -> bool:
    """Of a member that has a record."""
    if node in alive:
        return True
    return counts_on(mirror, keyspace, partition, node)


def counts_on(mirror: KeyspaceCopy, keyspace: Keyspace, partition: PartitionId, node: str) -> bool:
    """Whether the partition is, or is to be, on the node."""
    keys = keyspace.partition(partition)
    assigned = (mirror.get(key) for key in (keys.stable, keys.pending, keys.planned))
    return _names(assigned, node, _assigned) or _names((mirror.get(keys.configuration),), node, _configured)


def _names(items: Iterable[KeyValue | None], node: str, decode: Callable[[bytes], AbstractSet[str]]) -> bool:
    """Whether one of ``items`` names the node, or has its letters and cannot be read. Most have not even
    these."""
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
