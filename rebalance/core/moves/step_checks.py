"""Check of a membership step before it is sent, judged by what members have just answered themselves.

``check_step`` takes the place of etcd's strict check (``--strict-reconfig-check``), which accepts a new member
only when all voters have been connected for five seconds. It needs no time to pass: every member that counts
has answered a call of our own a moment ago, as a member of the same cluster that sees the same leader in the
same term.

Claim: no step is sent whose next configuration had no answering majority within the second before. What the
check cannot see is what changes in that second; ``rebalance/tech-notes/etcd-group.md`` names it.

Two rules need no condition of their own. From one voter to two, a majority of the next configuration is both,
so the joiner itself has answered. From two to one, a majority of the present one is both, so both live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from catalog.core.quorum import majority
from rebalance.core.moves.group_steps import AddLearner, Promote, Remove

VALID_S = 1.0
"""Seconds from the list, after which members are asked, to the end of the call that is allowed."""
SENT_S = 0.8
"""A call that would have less than the rest of ``VALID_S`` is not sent: it would hardly get an answer."""

CheckedStep = AddLearner | Promote | Remove


class StepCondition(Enum):
    """Conditions that a step may wait for."""

    KNOWN_OUTCOME = "KNOWN_OUTCOME"  # of the call before: a list behind a write of the leader's own
    SAME_TERM = "SAME_TERM"  # this member leads no longer, or in another term: the attempt ends
    LEADER_ANSWER = "LEADER_ANSWER"  # the leader's own member has not answered since the list
    FRESH_LIST = "FRESH_LIST"  # the check is too old for another call
    OTHER_LIST = "OTHER_LIST"  # the list holds no such member, or in another role
    FREE_SLOT = "FREE_SLOT"  # a learner is listed already
    IN_SYNC = "IN_SYNC"  # the joiner has not said that it has what was committed
    OTHER_LEADER = "OTHER_LEADER"  # the leader itself never goes
    ANNOUNCED = "ANNOUNCED"  # clients have not turned away from the voter that goes
    MAJORITY = "MAJORITY"  # of the present voters too few have answered
    NEXT_MAJORITY = "NEXT_MAJORITY"  # of the voters after the step too few have answered


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """Answer of a member about itself. ``sent_s``: when the call to it began; all times are of one monotonic
    clock."""

    member_id: int
    cluster_id: int
    leader_id: int
    term: int
    sent_s: float
    applied_index: int = 0


@dataclass(frozen=True, slots=True)
class CheckedMember:
    """An entry of the list. ``announced``: clients have had the time to turn away from it; ``answer``: to the
    newest call, None: it was silent."""

    member_id: int
    peer_url: str
    is_learner: bool = False
    announced: bool = False
    answer: MemberAnswer | None = None


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """``leader`` answered before the linearizable list was read, every member after it. A leader that is one in
    ``term`` before and after has given the list of that term: terms only grow."""

    term: int
    leader: MemberAnswer
    listed_s: float
    """Time at which the list had been read."""
    members: tuple[CheckedMember, ...]
    outcome_known: bool = True
    awaited_index: Mapping[int, int] = field(default_factory=dict)
    """Index of the log that each joining member, by its id, has to have applied before it may vote."""


@dataclass(frozen=True, slots=True)
class MaySend:
    """Leave to send the step to the leader's own member, once: at ``send_by_s`` at the latest, with ``until_s``
    as the call's end."""

    send_by_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class NotYet:
    """``silent``: peer URLs of the members whose answers are missing."""

    condition: StepCondition
    silent: tuple[str, ...] = ()


def check_step(step: CheckedStep, evidence: StepEvidence, now_s: float) -> MaySend | NotYet:
    """Decide whether ``step`` may be sent at ``now_s``; a step of unknown outcome is checked anew before a
    repeat."""
    own = next((member for member in evidence.members if member.member_id == evidence.leader.member_id), None)
    if not evidence.outcome_known:
        return NotYet(StepCondition.KNOWN_OUTCOME)
    if not leads(evidence.leader, evidence.term) or own is None:
        return NotYet(StepCondition.SAME_TERM)
    if own.answer is None or own.answer.sent_s < evidence.listed_s:
        return NotYet(StepCondition.LEADER_ANSWER, (own.peer_url,))
    if not leads(own.answer, evidence.term):
        return NotYet(StepCondition.SAME_TERM)
    send_by_s = evidence.listed_s + SENT_S
    if now_s > send_by_s:
        return NotYet(StepCondition.FRESH_LIST)
    obstacle = _obstacle(step, evidence)
    if obstacle is not None:
        return obstacle
    return MaySend(send_by_s, evidence.listed_s + VALID_S)


def leads(answer: MemberAnswer, term: int) -> bool:
    return answer.leader_id == answer.member_id and answer.term == term


def _obstacle(step: CheckedStep, evidence: StepEvidence) -> NotYet | None:
    voters = [other for other in evidence.members if not other.is_learner]
    if isinstance(step, AddLearner):
        if any(other.is_learner for other in evidence.members):
            return NotYet(StepCondition.FREE_SLOT)
        if any(other.peer_url == step.peer_url for other in evidence.members):
            return NotYet(StepCondition.OTHER_LIST)
        return _without_majority(StepCondition.MAJORITY, voters, evidence)
    member = next((other for other in evidence.members if other.peer_url == step.peer_url), None)
    if member is None:
        return NotYet(StepCondition.OTHER_LIST)
    if isinstance(step, Promote):
        return _promotion(member, voters, evidence)
    if member.is_learner:
        return _without_majority(StepCondition.MAJORITY, voters, evidence)
    return _removal(member, voters, evidence)


def _promotion(joiner: CheckedMember, voters: list[CheckedMember], evidence: StepEvidence) -> NotYet | None:
    if not joiner.is_learner:
        return NotYet(StepCondition.OTHER_LIST)
    awaited = evidence.awaited_index.get(joiner.member_id)
    applied = joiner.answer.applied_index if joiner.answer is not None else 0
    if awaited is None or not has_answered(joiner, evidence) or applied < awaited:
        return NotYet(StepCondition.IN_SYNC, (joiner.peer_url,))
    return _without_majority(StepCondition.NEXT_MAJORITY, [*voters, joiner], evidence)


def _removal(leaving: CheckedMember, voters: list[CheckedMember], evidence: StepEvidence) -> NotYet | None:
    if leaving.member_id == evidence.leader.member_id:
        return NotYet(StepCondition.OTHER_LEADER)
    if not leaving.announced:
        return NotYet(StepCondition.ANNOUNCED)
    remaining = [voter for voter in voters if voter is not leaving]
    return _without_majority(StepCondition.MAJORITY, voters, evidence) or _without_majority(
        StepCondition.NEXT_MAJORITY, remaining, evidence
    )


def _without_majority(
    condition: StepCondition, voters: Iterable[CheckedMember], evidence: StepEvidence
) -> NotYet | None:
    answering = {voter.peer_url: has_answered(voter, evidence) for voter in voters}
    if sum(answering.values()) >= majority(len(answering)):
        return None
    return NotYet(condition, tuple(peer_url for peer_url, answers in answering.items() if not answers))


def has_answered(member: CheckedMember, evidence: StepEvidence) -> bool:
    """True if that very member has answered, asked after the list: it is of the leader's cluster, and follows
    the leader in this term."""
    answer, leader = member.answer, evidence.leader
    return (
        answer is not None
        and answer.member_id == member.member_id
        and answer.cluster_id == leader.cluster_id
        and answer.leader_id == leader.member_id
        and answer.term == evidence.term
        and answer.sent_s >= evidence.listed_s
    )
