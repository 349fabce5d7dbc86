"""One partition as the console reads it: cells, move, health, cause."""

from __future__ import annotations

import pytest

from app.console.zone_grid import CODES, COPIES, CopyCell, HealthCell, MoveCell, Role, cell, read_partition
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView

ALIVE = frozenset({"a", "b", "c", "d"})
ABC = Assignments(("a", "b", "c"))


def member(state: MemberState = MemberState.RUNNING) -> MemberRecord:
    return MemberRecord(state, "p", "c", True)


def committed(*voters: str, learner: str = "", stage: Stage = Stage.NONE) -> ConfigurationRecord:
    members = {name: ConfiguredMember(name, MemberRole.VOTER, "p") for name in voters}
    if learner:
        members[learner] = ConfiguredMember(learner, MemberRole.LEARNER, "p")
    return ConfigurationRecord(1, voters[0], stage, members)


def view(**changed: object) -> PartitionView:
    fields: dict = {
        "target": ABC,
        "stable": ABC,
        "pending": None,
        "planned": None,
        "processed": True,
        "members": {name: member() for name in ABC.peers},
        "configuration": committed(*ABC.peers),
    }
    return PartitionView(**{**fields, **changed})


@pytest.mark.parametrize(
    ("seen", "cells", "move", "health"),
    [
        pytest.param(
            view(),
            {
                "a": (Role.LEADER, CopyCell.HEALTHY),
                "b": (Role.VOTER, CopyCell.HEALTHY),
                "c": (Role.VOTER, CopyCell.HEALTHY),
            },
            MoveCell.DONE,
            HealthCell.AVAILABLE,
            id="at rest",
        ),
        pytest.param(
            view(stable=None, members={}, configuration=None, processed=False),
            dict.fromkeys("abc", (Role.VOTER, CopyCell.NOT_BEGUN)),
            MoveCell.WAITING,
            HealthCell.UNAVAILABLE,
            id="placed, nothing begun",
        ),
        pytest.param(
            view(
                target=Assignments(("a", "b", "d")),
                pending=Assignments(("a", "b", "d")),
                members={name: member() for name in "abcd"},
                configuration=committed("a", "b", "c", learner="d", stage=Stage.CATCHING_UP),
            ),
            {
                "a": (Role.LEADER, CopyCell.HEALTHY),
                "b": (Role.VOTER, CopyCell.HEALTHY),
                "c": (Role.VOTER, CopyCell.LEAVING),
                "d": (Role.VOTER, CopyCell.JOINING),
            },
            MoveCell.MOVING,
            HealthCell.AVAILABLE,
            id="c goes, d catches up",
        ),
        pytest.param(
            view(members={"a": member(), "b": member(), "e": member()}),
            {
                "a": (Role.LEADER, CopyCell.HEALTHY),
                "b": (Role.VOTER, CopyCell.HEALTHY),
                "c": (Role.VOTER, CopyCell.NOT_BEGUN),
            },
            MoveCell.WAITING,
            HealthCell.DEGRADED,
            id="c has no member, e is dead and nobody counts on it",
        ),
        pytest.param(
            view(
                stable=Assignments(("a", "b"), ("c",)),
                target=Assignments(("a", "b"), ("c",)),
                members={
                    "a": member(),
                    "b": member(MemberState.FAILED),
                    "c": MemberRecord.of_mirror(MirrorRecord(MemberState.STARTING)),
                },
                configuration=committed("a", "b"),
            ),
            {
                "a": (Role.LEADER, CopyCell.HEALTHY),
                "b": (Role.VOTER, CopyCell.BROKEN),
                "c": (Role.LEARNER, CopyCell.JOINING),
            },
            MoveCell.WAITING,
            HealthCell.READ_ONLY,
            id="a failed voter, a learner that is copied",
        ),
    ],
)
def test_readings(seen: PartitionView, cells: dict, move: MoveCell, health: HealthCell) -> None:
    found = read_partition(seen, ALIVE)
    assert {node: (Role(code // COPIES), CopyCell(code % COPIES)) for node, code in found.cells} == cells
    assert (found.move, found.health) == (move, health)
    assert (found.cause == "") == (move is MoveCell.DONE)


def test_cells_are_bytes_and_tell_roles_and_copies_apart() -> None:
    codes = {cell(role, copy) for role in Role for copy in CopyCell}
    assert len(codes) == len(Role) * len(CopyCell)
    assert max(codes) < CODES


@pytest.mark.parametrize(
    ("changed", "alive", "lost"),
    [
        ({}, "abc", False),
        ({}, "ab", False),
        ({}, "a", True),
        ({}, "", True),
        # Never founded: there is nothing that a reset could found anew.
        ({"configuration": None}, "a", False),
        # The process of one cannot be started, though its node lives.
        ({"members": {"a": member(), "b": member(MemberState.FAILED), "c": member()}}, "ab", True),
        ({"members": {"a": member(), "b": member(MemberState.STARTING), "c": member()}}, "ab", False),
    ],
)
def test_a_majority_is_lost_when_a_reset_would_say_so(changed: dict, alive: str, lost: bool) -> None:
    reading = read_partition(view(**changed), frozenset(alive))
    assert reading.lost == lost
