"""Duties of the agent beside a group's leader: publish the group's configuration, drive a pending change, and
switch stable.

The truth about the group is the group's own member list; the truth about the intention is read from the
metastore in one transaction when a leader is elected, when pending changes and before every switch. Between
those moments a change that runs needs the metastore only to publish.

For the strategies ``update`` and ``cancel`` there are the lock on pending and the cancelled change besides
(``StrategyDuties``): it reads the metastore itself, decides and commits; a failed guard means once more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import (
    PendingLock,
    decide_on_catch_up_finished,
    decide_on_change_cancelled,
    decide_on_unlock,
)
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decide_on_configuration_applied,
    require_readable,
)
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import Failing, MemberRole, Stage, rounded_size
from rebalance.core.keyspace.txn import Txn
from rebalance.core.moves.group_steps import stage_of
from rebalance.hosting.background import Background, describe
from rebalance.metastore.guarded_update import commit_decided, read_together
from rebalance.nodes.copy_attempts import CopyAttempts, CopyRules
from rebalance.nodes.joiner_watch import JoinerWatch
from rebalance.nodes.leader_decision import (
    NO_ATTEMPTS,
    ChangePeers,
    DesiredPeers,
    LeaderDuty,
    LedGroup,
    SwitchStable,
    Unlock,
    decide_on_change,
    obstacle,
    peer_urls,
    round_duties,
)
from rebalance.nodes.leadership import Leadership
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import ConfigurationWriter
from rebalance.nodes.pace import Awaited, Pace
from rebalance.nodes.partition_view import NodePartitionView, peer_sights
from rebalance.nodes.registration import HeardTime
from rebalance.ports.groups import (
    NO_SIGHTS,
    Applied,
    CancelAnswer,
    CaughtUp,
    ChangeAnswer,
    Committed,
    Failed,
    FailureCode,
    GroupChange,
    GroupMember,
    Intention,
    IntentionNeeded,
    MemberStatus,
    MemberUnavailableError,
    Paused,
    PeerSight,
    ReconfigurationFailure,
    StepInput,
    VotersLeftAlone,
)
from rebalance.ports.metastore import KeysUnreadableError, MetastoreError, MetastoreUnavailableError

log = structlog.get_logger(__name__)

MOVED_ON = (
    Outcome.CANCEL_PLANNED_SCHEDULED,
    Outcome.LOCK_CLEARED_PLANNED_SCHEDULED,
    Outcome.LOCK_CLEARED_PLANNED_DROPPED,
)
"""Pending is another one now, or none: it is read again before anything is asked for."""


async def read_assignments(node: NodeContext, partition: PartitionId) -> tuple[Observed, int]:
    """The assignment keys at one revision, and that revision; the trigger is left out.

    Raises KeysUnreadableError: a leader that cannot read one of them knows as little as if the metastore were
    silent."""
    keys = node.keyspace.partition(partition)
    names = keys.stable, keys.pending, keys.planned, keys.lock
    (stable, pending, planned, lock), revision = await read_together(node.metastore, *names)
    observed = Observed(keys, stable, pending, planned, lock=lock)
    try:
        require_readable(observed)
        readable(lock, PendingLock.decode)
    except RecordNotReadableError as error:
        raise KeysUnreadableError(Unreadable(error.key, error.reason)) from error
    return observed, revision


class StrategyDuties:
    """``strategy`` is that of the running move, which its pending key names; for ``Strategy.QUEUE`` nothing
    here asks the metastore. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def may_touch_voters(
        self, partition: PartitionId, term: int, token: int, strategy: Strategy, joiner: str = ""
    ) -> bool:
        """Lock pending; True once it is locked as of ``token`` (I3A-014, I3A-015)."""
        if not strategy.locks_pending:
            return True
        outcome = await self._commit(
            partition, lambda observed: decide_on_catch_up_finished(observed, token, term=term, joiner=joiner)
        )
        return outcome in (Outcome.PENDING_LOCKED, Outcome.PENDING_LOCKED_AGAIN)

    async def unlock(
        self,
        partition: PartitionId,
        term: int,
        sights: Mapping[str, PeerSight] = NO_SIGHTS,
        *,
        of_earlier_terms: bool = False,
    ) -> Outcome:
        """The leader of ``term`` touches no voter now: the lock goes, and what was planned takes its turn
        (I3A-018). Asks the group first. Raises MemberUnavailableError."""
        members = await self._node.host.settled_configuration(partition, term, sights)
        return await self._commit(
            partition,
            lambda observed: decide_on_unlock(
                observed, _stage(observed, members), term=term, of_earlier_terms=of_earlier_terms
            ),
        )

    async def cancel(self, partition: PartitionId, term: int, strategy: Strategy) -> Outcome | None:
        """Give the running change up for what is planned, while that is possible (I3A-025..027). None when
        there was nothing to cancel for, or this member does not lead."""
        if strategy is not Strategy.CANCEL:
            return None
        observed, _ = await read_assignments(self._node, partition)
        if observed.pending is None or observed.planned is None or observed.lock is not None:
            return None
        token = observed.pending.mod_revision
        answer = await self._node.host.cancel_change_peers(partition, term, token)
        if answer is CancelAnswer.NOT_LEADER:
            return None
        is_cancelled = answer is not CancelAnswer.TOO_LATE
        return await self._commit(
            partition, lambda observed: decide_on_change_cancelled(observed, token, is_cancelled=is_cancelled)
        )

    async def _commit(self, partition: PartitionId, decide: Callable[[Observed], Decision]) -> Outcome:
        async def decided() -> tuple[Outcome, Txn | None]:
            observed, _ = await read_assignments(self._node, partition)
            decision = decide(observed)
            return decision.outcome, decision.transaction

        outcome, revision = await commit_decided(self._node.metastore, decided)
        if revision:
            log.info("pending lock", partition=str(partition), outcome=outcome.value)
        return outcome


def _stage(observed: Observed, members: tuple[GroupMember, ...]) -> Stage:
    voters = [member.node for member in members if member.role is MemberRole.VOTER]
    learners = [member.node for member in members if member.role is MemberRole.LEARNER]
    stable = readable(observed.stable, Assignments.decode)
    pending = readable(observed.pending, Assignments.decode)
    return stage_of(voters, learners, stable.peers if stable else (), pending.peers if pending else None)


ACTIVE_S = 0.1

FailureHandler = Callable[[PartitionId, ReconfigurationFailure], None]


@dataclass(eq=False)
class LeaderDuties:
    """Looks, decides, and does what is due, a round at a time; an accepted change is advanced step by step.
    ``wake`` puts a partition into the agent's queue; ``rules`` answers with those of now for attempts;
    ``background`` counts what nothing expected."""

    node: NodeContext
    wake: Callable[[PartitionId], None]
    rules: Callable[[], CopyRules]
    failure_handler: FailureHandler
    heard: HeardTime | None = None
    """None: no joiner is ever given up."""
    pace: Pace | None = None
    background: Background = field(default_factory=lambda: Background(restarts=False))

    def __post_init__(self) -> None:
        self._strategy = StrategyDuties(self.node)
        self._joiners = JoinerWatch(self.node, self.rules, self.heard or HeardTime(0.0))
        self._led: dict[PartitionId, LedGroup] = {}
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._configurations = ConfigurationWriter(self.node)
        self._leadership = Leadership(self.node)
        self._random = random.Random(self.node.name)
        self._pace = self.pace or Pace(self._random)

    def _of(self, partition: PartitionId) -> LedGroup:
        return self._led.setdefault(partition, LedGroup())

    def forget(self, partition: PartitionId) -> None:
        """The member no longer leads, or is gone."""
        self._led.pop(partition, None)
        self._joiners.forget(partition)
        self._configurations.forget(partition)
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
        drive = self._of(partition)
        if drive.term != status.term:
            # A leader that was elected knows nothing yet (I3-041).
            drive = self._led[partition] = LedGroup(status.term, elected=True)
        pending_revision = view.pending.mod_revision if view.pending is not None else 0
        circumstances = (self.rules().revision, pending_revision, view.living)
        drive.attempts = drive.attempts.under(circumstances, _now_s())
        drive.beats_through = status.endpoints.client_url if view.learning else ""
        members = await self.node.host.configuration(partition, peer_sights(view))
        keys, keyspace = view.keys, self.node.mirrors.partitions
        duties = round_duties(
            view,
            status,
            members,
            lock=read(keyspace.get(keys.lock), PendingLock.decode),
            is_planned=keyspace.get(keys.planned) is not None,
            must_read=drive.elected,
            running=drive.peers,
        )
        for duty in duties:
            if await self._do(duty, view, status, members, drive):
                # Pending is another one now: it is read before anything is asked for.
                drive.elected, drive.peers = True, None
                break
        size = rounded_size(status.size_bytes)
        reason = drive.reason(view, status.waiting, self._joiners.stalled(partition), self.rules())
        await self._configurations.publish(view, status.term, members, reason, size)
        if duties == (LeaderDuty.REST,):
            again_s = await self._leadership.at_rest(view)
            return None if again_s is None else min(again_s, self._pace.idle_s())
        self._leadership.stirred(partition)
        if drive.obstacle:
            return self._pace.pause_s(Awaited.BLOCKED, partition)
        # A change that ends, in whichever way, wakes the partition.
        if drive.peers is not None and not drive.elected and status.changing:
            return self._pace.pause_s(Awaited.CHANGING, partition)
        pause_s = drive.attempts.not_before_s - _now_s()
        return min(max(pause_s, ACTIVE_S), self._pace.pause_s(Awaited.BLOCKED, partition))

    def failing(self, view: NodePartitionView) -> Failing | None:
        """Return what the change that is wanted does not get past; None: nothing, as far as attempts have
        shown."""
        return self._of(view.partition).failing(view, self.rules())

    def led_with_learners(self) -> dict[PartitionId, str]:
        """Partitions led here that have learners, with the client URL of the own member."""
        return {partition: drive.beats_through for partition, drive in self._led.items() if drive.beats_through}

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def intention(self, partition: PartitionId, token: int) -> Intention:
        """Read the intention of ``token``'s target from the metastore itself."""
        peers = self._of(partition).peers
        try:
            pending = (await read_assignments(self.node, partition))[0].pending
        except MetastoreError:
            return Intention.UNKNOWN
        # The token of a change back to stable is no revision of pending.
        revision = 0 if peers is not None and not peers.revision else token
        is_current = (pending.mod_revision if pending is not None else 0) == revision
        return Intention.CURRENT if is_current else Intention.REPLACED

    async def applied(self, partition: PartitionId, applied: Assignments) -> None:
        """The stable switch (I3-035, I3-036, I3-037); what fails here is done by the next round."""

        async def decided() -> tuple[Outcome, Txn | None]:
            decision = decide_on_configuration_applied(
                (await read_assignments(self.node, partition))[0], applied
            )
            return decision.outcome, decision.transaction

        try:
            outcome, revision = await commit_decided(self.node.metastore, decided)
        except MetastoreError as error:
            log.info("stable not switched yet", partition=str(partition), error=str(error))
        else:
            if revision:
                self._note_switched(partition, applied, outcome)
        self.wake(partition)

    def _note_switched(self, partition: PartitionId, applied: Assignments, outcome: Outcome) -> None:
        led = self._of(partition)
        led.attempts = NO_ATTEMPTS
        # A planned change that became pending is read at once, not when the mirror shows it.
        led.elected = outcome is Outcome.SCHEDULE_PENDING_REBALANCE
        peers, learners = applied.peers, applied.learners
        text = outcome.value
        log.info("stable switched", partition=str(partition), outcome=text, peers=peers, learners=learners)

    def failed(self, partition: PartitionId, failure: ReconfigurationFailure) -> None:
        """Note a failed attempt; another one follows after a growing delay, none for a leader that stepped down
        (I3-053, I3-055)."""
        if failure.code is FailureCode.LEADER_STEPPED_DOWN:
            self.forget(partition)
            self.wake(partition)
            return
        drive = self._of(partition)
        before, rules = drive.attempts, self.rules()
        copied = sum(record.value.copied for record in self.node.mirrors.shown(partition).records.values())
        drive.attempts = before.after_failure(failure, _now_s(), rules, self._random.random(), copied=copied)
        if drive.attempts.becomes_failed(before, rules):
            self.failure_handler(partition, failure)
        self.wake(partition)

    def _advance(self, partition: PartitionId, term: int, token: int, target: Assignments) -> None:
        """Advances the change that the host has accepted, in a task of its own, until it ends."""
        change = self.node.host.change(partition)
        former = self._tasks.pop(partition, None)
        if former is not None:
            former.cancel()
        if change is not None:
            work = self._advanced(change, partition, term, token, target)
            self._tasks[partition] = asyncio.create_task(work, name=f"change {partition}")

    async def _advanced(
        self, change: GroupChange, partition: PartitionId, term: int, token: int, target: Assignments
    ) -> None:
        """Advance the change; an unexpected error is an attempt that has failed, so that it is reported and
        tried again seldom."""
        try:
            end = await self._last_event(change, partition, term, token)
            if isinstance(end, Applied):
                await self.applied(partition, Assignments(target.peers, target.learners))
        except Exception as error:
            self.background.defect("a change of peers", error, partition=str(partition))
            end = Failed(ReconfigurationFailure(FailureCode.DEFECT, describe(error)))
        finally:
            await change.close()
        if isinstance(end, Failed) and end.failure.code is not FailureCode.CANCELLED:
            log.info(
                "change of peers goes on later",
                partition=str(partition),
                code=end.failure.code.value,
                detail=end.failure.detail,
                token=token,
            )
            self.failed(partition, end.failure)

    async def _last_event(
        self, change: GroupChange, partition: PartitionId, term: int, token: int
    ) -> Applied | Failed:
        """Takes one step after the other, and does what each asks for."""
        intention, published = Intention.UNKNOWN, False
        while True:
            sights = peer_sights(self.node.mirrors.shown(partition))
            event = await change.advance(StepInput(sights, intention, published))
            intention, published = Intention.UNKNOWN, False
            match event:
                case Paused(delay_s):
                    await asyncio.sleep(delay_s)
                case Committed(members):
                    published = await self._committed(partition, term, members)
                case CaughtUp() | VotersLeftAlone():
                    intention = await self._turned_to_voters(partition, term, token, event)
                case IntentionNeeded():
                    intention = await self.intention(partition, token)
                case Applied() | Failed():
                    return event

    async def _committed(self, partition: PartitionId, term: int, members: tuple[GroupMember, ...]) -> bool:
        drive = self._of(partition)
        listed = frozenset((member.member_id, member.role) for member in members)
        if listed != drive.members:
            drive.members, drive.attempts = listed, CopyAttempts(since_s=_now_s())
        view = self.node.mirrors.view(partition)
        try:
            return not isinstance(view, Unreadable) and await self._configurations.publish(view, term, members)
        except MetastoreError as error:
            log.info("configuration not published yet", partition=str(partition), error=str(error))
            return False

    async def _turned_to_voters(
        self, partition: PartitionId, term: int, token: int, event: CaughtUp | VotersLeftAlone
    ) -> Intention:
        """Locks pending before voters are touched, unlocks it afterwards. A change back to stable has none."""
        peers = self._of(partition).peers
        if peers is None:
            return Intention.UNKNOWN
        strategy = peers.target.strategy
        if not peers.revision or not strategy.locks_pending:
            return Intention.CURRENT
        try:
            if isinstance(event, CaughtUp):
                goes_on = await self._strategy.may_touch_voters(partition, term, token, strategy, event.joiner)
            else:
                sights = peer_sights(self.node.mirrors.shown(partition))
                outcome = await self._strategy.unlock(partition, term, sights)
                goes_on = outcome not in (*MOVED_ON, Outcome.LOCK_OF_LATER_TERM)
        except (MetastoreError, MemberUnavailableError) as error:
            # The next round does it first.
            log.info("the lock on pending is not settled yet", partition=str(partition), error=str(error))
            return Intention.UNKNOWN
        return Intention.CURRENT if goes_on else Intention.REPLACED

    async def _do(
        self,
        duty: LeaderDuty,
        view: NodePartitionView,
        status: MemberStatus,
        members: tuple[GroupMember, ...],
        drive: LedGroup,
    ) -> bool:
        """Do a duty; True if another target took pending's place."""
        match duty:
            case LeaderDuty.REST if view.stable is not None:
                stable = view.stable.value
                drive.attempts = NO_ATTEMPTS
                drive.obstacle = obstacle(view, stable, peer_urls(view, stable), members)
            case LeaderDuty.GIVE_UP_JOINERS if await self._joiners.look(view, members):
                drive.attempts = NO_ATTEMPTS
                return True
            case LeaderDuty.UNLOCK:
                return await self._unlocked(view, status.term, of_earlier_terms=status.changing)
            case LeaderDuty.CANCEL if view.pending is not None:
                strategy = view.pending.value.strategy
                return await self._strategy.cancel(view.partition, status.term, strategy) in MOVED_ON
            case LeaderDuty.CHANGE:
                await self._drive(view, status, drive)
        return False

    async def _drive(self, view: NodePartitionView, status: MemberStatus, drive: LedGroup) -> None:
        """Bring the group to pending, or back to stable when nothing is pending."""
        if _now_s() < drive.attempts.not_before_s:
            return
        partition = view.partition
        try:
            observed, revision = await read_assignments(self.node, partition)
        except MetastoreUnavailableError:
            await self._repeat(partition, status, drive)
            raise
        drive.elected = False
        members = await self.node.host.configuration(partition, peer_sights(view), linearizable=True)
        effects = decide_on_change(
            view, observed, revision, members, changing=status.changing, running=drive.peers
        )
        for effect in effects:
            match effect:
                case SwitchStable(target, token):
                    if await self._strategy.may_touch_voters(partition, status.term, token, target.strategy):
                        await self.applied(partition, Assignments(target.peers, target.learners))
                case Unlock():
                    drive.elected = await self._unlocked(view, status.term)
                    if drive.elected:
                        return
                case ChangePeers(peers, token, stable_urls, blocked_by):
                    drive.obstacle = blocked_by
                    if not blocked_by:
                        await self._ask(partition, status.term, token, peers, stable_urls)

    async def _repeat(self, partition: PartitionId, status: MemberStatus, drive: LedGroup) -> None:
        """The metastore is silent: what this agent has read in this term is tried again (M12, I3-061). Only
        with ``queue``, where nothing takes the place of what runs; a new term begins without it."""
        peers = drive.peers
        if peers is None or drive.elected or status.changing or not peers.revision:
            return
        if peers.target.strategy is Strategy.QUEUE and not peers.target.forced:
            await self._ask(partition, status.term, peers.revision, peers)

    async def _unlocked(self, view: NodePartitionView, term: int, *, of_earlier_terms: bool = False) -> bool:
        """Release the lock; True if another target took pending's place because no voter is touched under it
        now."""
        sights = peer_sights(view)
        outcome = await self._strategy.unlock(view.partition, term, sights, of_earlier_terms=of_earlier_terms)
        return outcome in MOVED_ON

    async def _ask(
        self, partition: PartitionId, term: int, token: int, peers: DesiredPeers, stable: tuple[str, ...] = ()
    ) -> None:
        answer = await self.node.host.change_peers_and_learners(
            partition, term, token, peers.target, peers.urls, stable
        )
        match answer:
            case ChangeAnswer.RECEIVED:
                log.info("change of peers started", partition=str(partition))
                self._of(partition).peers = peers
                self._advance(partition, term, token, peers.target)
            case ChangeAnswer.ALREADY_RUNNING:
                self._of(partition).peers = peers
            case ChangeAnswer.BUSY:
                pass
            case ChangeAnswer.NOT_LEADER | ChangeAnswer.OLD_TERM:
                self.forget(partition)
            case ChangeAnswer.STALE_TOKEN:
                self._of(partition).obstacle = answer.value


def _now_s() -> float:
    return asyncio.get_running_loop().time()
