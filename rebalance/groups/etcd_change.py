"""A change of peers under way: the loop that the leader's node runs, one step at a time from the member list.

One attempt. It ends when the list is the target (``on_new_peers_configuration_applied``) or with the reason
why it cannot go on now (``on_reconfiguration_error``); the agent decides when to try again. Membership calls
carry no term, so a step of a leader that was deposed a moment ago may still land: the next step is computed
from the list as it is then, and is right for that list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

import structlog

from rebalance.core.assignments import Assignments
from rebalance.core.group_steps import (
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
    next_step,
)
from rebalance.core.keys import PartitionId
from rebalance.core.records import MemberRole
from rebalance.groups.etcd_api import CallFailedError, EtcdMemberEntry, FailureKind
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.groups.member_calls import GroupMemberCalls
from rebalance.ports.groups import (
    FailureCode,
    GroupListener,
    GroupMember,
    MemberUnavailableError,
    PeerSight,
    ReconfigurationFailure,
)

log = structlog.get_logger(__name__)

WAIT_MIN_S, WAIT_S = 0.02, 0.1


def group_identity(partition: PartitionId) -> bytes:
    """What a group's own store says of itself, under ``IDENTITY_KEY``."""
    return str(partition).encode()


class AttemptEndedError(Exception):
    def __init__(self, failure: ReconfigurationFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """``endpoints``: node -> peer URL of every voter of the target."""

    term: int
    token: int
    target: Assignments
    endpoints: Mapping[str, str]

    @property
    def target_urls(self) -> tuple[str, ...]:
        return tuple(self.endpoints[node] for node in self.target.peers)


@dataclass(slots=True)
class Progress:
    """Survives attempts: when each leaving member was published, and whether voters were touched yet."""

    announced_at: dict[str, float] = field(default_factory=dict)
    voters_touched: bool = False


def group_members(
    entries: tuple[EtcdMemberEntry, ...],
    sights: Mapping[str, PeerSight],
    leaving: Mapping[str, float],
) -> tuple[GroupMember, ...]:
    """Entries with node names: what the members' own nodes say first, then the name that etcd knows."""
    named: dict[str, GroupMember] = {}
    for entry in sorted(entries, key=lambda each: each.peer_url not in sights):
        sight = sights.get(entry.peer_url)
        name = sight.node if sight else entry.name
        if not name or name in named:
            # An earlier incarnation of a node, or a learner that never started: named by its id.
            name = f"_{entry.member_id:x}"
        named[name] = GroupMember(
            node=name,
            member_id=f"{entry.member_id:x}",
            role=MemberRole.LEARNER if entry.is_learner else MemberRole.VOTER,
            peer_url=entry.peer_url,
            started=bool(entry.name),
            leaving=entry.peer_url in leaving,
        )
    return tuple(named.values())


class EtcdChange:
    """``run`` is one attempt; ``in_call`` is true inside a step that cannot be interrupted."""

    def __init__(
        self,
        partition: PartitionId,
        member: GroupMemberCalls,
        request: ChangeRequest,
        progress: Progress,
        listener: GroupListener,
        tuning: EtcdTuning,
    ) -> None:
        self.request = request
        self.in_call = False
        self._partition = partition
        self._member = member
        self._progress = progress
        self._listener = listener
        self._tuning = tuning
        self._waiting_for: Step | None = None
        self._waiting_since = 0.0
        self._entries: tuple[EtcdMemberEntry, ...] = ()
        self._may_touch_voters = False

    async def run(self) -> None:
        """Calls exactly one of the two hooks, unless it is cancelled."""
        request = self.request
        try:
            await self._steps()
        except AttemptEndedError as ended:
            failure = ended.failure
        except CallFailedError as failed:
            failure = _failure_of(failed)
        except MemberUnavailableError as failed:
            failure = ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, str(failed))
        else:
            await self._listener.on_new_peers_configuration_applied(
                self._partition,
                Assignments(request.target.peers, request.target.learners),
                request.term,
                request.token,
            )
            return
        log.info(
            "change of peers goes on later",
            partition=str(self._partition),
            code=failure.code.value,
            detail=failure.detail,
            token=request.token,
        )
        await self._listener.on_reconfiguration_error(self._partition, failure, request.term, request.token)

    async def _steps(self) -> None:
        while True:
            view = await self._observe()
            step = next_step(view, self.request.target_urls)
            if _touches_voters(step, view) and not self._may_touch_voters:
                await self._ask_to_touch_voters()
            if isinstance(step, Done):
                await self._store_list(view)
                await self._publish()
                return
            if not isinstance(step, WaitStart | Promote):
                log.info("step", partition=str(self._partition), step=repr(step), token=self.request.token)
            await self._take(step, view)

    async def _store_list(self, view: GroupView) -> None:
        """A group of one has nobody to learn its list from. A member's disk may hold a removal before it holds
        that the removal is committed: killed then, the last voter would start as one of two and wait for the
        removed one for ever. The next write brings both to the disk."""
        if len(view.voters) == 1:
            await self._member.api.claim_identity(group_identity(self._partition))

    async def _ask_to_touch_voters(self) -> None:
        request = self.request
        self.in_call = True
        try:
            allowed = await self._listener.on_catch_up_finished(self._partition, request.term, request.token)
        finally:
            self.in_call = False
        if not allowed:
            detail = f"the target of token {request.token} is not to be finished"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.SUPERSEDED, detail))
        self._may_touch_voters = True

    async def _observe(self) -> GroupView:
        """The list as of now, or the end of the attempt when this member no longer leads in the same term."""
        status = await self._member.api.status()
        if status.leader_id != status.member_id or status.term != self.request.term:
            detail = f"term {self.request.term} is over, now {status.term}"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, detail))
        self._entries = await self._member.entries(linearizable=True)
        sights = self._listener.peers(self._partition)
        learners = frozenset(self.request.target.learners)
        awaited = {url for url, each in sights.items() if each.mirror_missing and each.node in learners}
        announced_before = asyncio.get_running_loop().time() - self._tuning.announce_s
        members = tuple(
            ObservedMember(
                peer_url=entry.peer_url,
                role=MemberRole.LEARNER if entry.is_learner else MemberRole.VOTER,
                joined=bool(entry.name),
                # Joined and serving clients: a voter that does not cannot lead.
                started=bool(entry.name) and entry.peer_url in sights and sights[entry.peer_url].serving,
                down=entry.peer_url not in sights or sights[entry.peer_url].down,
                announced=self._progress.announced_at.get(entry.peer_url, float("inf")) <= announced_before,
                mirror_awaited=entry.peer_url in awaited,
            )
            for entry in self._entries
        )
        leader = next((each.peer_url for each in self._entries if each.member_id == status.leader_id), "")
        return GroupView(members, leader)

    async def _take(self, step: Step, view: GroupView) -> None:
        match step:
            case AddLearner(peer_url):
                await self._call(self._member.api.add_learner(peer_url))
                leaving = leaves_first(view, self.request.target_urls)
                if leaving is not None:
                    # Clients turn away while the learner catches up, and nobody waits for it afterwards.
                    self._progress.announced_at.setdefault(leaving, float("inf"))
                await self._refresh_and_publish()
            case Promote(peer_url):
                await self._promote(step, peer_url)
            case WaitStart(peer_url):
                # Published again and again: the joining node starts only when it sees itself in the list.
                await self._publish()
                await self._wait(step, FailureCode.MEMBER_NOT_STARTED, peer_url)
            case MoveLeader(candidates):
                await self._move_leader(candidates)
            case AnnounceLeaving(peer_url):
                await self._announce(peer_url)
            case Remove(peer_url):
                await self._remove(peer_url)
            case WaitMajority(down):
                await self._wait(step, FailureCode.NO_MAJORITY, down[0] if down else "")
            case WaitMirror(peer_url):
                await self._wait(step, FailureCode.MIRROR_NOT_RUNNING, peer_url)
            case WaitLeader():
                await self._wait(step, FailureCode.TIMED_OUT, "")
            case Done():
                pass

    async def _promote(self, step: Step, peer_url: str) -> None:
        try:
            await self._call(self._member.api.promote(self._id_of(peer_url)))
        except CallFailedError as failed:
            if failed.kind is not FailureKind.NOT_IN_SYNC:
                raise
            await self._wait(step, FailureCode.CATCH_UP_TIMEOUT, peer_url)
            return
        self._progress.voters_touched = True
        log.info("promoted", partition=str(self._partition), peer_url=peer_url)
        await self._refresh_and_publish()

    async def _move_leader(self, candidates: tuple[str, ...]) -> None:
        """The new leader's agent continues; this attempt ends at its next look at the term."""
        failure: CallFailedError | None = None
        for peer_url in candidates:
            try:
                await self._call(self._member.api.move_leader(self._id_of(peer_url)))
            except CallFailedError as failed:
                failure = failed
                continue
            detail = f"leadership moved to {peer_url}"
            raise AttemptEndedError(ReconfigurationFailure(FailureCode.LEADER_STEPPED_DOWN, detail))
        raise AttemptEndedError(
            ReconfigurationFailure(FailureCode.TRANSFER_FAILED, str(failure), candidates[0])
        )

    async def _announce(self, peer_url: str) -> None:
        self._progress.announced_at.setdefault(peer_url, float("inf"))
        await asyncio.sleep(self._tuning.announce_s if await self._publish() else WAIT_S)

    async def _remove(self, peer_url: str) -> None:
        entry = next(each for each in self._entries if each.peer_url == peer_url)
        await self._call(self._member.api.remove(entry.member_id))
        self._progress.voters_touched |= not entry.is_learner
        self._progress.announced_at.pop(peer_url, None)
        await self._refresh_and_publish()

    async def _call(self, call: Awaitable[None]) -> None:
        """A membership call runs to its end. That its effect is there already is a success: the list tells."""
        self.in_call = True
        try:
            await call
        except CallFailedError as failed:
            if failed.kind is not FailureKind.ALREADY_DONE:
                raise
        finally:
            self.in_call = False
        self._waiting_for = None

    async def _refresh_and_publish(self) -> None:
        self._entries = await self._member.entries(linearizable=True)
        await self._publish()

    async def _publish(self) -> bool:
        sights = self._listener.peers(self._partition)
        announced_at = self._progress.announced_at
        members = group_members(self._entries, sights, announced_at)
        published = await self._listener.on_configuration_committed(self._partition, self.request.term, members)
        if published:
            now = asyncio.get_running_loop().time()
            announced_at.update({url: now for url, since in announced_at.items() if since == float("inf")})
        return published

    async def _wait(self, step: Step, code: FailureCode, peer_url: str) -> None:
        """A short pause; the attempt ends when the same step has waited for the whole catch-up time."""
        now = asyncio.get_running_loop().time()
        if self._waiting_for != step:
            self._waiting_for, self._waiting_since = step, now
        waited_s = now - self._waiting_since
        if waited_s > self._tuning.catch_up_timeout_s:
            raise AttemptEndedError(ReconfigurationFailure(code, f"waited {waited_s:.1f} s: {step}", peer_url))
        # Soon at first: most waits are short, and none ends much later than it could.
        await asyncio.sleep(min(max(waited_s / 4, WAIT_MIN_S), WAIT_S))

    def _id_of(self, peer_url: str) -> int:
        return next(each.member_id for each in self._entries if each.peer_url == peer_url)

    @property
    def waiting(self) -> ReconfigurationFailure | None:
        """What the attempt waits for at the moment, for the published reason."""
        match self._waiting_for:
            case WaitStart(peer_url):
                return ReconfigurationFailure(FailureCode.MEMBER_NOT_STARTED, "", peer_url)
            case Promote(peer_url):
                return ReconfigurationFailure(FailureCode.CATCHING_UP, "", peer_url)
            case WaitMajority(down):
                return ReconfigurationFailure(FailureCode.NO_MAJORITY, "", down[0] if down else "")
            case WaitMirror(peer_url):
                return ReconfigurationFailure(FailureCode.MIRROR_NOT_RUNNING, "", peer_url)
        return None


def _touches_voters(step: Step, view: GroupView) -> bool:
    if isinstance(step, Remove | AnnounceLeaving):
        return step.peer_url in {voter.peer_url for voter in view.voters}
    return isinstance(step, Promote | MoveLeader | Done)


_CODES: Mapping[FailureKind, FailureCode] = {
    FailureKind.UNHEALTHY: FailureCode.UNHEALTHY_CLUSTER,
    FailureKind.NOT_ENOUGH_STARTED: FailureCode.MEMBER_NOT_STARTED,
    FailureKind.NOT_LEADER: FailureCode.LEADER_STEPPED_DOWN,
    FailureKind.NO_ANSWER: FailureCode.TIMED_OUT,
    FailureKind.NO_LEADER: FailureCode.TIMED_OUT,
}


def _failure_of(failed: CallFailedError) -> ReconfigurationFailure:
    return ReconfigurationFailure(_CODES.get(failed.kind, FailureCode.REFUSED), str(failed))
