"""Steps of a replication group from the member list that it has to the one that is wanted.

``next_step`` looks at the list that the group has committed, at its leader and at the target, and names the one
step to take now. It keeps no memory, so the next leader continues an interrupted change from the list alone.
Order: make room (a learner nobody wants, a dead voter nobody wants), then increase, then hand leadership over,
then decrease. Voters of a target that was given up leave before the next one joins, so that no pile of them
grows from target to target.

Invariants, whatever the starting point:
- a removal never leaves fewer living voters than a majority of the voters that remain;
- a removed living voter is announced first, so that clients turn away before it goes;
- the leader is never removed; it hands leadership over before;
- a voter that is to become a learner stays until its node's mirror runs, so that no copy is missing.

Learners are no members: the target is its voters, and nothing here waits for a new learner. A member's
identity is its peer URL: a node that comes back with new data comes back as another member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.core.quorum import majority
from rebalance.core.keyspace.records import MemberRole, Stage


@dataclass(frozen=True, slots=True)
class ObservedMember:
    """One entry of the committed member list, with what is known of its process."""

    peer_url: str
    role: MemberRole
    started: bool = True
    """True if it joined and answers clients."""
    joined: bool = True
    """True if its process is in the group; it may not answer clients yet."""
    down: bool = False
    """True if its node does not live, or has given the member up."""
    announced: bool = False
    """Published as leaving long enough ago for clients to have turned away."""
    mirror_awaited: bool = False
    """True if its node is to be a learner, lives, and has no mirror yet that runs."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """``leader`` is a peer URL; empty when there is none, and then nothing is done."""

    members: tuple[ObservedMember, ...]
    leader: str

    @property
    def voters(self) -> tuple[ObservedMember, ...]:
        return tuple(member for member in self.members if member.role is MemberRole.VOTER)

    @property
    def learners(self) -> tuple[ObservedMember, ...]:
        return tuple(member for member in self.members if member.role is MemberRole.LEARNER)


@dataclass(frozen=True, slots=True)
class AddLearner:
    peer_url: str


@dataclass(frozen=True, slots=True)
class WaitStart:
    """The member is in the list, and its process has not joined or does not answer yet."""

    peer_url: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make the learner a voter once it is in sync."""

    peer_url: str


@dataclass(frozen=True, slots=True)
class MoveLeader:
    """``candidates`` are voters of the target, the best one first."""

    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnounceLeaving:
    peer_url: str


@dataclass(frozen=True, slots=True)
class Remove:
    peer_url: str


@dataclass(frozen=True, slots=True)
class WaitMajority:
    """Remove no voter now: those that remain would have no living majority without ``down``."""

    down: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitMirror:
    """The voter goes once the mirror on its node runs."""

    peer_url: str


@dataclass(frozen=True, slots=True)
class WaitLeader:
    """The group has no leader at the moment."""


@dataclass(frozen=True, slots=True)
class Done:
    """The list is the target: voters only, exactly those."""


Step = (
    AddLearner
    | WaitStart
    | Promote
    | MoveLeader
    | AnnounceLeaving
    | Remove
    | WaitMajority
    | WaitMirror
    | WaitLeader
    | Done
)


def next_step(view: GroupView, target: Sequence[str], stable: Sequence[str] = ()) -> Step:
    """The step that brings ``view`` nearer to voters = ``target`` (peer URLs, the preferred primary first).
    ``stable``: peer URLs of the voters before the move; empty where nobody knows them.

    Raises ValueError for an empty target: a group cannot be reconfigured away.
    """
    if not target:
        raise ValueError("a group needs at least one voter")
    if not view.leader:
        return WaitLeader()
    urls = frozenset(target)
    return _make_room(view, urls) or _increase(view, target, stable) or _decrease(view, target, urls) or Done()


def touches_voters(step: Step, view: GroupView) -> bool:
    """True if the step changes who votes or leads, or says that the change is over: it is taken under the lock
    only."""
    if isinstance(step, Remove | AnnounceLeaving):
        return step.peer_url in {voter.peer_url for voter in view.voters}
    return isinstance(step, Promote | MoveLeader | Done)


def needs_intention(step: Step, view: GroupView) -> bool:
    """True if the step is only taken for what the metastore says now (M12): the next joiner, another leader, a
    voter that goes. Promoting the joiner that runs, removing a learner and waiting need only the intention that
    the leader's agent has read in its term."""
    if isinstance(step, Remove):
        return step.peer_url in {voter.peer_url for voter in view.voters}
    return isinstance(step, AddLearner | MoveLeader)


def leaves_first(view: GroupView, target: Sequence[str]) -> str | None:
    """The voter that goes first once the group has grown, so that clients may learn it while it grows; None
    when nobody goes, or when leadership is handed over before (the next leader's agent tells then).

    One at a time: the clients that turn away from it need the others.
    """
    urls = frozenset(target)
    if view.leader not in urls:
        return None
    return next((voter.peer_url for voter in view.voters if voter.peer_url not in urls), None)


def _make_room(view: GroupView, urls: frozenset[str]) -> Step | None:
    """Free the one learner slot, and drop dead voters: a group with a dead voter accepts no new member."""
    for learner in view.learners:
        if learner.peer_url not in urls:
            return Remove(learner.peer_url)
    for voter in view.voters:
        unwanted = voter.peer_url not in urls and voter.peer_url != view.leader
        if unwanted and voter.down and not voter.mirror_awaited and _majority_lives_without(view, voter):
            return Remove(voter.peer_url) if voter.announced else AnnounceLeaving(voter.peer_url)
    return None


def _increase(view: GroupView, target: Sequence[str], stable: Sequence[str]) -> Step | None:
    for learner in view.learners:
        # Whether it is in sync is asked of the member itself, which may know before its node has said so.
        ready = learner.started or (learner.joined and _majority_serves_beside_one_more(view))
        return Promote(learner.peer_url) if ready else WaitStart(learner.peer_url)
    listed = {member.peer_url for member in view.members}
    for peer_url in target:
        if peer_url not in listed:
            return _shed(view, target, stable) or AddLearner(peer_url)
    return None


def _shed(view: GroupView, target: Sequence[str], stable: Sequence[str]) -> Step | None:
    """A living voter in neither ``stable`` nor ``target`` leaves now. Where it cannot, the increase goes on:
    as the leader, as the only copy on a node that is to learn, or when too few voters would be left."""
    known = {*stable, *target}
    fewest = min(len(stable), len(target))
    if not stable or len(view.voters) <= fewest:
        return None
    for voter in view.voters:
        stays = voter.peer_url in known or voter.peer_url == view.leader or voter.mirror_awaited
        if not stays and not voter.down and _majority_lives_without(view, voter):
            return Remove(voter.peer_url) if voter.announced else AnnounceLeaving(voter.peer_url)
    return None


def _decrease(view: GroupView, target: Sequence[str], urls: frozenset[str]) -> Step | None:
    extra = [voter for voter in view.voters if voter.peer_url not in urls]
    if not extra:
        return None
    if view.leader not in urls:
        # Before any removal, so that one agent, the new leader's, does all the rest.
        by_url = {voter.peer_url: voter for voter in view.voters}
        ranked = sorted(target, key=lambda peer_url: (by_url[peer_url].down, not by_url[peer_url].started))
        best = by_url[ranked[0]]
        if not best.started and not best.down:
            # The agent beside a leader works through it, so it has to answer.
            return WaitStart(best.peer_url)
        return MoveLeader(tuple(ranked))
    held = [voter for voter in extra if voter.mirror_awaited]
    for voter in extra:
        if voter not in held and _majority_lives_without(view, voter):
            return Remove(voter.peer_url) if voter.announced else AnnounceLeaving(voter.peer_url)
    if held:
        return WaitMirror(held[0].peer_url)
    return WaitMajority(tuple(voter.peer_url for voter in view.voters if voter.down))


def _majority_serves_beside_one_more(view: GroupView) -> bool:
    serving = sum(voter.started and not voter.down for voter in view.voters)
    return serving >= majority(len(view.voters) + 1)


def _majority_lives_without(view: GroupView, removed: ObservedMember) -> bool:
    remaining = [voter for voter in view.voters if voter is not removed]
    # A founding member whose process never started has no vote to give, however well its node is.
    living = sum(voter.started and not voter.down for voter in remaining)
    return living >= majority(len(remaining))


def stage_of(
    voters: Iterable[str], learners: Iterable[str], stable: Iterable[str], pending: Iterable[str] | None
) -> Stage:
    """The stage of a change, from the committed list and the two keys alone (node names).

    CATCHING_UP: members are to join, one copies or the next one is to be added; voters are touched only at the
    moment when one is promoted. JOINT: all have joined, or nobody does, and voters are to leave; with
    ``update`` and ``cancel`` under the lock. STABLE: the list is the target and the stable key is not switched.
    """
    voting, learning, old = frozenset(voters), frozenset(learners), frozenset(stable)
    new = old if pending is None else frozenset(pending)
    if pending is not None and voting == new and not learning:
        return Stage.STABLE
    if learning:
        return Stage.CATCHING_UP
    if voting == old:
        return Stage.NONE
    return Stage.JOINT if new <= voting else Stage.CATCHING_UP
