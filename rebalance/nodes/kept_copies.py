"""Copies that a node keeps after its member has left: stopped, and on disk until somebody finalises (VOL-093).

A kept copy never serves again. It is there so that nothing is deleted before an operation is known to be good;
the key ``partition/<zone>/<partition>/kept/<node>`` says that it is, and survives restarts of the node.

Data of a member whose group was founded anew without it is set aside where that may have lost something. The
key ``kept/<node>@<generation>`` says that it is here, and of which life of the group; ``operations finalise``
of the reset marks it, and the node deletes the data and then the key.
"""

from __future__ import annotations

import structlog

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import KeptRecord
from rebalance.core.keyspace.txn import Compare, Delete, Put, Txn, unchanged
from rebalance.core.operations.operation import operation_id
from rebalance.nodes.fences import is_given_up
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.removal import Removal, RemovalJudge, RemovalVerdict
from rebalance.ports.groups import MemberLife, MemberStatus

log = structlog.get_logger(__name__)

WITHOUT_DATA = (MemberLife.RESERVED, MemberLife.DATA_LOST)
RUNS = frozenset((MemberLife.STARTING, MemberLife.RUNNING))


class KeptCopies:
    """Kept copies of one node. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext, records: OwnRecords, removals: RemovalJudge) -> None:
        self._node = node
        self._records = records
        self._removals = removals

    async def keep(self, partition: PartitionId, peer_url: str, removal: Removal) -> bool:
        """The member that may go stays as a copy; False: a key that ``removal`` read was written since. Written
        down before the member stops: a node that dies in between finds it, and stops it then."""
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
        """End what is left of a member whose copy is kept already. A node may have started it while the
        metastore was silent (``MemberStarts``)."""
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

    async def has_more(self, view: NodePartitionView, status: MemberStatus) -> bool:
        """Check that the member's data is of an earlier life of the group, and may have something that this one
        did not begin with: changes beyond the founding, or log entries of unknown fate."""
        group = view.group.value if view.group is not None else None
        if group is None or view.stable is None or not is_given_up(status.generation, group):
            return False
        if status.life in WITHOUT_DATA:
            return False
        position = await self._node.host.log_position(view.partition)
        if position is None:
            return False
        shared = group.shared_revision(status.generation)
        return not 0 < position.revision <= shared or position.undecided > 0

    async def set_aside(
        self, view: NodePartitionView, status: MemberStatus, guards: tuple[Compare, ...] = ()
    ) -> bool:
        """Set a member's data aside; False: a guard failed. The key comes first: a node that dies in between
        does the rest again."""
        partition, group = view.partition, view.group
        if group is None:
            return False
        record = KeptRecord(group.value.generation, status.endpoints.peer_url)
        put = Put(self._node.keyspace.kept(partition, self._node.name, status.generation), record.encode())
        if not (await self._node.metastore.commit(Txn(guards, (put,)))).succeeded:
            return False
        await self._records.write_member(partition, None)
        await self._node.host.set_aside(partition)
        log.warning("copy of an earlier life kept", partition=str(partition), generation=status.generation)
        return True

    async def tidy(self, view: NodePartitionView) -> None:
        """Delete what was finalised; and, once the partition is dropped, what no key speaks of any more."""
        partition, own = view.partition, f"{self._node.name}@"
        for name, kept in view.kept.items():
            if name.startswith(own) and kept.value.discard:
                await self._node.host.discard_aside(partition, int(name.removeprefix(own)))
                key = self._node.keyspace.kept_copies(partition) + name
                await self._node.metastore.commit(Txn((unchanged(key, kept.mod_revision),), (Delete(key),)))
                log.info("copy of an earlier life destroyed", partition=str(partition), name=name)
        if view.stable is not None or view.pending is not None:
            return
        generations = self._node.host.aside().get(partition, frozenset())
        if generations and not await self._stays(partition):
            for generation in generations:
                await self._node.host.discard_aside(partition, generation)

    async def _stays(self, partition: PartitionId) -> bool:
        removal = await self._removals.judge(partition, lambda _: True, "")
        return removal.verdict is not RemovalVerdict.MAY_GO
