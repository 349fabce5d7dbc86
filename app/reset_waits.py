"""What automatic resets of HIGH_AVAILABILITY zones wait for, as the keys tell it (core: ``loss_clock``)."""

from __future__ import annotations

from rebalance.core.admission import Limits
from rebalance.core.isolation import RESET_S, FenceRecord, fence_ms_of
from rebalance.core.keys import Keyspace
from rebalance.core.readable import Unreadable, read
from rebalance.core.records import NodeRecord
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
