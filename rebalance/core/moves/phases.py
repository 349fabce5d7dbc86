"""The phases of a partition's rebalance, each with its trigger, its steps and its result (I3A-028).

Derived from the keys alone, so it can be read at any time, also after a restart: a phase that is over shows
what came of it, one that runs what was done so far and what it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import MemberState, Stage
from rebalance.core.moves.move_status import PartitionView, StoreOwners, partition_status


class PhaseName(Enum):
    """In the order in which they follow each other."""

    WRITE_INTENTION = "WRITE_INTENTION"
    MOVE_GROUP = "MOVE_GROUP"
    SWITCH_STABLE = "SWITCH_STABLE"
    CLEAN_UP = "CLEAN_UP"


class PhaseState(Enum):
    """NOT_BEGUN: its trigger has not come."""

    NOT_BEGUN = "NOT_BEGUN"
    RUNNING = "RUNNING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class MovePhase:
    """``trigger``: the event that begins it, or what is waited for; ``steps``: what is done, in order;
    ``result``: what came of it, or why it does not go on."""

    name: PhaseName
    state: PhaseState
    trigger: str
    steps: tuple[str, ...]
    result: str


def phases_of(view: PartitionView, event_revision: int | None, alive: frozenset[str]) -> tuple[MovePhase, ...]:
    """All four. ``event_revision``: the partition's trigger; ``alive``: nodes whose lease lives."""
    if view.owners is not None:
        return (
            _write_intention(view, event_revision),
            _fill_copies(view, view.owners, alive),
            _switch_of_owners(view, view.owners),
            _drop_copies(view, view.owners),
        )
    return (
        _write_intention(view, event_revision),
        _move_group(view, alive),
        _switch_stable(view),
        _clean_up(view, alive),
    )


def _write_intention(view: PartitionView, event_revision: int | None) -> MovePhase:
    name = PhaseName.WRITE_INTENTION
    if view.target is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a placed target", (), Cause.PLACEMENT_NOT_COMPUTED.text())
    if not view.processed:
        steps = (f"target: {_shown(view.target)}",)
        return MovePhase(name, PhaseState.RUNNING, "a newer target", steps, Cause.TARGET_NOT_WRITTEN.text())
    keys = (("stable", view.stable), ("pending", view.pending), ("planned", view.planned))
    written = tuple(f"{key}: {_shown(assignments)}" for key, assignments in keys if assignments is not None)
    kind = "a reset" if view.recovered else "an event"
    return MovePhase(
        name,
        PhaseState.DONE,
        f"{kind} of revision {event_revision}",
        (f"target: {_shown(view.target)}", *written),
        f"processed up to event revision {event_revision}",
    )


def _move_group(view: PartitionView, alive: frozenset[str]) -> MovePhase:
    name = PhaseName.MOVE_GROUP
    if view.pending is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a pending set", (), "nothing is pending")
    stable = view.stable.nodes if view.stable is not None else frozenset()
    joining = sorted(view.pending.nodes - stable)
    steps = [
        f"member of {node}: {view.members[node].state.value if node in view.members else 'not reserved'}"
        for node in joining
    ]
    configuration = view.configuration
    if configuration is not None:
        steps += [
            f"{member.role.value.lower()}: {node}" for node, member in sorted(configuration.members.items())
        ]
        steps.append(f"stage: {configuration.stage.value}")
    forced = "forced to" if view.pending.forced else "pending:"
    done = configuration is not None and configuration.stage is Stage.STABLE
    status = partition_status(view, alive)
    return MovePhase(
        name,
        PhaseState.DONE if done else PhaseState.RUNNING,
        f"{forced} {_shown(view.pending)}",
        tuple(steps),
        "the group is what pending asks for" if done else status.cause,
    )


def _switch_stable(view: PartitionView) -> MovePhase:
    name = PhaseName.SWITCH_STABLE
    configuration = view.configuration
    if configuration is None or view.stable is None:
        return MovePhase(
            name, PhaseState.NOT_BEGUN, "a committed configuration", (), Cause.LEADER_UNKNOWN.text()
        )
    members = ", ".join(sorted(configuration.members))
    committed = f"term {configuration.term} under {configuration.leader} committed {members}"
    if view.pending is None:
        steps = (f"stable: {_shown(view.stable)}",)
        same = configuration.members.keys() == view.stable.nodes
        result = "stable is what the group is" if same else "the group is on its way to stable"
        return MovePhase(name, PhaseState.DONE if same else PhaseState.RUNNING, committed, steps, result)
    if configuration.stage is not Stage.STABLE:
        return MovePhase(name, PhaseState.NOT_BEGUN, "the group as pending asks for it", (), committed)
    following = f"then pending: {_shown(view.planned)}" if view.planned is not None else "then no pending"
    return MovePhase(
        name, PhaseState.RUNNING, committed, (f"stable: {_shown(view.pending)}", following), "to be written"
    )


def _clean_up(view: PartitionView, alive: frozenset[str]) -> MovePhase:
    name = PhaseName.CLEAN_UP
    assigned = nodes_of(view.stable, view.pending)
    redundant = sorted(view.members.keys() - assigned)
    if not redundant:
        running = sum(member.state is MemberState.RUNNING for member in view.members.values())
        return MovePhase(
            name, PhaseState.DONE, "a switch of stable", (), f"{running} members run, none is redundant"
        )
    steps = tuple(f"destroy the member of {node}" for node in redundant)
    gone = [node for node in redundant if node not in alive]
    result = Cause.NODE_DOWN.text(", ".join(gone)) if gone else Cause.CLEAN_UP.text(", ".join(redundant))
    return MovePhase(name, PhaseState.RUNNING, "a switch of stable", steps, result)


def _fill_copies(view: PartitionView, owners: StoreOwners, alive: frozenset[str]) -> MovePhase:
    """What MOVE_GROUP is in a store zone."""
    name = PhaseName.MOVE_GROUP
    if view.pending is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a pending set", (), "nothing is pending")
    steps = [f"in sync: {node}" for node in owners.in_sync]
    steps += [f"being filled: {node}" for node in owners.filling]
    done = view.pending.nodes == frozenset(owners.in_sync) == frozenset(owners.effective)
    result = "the in-sync set is what pending asks for" if done else partition_status(view, alive).cause
    state = PhaseState.DONE if done else PhaseState.RUNNING
    return MovePhase(name, state, f"pending: {_shown(view.pending)}", tuple(steps), result)


def _switch_of_owners(view: PartitionView, owners: StoreOwners) -> MovePhase:
    name = PhaseName.SWITCH_STABLE
    if not owners.effective or view.stable is None:
        return MovePhase(
            name, PhaseState.NOT_BEGUN, "the result of an exchange", (), Cause.OWNERS_AWAITED.text()
        )
    committed = f"the last exchange made {owners.effective[0]} the primary of {', '.join(owners.in_sync)}"
    if view.pending is None:
        same = view.stable.nodes == frozenset(owners.in_sync)
        result = "stable is the in-sync set" if same else "the in-sync set is on its way to stable"
        state = PhaseState.DONE if same else PhaseState.RUNNING
        return MovePhase(name, state, committed, (f"stable: {_shown(view.stable)}",), result)
    if view.pending.nodes != frozenset(owners.in_sync):
        trigger = "the in-sync set as pending asks for it"
        return MovePhase(name, PhaseState.NOT_BEGUN, trigger, (), committed)
    following = f"then pending: {_shown(view.planned)}" if view.planned is not None else "then no pending"
    steps = (f"stable: {_shown(view.pending)}", following)
    return MovePhase(name, PhaseState.RUNNING, committed, steps, "to be written")


def _drop_copies(view: PartitionView, owners: StoreOwners) -> MovePhase:
    redundant = sorted(owners.copies - nodes_of(view.stable, view.pending))
    state = PhaseState.RUNNING if redundant else PhaseState.DONE
    steps = tuple(f"drop the copy of {node}" for node in redundant)
    count = len(owners.copies)
    result = Cause.CLEAN_UP.text(", ".join(redundant)) if redundant else f"{count} copies, none is redundant"
    return MovePhase(PhaseName.CLEAN_UP, state, "a switch of stable", steps, result)


def _shown(assignments: Assignments | None) -> str:
    if assignments is None:
        return "-"
    learners = f" (learners {', '.join(assignments.learners)})" if assignments.learners else ""
    return ", ".join(assignments.peers) + learners
