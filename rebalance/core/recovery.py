"""The way back for a partition that has lost the majority of its voters, as pure plans (IEP-049, IEP-059..061).

A *reset* founds the group anew on its most advanced living copy (first phase: pending is that one node, forced)
and brings it to its full set after that (second phase: planned). It is refused while a majority of the voters
that the group has committed lives: then nothing is lost, and the group helps itself. A *restart* stops and
starts members, with clean-up on new data, and is refused where that would cost the majority.

What is in the way is raised as ``RefusedError`` with a kind of its own; a plan that is returned was checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import majority
from rebalance.core.assignments import Assignments
from rebalance.core.move_status import PartitionView, unseen_voters
from rebalance.core.records import LogPosition, MemberRole, MemberState
from rebalance.core.topology import Topology


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """``then`` is what becomes planned; None: the survivor stays alone. ``position``: of the survivor's copy;
    None: nobody has one, and the partition begins ``empty``. ``candidates``: every copy that was compared."""

    survivor: str
    then: Assignments | None
    position: LogPosition | None
    candidates: dict[str, LogPosition]

    @property
    def empty(self) -> bool:
        return self.position is None

    @property
    def forced(self) -> Assignments:
        return Assignments((self.survivor,))

    @property
    def possibly_lost_entries(self) -> int:
        """Log entries that the survivor holds and does not know to be decided: they are dropped. What it never
        received is not counted, because nobody who lives knows of it."""
        return self.position.undecided if self.position is not None else 0


def plan_reset(
    view: PartitionView,
    alive: frozenset[str],
    data_nodes: Collection[str],
    *,
    automatic: bool = False,
    empty: bool = False,
) -> ResetPlan:
    """How the partition of ``view`` gets a leader again.

    ``alive``: nodes whose lease lives. ``automatic``: of a HIGH_AVAILABILITY zone, which narrows to the living
    nodes of its target; a reset by hand also tops up with other living ``data_nodes``, to as many replicas as
    the target has. ``empty``: the partition may begin without data if nobody has a copy (never automatic).

    Raises RefusedError: RECOVERY_STATE_ILLEGAL, RECOVERY_NOT_NEEDED, NOT_ENOUGH_ALIVE_NODES.
    """
    if view.stable is None or view.configuration is None or view.target is None:
        raise RefusedError(
            ErrorKind.RECOVERY_STATE_ILLEGAL, "its group was never founded, so there is nothing to reset"
        )
    voters = voters_of(view) | unseen_voters(view, alive)
    living = frozenset(node for node in voters & alive if _is_member(view, node, broken=False))
    needed = majority(len(voters))
    if len(living) >= needed:
        message = f"{len(living)} of {len(voters)} voters live ({', '.join(sorted(living))})"
        raise RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, f"{message}, and {needed} are a majority")
    copies = _copies(view, alive)
    unknown = sorted(node for node, position in copies.items() if position is None)
    if unknown:
        message = f"{', '.join(unknown)} did not tell yet how far its copy goes: ask again in some seconds"
        raise RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)
    candidates = {node: position for node, position in copies.items() if position is not None}
    full = _full_set(view.target, _pool(view, alive, data_nodes, automatic=automatic))
    if candidates:
        survivor = most_advanced(candidates)
        then = full if full != Assignments((survivor,)) else None
        return ResetPlan(survivor, then, candidates[survivor], candidates)
    gone = ", ".join(sorted(voters_of(view) - alive)) or "none"
    if automatic or not empty:
        message = f"no living node has a copy (nodes that are gone: {gone}); start one of them"
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    if full is None:
        message = "no data node of the zone lives, so the partition cannot even begin empty"
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    return ResetPlan(full.primary, full if len(full.nodes) > 1 else None, None, {})


def voters_of(view: PartitionView) -> frozenset[str]:
    """Voters of the configuration that the group has committed; before there is one those of stable."""
    if view.configuration is not None and view.configuration.members:
        members = view.configuration.members.items()
        return frozenset(node for node, member in members if member.role is MemberRole.VOTER)
    return frozenset(view.stable.peers) if view.stable is not None else frozenset()


def living_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Voters whose node lives and whose member runs or is about to: learners never count."""
    return frozenset(node for node in voters_of(view) if node in alive and _is_member(view, node, broken=False))


def most_advanced(copies: dict[str, LogPosition]) -> str:
    """The copy that knows most to be decided, by name among equals: data follow the log, so this is the copy
    with the highest data revision."""
    return min(copies, key=lambda node: (-copies[node].committed, -copies[node].last, node))


def majority_lost_ms(voters: Iterable[str], topology: Topology) -> int | None:
    """When so many of ``voters`` had left that the rest is no majority (wall clock, milliseconds); None: the
    rest is one. Who is only missing has not left."""
    left = {each.node.name: each.left_ms for each in topology.nodes if each.left_ms is not None}
    names = frozenset(voters)
    times = sorted(left[name] for name in names if name in left)
    spare = len(names) - majority(len(names))
    return times[spare] if len(times) > spare else None


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
        message = f"its group is being founded anew on {view.pending.primary}: wait until that is done"
        raise RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)
    strangers = sorted(set(nodes) - view.members.keys())
    if strangers:
        held = ", ".join(sorted(view.members)) or "no node"
        message = f"{', '.join(strangers)} holds no replica of it ({held} does)"
        raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
    chosen = tuple(sorted(nodes or view.members.keys() & alive))
    down = sorted(set(chosen) - alive)
    if down:
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, f"{', '.join(down)} does not live")
    if not chosen:
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, "no living node holds a replica of it")
    if not cleanup:
        return RestartPlan(chosen, False)
    if len(chosen) != 1:
        message = f"a restart with clean-up takes one node, not {len(chosen)} ({', '.join(chosen)})"
        raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
    voters, others = voters_of(view), living_voters(view, alive) - set(chosen)
    if len(others) < majority(len(voters)):
        message = (
            f"without {chosen[0]} {len(others)} of {len(voters)} voters live, and {majority(len(voters))} are "
            "a majority: its data is needed"
        )
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    return RestartPlan(chosen, True)


def _copies(view: PartitionView, alive: frozenset[str]) -> dict[str, LogPosition | None]:
    """Living voters' copies of the group as it is committed, broken processes included; None: not told yet."""
    return {
        node: view.members[node].position
        for node in sorted(voters_of(view) & alive)
        if _is_member(view, node, broken=True)
    }


def _is_member(view: PartitionView, node: str, *, broken: bool) -> bool:
    """Whether ``node`` holds the very member that the group lists; ``broken``: also one that does not run."""
    member = view.members.get(node)
    configured = view.configuration.members.get(node) if view.configuration is not None else None
    if member is None or configured is None or member.peer_url != configured.peer_url:
        return False
    if member.reason.startswith("DATA_LOST"):
        return False
    return broken or member.state is not MemberState.FAILED


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
