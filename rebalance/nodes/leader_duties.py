"""What the agent beside a group's leader does: publish the group's configuration, drive a pending change, and
switch stable.

The truth about the group is the group's own member list; the truth about the intention is read from the
metastore in one transaction when a leader is elected, when pending changes and before every switch. Between
those moments a change that runs needs the metastore only to publish.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from rebalance.core.assignments import Assignments, Strategy
from rebalance.core.change_lock import PendingLock, decode_lock
from rebalance.core.failures import Failing
from rebalance.core.guarded_write import Observed, Outcome, decide_on_configuration_applied
from rebalance.core.keys import PartitionId
from rebalance.core.move_status import COPY_STALLED
from rebalance.core.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.records import (
    ConfigurationRecord,
    MemberRole,
    MemberState,
    rounded_size,
)
from rebalance.core.txn import Compare, CompareOp, CompareTarget, Put, Txn, unchanged
from rebalance.metastore.guarded_update import commit_decided
from rebalance.nodes.configuration import configuration_of, kept_unknown
from rebalance.nodes.copy_attempts import CopyAttempts, CopyRules
from rebalance.nodes.heard_time import HeardTime
from rebalance.nodes.intention import DesiredPeers, desired_peers, peer_urls, pending_revision
from rebalance.nodes.joiner_watch import JoinerWatch
from rebalance.nodes.leadership import Leadership
from rebalance.nodes.obstacles import explained, obstacle
from rebalance.nodes.pace import Pace
from rebalance.nodes.partition_view import Mirrors, NodePartitionView
from rebalance.nodes.recent_writes import RecentWrites
from rebalance.nodes.strategy_duties import MOVED_ON, StrategyDuties, read_assignments
from rebalance.ports.groups import (
    ChangeAnswer,
    FailureCode,
    GroupHost,
    GroupMember,
    Intention,
    MemberStatus,
    MemberUnavailableError,
    PeerSight,
    ReconfigurationFailure,
)
from rebalance.ports.metastore import (
    KeysUnreadableError,
    Metastore,
    MetastoreError,
    MetastoreUnavailableError,
)

log = structlog.get_logger(__name__)

ACTIVE_S = 0.1

NO_ATTEMPTS = CopyAttempts()

AWAITS_COPY = (FailureCode.CATCHING_UP, FailureCode.CATCH_UP_TIMEOUT, FailureCode.MEMBER_NOT_STARTED)

FailureHandler = Callable[[PartitionId, ReconfigurationFailure], None]


@dataclass(slots=True)
class _Drive:
    """One led group's running intention. ``attempts`` are those since the member list last changed."""

    elected: bool = False
    asked: DesiredPeers | None = None
    """What the change that runs was asked for."""
    members: frozenset[tuple[str, MemberRole]] = frozenset()
    attempts: CopyAttempts = NO_ATTEMPTS
    obstacle: str = ""
    beats_through: str = ""
    """Client URL of the own member while the partition has standing learners, which want to know the time."""


class LeaderDuties:
    """Also the ``GroupListener`` of the node's host. ``wake`` puts a partition into the agent's queue;
    ``rules`` answers with those of now for attempts."""

    def __init__(
        self,
        node: str,
        metastore: Metastore,
        mirrors: Mirrors,
        host: GroupHost,
        wake: Callable[[PartitionId], None],
        rules: Callable[[], CopyRules],
        failure_handler: FailureHandler,
        heard: HeardTime | None = None,
        pace: Pace | None = None,
    ) -> None:
        """``heard`` None: no joiner is ever given up."""
        self._node = node
        self._metastore = metastore
        self._mirrors = mirrors
        self._host = host
        self._wake = wake
        self._rules = rules
        self._failure_handler = failure_handler
        self._strategy = StrategyDuties(metastore, mirrors.keyspace, host)
        self._joiners = JoinerWatch(metastore, mirrors.keyspace, rules, heard or HeardTime(0.0))
        self._drives: dict[PartitionId, _Drive] = {}
        self._written = RecentWrites()
        self._leadership = Leadership(node, host)
        self._random = random.Random(node)
        self._pace = pace or Pace(self._random)

    def forget(self, partition: PartitionId) -> None:
        """The member no longer leads, or is gone."""
        self._drives.pop(partition, None)
        self._joiners.forget(partition)
        self._leadership.stirred(partition)

    async def follow(self, view: NodePartitionView, status: MemberStatus) -> float | None:
        """One round beside a member that does not lead; returns when it wants the next one, None: whenever."""
        self.forget(view.partition)
        return await self._leadership.beside_follower(view, status)

    async def lead(self, view: NodePartitionView, status: MemberStatus) -> float | None:
        """One round beside the leader; returns when the next one is due, None when the group is at rest and
        stays so."""
        if view.stable is None:
            return None  # a dropped zone, or not yet in the mirror
        partition = view.partition
        drive = self._drives.setdefault(partition, _Drive())
        circumstances = (self._rules().revision, pending_revision(view), view.living)
        drive.attempts = drive.attempts.under(circumstances, _now_s())
        drive.beats_through = status.endpoints.client_url if view.learning else ""
        members = await self._host.configuration(partition)
        at_rest = (
            view.pending is None
            and not drive.elected
            and not status.changing
            and {each.peer_url for each in members} == set(peer_urls(view, view.stable.value).values())
        )
        if at_rest:
            stable = view.stable.value
            drive.attempts = NO_ATTEMPTS
            drive.obstacle = obstacle(view, stable, peer_urls(view, stable), members)
        elif await self._joiners.look(view, members):
            drive.elected, drive.asked, drive.attempts = True, None, NO_ATTEMPTS
        elif await self._unlocked(view, status) or await self._cancelled(view, status.term):
            drive.elected, drive.asked = True, None
        elif not (status.changing and drive.asked == desired_peers(view)):
            await self._drive(view, status, drive)
        size = rounded_size(status.size_bytes)
        await self._publish(view, status.term, members, self._reason(view, status, drive), size)
        if at_rest:
            again_s = await self._leadership.at_rest(view)
            return None if again_s is None else min(again_s, self._pace.idle_s())
        self._leadership.stirred(partition)
        if drive.obstacle:
            return self._pace.blocked_s(partition)
        # A change that ends, in whichever way, wakes the partition.
        if drive.asked is not None and not drive.elected and status.changing:
            return self._pace.changing_s(partition)
        pause_s = drive.attempts.not_before_s - _now_s()
        return min(max(pause_s, ACTIVE_S), self._pace.blocked_s(partition))

    def failing(self, view: NodePartitionView) -> Failing | None:
        """What the change that is wanted does not get past; None: nothing, as far as attempts have shown."""
        drive = self._drives.get(view.partition, _Drive())
        if drive.obstacle:
            # At rest it is a voter that is missing, which is no failed change.
            return Failing(drive.obstacle.partition(":")[0], drive.obstacle) if view.pending else None
        failure = drive.attempts.failure
        if failure is None or not drive.attempts.is_failed(self._rules()):
            return None
        return Failing(failure.code.value, explained(view, failure), drive.attempts.counted)

    def led_with_learners(self) -> dict[PartitionId, str]:
        """Partitions led here that have standing learners, with the client URL of the own member."""
        return {each: drive.beats_through for each, drive in self._drives.items() if drive.beats_through}

    def peers(self, partition: PartitionId) -> Mapping[str, PeerSight]:
        view = self._mirrors.shown(partition)
        return {
            found.value.peer_url: PeerSight(
                name,
                down=name not in view.living or found.value.state is MemberState.FAILED,
                serving=found.value.state is MemberState.RUNNING,
                mirror_missing=name in view.living and not found.value.is_mirroring,
            )
            for name, found in view.records.items()
            if found.value.peer_url
        }

    async def on_leader_elected(self, partition: PartitionId, term: int) -> None:
        """Pending is read from the metastore itself in the next round, whatever the mirror says (I3-041)."""
        self._drives[partition] = _Drive(elected=True)
        self._wake(partition)

    async def on_configuration_committed(
        self, partition: PartitionId, term: int, members: tuple[GroupMember, ...]
    ) -> bool:
        drive = self._drives.setdefault(partition, _Drive())
        listed = frozenset((each.member_id, each.role) for each in members)
        if listed != drive.members:
            drive.members, drive.attempts = listed, CopyAttempts(since_s=_now_s())
        try:
            view = self._mirrors.view(partition)
            if isinstance(view, Unreadable):
                return False
            return await self._publish(view, term, members, None)
        except MetastoreError as error:
            log.info("configuration not published yet", partition=str(partition), error=str(error))
            return False

    async def on_catch_up_finished(
        self, partition: PartitionId, term: int, token: int, joiner: str = ""
    ) -> bool:
        """A change back to stable has no pending to lock."""
        drive = self._drives.get(partition)
        if drive is None or drive.asked is None:
            return False
        if drive.asked.revision == 0:
            return True
        strategy = drive.asked.target.strategy
        try:
            return await self._strategy.may_touch_voters(partition, term, token, strategy, joiner)
        except MetastoreError as error:
            log.info("pending not locked yet", partition=str(partition), error=str(error))
            return False

    async def on_voters_left_alone(self, partition: PartitionId, term: int, token: int) -> bool:
        drive = self._drives.get(partition)
        if drive is None or drive.asked is None:
            return False
        if drive.asked.revision == 0 or not drive.asked.target.strategy.locks_pending:
            return True
        try:
            return await self._strategy.unlock(partition, term) not in (*MOVED_ON, Outcome.LOCK_OF_LATER_TERM)
        except (MetastoreError, MemberUnavailableError) as error:
            # The next round does it first.
            log.info("pending not unlocked yet", partition=str(partition), error=str(error))
            return False

    async def intention(self, partition: PartitionId, term: int, token: int) -> Intention:
        asked = self._drives.get(partition, _Drive()).asked
        try:
            pending = (await self._read(partition))[0].pending
        except MetastoreError:
            return Intention.UNKNOWN
        # The token of a change back to stable is no revision of pending.
        wanted = 0 if asked is not None and not asked.revision else token
        is_wanted = (pending.mod_revision if pending is not None else 0) == wanted
        return Intention.WANTED if is_wanted else Intention.REPLACED

    async def on_new_peers_configuration_applied(
        self, partition: PartitionId, applied: Assignments, term: int, token: int
    ) -> None:
        """The stable switch (I3-035, I3-036, I3-037); what fails here is done by the next round."""
        try:
            await self._switch(partition, applied)
        except MetastoreError as error:
            log.info("stable not switched yet", partition=str(partition), error=str(error))
        self._wake(partition)

    async def on_reconfiguration_error(
        self, partition: PartitionId, failure: ReconfigurationFailure, term: int, token: int
    ) -> None:
        """Another attempt after a growing delay; none for a leader that stepped down (I3-053, I3-055)."""
        if failure.code is FailureCode.LEADER_STEPPED_DOWN:
            self.forget(partition)
            self._wake(partition)
            return
        drive = self._drives.setdefault(partition, _Drive())
        before, rules = drive.attempts, self._rules()
        copied = sum(each.value.copied for each in self._mirrors.shown(partition).records.values())
        drive.attempts = before.after_failure(failure, _now_s(), rules, self._random.random(), copied=copied)
        if drive.attempts.becomes_failed(before, rules):
            self._failure_handler(partition, failure)
        self._wake(partition)

    async def _drive(self, view: NodePartitionView, status: MemberStatus, drive: _Drive) -> None:
        """Bring the group to pending, or back to stable when nothing is pending."""
        if _now_s() < drive.attempts.not_before_s:
            return
        try:
            observed, revision = await self._read(view.partition)
        except MetastoreUnavailableError:
            await self._repeat(view.partition, status, drive)
            raise
        drive.elected = False
        if observed.stable is None:
            return
        wanted = observed.pending or observed.stable
        target = readable(wanted, Assignments.decode)
        token = observed.pending.mod_revision if observed.pending else revision
        urls = peer_urls(view, target)
        members = await self._host.configuration(view.partition, linearizable=True)
        voters = {each.peer_url for each in members if each.role is MemberRole.VOTER}
        is_applied = voters == set(urls.values()) and len(members) == len(target.peers) == len(urls)
        # A change that runs for another target has to be replaced first, also where only learners differ.
        if is_applied and not status.changing:
            if observed.pending is not None and await self._strategy.may_touch_voters(
                view.partition, status.term, token, target.strategy
            ):
                await self.on_new_peers_configuration_applied(
                    view.partition, Assignments(target.peers, target.learners), status.term, token
                )
            return
        if observed.lock is not None and not status.changing:
            # Whatever the mirror shows: what was planned under it may be wanted instead.
            drive.elected = await self._strategy.unlock(view.partition, status.term) in MOVED_ON
            if drive.elected:
                return
        asked = DesiredPeers(target, observed.pending.mod_revision if observed.pending else 0, urls)
        if status.changing and drive.asked == asked:
            return
        drive.obstacle = obstacle(view, target, urls, members)
        if drive.obstacle:
            return
        stable_urls = tuple(peer_urls(view, readable(observed.stable, Assignments.decode)).values())
        answer = await self._host.change_peers_and_learners(
            view.partition, status.term, token, target, urls, stable_urls
        )
        if answer in (ChangeAnswer.RECEIVED, ChangeAnswer.ALREADY_RUNNING):
            drive.asked = asked
        self._note_answer(view.partition, drive, answer)

    async def _repeat(self, partition: PartitionId, status: MemberStatus, drive: _Drive) -> None:
        """The metastore is silent: what this agent has read in this term is tried again (M12, I3-061). Only
        with ``queue``, where nothing takes the place of what runs; a new term begins without ``asked``."""
        asked = drive.asked
        if asked is None or drive.elected or status.changing or not asked.revision:
            return
        if asked.target.strategy is Strategy.QUEUE and not asked.target.forced:
            answer = await self._host.change_peers_and_learners(
                partition, status.term, asked.revision, asked.target, asked.urls
            )
            self._note_answer(partition, drive, answer)

    async def _unlocked(self, view: NodePartitionView, status: MemberStatus) -> bool:
        """Whether another target took pending's place because no voter is touched under the lock now. A change
        that runs sees to its own lock, not to what a deposed leader has left."""
        lock = read(self._mirrors.partitions.get(view.keys.lock), decode_lock)
        if not isinstance(lock, PendingLock) or (status.changing and lock.term >= status.term):
            return False
        outcome = await self._strategy.unlock(view.partition, status.term, of_earlier_terms=status.changing)
        return outcome in MOVED_ON

    async def _cancelled(self, view: NodePartitionView, term: int) -> bool:
        """Whether a planned target took the running one's place."""
        if view.pending is None or self._mirrors.partitions.get(view.keys.planned) is None:
            return False
        return await self._strategy.cancel(view.partition, term, view.pending.value.strategy) in MOVED_ON

    def _note_answer(self, partition: PartitionId, drive: _Drive, answer: ChangeAnswer) -> None:
        match answer:
            case ChangeAnswer.RECEIVED:
                log.info("change of peers started", partition=str(partition))
            case ChangeAnswer.ALREADY_RUNNING | ChangeAnswer.BUSY:
                pass
            case ChangeAnswer.NOT_LEADER | ChangeAnswer.OLD_TERM:
                self.forget(partition)
            case ChangeAnswer.STALE_TOKEN:
                drive.obstacle = answer.value

    async def _switch(self, partition: PartitionId, applied: Assignments) -> None:
        async def decided() -> tuple[Outcome, Txn | None]:
            decision = decide_on_configuration_applied((await self._read(partition))[0], applied)
            return decision.outcome, decision.transaction

        outcome, revision = await commit_decided(self._metastore, decided)
        if revision:
            drive = self._drives.setdefault(partition, _Drive())
            drive.attempts = NO_ATTEMPTS
            # A planned change that became pending is read at once, not when the mirror shows it.
            drive.elected = outcome is Outcome.SCHEDULE_PENDING_REBALANCE
            log.info(
                "stable switched",
                partition=str(partition),
                outcome=outcome.value,
                peers=applied.peers,
                learners=applied.learners,
            )

    async def _read(self, partition: PartitionId) -> tuple[Observed, int]:
        return await read_assignments(self._metastore, self._mirrors.keyspace, partition)

    async def _publish(
        self,
        view: NodePartitionView,
        term: int,
        members: tuple[GroupMember, ...],
        reason: str | None,
        size_bytes: int | None = None,
    ) -> bool:
        """Write the configuration unless it says so already. Guarded: the zone exists, nobody wrote since, and
        a leader of an earlier term or generation never overwrites a later one's. ``reason`` None keeps what is
        published as long as the members stay the same, ``size_bytes`` None keeps it anyhow."""
        if view.stable is None:
            return False
        key, mirror = view.keys.configuration, self._mirrors.partitions
        current = self._written.current(key, mirror)
        try:
            known = ConfigurationRecord.decode(current) if current is not None else None
        except RecordNotReadableError as error:
            raise KeysUnreadableError(Unreadable(key, error.reason)) from error
        record = configuration_of(view, self._node, term, members, reason or "")
        if known is not None:
            record = kept_unknown(record, known)
        if known is not None and (known.generation, known.term) > (record.generation, term):
            return False
        if reason is None and known is not None and known.members == record.members:
            record = replace(record, reason=known.reason)
        if size_bytes is None:
            size_bytes = known.size_bytes if known is not None else 0
        record = replace(record, size_bytes=size_bytes)
        if known == record:
            return True
        exists = Compare(view.keys.stable, CompareTarget.CREATE_REVISION, CompareOp.GREATER, 0)
        guards = (exists, unchanged(key, self._written.revision(key, mirror)))
        result = await self._metastore.commit(Txn(guards, (Put(key, record.encode()),)))
        if result.succeeded:
            self._written.note(key, result.revision, record.encode())
        else:
            self._written.forget(key)
        return result.succeeded

    def _reason(self, view: NodePartitionView, status: MemberStatus, drive: _Drive) -> str:
        if drive.obstacle:
            return drive.obstacle
        # A failure stays the reason until the member list changes, so that attempts do not make it flicker.
        issue = status.waiting or drive.attempts.failure
        stalled = self._joiners.stalled(view.partition)
        if stalled and issue is not None and issue.code in AWAITS_COPY:
            return f"{COPY_STALLED}: {', '.join(stalled)}"
        return drive.attempts.told(explained(view, issue), self._rules()) if issue else ""


def _now_s() -> float:
    return asyncio.get_running_loop().time()
