"""Fences of nodes whose agents publish none themselves."""

from __future__ import annotations

from rebalance.core.isolation import FenceRecord, fence_ms_of
from rebalance.core.keys import Keyspace
from rebalance.core.limit_options import RESET_S
from rebalance.core.records import NodeRecord
from rebalance.core.txn import Put, Txn, absent
from rebalance.ports.metastore import Metastore

LEASE_S = 5


async def publish_fences(metastore: Metastore, keyspace: Keyspace, reset_s: int = RESET_S) -> None:
    """Of every living node that has published none: what it would keep to under ``reset_s`` of the limits."""
    for item in (await metastore.range(keyspace.nodes)).items:
        record = NodeRecord.decode(item.value)
        fence = FenceRecord(record.incarnation, fence_ms_of(reset_s, LEASE_S))
        key = keyspace.fence(record.node.name)
        await metastore.commit(Txn((absent(key),), (Put(key, fence.encode()),)))
