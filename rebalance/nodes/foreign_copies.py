"""Members and mirrors of another life of a zone's id: they are neither started nor deleted, and they are named.

Ids are never given twice, unless catalog and metastore were both restored from older backups while this node
was away: then its disk has copies of a lost zone, and the catalog a new zone of the same id.
"""

from __future__ import annotations

import structlog

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.nodes.kept_copies import RUNS
from rebalance.nodes.member_starts import StrongZones
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.zone_notes import ZoneNotes
from rebalance.ports.mirrors import MirrorHost

log = structlog.get_logger(__name__)

FOREIGN_S = 10.0


class ForeignCopies:
    """Foreign copies of one node. ``notes`` say of which life its copies are."""

    def __init__(
        self,
        node: NodeContext,
        notes: ZoneNotes,
        zones: StrongZones,
        mirrors: MirrorHost,
        records: OwnRecords,
    ) -> None:
        self._node = node
        self._notes = notes
        self._zones = zones
        self._mirrors = mirrors
        self._records = records
        self._named: set[PartitionId] = set()

    async def left_alone(self, partition: PartitionId, *, holds: bool, is_assigned: bool) -> float | None:
        """Return when to look again; None: nothing here is of another life, and what is here is noted.
        ``holds``: the node has something of the partition. Raises MetastoreError."""
        if not holds:
            self._notes.forget(partition)
            return None
        intent = self._zones.intent(partition.zone_id)
        cause = self._notes.why_foreign(partition, intent)
        if not cause:
            self._named.discard(partition)
            self._notes.note(partition, intent)
            return None
        if partition not in self._named:
            self._named.add(partition)
            log.error("a copy of another zone is left alone", partition=str(partition), cause=cause)
        member = await self._node.host.status(partition)
        if member is not None and member.life in RUNS:
            await self._node.host.stop(partition, destroy=False)
        mirror = await self._mirrors.status(partition)
        if mirror is not None and mirror.life in RUNS:
            await self._mirrors.stop(partition, destroy=False)
        told = MemberRecord(MemberState.FAILED, "", "", reason=cause) if is_assigned else None
        await self._records.write_member(partition, told)
        return FOREIGN_S
