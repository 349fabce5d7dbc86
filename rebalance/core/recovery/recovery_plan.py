"""The way back for a partition that has lost the majority of its voters, as pure plans (IEP-049, IEP-059..061).

A *reset* founds the group anew on the best copy of a living node, whatever kind it is: first phase: pending is
that one node, forced (``candidates_of``). It brings the group to its full set after that (second phase:
planned). It is refused while a majority of the voters that the group has committed lives: then nothing is
lost, and the group helps itself. A *restart* stops and starts members, with clean-up on new data, and is
refused where that would cost the majority.

What is in the way is raised as ``RefusedError`` with a kind of its own; a plan that is returned was checked.

Copies on living nodes are compared in one unit, the data revision (R2). *Voters* and *joiners* are members of
the configuration that the group has committed, broken processes included; a joiner was catching up to vote.
*Learners* are mirrors that have a whole first copy. *Kept* copies are of members that have left. A copy is
usable while it is whole, has reported how far it goes and belongs to the newest generation that anybody knows
of; any other one says why it is not, and some of these may be used by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import Assignments, shortfall
from rebalance.core.keyspace.records import LogPosition, MemberRecord, MemberRole, MemberState, MirrorRecord
from rebalance.core.moves.move_status import PartitionView, unseen_voters, voters_of

DATA_LOST = "DATA_LOST"
FIRST_DATA_REVISION = 2
"""A store without any write is at 1, and each group begins with the write of its identity: a joiner below this
has received nothing."""


class CandidateKind(Enum):
    VOTER = "VOTER"
    JOINER = "JOINER"
    LEARNER = "LEARNER"
    KEPT = "KEPT"


class Use(Enum):
    """CHOSEN_FROM: the best of these is taken. BY_NAME: only where somebody names it. NONE: not at all."""

    CHOSEN_FROM = "CHOSEN_FROM"
    BY_NAME = "BY_NAME"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class ResetCandidate:
    """One copy. ``revision``: of its data, ``generation``: of the group that it belongs to; None where nobody
    can tell. ``state``: of the member or mirror, as its node says. ``position``: of a member's log.
    ``is_whole``: everything up to some revision is there, so that data is lost when it is discarded.
    ``is_silent``: it may still tell how far it goes. ``reason``: why it is not chosen from; empty: it is."""

    node: str
    kind: CandidateKind
    state: str
    generation: int | None
    revision: int | None = None
    position: LogPosition | None = None
    use: Use = Use.CHOSEN_FROM
    is_whole: bool = True
    is_silent: bool = False
    reason: str = ""

    @property
    def usable(self) -> bool:
        return self.use is Use.CHOSEN_FROM

    @property
    def undecided(self) -> int:
        """Log entries that the copy holds and does not know to be decided; a reset drops them."""
        return self.position.undecided if self.position is not None else 0


def candidates_of(view: PartitionView, alive: frozenset[str]) -> tuple[ResetCandidate, ...]:
    """The copies on living nodes: what is chosen first comes first, what is not usable last. Of a node that has
    a member and a mirror the member counts, unless that is not whole; kept copies are shown beside it."""
    copies = {copy.node: copy for copy in _mirrors(view, alive)}
    for copy in _members(view, alive):
        if copy.is_whole or copy.node not in copies:
            copies[copy.node] = copy
    return _ranked(_of_newest_generation(view, (*copies.values(), *_kept(view, alive))))


def possible_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Voters, and learners that may vote by now without anybody having been able to say so."""
    return voters_of(view) | unseen_voters(view, alive)


def living_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Possible voters whose node lives and whose member runs or is about to; no other learner counts."""
    listed = ((node, listed_member(view, node)) for node in possible_voters(view, alive) & alive)
    return frozenset(
        node for node, member in listed if member is not None and member.state is not MemberState.FAILED
    )


def absent_holders(view: PartitionView, alive: frozenset[str]) -> tuple[str, ...]:
    """Nodes that are not there and hold, or held, a copy: voters first, then the others, by name."""
    voters = voters_of(view)
    others = (*view.members, *(kept_by(name)[0] for name in view.kept))
    return tuple(dict.fromkeys(node for node in (*sorted(voters), *sorted(others)) if node not in alive))


def best_known_revision(view: PartitionView, generation: int | None) -> int:
    """The highest data revision of ``generation`` that any copy, living or not, has ever reported; 0: none.
    What a node that is gone has reported last is a lower bound of what the group had decided."""
    current = view.configuration.generation if view.configuration is not None else 0
    revisions = [0]
    for member in view.members.values():
        if member.position is not None and generation == current:
            revisions.append(member.position.revision)
        if member.mirror is not None and generation == member.mirror.generation:
            revisions += (member.mirror.complete_revision, member.mirror.safe_revision)
    return max(revisions)


def kept_by(name: str) -> tuple[str, int | None]:
    """The node of a kept copy, and the generation that was given up; None: its member has left its group.
    ``name``: of its key, ``<node>`` or ``<node>@<generation>``."""
    node, _, generation = name.rpartition("@")
    return (node, int(generation)) if node and generation.isdecimal() else (name, None)


def listed_member(view: PartitionView, node: str) -> MemberRecord | None:
    """The very member of ``node`` that the group lists; None: it has none, or another one."""
    member = view.members.get(node)
    configured = view.configuration.members.get(node) if view.configuration is not None else None
    if member is None or configured is None or member.peer_url != configured.peer_url:
        return None
    return member


def _members(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    configuration = view.configuration
    for node in sorted(configuration.members.keys() & alive) if configuration is not None else ():
        assert configuration is not None
        member = listed_member(view, node)
        if member is None:
            continue
        is_voter = configuration.members[node].role is MemberRole.VOTER
        kind = CandidateKind.VOTER if is_voter else CandidateKind.JOINER
        copy = ResetCandidate(
            node, kind, member.state.value, configuration.generation, position=member.position
        )
        yield _judged_voter(copy, member) if is_voter else _judged_joiner(copy, member)


def _judged_voter(copy: ResetCandidate, member: MemberRecord) -> ResetCandidate:
    if member.reason.startswith(DATA_LOST):
        return replace(copy, use=Use.NONE, is_whole=False, reason=member.reason)
    if member.position is None:
        return _silent(copy)
    return replace(copy, revision=member.position.revision or None)


def _judged_joiner(copy: ResetCandidate, member: MemberRecord) -> ResetCandidate:
    if member.reason.startswith(DATA_LOST) or not member.started:
        reason = member.reason or "it has received nothing yet"
        return replace(copy, use=Use.NONE, is_whole=False, reason=reason)
    if member.position is None:
        return _silent(copy)
    revision = member.position.revision
    if revision < FIRST_DATA_REVISION:
        reason = "it has received nothing yet" if revision else "its node cannot tell the revision of its data"
        return replace(copy, use=Use.NONE, is_whole=False, reason=reason)
    return replace(copy, revision=revision)


def _mirrors(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    for node in sorted(view.members.keys() & alive):
        member = view.members[node]
        if member.mirror is not None:
            copy = _judged_mirror(node, member.mirror)
            has_data = member.has_member and member.started and not member.reason.startswith(DATA_LOST)
            if copy.usable and has_data:
                reason = "its node also holds a member of the partition, and would found the group on that"
                copy = replace(copy, use=Use.NONE, reason=reason)
            yield copy


def _judged_mirror(node: str, mirror: MirrorRecord) -> ResetCandidate:
    copy = ResetCandidate(node, CandidateKind.LEARNER, mirror.state.value, mirror.generation)
    if mirror.complete_revision:
        return replace(copy, revision=mirror.complete_revision)
    if mirror.state is MemberState.RUNNING:
        return _silent(copy)
    if mirror.state is MemberState.FAILED:
        reason = mirror.reason or "its mirror does not run"
        return replace(copy, use=Use.NONE, is_whole=mirror.safe_revision > 0, reason=reason)
    return replace(copy, use=Use.NONE, is_whole=False, reason="its first copy is not finished")


def _kept(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    for name, record in sorted(view.kept.items()):
        node, generation = kept_by(name)
        if node in alive and not record.discard:
            # Its node would discard it: nothing founds a group on it yet.
            reason = "a kept copy of a member that has left: no group can be founded on it"
            yield ResetCandidate(node, CandidateKind.KEPT, "KEPT", generation, use=Use.NONE, reason=reason)


def _silent(copy: ResetCandidate) -> ResetCandidate:
    reason = "it has not told yet how far it goes"
    return replace(copy, use=Use.NONE, is_silent=True, reason=reason)


def _of_newest_generation(view: PartitionView, copies: Iterable[ResetCandidate]) -> list[ResetCandidate]:
    copies = list(copies)
    current = view.configuration.generation if view.configuration is not None else 0
    serving = (copy for copy in copies if copy.is_whole and copy.kind is not CandidateKind.KEPT)
    whole = (copy.generation for copy in serving if copy.generation is not None)
    newest = max((current, *whole))
    return [_as_of(copy, newest) for copy in copies]


def _as_of(copy: ResetCandidate, newest: int) -> ResetCandidate:
    if copy.generation in (None, newest) or not copy.is_whole or copy.kind is CandidateKind.KEPT:
        return copy
    use = Use.BY_NAME if copy.usable else Use.NONE
    reason = f"of generation {copy.generation}, and the newest is {newest}: what came after is not in it"
    return replace(copy, use=use, is_silent=False, reason=reason)


_ORDER = {kind: place for place, kind in enumerate(CandidateKind)}
_USES = {use: place for place, use in enumerate(Use)}


def _ranked(copies: Sequence[ResetCandidate]) -> tuple[ResetCandidate, ...]:
    """Rank copies by data revision. Where a voter's is not known (its node runs an older build), only logs of
    voters can be compared: by what they know to be decided, which their data follow."""
    unknown = sorted(copy.node for copy in copies if copy.usable and copy.revision is None)
    if not unknown:
        return tuple(sorted(copies, key=_by_revision))
    reason = f"the revision of the copy on {', '.join(unknown)} is not known, so it cannot be compared with it"
    others = (CandidateKind.JOINER, CandidateKind.LEARNER)
    compared = (
        replace(copy, use=Use.BY_NAME, reason=reason) if copy.usable and copy.kind in others else copy
        for copy in copies
    )
    return tuple(sorted(compared, key=_by_log))


def _by_revision(copy: ResetCandidate) -> tuple[int, int, int, str]:
    return _USES[copy.use], -(copy.revision or 0), _ORDER[copy.kind], copy.node


def _by_log(copy: ResetCandidate) -> tuple[int, int, int, str]:
    position = copy.position or LogPosition(0, 0, False)
    return _USES[copy.use], -position.committed, -position.last, copy.node


@dataclass(frozen=True, slots=True)
class ResetTerms:
    """Decisions of the requester of a reset. ``source``: the node whose copy is used, whichever is best;
    empty: the best is. ``empty``: the partition begins without data, and every whole copy that lives is among
    ``discarded``. ``confirmed_dead``: voters' nodes that are known to be dead, not only silent."""

    source: str = ""
    empty: bool = False
    discarded: frozenset[str] = frozenset()
    confirmed_dead: frozenset[str] = frozenset()


BEST_COPY = ResetTerms()


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """``copy``: the group goes on with it; None: the partition begins empty, on ``survivor``. ``then`` is what
    becomes planned; None: the survivor stays alone. ``candidates``: every copy that was looked at, the best
    first. ``silent``: nodes with a copy that has not reported how far it goes. ``dead``: nodes of voters that
    are not there. ``absent``: those, and others that hold a copy and are not there. ``missed_revisions``:
    between the survivor's and the highest data revision that any copy has ever reported."""

    survivor: str
    then: Assignments | None
    copy: ResetCandidate | None
    candidates: tuple[ResetCandidate, ...] = ()
    dead: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    missed_revisions: int = 0
    left_out: tuple[str, ...] = ()
    """Nodes of the target without which the partition has fewer replicas than it is to have."""

    @property
    def empty(self) -> bool:
        return self.copy is None

    @property
    def silent(self) -> tuple[str, ...]:
        return silent_of(self.candidates)

    @property
    def forced(self) -> Assignments:
        return Assignments((self.survivor,))

    @property
    def possibly_lost_entries(self) -> int:
        """Revisions that some copy has reported and the survivor does not have, and log entries that the
        survivor holds and does not know to be decided: they are dropped. What only lost nodes knew, and never
        reported, is not counted, because no living node knows of it."""
        return self.missed_revisions + (self.copy.undecided if self.copy is not None else 0)


def plan_reset(
    view: PartitionView,
    alive: frozenset[str],
    data_nodes: Collection[str],
    terms: ResetTerms = BEST_COPY,
    *,
    automatic: bool = False,
    has_waited: bool = False,
) -> ResetPlan:
    """Plan how the partition of ``view`` gets a leader again.

    ``alive``: nodes whose lease lives. ``automatic``: of a HIGH_AVAILABILITY zone, which narrows to the living
    nodes of its target; a reset by hand also tops up with other living ``data_nodes``, to as many replicas as
    the target has. ``has_waited``: silent copies were waited for, and the best of the others is taken.

    Invariants: no usable copy has a higher data revision than the one that is chosen, unless ``terms`` name
    another; a partition begins empty only where ``terms`` say so and name every whole copy that lives.

    Raises RefusedError: RECOVERY_STATE_ILLEGAL, RECOVERY_NOT_NEEDED, NOT_ENOUGH_ALIVE_NODES, NODE_SET_ILLEGAL,
    COPIES_LEFT. ``terms.confirmed_dead`` is not looked at here: ``unconfirmed_loss`` does.
    """
    if view.stable is None or view.configuration is None or view.target is None:
        raise RefusedError(
            ErrorKind.RECOVERY_STATE_ILLEGAL, "its group has never been founded: there is nothing to reset"
        )
    voters, living = possible_voters(view, alive), living_voters(view, alive)
    needed = majority(len(voters))
    if len(living) >= needed:
        message = f"{len(living)} of {len(voters)} voters are alive ({', '.join(sorted(living))})"
        raise RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, f"{message}, and {needed} are a majority")
    candidates = candidates_of(view, alive)
    full = _full_set(view.target, _pool(view, alive, data_nodes, automatic=automatic))
    if terms.empty and not automatic:
        copy = None
        survivor = _first_node(candidates, full, terms).primary
    else:
        copy = _copy_of(view, alive, candidates, terms, has_waited=has_waited)
        survivor = copy.node
    after = full or Assignments((survivor,))
    best = best_known_revision(view, copy.generation) if copy is not None and copy.revision else 0
    return ResetPlan(
        survivor=survivor,
        then=after if after != Assignments((survivor,)) else None,
        copy=copy,
        candidates=candidates,
        dead=tuple(sorted(voters - alive)),
        absent=absent_holders(view, alive),
        missed_revisions=max(best - (copy.revision or 0), 0) if copy is not None else 0,
        left_out=shortfall(view.target, after).awaited,
    )


def silent_of(candidates: Iterable[ResetCandidate]) -> tuple[str, ...]:
    """Nodes with a copy that may still tell how far it goes, by name."""
    return tuple(sorted(candidate.node for candidate in candidates if candidate.is_silent))


def unconfirmed_loss(
    dead: Collection[str], alive: frozenset[str], confirmed: frozenset[str]
) -> RefusedError | None:
    """Refusal of a reset that takes ``dead`` for dead and may not be made yet; None: it may. A majority that is
    cut off from the metastore alone still serves, and two groups would take writes: somebody has to look."""
    unconfirmed = sorted(set(dead) - confirmed)
    names = ", ".join(sorted(dead))
    if unconfirmed:
        message = f"the nodes of these voters are assumed dead: {names}; confirm exactly {names}"
        return RefusedError(ErrorKind.LOSS_NOT_CONFIRMED, message)
    living = sorted(confirmed & alive)
    if living:
        message = (
            f"{', '.join(living)} is alive, but was confirmed as dead; confirm exactly {names or 'no node'}"
        )
        return RefusedError(ErrorKind.LOSS_NOT_CONFIRMED, message)
    return None


def _copy_of(
    view: PartitionView,
    alive: frozenset[str],
    candidates: Sequence[ResetCandidate],
    terms: ResetTerms,
    *,
    has_waited: bool,
) -> ResetCandidate:
    if terms.source:
        return _named(candidates, terms.source)
    silent = silent_of(candidates)
    if silent and not has_waited:
        message = (
            f"{', '.join(silent)} has not reported its log position yet: try again in a few seconds, or name "
            "another replica"
        )
        raise RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)
    best = next((candidate for candidate in candidates if candidate.usable), None)
    if best is not None:
        return best
    by_name = [candidate.node for candidate in candidates if candidate.use is Use.BY_NAME]
    gone = ", ".join(sorted(voters_of(view) - alive)) or "none"
    message = f"no living node has a replica (absent nodes: {gone}); start one of them"
    if by_name:
        message = (
            f"no living node has a replica that can be chosen automatically (absent nodes: {gone}); start one "
            f"of them, or name a replica: {', '.join(by_name)}"
        )
    raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)


def _named(candidates: Sequence[ResetCandidate], source: str) -> ResetCandidate:
    copy = next((candidate for candidate in candidates if candidate.node == source), None)
    if copy is None:
        holders = ", ".join(sorted(candidate.node for candidate in candidates)) or "no living node"
        message = f"{source} is not alive, or has no replica ({holders} has)"
        raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
    if copy.use is Use.NONE:
        message = f"the replica on {source} cannot be used: {copy.reason}"
        raise RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)
    return copy


def _first_node(
    candidates: Sequence[ResetCandidate], full: Assignments | None, terms: ResetTerms
) -> Assignments:
    """The set that a partition without data begins with."""
    whole = sorted(candidate.node for candidate in candidates if candidate.is_whole)
    if not terms.discarded.issuperset(whole):
        names = ", ".join(whole)
        message = f"{names} is alive and has a replica: start from it, or discard it by naming {names}"
        raise RefusedError(ErrorKind.COPIES_LEFT, message)
    if full is None:
        message = "no data node of the zone is alive, so the partition cannot start empty"
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    return full


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Members to be stopped and started, on ``nodes``; ``cleanup``: with new data, copied from the others."""

    nodes: tuple[str, ...]
    cleanup: bool


def plan_restart(
    view: PartitionView, alive: frozenset[str], nodes: Sequence[str] = (), *, cleanup: bool = False
) -> RestartPlan:
    """``nodes``: whose members; empty: every living node that has one.

    With clean-up only one node, and only if the other voters are a majority without it: then its replica is
    taken out of the group and comes back as a new member.

    Raises RefusedError: NODE_SET_ILLEGAL, NOT_ENOUGH_ALIVE_NODES, RECOVERY_STATE_ILLEGAL.
    """
    if view.pending is not None and view.pending.forced:
        message = f"its group is being founded anew on {view.pending.primary}: wait until it has finished"
        raise RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)
    strangers = sorted(set(nodes) - view.members.keys())
    if strangers:
        held = ", ".join(sorted(view.members)) or "no node"
        message = f"{', '.join(strangers)} holds no replica of it ({held} does)"
        raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
    chosen = tuple(sorted(nodes or view.members.keys() & alive))
    down = sorted(set(chosen) - alive)
    if down:
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, f"{', '.join(down)} is not alive")
    if not chosen:
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, "no living node holds a replica of it")
    if not cleanup:
        return RestartPlan(chosen, False)
    if len(chosen) != 1:
        message = f"a restart with clean-up takes one node, not {len(chosen)} ({', '.join(chosen)})"
        raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
    voters, others = possible_voters(view, alive), living_voters(view, alive) - set(chosen)
    if len(others) < majority(len(voters)):
        message = (
            f"without {chosen[0]} {len(others)} of {len(voters)} voters are alive, and {majority(len(voters))} "
            "are a majority: its data is needed"
        )
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    return RestartPlan(chosen, True)


def _pool(
    view: PartitionView, alive: frozenset[str], data_nodes: Collection[str], *, automatic: bool
) -> tuple[str, ...]:
    """Nodes that the partition may use, best first: the target's own order, then stable's, then names."""
    assert view.target is not None
    target = (*view.target.peers, *view.target.learners)
    if automatic:
        return tuple(node for node in target if node in alive)
    stable = view.stable.peers if view.stable is not None else ()
    others = (node for node in (*stable, *sorted(data_nodes)) if node in data_nodes)
    return tuple(dict.fromkeys(node for node in (*target, *others) if node in alive and node in data_nodes))


def _full_set(target: Assignments, pool: Sequence[str]) -> Assignments | None:
    """Set of as many voters and learners as ``target`` has, as far as ``pool`` goes, voters first; None:
    ``pool`` is empty."""
    voters = tuple(pool[: len(target.peers)])
    return Assignments(voters, tuple(pool[len(voters) : len(target.nodes)])) if voters else None
