"""The way back for a partition that has lost the majority of its voters, as pure plans (IEP-049, IEP-059..061).

A *reset* founds the group anew on the best copy of a living node, whatever kind it is: first phase: pending is
that one node, forced (``recovery_candidates``). It brings the group to its full set after that (second phase:
planned). It is refused while a majority of the voters that the group has committed lives: then nothing is
lost, and the group helps itself. A *restart* stops and starts members, with clean-up on new data, and is
refused where that would cost the majority.

What is in the way is raised as ``RefusedError`` with a kind of its own; a plan that is returned was checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.replica_shortfall import shortfall
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.recovery_candidates import (
    ResetCandidate,
    Use,
    absent_holders,
    best_known_revision,
    candidates_of,
    living_voters,
    possible_voters,
    voters_of,
)


@dataclass(frozen=True, slots=True)
class ResetTerms:
    """What the requester of a reset has decided. ``source``: the node whose copy is used, whichever is best;
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
    """How the partition of ``view`` gets a leader again.

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
    """Why a reset that takes ``dead`` for dead may not be made yet; None: it may. A majority that is cut off
    from the metastore alone still serves, and two groups would take writes: somebody has to look."""
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
    """As many voters and learners as ``target`` has, as far as ``pool`` goes, voters first."""
    voters = tuple(pool[: len(target.peers)])
    return Assignments(voters, tuple(pool[len(voters) : len(target.nodes)])) if voters else None
