"""A change of peers under way, which the agent beside the leader advances one step at a time.

One attempt. It ends when the list is the target (``Applied``) or with the reason why it cannot go on now
(``Failed``, from ``AttemptEndedError`` or ``Blocked``); the agent decides when to try again. Voters are
touched between ``CaughtUp`` and ``VotersLeftAlone`` only, and nobody copies in between. Membership calls
carry no term, so a step of a leader that was deposed a moment ago may still land: the next step is computed
from the list as it is then, and is right for that list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.core.moves.group_steps import (
    AddLearner,
    AnnounceLeaving,
    Done,
    GroupView,
    MoveLeader,
    ObservedMember,
    Promote,
    Remove,
    Step,
    WaitLeader,
    WaitMajority,
    WaitMirror,
    WaitStart,
    leaves_first,
    needs_intention,
    next_step,
    touches_voters,
)
from rebalance.core.moves.step_checks import CheckedStep, NotYet, StepCondition
from rebalance.groups.calls.etcd_api import (
    UNANSWERED,
    CallFailedError,
    EtcdMemberEntry,
    EtcdStatus,
    FailureKind,
)
from rebalance.groups.calls.group_guard import group_identity, group_members
from rebalance.groups.calls.member_calls import GroupMemberCalls
from rebalance.groups.change.step_gate import CallsAt, CheckTooOldError, StepGate, StepOutcome
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.ports.groups import (
    Applied,
    CaughtUp,
    Committed,
    Failed,
    FailureCode,
    GroupEvent,
    Intention,
    IntentionNeeded,
    MemberUnavailableError,
    Paused,
    PeerSight,
    ReconfigurationFailure,
    StepInput,
    VotersLeftAlone,
)

_CODES: Mapping[FailureKind, FailureCode] = {
    FailureKind.UNHEALTHY: FailureCode.UNHEALTHY_CLUSTER,
    FailureKind.NOT_ENOUGH_STARTED: FailureCode.MEMBER_NOT_STARTED,
    FailureKind.NOT_LEADER: FailureCode.LEADER_STEPPED_DOWN,
    FailureKind.NO_ANSWER: FailureCode.TIMED_OUT,
    FailureKind.NO_LEADER: FailureCode.TIMED_OUT,
}


class AttemptEndedError(Exception):
    def __init__(self, failure: ReconfigurationFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Blocked:
    """A step that its check does not allow."""

    step: CheckedStep
    by: NotYet

    @property
    def failure(self) -> ReconfigurationFailure:
        """Failure as it is published, with the first member whose answer is missing."""
        lacks_votes = self.by.condition in (StepCondition.MAJORITY, StepCondition.NEXT_MAJORITY)
        code = FailureCode.NO_MAJORITY if lacks_votes else FailureCode.TIMED_OUT
        return ReconfigurationFailure(code, self.by.condition.value, next(iter(self.by.silent), ""))


def failure_of(failed: CallFailedError) -> ReconfigurationFailure:
    return ReconfigurationFailure(_CODES.get(failed.kind, FailureCode.REFUSED), str(failed))


log = structlog.get_logger(__name__)

WAIT_MIN_S, WAIT_S = 0.02, 0.1
BLOCKED_S = 0.5
"""Between two checks of a step at most: each asks every member."""
CANCELLED = Failed(ReconfigurationFailure(FailureCode.CANCELLED, "the change was given up"))


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """``endpoints``: node -> peer URL of every voter of the target; ``stable_urls``: who votes before it."""

    term: int
    token: int
    target: Assignments
    endpoints: Mapping[str, str]
    stable_urls: tuple[str, ...] = ()

    @property
    def target_urls(self) -> tuple[str, ...]:
        return tuple(self.endpoints[node] for node in self.target.peers)


@dataclass(slots=True)
class StepProgress:
    """Survives attempts, not leaders, and of targets ``outcome`` only. ``announced_at``: when each leaving
    member was published; ``awaited_index``: what each joining member, by its id, has to have applied before it
    may vote."""

    announced_at: dict[str, float] = field(default_factory=dict)
    awaited_index: dict[int, int] = field(default_factory=dict)
    outcome: StepOutcome = field(default_factory=StepOutcome)


@dataclass(eq=False)
class EtcdChange:
    """A ``GroupChange``: one attempt. ``in_call`` is true inside a step that cannot be interrupted,
    ``touches_voters`` from the agent's leave for such steps until they are over, ``closed`` once it was."""

    partition: PartitionId
    member: GroupMemberCalls
    request: ChangeRequest
    progress: StepProgress
    tuning: EtcdTuning
    calls_at: CallsAt

    def __post_init__(self) -> None:
        self.closed = False
        self.in_call = False
        self.touches_voters = False
        self._gate = StepGate(
            self.partition,
            self.member,
            self.request.term,
            self.progress.outcome,
            self.calls_at,
            strict=self.tuning.strict_steps,
        )
        self._given = StepInput({})
        self._events = self._run()
        self._step: asyncio.Task[GroupEvent] | None = None
        self._end: Applied | Failed | None = None
        self._status: EtcdStatus | None = None
        self._waiting_for: Step | Blocked | None = None
        self._waiting_since = 0.0
        self._lacks = FailureCode.TIMED_OUT, ""
        self._entries: tuple[EtcdMemberEntry, ...] = ()

    async def advance(self, given: StepInput) -> GroupEvent:
        if self.closed or self._end is not None:
            return self._end or CANCELLED
        self._given = given
        if given.published:
            now, announced_at = asyncio.get_running_loop().time(), self.progress.announced_at
            announced_at.update({url: now for url, since in announced_at.items() if since == float("inf")})
        # A task of its own: ``close`` ends the step, and not who asked for it.
        step = self._step = asyncio.create_task(self._next_event(), name=f"change {self.partition}")
        try:
            await asyncio.wait((step,))
        except asyncio.CancelledError:
            await self.close()
            raise
        return CANCELLED if step.cancelled() else step.result()

    async def close(self) -> None:
        self.closed = True
        if self._step is not None:
            self._step.cancel()
            await asyncio.gather(self._step, return_exceptions=True)
        await self._events.aclose()

    async def _next_event(self) -> GroupEvent:
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            self._end = Applied()
        except AttemptEndedError as ended:
            self._end = Failed(ended.failure)
        except CallFailedError as failed:
            self._end = Failed(failure_of(failed))
        except MemberUnavailableError as failed:
            self._end = Failed(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, str(failed)))
        return self._end

    async def _run(self) -> AsyncGenerator[GroupEvent, None]:
        async with self._gate:
            async for event in self._steps():
                yield event

    async def _steps(self) -> AsyncGenerator[GroupEvent, None]:
        while True:
            view = await self._observe()
            step = next_step(view, self.request.target_urls, self.request.stable_urls)
            joiner = step.peer_url if isinstance(step, Promote) else ""
            is_ready = not joiner or await self._is_in_sync(joiner)
            blocked = await self._obstacle(step, view) if is_ready else None
            async for event in self._turn_to_voters(
                touches_voters(step, view) and is_ready and blocked is None, joiner
            ):
                yield event
            if isinstance(step, CheckedStep) and blocked is not None:
                yield self._pause_for_check(step, blocked)
                continue
            if needs_intention(step, view):
                yield IntentionNeeded()
                if not self._is_current(step):
                    yield Paused(WAIT_S)
                    continue
            if is_ready and not await self._is_still_allowed(step):
                continue
            if isinstance(step, Done):
                await self._store_list(view)
                yield self._committed()
                return
            if not isinstance(step, WaitStart | Promote):
                log.info("step", partition=str(self.partition), step=repr(step), token=self.request.token)
            try:
                async for event in self._take(step, view):
                    yield event
            except CheckTooOldError:
                continue
            except CallFailedError as failed:
                if self.tuning.strict_steps or not isinstance(step, CheckedStep):
                    raise
                if self.progress.outcome.known or failed.kind not in UNANSWERED:
                    raise
                yield self._pause_for_check(step, NotYet(StepCondition.KNOWN_OUTCOME))

    async def _store_list(self, view: GroupView) -> None:
        """A group of one has nobody to learn its list from. A member's disk may hold a removal before it holds
        that the removal is committed: killed then, the last voter would start as one of two and wait for the
        removed one for ever. The next write brings both to the disk."""
        if len(view.voters) == 1:
            await self.member.api.claim_identity(group_identity(self.partition))

    async def _turn_to_voters(self, touches: bool, joiner: str = "") -> AsyncGenerator[GroupEvent, None]:
        if touches == self.touches_voters:
            return
        self.in_call = True
        yield CaughtUp(f"{self._id_of(joiner):x}" if joiner else "") if touches else VotersLeftAlone()
        self.in_call = False
        if self._given.intention is not Intention.CURRENT:
            self._end_as_superseded()
        self.touches_voters = touches

    def _is_current(self, step: Step) -> bool:
        """False: nobody can tell. While the metastore is silent a target that was replaced would grow a group
        that nobody wants, and a voter that clients know would go for another one (M12)."""
        intention = self._given.intention
        if intention is Intention.REPLACED:
            self._end_as_superseded()
        if intention is Intention.UNKNOWN and self._waiting_for != step:
            log.info("nobody can tell what is wanted", partition=str(self.partition), step=repr(step))
            self._waiting_for = step
        return intention is Intention.CURRENT

    def _end_as_superseded(self) -> None:
        """Raises AttemptEndedError."""
        detail = f"the target of token {self.request.token} is not to be finished"
        raise AttemptEndedError(ReconfigurationFailure(FailureCode.SUPERSEDED, detail))

    async def _is_in_sync(self, peer_url: str) -> bool:
        """True if the joining member has applied what was committed when it was first asked for in this term.
        The group itself asks for nine tenths of the leader's log only, and of a member that may be gone. What
        the leader knows of the member's log is not to be had over gRPC, so one that does not answer is not in
        sync."""
        entry = next(entry for entry in self._entries if entry.peer_url == peer_url)
        if self._status is None or not entry.client_url:
            return False
        awaited = self.progress.awaited_index.setdefault(entry.member_id, self._status.commit_index)
        status = await self._gate.answer_of(entry)
        return status is not None and status.applied_index >= awaited

    async def _obstacle(self, step: Step, view: GroupView) -> NotYet | None:
        if not isinstance(step, CheckedStep):
            return None
        announced = frozenset(voter.peer_url for voter in view.voters if voter.announced)
        return await self._gate.obstacle(step, announced, self.progress.awaited_index)

    async def _is_still_allowed(self, step: Step) -> bool:
        """The lock and the intention may have taken their time: then the step is looked at once more."""
        if not isinstance(step, CheckedStep) or self._gate.is_fresh:
            return True
        view = await self._observe()
        is_same = next_step(view, self.request.target_urls, self.request.stable_urls) == step
        return is_same and await self._obstacle(step, view) is None

    def _pause_for_check(self, step: CheckedStep, obstacle: NotYet) -> Paused:
        if obstacle.condition is StepCondition.SAME_TERM:
            detail = f"term {self.request.term} is over"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, detail))
        blocked = Blocked(step, obstacle)
        return self._pause(blocked, blocked.failure.code, blocked.failure.peer_url)

    async def _serves(self, entry: EtcdMemberEntry, sights: Mapping[str, PeerSight]) -> bool:
        """Joined and serving clients. A joiner of the target is asked itself where its node has not said so:
        what nodes say goes through the metastore."""
        if not entry.name or entry.peer_url not in sights:
            return False
        if sights[entry.peer_url].serving:
            return True
        joins = entry.is_learner and entry.peer_url in self.request.target_urls
        return joins and await self._gate.answer_of(entry) is not None

    async def _observe(self) -> GroupView:
        """The list as of now, or the end of the attempt when this member no longer leads in the same term."""
        listing = await self._gate.look()
        status, self._entries = listing.status, listing.entries
        self._status = status
        if status.leader_id != status.member_id or status.term != self.request.term:
            detail = f"term {self.request.term} is over, now {status.term}"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, detail))
        sights = self._given.sights
        learners = frozenset(self.request.target.learners)
        awaited = {url for url, sight in sights.items() if sight.mirror_missing and sight.node in learners}
        announced_before = asyncio.get_running_loop().time() - self.tuning.announce_s
        members = tuple(
            ObservedMember(
                peer_url=entry.peer_url,
                role=MemberRole.LEARNER if entry.is_learner else MemberRole.VOTER,
                joined=bool(entry.name),
                started=serves,
                down=entry.peer_url not in sights or sights[entry.peer_url].down,
                announced=self.progress.announced_at.get(entry.peer_url, float("inf")) <= announced_before,
                mirror_awaited=entry.peer_url in awaited,
            )
            for entry, serves in zip(
                self._entries, [await self._serves(entry, sights) for entry in self._entries], strict=True
            )
        )
        leader = next((entry.peer_url for entry in self._entries if entry.member_id == status.leader_id), "")
        return GroupView(members, leader)

    async def _take(self, step: Step, view: GroupView) -> AsyncGenerator[GroupEvent, None]:
        match step:
            case AddLearner(peer_url):
                await self._send(step, lambda limit_s: self.member.api.add_learner(peer_url, limit_s))
                leaving = leaves_first(view, self.request.target_urls)
                if leaving is not None:
                    # Clients turn away while the learner catches up, and nobody waits for it afterwards.
                    self.progress.announced_at.setdefault(leaving, float("inf"))
                yield await self._newly_committed()
            case Promote():
                async for event in self._promote(step):
                    yield event
            case WaitStart(peer_url):
                # Published again and again: the joining node starts only when it sees itself in the list.
                yield self._committed()
                yield self._pause(step, FailureCode.MEMBER_NOT_STARTED, peer_url)
            case MoveLeader(candidates):
                await self._move_leader(candidates)
            case AnnounceLeaving(peer_url):
                self.progress.announced_at.setdefault(peer_url, float("inf"))
                yield self._committed()
                yield Paused(self.tuning.announce_s if self._given.published else WAIT_S)
            case Remove(peer_url):
                member_id = self._id_of(peer_url)
                await self._send(step, lambda limit_s: self.member.api.remove(member_id, limit_s))
                self.progress.announced_at.pop(peer_url, None)
                yield await self._newly_committed()
            case WaitMajority(down):
                yield self._pause(step, FailureCode.NO_MAJORITY, down[0] if down else "")
            case WaitMirror(peer_url):
                yield self._pause(step, FailureCode.MIRROR_NOT_RUNNING, peer_url)
            case WaitLeader():
                yield self._pause(step, FailureCode.TIMED_OUT, "")
            case Done():
                pass

    async def _promote(self, step: Promote) -> AsyncGenerator[GroupEvent, None]:
        peer_url = step.peer_url
        if not self.touches_voters:
            yield self._pause(step, FailureCode.CATCH_UP_TIMEOUT, peer_url)
            return
        member_id = self._id_of(peer_url)
        try:
            await self._send(step, lambda limit_s: self.member.api.promote(member_id, limit_s))
        except CallFailedError as failed:
            if failed.kind is not FailureKind.NOT_IN_SYNC:
                raise
            # So much was written meanwhile: it has to come nearer, and nobody waits for it under the lock.
            self.progress.awaited_index.pop(member_id, None)
            async for event in self._turn_to_voters(False):
                yield event
            yield self._pause(step, FailureCode.CATCH_UP_TIMEOUT, peer_url)
            return
        log.info("promoted", partition=str(self.partition), peer_url=peer_url)
        yield await self._newly_committed()

    async def _move_leader(self, candidates: tuple[str, ...]) -> None:
        """The new leader's agent continues; this attempt ends at its next look at the term."""
        failure: CallFailedError | None = None
        for peer_url in candidates:
            try:
                await self._uninterrupted(self.member.api.move_leader(self._id_of(peer_url)))
            except CallFailedError as failed:
                failure = failed
                continue
            detail = f"leadership moved to {peer_url}"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, detail))
        raise AttemptEndedError(
            ReconfigurationFailure(FailureCode.TRANSFER_FAILED, str(failure), candidates[0])
        )

    async def _send(self, step: CheckedStep, call: Callable[[float], Awaitable[None]]) -> None:
        await self._uninterrupted(self._gate.send(step, call))

    async def _uninterrupted(self, call: Awaitable[None]) -> None:
        """A membership call runs to its end."""
        self.in_call = True
        try:
            await call
        finally:
            self.in_call = False
        self._waiting_for = None

    async def _newly_committed(self) -> Committed:
        self._entries = await self.member.entries(linearizable=True)
        return self._committed()

    def _committed(self) -> Committed:
        return Committed(group_members(self._entries, self._given.sights, self.progress.announced_at))

    def _pause(self, step: Step | Blocked, code: FailureCode, peer_url: str) -> Paused:
        """A short one; the attempt ends when the same step has waited for the whole catch-up time."""
        now = asyncio.get_running_loop().time()
        self._lacks = code, peer_url
        if self._waiting_for != step:
            self._waiting_for, self._waiting_since = step, now
        waited_s = now - self._waiting_since
        if waited_s > self.tuning.catch_up_timeout_s:
            raise AttemptEndedError(ReconfigurationFailure(code, f"waited {waited_s:.1f} s: {step}", peer_url))
        # Soon at first: most waits are short, and none ends much later than it could.
        most_s = BLOCKED_S if isinstance(step, Blocked) else WAIT_S
        return Paused(min(max(waited_s / 4, WAIT_MIN_S), most_s))

    def _id_of(self, peer_url: str) -> int:
        return next(entry.member_id for entry in self._entries if entry.peer_url == peer_url)

    @property
    def waiting(self) -> ReconfigurationFailure | None:
        """Obstacle that the attempt waits for at the moment, for the published reason; None: it does not
        wait."""
        match self._waiting_for:
            case Promote(peer_url):
                return ReconfigurationFailure(FailureCode.CATCHING_UP, "", peer_url)
            case Blocked() as blocked:
                return blocked.failure
            case AddLearner() | MoveLeader() | Remove():
                return ReconfigurationFailure(FailureCode.METASTORE_SILENT, "")
            case WaitStart() | WaitMajority() | WaitMirror():
                return ReconfigurationFailure(self._lacks[0], "", self._lacks[1])
        return None
