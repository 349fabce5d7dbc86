"""Duties of a node to its members and mirrors: carry out what ``replica_decision`` decides, and keep what is
published of them true.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GroupRecord, MemberRecord, MemberState, MirrorRecord
from rebalance.core.keyspace.txn import Compare, Put, Txn, absent, unchanged
from rebalance.nodes.copy_attempts import CopyProgress
from rebalance.nodes.copy_repairs import CopyRepairs, broken_by, wall_ms
from rebalance.nodes.kept_copies import KeptCopies, RemovalJudge, RemovalVerdict
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.pace import Awaited, Pace
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.recovery_duties import RecoveryDuties
from rebalance.nodes.replica_decision import (
    MEMBER_STATES,
    Duty,
    MemberDecision,
    MirrorDecision,
    MirrorDuty,
    decide_member,
    decide_mirror,
    is_given_up,
    mirror_record,
)
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus, NoPlaceError
from rebalance.ports.mirrors import MirrorHost

log = structlog.get_logger(__name__)

DATALESS = frozenset((MemberLife.RESERVED, MemberLife.REMOVED, MemberLife.DATA_LOST))
FOUNDS = (Duty.FOUND_ALONE, Duty.FOUND_FROM_MIRROR, Duty.FOUND_EMPTY)
REMOVED_S = 2.0
"""A new leader may publish a list from before its first commit: for so long it says the same of a joiner."""
ACTED_S = 0.1
PAUSE_S = 0.5

Tended = tuple[MemberStatus | None, float | None]
"""The member's status, and the seconds until the next look at the latest; None: nothing is left."""


@dataclass(eq=False)
class MemberDuties:
    """The life of this node's members, one partition at a time (the queue keeps them apart). ``full``: why one
    more replica has no place on this node, empty when it has."""

    node: NodeContext
    records: OwnRecords
    removals: RemovalJudge
    full: Callable[[PartitionId], str]
    mirrors: MirrorHost
    progress: CopyProgress

    def __post_init__(self) -> None:
        self._recovery = RecoveryDuties(self.node, self.mirrors)
        self._repairs = CopyRepairs(self.node, self.node.data_dir, wall_ms)
        self._kept = KeptCopies(self.node, self.records, self.removals)
        self._removed_since: dict[PartitionId, float] = {}

    async def tend(self, view: NodePartitionView) -> Tended:
        """The member's status after one duty, and when to look again at the latest (None: nothing is left)."""
        await self._kept.tidy(view)
        status = await self.node.host.status(view.partition)
        if await self._recovery.restarted(view) or await self._recovery.noted_again(view, status):
            return None, ACTED_S
        decision = self._decided(view, status)
        if broken := broken_by(status, decision):
            if await self._repairs.repaired(view, broken):
                return None, ACTED_S
            decision = replace(decision, reason=f"{decision.reason}; {self._repairs.obstacle(view)}")
        if decision.duty is not Duty.REPLACE_JOINER:
            self._removed_since.pop(view.partition, None)
        ended = await self._carried_out(decision.duty, view, status)
        return ended if ended is not None else await self._recorded(view, status, decision)

    def _decided(self, view: NodePartitionView, status: MemberStatus | None) -> MemberDecision:
        is_forced = view.pending is not None and view.pending.value.forced
        has_mirror = bool(is_forced) and view.partition in self.mirrors.partitions()
        decision = decide_member(view, self.node.name, status, has_mirror=has_mirror)
        return self._with_engine(view, decision) if decision.duty in (Duty.BOOTSTRAP, Duty.JOIN) else decision

    async def _carried_out(
        self, duty: Duty, view: NodePartitionView, status: MemberStatus | None
    ) -> Tended | None:
        """Carry a duty out; None: the member's record is to be kept true, else that is all of this round."""
        partition = view.partition
        ended: Tended | None = None
        match duty:
            case Duty.NOTHING if status is None:
                ended = None, None
            case Duty.CLEAN_UP:
                ended = await self._clean_up(view, status)
            case Duty.KEEP:
                await self._kept.hold(partition, status)
                ended = None, None
            case Duty.DISCARD:
                await self._kept.discard(view)
                ended = None, ACTED_S
            case Duty.REINCARNATE:
                ended = None, await self._reincarnate(view, status)
            case Duty.REPLACE_JOINER if status is not None and await self._is_removed(partition, status):
                ended = None, await self._reincarnate(view, status)
            case Duty.RESERVE:
                ended = None, await self._reserve(view)
            case Duty.FENCE:
                await self.node.host.stop(partition, destroy=False)
            case Duty.FOUND_ALONE | Duty.FOUND_FROM_MIRROR:
                is_founded = await self._recovery.found_alone(view, on_mirror=duty is Duty.FOUND_FROM_MIRROR)
                ended = (None, ACTED_S) if is_founded else None
            case Duty.FOUND_EMPTY if status is not None:
                await self._recovery.found_empty(view, status)
            case Duty.FREEZE_GROUP:
                await self._freeze_group(view)
            case Duty.BOOTSTRAP | Duty.JOIN if status is not None:
                await self._start(view, duty, status.endpoints)
            case Duty.RESTART:
                await self.node.host.restart(partition)
        return ended

    async def _recorded(
        self, view: NodePartitionView, status: MemberStatus | None, decision: MemberDecision
    ) -> Tended:
        partition, duty = view.partition, decision.duty
        record = _record(view, self.node.name, status, decision)
        position = await self._recovery.position(partition, status)
        received, now_s = status.received if status is not None else 0, asyncio.get_running_loop().time()
        copied = self.progress.of(partition, received, now_s)
        if (position, copied) != (record.position, record.copied):
            record = replace(record, position=position, copied=copied)
        guards = self._as_read(view, record) if duty is Duty.REPORT_DATA_LOST else ()
        if not await self.records.write_member(partition, record, guards):
            return None, ACTED_S
        if duty in (Duty.FENCE, *FOUNDS):
            return None, PAUSE_S if duty is Duty.FENCE else ACTED_S
        if status is not None and status.life is MemberLife.RESERVED and duty is Duty.NOTHING:
            # It waits for keys that somebody else writes; the mirror wakes it.
            return status, PAUSE_S * 4
        settled = status is not None and status.life is MemberLife.RUNNING
        return status, None if settled else PAUSE_S if decision.reason else ACTED_S

    def _as_read(self, view: NodePartitionView, record: MemberRecord) -> tuple[Compare, ...]:
        """A view from before this node's last write may show a copy as lost that is being made anew."""
        own = view.records.get(self.node.name)
        if own is None or replace(own.value, mirror=record.mirror, unknown=record.unknown) == record:
            return ()
        return (unchanged(self.node.keyspace.member(view.partition, self.node.name), own.mod_revision),)

    async def _reserve(self, view: NodePartitionView) -> float:
        partition = view.partition
        try:
            full = self.full(partition)
            if full:
                raise NoPlaceError(full)
            endpoints = await self.node.host.reserve(partition, view.listed_urls)
        except NoPlaceError as error:
            record = MemberRecord(MemberState.FAILED, "", "", reason=str(error))
            await self.records.write_member(partition, record)
            return PAUSE_S * 4
        log.info("member reserved", partition=str(partition), peer_url=endpoints.peer_url)
        await self.records.write_member(
            partition, MemberRecord(MemberState.READY, endpoints.peer_url, endpoints.client_url)
        )
        return 0.0

    def _with_engine(self, view: NodePartitionView, decision: MemberDecision) -> MemberDecision:
        """A member of another engine could never join the group."""
        ours, theirs = self.node.host.engine(view.partition), view.group.value.engine if view.group else ""
        if not theirs or ours == theirs:
            return decision
        return MemberDecision(
            Duty.NOTHING, Cause.ENGINES_DIFFER.text(f"the group is kept by {theirs}, this node by {ours}")
        )

    async def _freeze_group(self, view: NodePartitionView) -> None:
        """Put-if-absent, guarded by all that was read: stable and the records of all its members."""
        if view.stable is None:
            return
        zone, number = view.partition.zone_id, view.partition.partition
        records = {name: view.records[name] for name in view.stable.value.peers}
        group = GroupRecord(
            token=f"{zone}-{number}-{view.stable.create_revision}",
            peers={name: record.value.peer_url for name, record in records.items()},
            engine=self.node.host.engine(view.partition),
        )
        guards = [absent(view.keys.group), unchanged(view.keys.stable, view.stable.mod_revision)]
        for name, record in records.items():
            guards.append(unchanged(self.node.keyspace.member(view.partition, name), record.mod_revision))
        result = await self.node.metastore.commit(Txn(tuple(guards), (Put(view.keys.group, group.encode()),)))
        if result.succeeded:
            log.info("group founded", partition=str(view.partition), token=group.token)

    async def _start(self, view: NodePartitionView, duty: Duty, endpoints: MemberEndpoints) -> None:
        """Recorded as started before it is: an empty directory is a loss from then on."""
        record = MemberRecord(
            MemberState.STARTING, endpoints.peer_url, endpoints.client_url, started=True, reason=""
        )
        await self.records.write_member(view.partition, record)
        if duty is Duty.BOOTSTRAP and view.group is not None:
            await self.node.host.bootstrap(view.partition, view.group.value)
        elif view.configuration is not None:
            members = view.configuration.value.members
            peers = {name: member.peer_url for name, member in members.items()}
            generation = view.group.value.generation if view.group is not None else 0
            await self.node.host.join(view.partition, peers, generation)

    async def _reincarnate(self, view: NodePartitionView, status: MemberStatus | None) -> float:
        """The record goes first: data that is gone under a record that says "started" would count as lost."""
        partition = view.partition
        if status is not None and await self._kept.has_more(view, status):
            await self._kept.set_aside(view, status)
            return 0.0
        log.info("member was removed by its group and is wanted again", partition=str(partition))
        await self.records.write_member(partition, None)
        await self.node.host.stop(partition, destroy=True)
        return 0.0

    async def _is_removed(self, partition: PartitionId, status: MemberStatus) -> bool:
        """Check that the group has been without this member for ``REMOVED_S``, by the word of a metastore that
        did not go back in time."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._removed_since.setdefault(partition, now_s) < REMOVED_S:
            return False
        removal = await self.removals.judge(partition, lambda _: False, status.endpoints.peer_url)
        return removal.verdict is RemovalVerdict.MAY_GO

    async def _clean_up(self, view: NodePartitionView, status: MemberStatus | None) -> Tended:
        """Destroys only what both keys, read at one revision, do not ask for (I3-049)."""
        partition = view.partition
        has_data = status is not None and status.life not in DATALESS
        removal = await self.removals.judge(
            partition,
            lambda assignments: self.node.name in assignments.peers,
            status.endpoints.peer_url if status is not None and has_data else None,
        )
        match removal.verdict:
            case RemovalVerdict.ASSIGNED:
                return None, ACTED_S
            case RemovalVerdict.STORE_IS_BEHIND:
                return None, PAUSE_S * 10
            case RemovalVerdict.KEPT if status is not None:
                return await self._keep(partition, status, removal.why)
        if status is not None and await self._kept.has_more(view, status):
            set_aside = await self._kept.set_aside(view, status, removal.guards)
            return None, None if set_aside else ACTED_S
        if removal.keeps and status is not None and has_copy(view, self.node.name, status):
            kept = await self._kept.keep(partition, status.endpoints.peer_url, removal)
            return None, None if kept else ACTED_S
        if not await self.records.write_member(partition, None, removal.guards):
            return None, ACTED_S
        if partition in self.node.host.partitions():
            await self.node.host.stop(partition, destroy=True)
            log.info("member destroyed", partition=str(partition))
        return None, None

    async def _keep(self, partition: PartitionId, status: MemberStatus, why: str) -> Tended:
        """Let the member go on, and lead if it does: no other node can publish what its group looks like."""
        if status.life is MemberLife.RUNNING:
            return status, None
        log.info("member kept", partition=str(partition), reason=why)
        if status.life in (MemberLife.STOPPED, MemberLife.FAILED):
            await self.node.host.restart(partition)
        return None, PAUSE_S * 4


def has_copy(view: NodePartitionView, node: str, status: MemberStatus) -> bool:
    """Check that what is to be cleaned up is a copy that may be kept: of a partition that is there, on a node
    that is not to have another one, with data of the group's present life."""
    if status.life in (MemberLife.RESERVED, MemberLife.DATA_LOST):
        return False
    group = view.group.value if view.group is not None else None
    return view.stable is not None and node not in view.assigned and not is_given_up(status.generation, group)


def _record(
    view: NodePartitionView, node: str, status: MemberStatus | None, decision: MemberDecision
) -> MemberRecord:
    own = view.records.get(node)
    if decision.duty is Duty.REPORT_DATA_LOST and own is not None:
        kept = own.value
        return MemberRecord(MemberState.FAILED, kept.peer_url, kept.client_url, True, decision.reason)
    if status is None:
        return MemberRecord(MemberState.FAILED, "", "", reason=decision.reason)
    started = status.life is not MemberLife.RESERVED or decision.duty in (Duty.BOOTSTRAP, Duty.JOIN)
    state, reason = MEMBER_STATES[status.life], decision.reason
    if decision.duty is Duty.FENCE:
        state = MemberState.FAILED
    if status.life is MemberLife.RESERVED and status.reason:
        # Its first start failed before anything was written.
        state, reason = MemberState.FAILED, status.reason
    elif status.life is MemberLife.RESERVED and started:
        state = MemberState.STARTING
    return MemberRecord(state, status.endpoints.peer_url, status.endpoints.client_url, started, reason)


MIRROR_PAUSE_S = 2.0
AGAIN_S = 0.1


@dataclass(eq=False)
class MirrorDuties:
    """The life of this node's mirrors, one partition at a time. ``full``: why one more replica has no place on
    this node, empty when it has."""

    node: str
    host: MirrorHost
    records: OwnRecords
    removals: RemovalJudge
    full: Callable[[PartitionId], str]
    pace: Pace | None = None

    def __post_init__(self) -> None:
        self._pace = self.pace or Pace(random.Random(self.node))

    async def tend(self, view: NodePartitionView) -> float | None:
        """One duty; returns when to look again at the latest, None when there is nothing to look after."""
        partition = view.partition
        status = await self.host.status(partition)
        decision = decide_mirror(view, self.node, status)
        match decision.duty:
            case MirrorDuty.NOTHING:
                return None
            case MirrorDuty.CLEAN_UP:
                return await self._clean_up(partition, has_data=status is not None)
            case MirrorDuty.WAIT:
                await self.records.write_mirror(partition, mirror_record(status, decision.reason))
                return MIRROR_PAUSE_S
            case MirrorDuty.FOLLOW:
                return await self._follow(partition, decision)

    async def keep(self, view: NodePartitionView) -> None:
        """Keep what this node has going while no assignment counts."""
        status = await self.host.status(view.partition)
        if status is None or status.life is MemberLife.RUNNING:
            return
        decision = decide_mirror(view, self.node, status)
        if decision.duty is MirrorDuty.FOLLOW:
            await self.host.follow(view.partition, decision.group, decision.sources)

    async def _follow(self, partition: PartitionId, decision: MirrorDecision) -> float:
        try:
            full = self.full(partition)
            if full:
                raise NoPlaceError(full)
            await self.host.follow(partition, decision.group, decision.sources)
        except NoPlaceError as error:
            await self.records.write_mirror(partition, MirrorRecord(MemberState.FAILED, reason=str(error)))
            return MIRROR_PAUSE_S
        status = await self.host.status(partition)
        await self.records.write_mirror(partition, mirror_record(status))
        runs = status is not None and status.life is MemberLife.RUNNING
        return self._pace.idle_s() if runs else self._pace.pause_s(Awaited.COPYING, partition)

    async def _clean_up(self, partition: PartitionId, *, has_data: bool) -> float | None:
        """The record goes first, guarded: a data directory without a record is found again, the other way round
        readers would be sent to nobody."""
        removal = await self.removals.judge(
            partition, lambda assignments: self.node in assignments.learners, "" if has_data else None
        )
        match removal.verdict:
            case RemovalVerdict.ASSIGNED:
                return AGAIN_S
            case RemovalVerdict.STORE_IS_BEHIND:
                return MIRROR_PAUSE_S
            case RemovalVerdict.KEPT:
                log.info("mirror kept", partition=str(partition), reason=removal.why)
                return MIRROR_PAUSE_S
        if not await self.records.write_mirror(partition, None, removal.guards):
            return AGAIN_S
        if partition in self.host.partitions():
            await self.host.stop(partition, destroy=True)
            log.info("mirror destroyed", partition=str(partition))
        return None
