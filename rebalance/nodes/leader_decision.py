"""Decisions of the agent beside a leader from what it sees, and its memory of one group from round to round:
pure.

A round has duties in an order (``round_duties``). Where the group is to change, what the metastore itself
says decides what is done about it (``decide_on_change``). What is not done, or does not go on, is explained
in the words that are published (``LedGroup``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Observed
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.readable import Unreadable, readable
from rebalance.core.keyspace.records import Failing, MemberRole, MemberState
from rebalance.core.moves.step_checks import StepCondition
from rebalance.nodes.copy_attempts import CopyAttempts, CopyRules
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import FailureCode, GroupMember, MemberStatus, ReconfigurationFailure

_AWAITED = frozenset(condition.value for condition in StepCondition)


@dataclass(frozen=True, slots=True)
class DesiredPeers:
    """``revision``: of pending; 0 means back to stable. A member that comes back has another peer URL."""

    target: Assignments
    revision: int
    urls: dict[str, str]


class LeaderDuty(Enum):
    REST = "REST"  # nothing is pending and the group is what stable says
    GIVE_UP_JOINERS = "GIVE_UP_JOINERS"  # those that are gone for too long; pending is another one then
    UNLOCK = "UNLOCK"  # no voter is touched under the lock now
    CANCEL = "CANCEL"  # the running change, where its strategy makes way for the planned one
    CHANGE = "CHANGE"  # bring the group to pending, or back to stable


def round_duties(
    view: NodePartitionView,
    status: MemberStatus,
    members: tuple[GroupMember, ...],
    *,
    lock: PendingLock | Unreadable | None,
    is_planned: bool,
    must_read: bool,
    running: DesiredPeers | None,
) -> tuple[LeaderDuty, ...]:
    """Return the duties in order; one that puts another target in pending's place ends the round.
    ``must_read``: pending as the mirror shows it does not count; ``running``: what the change that runs was
    asked for.

    A change that runs sees to its own lock, not to what a deposed leader has left."""
    stable, pending = view.stable, view.pending
    if stable is not None and pending is None and not must_read and not status.changing:
        listed = {member.peer_url for member in members}
        if listed == set(peer_urls(view, stable.value).values()):
            return (LeaderDuty.REST,)
    duties = [LeaderDuty.GIVE_UP_JOINERS]
    if isinstance(lock, PendingLock) and not (status.changing and lock.term >= status.term):
        duties.append(LeaderDuty.UNLOCK)
    if pending is not None and is_planned:
        duties.append(LeaderDuty.CANCEL)
    if not status.changing or running != desired_peers(view):
        duties.append(LeaderDuty.CHANGE)
    return tuple(duties)


@dataclass(frozen=True, slots=True)
class SwitchStable:
    """The group is what pending says, as of revision ``token``."""

    target: Assignments
    token: int


@dataclass(frozen=True, slots=True)
class Unlock:
    """Release the lock, whatever the mirror shows: what was planned under it may be wanted instead."""


@dataclass(frozen=True, slots=True)
class ChangePeers:
    """Ask the group for ``peers``. ``stable_urls``: peer URLs of the voters before the move. ``obstacle``: why
    it cannot be asked for yet; empty when it can."""

    peers: DesiredPeers
    token: int
    stable_urls: tuple[str, ...]
    obstacle: str


def decide_on_change(
    view: NodePartitionView,
    observed: Observed,
    revision: int,
    members: tuple[GroupMember, ...],
    *,
    changing: bool,
    running: DesiredPeers | None,
) -> tuple[SwitchStable | Unlock | ChangePeers, ...]:
    """Return the steps in order; nothing follows where an unlock puts another target in pending's place.
    ``observed`` was read at ``revision``, ``members`` linearizably. A change that runs for another target has
    to be replaced first, also where only learners differ."""
    if observed.stable is None:
        return ()
    target = readable(observed.pending or observed.stable, Assignments.decode)
    pending_revision = observed.pending.mod_revision if observed.pending else 0
    token, urls = pending_revision or revision, peer_urls(view, target)
    voters = {member.peer_url for member in members if member.role is MemberRole.VOTER}
    is_applied = voters == set(urls.values()) and len(members) == len(target.peers) == len(urls)
    if is_applied and not changing:
        return (SwitchStable(target, token),) if pending_revision else ()
    peers = DesiredPeers(target, pending_revision, urls)
    if is_applied and not pending_revision and running is not None and replace(running, revision=0) == peers:
        # The change that runs has just switched stable: it is about to end.
        return ()
    effects: tuple[Unlock, ...] = (Unlock(),) if observed.lock is not None and not changing else ()
    if changing and running == peers:
        return effects
    stable_urls = tuple(peer_urls(view, readable(observed.stable, Assignments.decode)).values())
    return (*effects, ChangePeers(peers, token, stable_urls, obstacle(view, target, urls, members)))


def desired_peers(view: NodePartitionView) -> DesiredPeers | None:
    """Return what the mirror shows as wanted now."""
    if view.pending is not None:
        target = view.pending.value
        return DesiredPeers(target, view.pending.mod_revision, peer_urls(view, target))
    return DesiredPeers(view.stable.value, 0, peer_urls(view, view.stable.value)) if view.stable else None


def peer_urls(view: NodePartitionView, target: Assignments) -> dict[str, str]:
    """Peer URLs of the target's nodes, as far as they have reserved a member."""
    return {
        name: view.records[name].value.peer_url
        for name in target.peers
        if name in view.records and view.records[name].value.peer_url
    }


def obstacle(
    view: NodePartitionView, target: Assignments, urls: Mapping[str, str], members: tuple[GroupMember, ...]
) -> str:
    """Return why a change to ``target`` is not asked for yet; empty when it can be (I3-028: not before every
    new member is reserved on a living node). Learners are not waited for (S241)."""
    listed = {member.peer_url for member in members}
    for name in target.peers:
        if urls.get(name) in listed:
            continue
        if name not in view.living:
            return Cause.NODE_DOWN.text(name)
        record = view.records.get(name)
        if record is not None and record.value.state is MemberState.FAILED and name not in urls:
            return Cause.MEMBER_FAILED.text(f"{name}: {record.value.reason}")
        if record is None or name not in urls or record.value.started:
            # Without a URL the record speaks of a mirror alone. Started and not listed: what is left of a
            # member that was removed. Its node reserves a new one.
            return Cause.MEMBER_NOT_RESERVED.text(name)
    return ""


def explained(view: NodePartitionView, issue: ReconfigurationFailure) -> str:
    """``CAUSE: node``, with the node's own state where that is the cause."""
    cause = cause_of_failure(issue)
    for name, record in view.records.items():
        if issue.peer_url and record.value.peer_url == issue.peer_url:
            if name not in view.living:
                return Cause.NODE_DOWN.text(name)
            if issue.code is FailureCode.MIRROR_NOT_RUNNING:
                mirror = record.value.mirror
                return cause.text(": ".join(filter(None, (name, mirror.reason if mirror else ""))))
            if record.value.state is MemberState.FAILED:
                return Cause.MEMBER_FAILED.text(f"{name}: {record.value.reason}")
            return cause.text(name)
    if cause in (Cause.REFUSED, Cause.TIMED_OUT, Cause.DEFECT):
        return cause.text(issue.detail)
    return cause.text()


def cause_of_failure(issue: ReconfigurationFailure) -> Cause:
    """A step that waits for answers is part of a normal move, whatever it waits to hear."""
    if issue.code is FailureCode.UNHEALTHY_CLUSTER:
        return Cause.HEALTH_INTERVAL
    if issue.code is FailureCode.NO_MAJORITY or issue.detail in _AWAITED:
        return Cause.ANSWERS_AWAITED
    return Cause[issue.code.name]


NO_ATTEMPTS = CopyAttempts()
AWAITS_COPY = (FailureCode.CATCHING_UP, FailureCode.CATCH_UP_TIMEOUT, FailureCode.MEMBER_NOT_STARTED)


@dataclass(slots=True)
class LedGroup:
    """A led group in one term. ``attempts`` are those since the member list last changed."""

    term: int = 0
    elected: bool = False
    """Pending is to be read from the metastore itself, whatever the mirror says."""
    peers: DesiredPeers | None = None
    """Peers that the running change was asked for."""
    members: frozenset[tuple[str, MemberRole]] = frozenset()
    attempts: CopyAttempts = NO_ATTEMPTS
    obstacle: str = ""
    beats_through: str = ""
    """Client URL of the own member while the partition has learners, which want to know the time."""

    def failing(self, view: NodePartitionView, rules: CopyRules) -> Failing | None:
        """Return what the change that is wanted does not get past; None: nothing, as far as attempts have
        shown."""
        if self.obstacle:
            # At rest it is a voter that is missing, which is no failed change.
            return Failing(self.obstacle.partition(":")[0], self.obstacle) if view.pending else None
        failure = self.attempts.failure
        if failure is None or not self.attempts.is_failed(rules):
            return None
        return Failing(failure.code.value, explained(view, failure), self.attempts.counted)

    def reason(
        self,
        view: NodePartitionView,
        waiting: ReconfigurationFailure | None,
        stalled: tuple[str, ...],
        rules: CopyRules,
    ) -> str:
        """Return the published reason of a change that does not go on; empty when it does. A failure stays the
        reason until the member list changes, so that attempts do not make it flicker."""
        if self.obstacle:
            return self.obstacle
        issue = waiting or self.attempts.failure
        if stalled and issue is not None and issue.code in AWAITS_COPY:
            return Cause.COPY_STALLED.text(", ".join(stalled))
        return self.attempts.published_cause(explained(view, issue), rules) if issue else ""
