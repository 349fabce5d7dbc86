"""Each phase of a rebalance says what begins it, what it does and what came of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView, PhaseName, PhaseState, phases_of

RUNNING, DONE, NOT_BEGUN = PhaseState.RUNNING, PhaseState.DONE, PhaseState.NOT_BEGUN


def view(
    target: str = "",
    stable: str = "",
    pending: str = "",
    *,
    voters: str = "",
    learners: str = "",
    stage: Stage = Stage.NONE,
    members: str = "",
    processed: bool = True,
    forced: int = 0,
) -> PartitionView:
    """Nodes are letters."""

    def assigned(text: str, marks: int = 0) -> Assignments | None:
        return Assignments(tuple(text), forced=marks) if text else None

    listed = {node: ConfiguredMember(node, MemberRole.VOTER, node) for node in voters}
    listed |= {node: ConfiguredMember(node, MemberRole.LEARNER, node) for node in learners}
    return PartitionView(
        target=assigned(target),
        stable=assigned(stable),
        pending=assigned(pending, forced),
        planned=None,
        processed=processed,
        members={node: MemberRecord(MemberState.RUNNING, node, "c") for node in members},
        configuration=ConfigurationRecord(3, voters[0], stage, listed) if voters else None,
    )


MOVING = {"target": "abc", "stable": "a", "pending": "abc", "members": "ab"}


@pytest.mark.row("I3A-028")
@pytest.mark.parametrize(
    ("seen", "states"),
    [
        (view(), (NOT_BEGUN, NOT_BEGUN, NOT_BEGUN, DONE)),
        (view("a", processed=False), (RUNNING, NOT_BEGUN, NOT_BEGUN, DONE)),
        (view("a", "a", voters="a", members="a"), (DONE, NOT_BEGUN, DONE, DONE)),
        (view(**MOVING, voters="a"), (DONE, RUNNING, NOT_BEGUN, DONE)),
        (view(**MOVING, voters="a", learners="b", stage=Stage.CATCHING_UP), (DONE, RUNNING, NOT_BEGUN, DONE)),
        (view(**MOVING, voters="ab", stage=Stage.JOINT), (DONE, RUNNING, NOT_BEGUN, DONE)),
        (view(**MOVING, voters="abc", stage=Stage.STABLE), (DONE, DONE, RUNNING, DONE)),
        (view("a", "a", voters="a", members="abc"), (DONE, NOT_BEGUN, DONE, RUNNING)),
    ],
)
def test_a_move_goes_through_its_phases(seen: PartitionView, states: tuple[PhaseState, ...]) -> None:
    """I3A-028: trigger, steps and result of each phase, wherever the move is."""
    found = phases_of(seen, 17, frozenset("abc"))
    assert tuple(each.name for each in found) == tuple(PhaseName)
    assert tuple(each.state for each in found) == states
    assert all(each.trigger and each.result for each in found)


@pytest.mark.row("I3A-028")
def test_what_a_phase_tells() -> None:
    """I3A-028: the event, each new member, each role, and why it waits."""
    seen = view(**MOVING, voters="a", learners="b", stage=Stage.CATCHING_UP)
    intention, move, switch, clean_up = phases_of(seen, 17, frozenset("ab"))
    assert intention.trigger == "an event of revision 17"
    assert intention.steps == ("target: a, b, c", "stable: a", "pending: a, b, c")
    assert move.trigger == "pending: a, b, c"
    expected = ("member of b: RUNNING", "member of c: not reserved", "voter: a", "learner: b")
    assert move.steps == (*expected, "stage: CATCHING_UP")
    assert move.result == "NODE_DOWN: c"
    assert switch.result == "term 3 under a committed a, b"
    assert clean_up.result == "2 members run, none is redundant"
    redundant = phases_of(view("a", "a", voters="a", members="abc"), 17, frozenset("ab"))[3]
    assert redundant.steps == ("destroy the member of b", "destroy the member of c")
    assert redundant.result == "NODE_DOWN: c"


def test_a_partition_at_rest_has_switched_though_learners_are_no_members() -> None:
    held = Assignments(("a",), ("b",))
    seen = replace(view(voters="a", members="ab"), target=held, stable=held)
    assert phases_of(seen, 17, frozenset("ab"))[2].state is DONE


def test_a_reset_is_named_as_such() -> None:
    found = phases_of(view("abc", "abc", "a", voters="abc", members="a", forced=9), 9, frozenset("a"))
    assert found[1].trigger == "forced to a"
