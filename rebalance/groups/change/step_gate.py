"""Membership steps of a group, sent to the leader's own member: looked at, checked and sent, one at a time.

Where the members check steps themselves (``EtcdTuning.strict_steps``) a step is sent as it is. Otherwise each
one is checked by ``rebalance/core/moves/step_checks.py`` first: the leader's status, a linearizable list, then
a call to every member at once. Checking ends as soon as enough have answered; a member that is gone costs no
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import KW_ONLY, dataclass

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.group_steps import Remove
from rebalance.core.moves.step_checks import (
    SENT_S,
    CheckedMember,
    CheckedStep,
    MaySend,
    MemberAnswer,
    NotYet,
    StepEvidence,
    check_step,
)
from rebalance.groups.calls.etcd_api import (
    MEMBERSHIP_TIMEOUT_S,
    REFUSALS,
    CallFailedError,
    EtcdMemberEntry,
    EtcdStatus,
    FailureKind,
)
from rebalance.groups.calls.group_guard import group_identity
from rebalance.groups.calls.member_calls import GroupCalls, GroupMemberCalls
from rebalance.ports.groups import MemberUnavailableError

CallsAt = Callable[[PartitionId, str], AbstractAsyncContextManager[GroupCalls]]
"""Way to open calls to another node's member, at its client URL."""


class CheckTooOldError(Exception):
    """The step was not sent: it is to be checked anew."""


@dataclass(slots=True)
class StepOutcome:
    """Outcome of the last membership call that this host has sent as leader of the present term."""

    known: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """The leader's status, and the member list that was read linearizably after it. Times: the event loop's."""

    status: EtcdStatus
    sent_s: float
    entries: tuple[EtcdMemberEntry, ...]
    listed_s: float


@dataclass(eq=False)
class StepGate:
    """Gate for the membership steps of one attempt; a context manager, which closes the connections to the
    other members."""

    partition: PartitionId
    member: GroupMemberCalls
    term: int
    outcome: StepOutcome
    calls_at: CallsAt
    _: KW_ONLY
    strict: bool

    def __post_init__(self) -> None:
        self._opened = AsyncExitStack()
        self._calls: dict[str, GroupCalls] = {}
        self._listing: Listing | None = None
        self._allowed: tuple[CheckedStep, MaySend] | None = None
        self._answers: dict[int, EtcdStatus | None] = {}

    async def __aenter__(self) -> StepGate:
        await self._opened.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def look(self) -> Listing:
        """Raises CallFailedError or MemberUnavailableError. After a call of unknown outcome the list is read
        behind a write of the leader's own: what was sent before is in it, or never will be."""
        sent_s = _now_s()
        status = await self.member.api.status()
        if not self.strict and not self.outcome.known:
            await self.member.api.claim_identity(group_identity(self.partition))
        entries = await self.member.entries(linearizable=True)
        if status.leader_id == status.member_id and status.term == self.term:
            self.outcome.known = True
        self._listing, self._allowed = Listing(status, sent_s, entries, _now_s()), None
        self._answers.clear()
        return self._listing

    async def obstacle(
        self, step: CheckedStep, announced: frozenset[str], awaited_index: Mapping[int, int]
    ) -> NotYet | None:
        """Obstacle that ``step`` waits for, by the last list; None: it may be sent for as long as ``is_fresh``
        says. ``announced``: peer URLs of voters that clients have turned away from; ``awaited_index``: what
        each joining member, by its id, has to have applied."""
        if self.strict or self._listing is None:
            return None
        verdict = await self._judged(step, self._listing, announced, awaited_index)
        self._allowed = (step, verdict) if isinstance(verdict, MaySend) else None
        return verdict if isinstance(verdict, NotYet) else None

    @property
    def is_fresh(self) -> bool:
        """True if the step that was allowed may still be sent now."""
        return self.strict or (self._allowed is not None and _now_s() <= self._allowed[1].send_by_s)

    async def send(self, step: CheckedStep, call: Callable[[float], Awaitable[None]]) -> None:
        """``call`` gets its time limit in seconds. That its effect is there already is a success: the list
        tells. A check allows one call. Raises CheckTooOldError or CallFailedError; after one that may have been
        done all the same its ``StepOutcome`` is not known."""
        timeout_s = MEMBERSHIP_TIMEOUT_S
        if not self.strict:
            if self._allowed is None or self._allowed[0] != step or not self.is_fresh:
                raise CheckTooOldError(f"{step} is not allowed now")
            timeout_s = self._allowed[1].until_s - _now_s()
        self._allowed, self.outcome.known = None, False
        try:
            await call(timeout_s)
        except CallFailedError as failed:
            self.outcome.known = failed.kind in REFUSALS
            if failed.kind is not FailureKind.ALREADY_DONE:
                raise
        self.outcome.known = True

    async def remove_learners(self) -> None:
        """Each with a check of its own. Raises CallFailedError or MemberUnavailableError."""
        for entry in (await self.look()).entries:
            if entry.is_learner:
                await self._remove_learner(entry)

    async def _remove_learner(self, entry: EtcdMemberEntry) -> None:
        await self.look()
        step = Remove(entry.peer_url)
        obstacle = await self.obstacle(step, frozenset(), {})
        if obstacle is not None:
            raise MemberUnavailableError(f"{step} waits for {obstacle.condition.value}")
        try:
            await self.send(step, lambda limit_s: self.member.api.remove(entry.member_id, limit_s))
        except CheckTooOldError as error:
            raise MemberUnavailableError(str(error)) from error

    async def answer_of(self, entry: EtcdMemberEntry) -> EtcdStatus | None:
        """Status that another member gives of itself, asked for once after each look; None: no answer, or that
        of a member with another id."""
        if entry.member_id not in self._answers:
            status = await self._status_of(entry)
            is_other = status is not None and status.member_id != entry.member_id
            self._answers[entry.member_id] = None if is_other else status
        return self._answers[entry.member_id]

    async def _status_of(self, entry: EtcdMemberEntry) -> EtcdStatus | None:
        with suppress(MemberUnavailableError):
            if self._listing is not None and entry.member_id == self._listing.status.member_id:
                return await self.member.api.status()
            if entry.client_url:
                return await (await self._calls_to(entry.client_url)).status()
        return None

    async def _calls_to(self, client_url: str) -> GroupCalls:
        if client_url not in self._calls:
            opened = await self._opened.enter_async_context(self.calls_at(self.partition, client_url))
            self._calls[client_url] = opened
        return self._calls[client_url]

    async def _judged(
        self, step: CheckedStep, listing: Listing, announced: frozenset[str], awaited_index: Mapping[int, int]
    ) -> MaySend | NotYet:
        answers: dict[int, MemberAnswer | None] = {}

        async def ask(entry: EtcdMemberEntry) -> None:
            status = await self._status_of(entry)
            answers[entry.member_id] = _answer(status, sent_s) if status is not None else None

        def verdict() -> MaySend | NotYet:
            members = tuple(
                CheckedMember(
                    entry.member_id,
                    entry.peer_url,
                    entry.is_learner,
                    announced=entry.peer_url in announced,
                    answer=answers.get(entry.member_id),
                )
                for entry in listing.entries
            )
            leader = _answer(listing.status, listing.sent_s)
            evidence = StepEvidence(
                self.term, leader, listing.listed_s, members, self.outcome.known, awaited_index
            )
            return check_step(step, evidence, _now_s())

        sent_s = _now_s()
        asking = [asyncio.create_task(ask(entry)) for entry in listing.entries]
        try:
            while True:
                judged = verdict()
                silent = [task for task in asking if not task.done()]
                if isinstance(judged, MaySend) or not silent:
                    return judged
                left_s = listing.listed_s + SENT_S - _now_s()
                done, _ = await asyncio.wait(silent, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return judged
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


def _answer(status: EtcdStatus, sent_s: float) -> MemberAnswer:
    return MemberAnswer(
        status.member_id, status.cluster_id, status.leader_id, status.term, sent_s, status.applied_index
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
