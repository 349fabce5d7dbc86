"""Copies that a node keeps after its member has left: stopped, and on disk until somebody finalises (VOL-093).

A kept copy never serves again. It is there so that nothing is deleted before an operation is known to be good;
the key ``partition/<zone>/<partition>/kept/<node>`` says that it is, and survives restarts of the node.
"""

from __future__ import annotations

import structlog

from rebalance.core.keys import PartitionId
from rebalance.core.operation import operation_id
from rebalance.core.records import KeptRecord
from rebalance.core.txn import Delete, Put, Txn, unchanged
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.removal import Removal
from rebalance.ports.groups import MemberLife, MemberStatus

log = structlog.get_logger(__name__)

RUNS = frozenset((MemberLife.STARTING, MemberLife.RUNNING))


class KeptCopies:
    """Those of one node. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext, records: OwnRecords) -> None:
        self._node = node
        self._records = records

    async def keep(self, partition: PartitionId, peer_url: str, removal: Removal) -> bool:
        """The member that may go stays as a copy; False: a key that ``removal`` read was written since. Written
        down before the member stops: whoever dies in between finds it, and stops it then."""
        key = self._node.keyspace.kept(partition, self._node.name)
        put = Put(key, KeptRecord(removal.event, peer_url).encode())
        if not (await self._node.metastore.commit(Txn(removal.guards, (put,)))).succeeded:
            return False
        left_by = operation_id(partition.zone_id, removal.event)
        log.info("copy kept", partition=str(partition), left_by=left_by)
        await self._records.write_member(partition, None)
        await self._node.host.stop(partition, destroy=False)
        return True

    async def hold(self, partition: PartitionId, status: MemberStatus | None) -> None:
        """It is kept already: what is left of the member ends. A node may have
        started it while the metastore was silent (``MemberStarts``)."""
        await self._records.write_member(partition, None)
        if status is not None and status.life in RUNS:
            await self._node.host.stop(partition, destroy=False)

    async def discard(self, view: NodePartitionView) -> None:
        """The copy goes, and then the key: a node that dies in between does it again."""
        partition, kept = view.partition, view.kept[self._node.name]
        await self._records.write_member(partition, None)
        if partition in self._node.host.partitions():
            await self._node.host.stop(partition, destroy=True)
        key = self._node.keyspace.kept(partition, self._node.name)
        await self._node.metastore.commit(Txn((unchanged(key, kept.mod_revision),), (Delete(key),)))
        log.info("kept copy destroyed", partition=str(partition))
