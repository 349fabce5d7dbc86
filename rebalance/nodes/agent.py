"""A node's agent: registers the node, follows the assignment keys, and keeps the node's members as they ask.

Three copies of the keyspace feed one queue of partitions; a round for a partition looks at its keys, its member
and its mirror and does what is due (``MemberDuties``, ``LeaderDuties`` when the member leads, ``MirrorDuties``
where the node is a learner). A key of a partition that concerns the node, and what the host tells,
bring its round up at once; rounds are repeated besides (``Pace``): every 1-2 s for a member at rest, every
100-150 ms while something changes, less often the longer nothing does. Nothing is remembered that the next
round needs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from rebalance.core.admission.move_admission import Limits
from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import ASSIGNING, Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import Failing
from rebalance.hosting.background import Background, Work
from rebalance.hosting.keyed_queue import KeyedQueue, work_each
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.registered_process import TroubleReport
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.copy_attempts import CopyProgress, CopyRules
from rebalance.nodes.copy_repairs import wall_ms
from rebalance.nodes.kept_copies import ForeignCopies, RemovalJudge
from rebalance.nodes.leader_duties import LeaderDuties
from rebalance.nodes.member_starts import MemberStarts, StrongZones, ZoneNotes
from rebalance.nodes.node_context import NO_REPORTS, AgentRules, NodeContext, NodeHosts, NodeStart
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.pace import Awaited, Pace
from rebalance.nodes.partition_view import Mirrors, NodePartitionView
from rebalance.nodes.registration import HeardTime, NodeNameTakenError, NodeRemovedError, Registration
from rebalance.nodes.replica_decision import is_kept, why_fenced
from rebalance.nodes.replica_duties import ACTED_S, MemberDuties, MirrorDuties
from rebalance.nodes.reports import FailureReport, MapReporter, log_failure
from rebalance.nodes.store_child import StorePartitions
from rebalance.ports.groups import (
    GroupError,
    MemberLife,
    MemberStatus,
    MemberUnavailableError,
)
from rebalance.ports.metastore import KeysUnreadableError, Metastore, MetastoreError
from rebalance.ports.metric_rows import NO_MEASURES, Measures

log = structlog.get_logger(__name__)

T = TypeVar("T")

UNANSWERED_S = 0.15
HALTED_S = 1.0
CONCURRENCY = 24
RETRY = Backoff(0.2, 2.0)
EXPECTED = (MetastoreError, GroupError, OSError)
"""Errors that a partition's round may end with; anything else is a defect."""


class NodeAgent:
    """``run`` it in the main thread's event loop: member processes die with the thread that spawned them.

    A partition that is reported as failed (I3-057, ``CopyRules`` of the limits) is logged once; the attempts go
    on. ``background`` None: a task that ends ends all.
    """

    def __init__(
        self,
        start: NodeStart,
        metastore: Metastore,
        keyspace: Keyspace,
        hosts: NodeHosts,
        rules: AgentRules = NO_REPORTS,
        background: Background | None = None,
        measures: Measures = NO_MEASURES,
    ) -> None:
        node, data_dir, fence = start.node, start.data_dir, hosts.fence
        self.node = node
        self.mirrors = Mirrors.over(metastore, keyspace)
        self._epochs = KeyspaceMirror(metastore, keyspace.epoch)
        self._limits_key = KeyspaceMirror(metastore, keyspace.limits)
        self._limits_key.listen(self._on_limits)
        self._limits = Limits()
        self._keyspace = keyspace
        self._metastore = metastore
        self._host = hosts.members
        self._background = background or Background(restarts=False)
        self._queue = KeyedQueue[PartitionId](RETRY, random.Random(node.name))
        heard, notes = HeardTime(start.lease_ttl_s), ZoneNotes(data_dir)
        self._notes = notes
        self._registration = Registration(
            metastore, keyspace, start, heard, fence, held_zone=lambda: notes.highest
        )
        self._fence = fence
        self._copies = hosts.mirrors
        self._safe_times = hosts.safe_times
        self._report = TroubleReport(
            metastore,
            keyspace.process(node.name),
            "node",
            lambda: self._registration.lease,
            self._background,
        )
        self._pace = Pace(random.Random(node.name), notified=hosts.tell)
        self._assigned: set[PartitionId] = set()
        """Partitions whose stable or pending names this node, as the mirror shows them."""
        context = NodeContext(node.name, metastore, self.mirrors, hosts.members, measures, data_dir)
        records = OwnRecords(context)
        removals = RemovalJudge(metastore, keyspace, self._registration)
        progress = CopyProgress(lambda: self._copy_rules().joiner_s)
        self._members = MemberDuties(context, records, removals, self._full, self._copies, progress)
        self._learner = MirrorDuties(node.name, self._copies, records, removals, self._full, self._pace)
        self._leader = LeaderDuties(
            context, self._queue.add, self._copy_rules, log_failure, heard, self._pace, self._background
        )
        self._unreadable = UnreadableLog()
        self._strong_zones = StrongZones(data_dir, metastore, keyspace)
        cut_off = rules.start_without_metastore
        self._starts = MemberStarts(
            context, self._unreadable, self._strong_zones, notes, without_metastore=cut_off
        )
        self._foreign = ForeignCopies(context, notes, self._strong_zones, self._copies, records)
        if fence is not None:
            fence.open(self._strong_zones, self._starts.clearance, self._look_at_held)
            self._strong_zones.listen(fence.zones_changed)
        self._store = hosts.store
        self._store_partitions = StorePartitions(node, self._strong_zones, keyspace, data_dir)
        self._maps: MapReporter | None = None
        if rules.map_period_s:
            self._maps = MapReporter(node.name, start.incarnation, metastore, keyspace, rules.map_period_s)
        self._failures: FailureReport | None = None
        if rules.failures_period_s:
            self._failures = FailureReport(
                node.name, metastore, keyspace, self.mirrors.partitions, wall_ms, rules.failures_period_s
            )

    async def run(self) -> None:
        """Run until cancelled; then members and mirrors are stopped in order and the node's key is removed.

        Raises DataDirectoryInUseError when another process holds the data directory, NodeNameTakenError when
        another living node has the name, NodeRemovedError when this one was removed.
        """
        self._host.open(self.node.name)
        try:
            self._copies.open(self.node.name)
            for partition in self._held | self._host.aside().keys():
                self._notes.holds(partition.zone_id)
            await self._starts.restart_members()
            await self._registration.register()
            await self._follow()
        finally:
            await self._leader.close()
            await asyncio.gather(self._copies.close(), self._host.close())
            if self._safe_times is not None:
                await self._safe_times.close()
            if self._fence is not None:
                await self._fence.close()
            await self._registration.withdraw()
            log.info("node stopped", node=self.node.name)

    async def _follow(self) -> None:
        mirrors = self.mirrors
        try:
            async with asyncio.TaskGroup() as tasks:

                def keep(name: str, work: Work) -> None:
                    kept = self._background.keep(name, work, final=(NodeNameTakenError, NodeRemovedError))
                    tasks.create_task(kept, name=name)

                keep("registration", self._registration.keep)
                if self._fence is not None:
                    keep("fence", self._fence.run)
                if self._registration.fence_record is not None:
                    keep("fence record", self._registration.fence_record.run)
                keep("mirrors", mirrors.run)
                self._epochs.listen(self._on_epoch)
                keep("epoch", self._epochs.run)
                keep("limits", self._limits_key.run)
                keep("zones", self._strong_zones.intents.run)
                if self._store is not None:
                    keep("store server", self._store_partitions.once_used(self._store))
                keep("report", self._report.run)
                await mirrors.loaded()
                await asyncio.gather(self._epochs.loaded(), self._strong_zones.intents.loaded())
                mirrors.partitions.listen(self._on_partition_keys)
                mirrors.members.listen(self._on_member_keys)
                mirrors.nodes.listen(self._on_node_keys)
                self._add_everything()
                keep("rounds", self._work)
                if self._safe_times is not None:
                    safe_times = self._safe_times
                    keep("safe times", lambda: safe_times.run(self._leader.led_with_learners))
                if self._maps is not None:
                    keep("partition map", self._maps.run)
                if self._failures is not None:
                    keep("failures", self._failures.run)
        except BaseExceptionGroup as group:
            # One cause is enough for the caller, who wants to tell a taken name from a defect.
            raise group.exceptions[0] from group

    async def _work(self) -> None:
        await work_each(self._queue, self._round, CONCURRENCY, self._note_failure)

    def _note_failure(self, partition: PartitionId, error: Exception, delay_s: float) -> None:
        if isinstance(error, EXPECTED):
            again_in_s = round(delay_s, 1)
            log.info("round failed", partition=str(partition), error=repr(error), again_in_s=again_in_s)
        else:
            self._background.defect("a partition's round", error, partition=str(partition))

    def notice(self, partition: PartitionId, delay_s: float = 0.0) -> None:
        """The node's member or mirror of the partition is another one after ``delay_s`` than it was: it runs or
        does not, leads or does not, is of another size."""
        if self._holds(partition):
            self._pace.stirred(partition)
            self._queue.add(partition, delay_s)

    def _add_everything(self) -> None:
        mirrors, keys = self.mirrors, self._keyspace
        self._on_partition_keys(frozenset(item.key for item in mirrors.partitions.below(keys.partitions)))
        self._on_member_keys(frozenset(item.key for item in mirrors.members.below(keys.members)))
        for partition in self._held | self._host.aside().keys():
            self._queue.add(partition)

    @property
    def _held(self) -> frozenset[PartitionId]:
        """Partitions that this node has a member or a mirror of."""
        return self._host.partitions() | self._copies.partitions()

    def _holds(self, partition: PartitionId) -> bool:
        return self._host.endpoints(partition) is not None or partition in self._copies.partitions()

    def _full(self, partition: PartitionId) -> str:
        """A mirror is a process as a member is. A node that has one of the two may have both while its role
        changes: at the limit no role could change otherwise."""
        limit = self.node.member_limit
        if self._holds(partition) or len(self._held) < limit:
            return ""
        return Cause.NODE_MEMBER_LIMIT.text(f"{limit} members and mirrors are held")

    @property
    def halted(self) -> bool:
        """Catalog and metastore do not agree, or nobody can tell: this node follows no assignment."""
        epoch = self._epoch
        return isinstance(epoch, Unreadable) or bool(epoch.halted)

    @property
    def _epoch(self) -> EpochRecord | Unreadable:
        return read(self._epochs.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()

    def _on_limits(self, _changed: frozenset[str]) -> None:
        item = self._limits_key.get(self._keyspace.limits)
        if self._registration.fence_record is not None:
            self._registration.fence_record.on_limits(item)
        limits = self._unreadable.read("limits", item, Limits.decode) or Limits()
        if not isinstance(limits, Unreadable):
            # Else what was known of attempts at copies goes on.
            self._limits = limits

    def _copy_rules(self) -> CopyRules:
        item = self._limits_key.get(self._keyspace.limits)
        return CopyRules.of(self._limits, item.mod_revision if item is not None else 0)

    def _on_epoch(self, _changed: frozenset[str]) -> None:
        epoch = self._epoch
        if isinstance(epoch, Unreadable):
            self._unreadable.waits("epoch", epoch)
        else:
            self._unreadable.goes_on("epoch")
            self._registration.adopted(epoch.epoch, self._epochs.revision)
        self._look_at_held()

    def _look_at_held(self) -> None:
        for partition in self._held:
            self._queue.add(partition)

    def _on_partition_keys(self, changed: frozenset[str]) -> None:
        self._registration.saw(self.mirrors.partitions.revision)
        touched: dict[PartitionId, None] = {}
        for key in sorted(changed):
            parsed = self._keyspace.parse_partition(key)
            if parsed is None:
                continue
            partition, field = parsed
            touched[partition] = None
            if field in ASSIGNING:
                if self.mirrors.assigned(partition, self.node.name):
                    self._notes.holds(partition.zone_id)
                    self._assigned.add(partition)
                else:
                    self._assigned.discard(partition)
        self._look_at(touched)

    def _on_member_keys(self, changed: frozenset[str]) -> None:
        named = map(self._keyspace.parse_member, sorted(changed))
        self._look_at(dict.fromkeys(parts[0] for parts in named if parts is not None))

    def _on_node_keys(self, changed: frozenset[str]) -> None:
        """Handle a change of nodes: leaders or joiners of groups may be gone, or there again."""
        nodes = frozenset(key.removeprefix(self._keyspace.nodes) for key in changed)
        for partition in sorted(self._held, key=str):
            if self.mirrors.naming(partition, nodes):
                self._pace.stirred(partition)
                self._queue.add(partition)

    def _look_at(self, touched: Iterable[PartitionId]) -> None:
        """Queue the touched partitions that concern this node: most are on other nodes."""
        for partition in touched:
            if partition in self._assigned or self._has_something_of(partition):
                self._pace.stirred(partition)
                self._queue.add(partition)

    def _has_something_of(self, partition: PartitionId) -> bool:
        if self._holds(partition) or partition in self._host.aside():
            return True
        return self.mirrors.members.get(self._keyspace.member(partition, self.node.name)) is not None

    async def _round(self, partition: PartitionId) -> float | None:
        holds = self._holds(partition) or partition in self._host.aside()
        is_assigned = partition in self._assigned and not self._store_partitions.keeps(partition.zone_id)
        foreign_s = await self._foreign.left_alone(partition, holds=holds, is_assigned=is_assigned)
        if foreign_s is not None:
            self._leader.forget(partition)
            return foreign_s
        if self.halted:
            return await self._keep_running(partition)
        is_stored = not self._holds(partition) and self._store_partitions.keeps(partition.zone_id)
        if is_stored is not False:
            self._pace.forget(partition)
            return None if is_stored else HALTED_S
        view = self.mirrors.view(partition)
        if isinstance(view, Unreadable):
            self._unreadable.waits(partition, view)
            return await self._keep_running(partition, view) if self._holds(partition) else None
        self._unreadable.goes_on(partition)
        concerned = self.node.name in view.assigned or self.node.name in view.records
        if not concerned and not holds:
            if self._maps is not None:
                self._maps.note(view, None)
            self._pace.forget(partition)
            return None
        with bound_contextvars(partition=str(partition)):
            due = (await self._tend_member(view), await self._learner.tend(view))
        return min((delay_s for delay_s in due if delay_s is not None), default=None)

    async def _tend_member(self, view: NodePartitionView) -> float | None:
        status, delay_s = await self._members.tend(view)
        if self._maps is not None:
            self._maps.note(view, status)
        if status is None:
            self._leader.forget(view.partition)
            self._note_failing(view.partition, None)
            return delay_s
        if status.life is MemberLife.STARTING and delay_s == ACTED_S:
            return self._pace.pause_s(Awaited.STARTING, view.partition)
        if delay_s is not None:
            return delay_s
        return await self._beside_running_member(view, status)

    async def _keep_running(self, partition: PartitionId, unreadable: Unreadable | None = None) -> float:
        """Catalog and metastore do not agree, or a key of the partition cannot be read: no assignment counts,
        but the data stays served. A member that was stopped may be fenced: where nobody can tell it stays."""
        view, status = self.mirrors.shown(partition), await self._host.status(partition)
        stays = unreadable is not None and unreadable.key in (view.keys.pending, view.keys.group)
        lives = (MemberLife.FAILED,) if stays else (MemberLife.STOPPED, MemberLife.FAILED)
        if status is not None and status.life in lives and not (unreadable and self._is_fenced(view, status)):
            kept = view.kept.get(self.node.name)
            if kept is None or not is_kept(kept.value, status):
                await self._host.restart(partition)
        await self._learner.keep(view)
        return HALTED_S

    def _is_fenced(self, view: NodePartitionView, status: MemberStatus) -> bool:
        pending = view.pending.value if view.pending is not None else None
        group = view.group.value if view.group is not None else None
        return bool(why_fenced(self.node.name, status.generation, pending, group))

    async def _beside_running_member(self, view: NodePartitionView, status: MemberStatus) -> float:
        if not status.is_leader:
            self._note_failing(view.partition, None)
            again_s = await self._leader.follow(view, status)
            changes = view.pending is not None or view.configuration is None
            pause_s = self._pace.pause_s(Awaited.FOLLOWING, view.partition) if changes else self._pace.idle_s()
            if not status.leader:
                pause_s = min(pause_s, self._pace.pause_s(Awaited.LEADERLESS, view.partition))
            return pause_s if again_s is None else min(again_s, pause_s)
        try:
            delay_s = await self._leader.lead(view, status)
        except MemberUnavailableError as error:
            log.info("the leader does not answer", partition=str(view.partition), error=str(error))
            return UNANSWERED_S
        except KeysUnreadableError as error:
            self._unreadable.waits((view.partition, "leader"), error.unreadable)
            return HALTED_S
        self._unreadable.goes_on((view.partition, "leader"))
        self._note_failing(view.partition, self._leader.failing(view), status.term)
        return delay_s if delay_s is not None else self._pace.idle_s()

    def _note_failing(self, partition: PartitionId, failing: Failing | None, term: int = 0) -> None:
        if self._failures is not None:
            self._failures.note(partition, term, failing)
