"""The record of what a group has committed, as the agent beside its leader publishes it."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable
from rebalance.core.keyspace.records import ConfigurationRecord, ConfiguredMember, MemberRole
from rebalance.core.keyspace.txn import Compare, CompareOp, CompareTarget, Put, Txn, unchanged
from rebalance.core.moves.group_steps import stage_of
from rebalance.nodes.move_times import MoveTimes
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.recent_writes import RecentWrites
from rebalance.ports.groups import GroupMember
from rebalance.ports.metastore import KeysUnreadableError


class ConfigurationWriter:
    """Writer of the configurations of the groups that ``node`` leads."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._mirror = node.mirrors.partitions
        self._written = RecentWrites()
        self._moves = MoveTimes(node.measures)

    def forget(self, partition: PartitionId) -> None:
        """The node does not lead its group any more."""
        self._moves.forget(partition)

    async def publish(
        self,
        view: NodePartitionView,
        term: int,
        members: tuple[GroupMember, ...],
        reason: str | None = None,
        size_bytes: int | None = None,
    ) -> bool:
        """Write the configuration unless it says so already. Guarded: the zone exists, nobody wrote since, and
        a leader of an earlier term or generation never overwrites a later one's. ``reason`` None keeps what is
        published as long as the members stay the same, ``size_bytes`` None keeps it anyhow. Raises
        MetastoreError."""
        if view.stable is None:
            return False
        key = view.keys.configuration
        current = self._written.current(key, self._mirror)
        try:
            known = ConfigurationRecord.decode(current) if current is not None else None
        except RecordNotReadableError as error:
            raise KeysUnreadableError(Unreadable(key, error.reason)) from error
        record = configuration_of(view, self._node.name, term, members, reason or "")
        self._moves.note(view.partition, record.stage)
        if known is not None:
            record = kept_unknown(record, known)
            if (known.generation, known.term) > (record.generation, term):
                return False
            if reason is None and known.members == record.members:
                record = replace(record, reason=known.reason)
        if size_bytes is None:
            size_bytes = known.size_bytes if known is not None else 0
        record = replace(record, size_bytes=size_bytes)
        if known == record:
            return True
        exists = Compare(view.keys.stable, CompareTarget.CREATE_REVISION, CompareOp.GREATER, 0)
        guards = (exists, unchanged(key, self._written.revision(key, self._mirror)))
        result = await self._node.metastore.commit(Txn(guards, (Put(key, record.encode()),)))
        if result.succeeded:
            self._written.note(key, result.revision, record.encode())
        else:
            self._written.forget(key)
        return result.succeeded


def configuration_of(
    view: NodePartitionView, leader: str, term: int, members: tuple[GroupMember, ...], reason: str
) -> ConfigurationRecord:
    stable = view.stable.value.peers if view.stable else ()
    pending = view.pending.value.peers if view.pending else None
    voters = [member.node for member in members if member.role is MemberRole.VOTER]
    learners = [member.node for member in members if member.role is MemberRole.LEARNER]
    return ConfigurationRecord(
        term=term,
        leader=leader,
        stage=stage_of(voters, learners, stable, pending),
        members={
            member.node: ConfiguredMember(member.member_id, member.role, member.peer_url, member.leaving)
            for member in members
        },
        reason=reason,
        generation=view.group.value.generation if view.group else 0,
    )


def kept_unknown(record: ConfigurationRecord, known: ConfigurationRecord) -> ConfigurationRecord:
    """Return the record with what a later build has written into the one that it replaces."""
    members = {
        name: replace(member, unknown=before.unknown)
        if (before := known.members.get(name)) is not None
        and before.unknown
        and before.member_id == member.member_id
        else member
        for name, member in record.members.items()
    }
    return replace(record, members=members, unknown=known.unknown)
