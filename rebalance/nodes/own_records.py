"""Records that a node writes: of its own replicas, and, beside a leader, of what the group has committed.

A replica's record is one a partition, of the member and of the mirror together. They come and go apart from
each other, so each part is written without touching the other. Only this node writes its records, and one
task at a time works on a partition, so no guard is needed for that. Writes of a moment ago that no mirror
shows yet are remembered (``RecentWrites``), so that nothing is written twice. With each configuration the
durations of moves and of their stages are measured (``MoveTimes``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MirrorRecord,
    Stage,
)
from rebalance.core.keyspace.txn import Compare, Delete, Put, Txn, present, unchanged
from rebalance.core.moves.group_steps import stage_of
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView, parsed
from rebalance.ports.groups import GroupMember
from rebalance.ports.metastore import KeysUnreadableError
from rebalance.ports.metric_rows import Measures, Metric

TRUSTED_S = 5.0
"""A mirror that has not caught up by then shows another history (a restored store): it is believed again."""


class RecentWrites:
    def __init__(self) -> None:
        self._written: dict[str, tuple[int, bytes | None, float]] = {}

    def note(self, key: str, revision: int, value: bytes | None) -> None:
        self._written[key] = (revision, value, asyncio.get_running_loop().time())

    def current(self, key: str, mirror: KeyspaceMirror) -> bytes | None:
        """The newest value of ``key`` that this process knows."""
        newer = self._newer(key, mirror)
        return newer[1] if newer else mirror.value(key)

    def revision(self, key: str, mirror: KeyspaceMirror) -> int:
        """The mod revision that a guard on ``current`` must name; 0 for an absent key."""
        newer = self._newer(key, mirror)
        if newer:
            return newer[0] if newer[1] is not None else 0
        item = mirror.get(key)
        return item.mod_revision if item else 0

    def forget(self, key: str) -> None:
        self._written.pop(key, None)

    def _newer(self, key: str, mirror: KeyspaceMirror) -> tuple[int, bytes | None] | None:
        entry = self._written.get(key)
        if entry is None:
            return None
        revision, value, at = entry
        if revision <= mirror.revision or asyncio.get_running_loop().time() - at > TRUSTED_S:
            del self._written[key]
            return None
        return revision, value


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


@dataclass(frozen=True, slots=True)
class _Move:
    """Seconds of the clock."""

    stage: Stage
    stage_since: float
    begun: float


class MoveTimes:
    """Times of the moves of groups that one node leads. A move that another leader ends is not told: nobody
    knows how long it took as a whole."""

    def __init__(self, measures: Measures, clock: Callable[[], float] = time.monotonic) -> None:
        self._measures = measures
        self._clock = clock
        self._moves: dict[PartitionId, _Move] = {}

    def note(self, partition: PartitionId, stage: Stage) -> None:
        """Note the published stage of the group. NONE: no move has begun, or its last step is done."""
        now, move = self._clock(), self._moves.get(partition)
        if move is None:
            if stage is not Stage.NONE:
                self._moves[partition] = _Move(stage, now, now)
            return
        if stage is move.stage:
            return
        self._measures.observe(Metric.MOVE_STAGE_SECONDS, now - move.stage_since, move.stage.value)
        if stage is Stage.NONE:
            self._measures.observe(Metric.MOVE_SECONDS, now - move.begun)
            del self._moves[partition]
        else:
            self._moves[partition] = _Move(stage, now, move.begun)

    def forget(self, partition: PartitionId) -> None:
        """The node does not lead its group."""
        self._moves.pop(partition, None)


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
        exists = present(view.keys.stable)
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
