"""Records of this node's replicas: one a partition, of the member and of the mirror together.

Member and mirror come and go apart from each other, so each part is written without touching the other. Only
this node writes its records, and one task at a time works on a partition, so no guard is needed for that.
"""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRecord, MirrorRecord
from rebalance.core.keyspace.txn import Compare, Delete, Put, Txn
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import parsed
from rebalance.nodes.recent_writes import RecentWrites


class OwnRecords:
    """The keys ``members/<zone>/<partition>/<node>`` of one node. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._written = RecentWrites()

    def of(self, partition: PartitionId) -> MemberRecord | None:
        """The newest record that this node knows of."""
        value = self._written.current(self._key(partition), self._node.mirrors.members)
        return parsed(MemberRecord.decode, value) if value is not None else None

    async def write_member(
        self, partition: PartitionId, member: MemberRecord | None, guards: tuple[Compare, ...] = ()
    ) -> bool:
        """Say ``member`` of the member (what it says of a mirror does not count), None: there is none any more.
        False when a guard failed."""
        current = self.of(partition)
        mirror = current.mirror if current is not None else None
        if member is not None:
            unknown = current.unknown if current is not None else None
            if member.mirror is not mirror or member.unknown is not unknown:
                member = replace(member, mirror=mirror, unknown=unknown)
            return await self._write(partition, member, guards)
        return await self._write(partition, MemberRecord.of_mirror(mirror) if mirror else None, guards)

    async def write_mirror(
        self, partition: PartitionId, mirror: MirrorRecord | None, guards: tuple[Compare, ...] = ()
    ) -> bool:
        """Write the mirror's part, as ``write_member``."""
        current = self.of(partition)
        if mirror is not None and current is not None and current.mirror is not None:
            mirror = replace(mirror, unknown=current.mirror.unknown)
        if current is not None and current.has_member:
            return await self._write(partition, replace(current, mirror=mirror), guards)
        return await self._write(partition, MemberRecord.of_mirror(mirror) if mirror else None, guards)

    async def _write(
        self, partition: PartitionId, record: MemberRecord | None, guards: tuple[Compare, ...]
    ) -> bool:
        """Write a record; not what the key says already, unless guards ask for it."""
        if not guards and self.of(partition) == record:
            return True
        key = self._key(partition)
        value = record.encode() if record is not None else None
        operation = Put(key, value) if value is not None else Delete(key)
        result = await self._node.metastore.commit(Txn(guards, (operation,)))
        if result.succeeded:
            self._written.note(key, result.revision, value)
        return result.succeeded

    def _key(self, partition: PartitionId) -> str:
        return self._node.mirrors.keyspace.member(partition, self._node.name)
