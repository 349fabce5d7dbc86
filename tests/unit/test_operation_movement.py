"""Last move of an operation, and the time at which it counts as stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.moves.move_status import MoveState
from rebalance.core.operations.operation import (
    NOTED_MS,
    STUCK_MS,
    Movement,
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    Step,
    moved,
)

DAY_MS = 86_400_000
COPYING = PartitionStep(0, MoveState.MOVING, "CATCHING_UP: MEMBER_NOT_STARTED: n2", copied=100)
JOINED = replace(COPYING, cause="JOINT")
DONE = PartitionStep(0, MoveState.DONE)
UNTOUCHED = PartitionStep(1, MoveState.WAITING, "TARGET_NOT_WRITTEN", untouched=True)
BEGUN = moved(Movement(), [COPYING], 1_000)


def waiting(cause: str) -> PartitionStep:
    return PartitionStep(0, MoveState.WAITING, cause)


def test_it_is_stuck_ten_minutes_after_the_last_progress() -> None:
    assert BEGUN.at_ms == 1_000
    assert moved(BEGUN, [COPYING], DAY_MS) == BEGUN
    assert not BEGUN.is_stuck(1_000 + STUCK_MS - 1)
    assert BEGUN.is_stuck(1_000 + STUCK_MS)


def test_what_nobody_has_looked_at_is_not_stuck() -> None:
    assert not Movement().is_stuck(DAY_MS)


@pytest.mark.parametrize("after", [JOINED, DONE, replace(COPYING, copied=101)])
def test_a_stage_an_end_and_bytes_are_progress(after: PartitionStep) -> None:
    assert moved(BEGUN, [after], DAY_MS).at_ms == DAY_MS


def test_a_stage_that_was_reached_before_is_no_progress() -> None:
    """A change that goes back and forth does not get anywhere."""
    joined = moved(BEGUN, [JOINED], 2_000)
    back = moved(joined, [COPYING], DAY_MS)
    assert moved(back, [JOINED], 2 * DAY_MS).at_ms == 2_000


def test_bytes_of_another_copy_count_after_one_has_ended() -> None:
    two = moved(Movement(), [COPYING, replace(COPYING, partition=1, copied=50)], 1_000)
    one = moved(two, [DONE, replace(COPYING, partition=1, copied=50)], 2_000)
    assert moved(one, [DONE, replace(COPYING, partition=1, copied=60)], DAY_MS).at_ms == DAY_MS


def test_a_copy_that_begins_anew_makes_progress_when_it_grows() -> None:
    again = moved(BEGUN, [replace(COPYING, copied=1)], 2_000)
    assert again.at_ms == 1_000
    assert moved(again, [replace(COPYING, copied=2)], DAY_MS).at_ms == DAY_MS


def test_bytes_are_not_noted_with_every_look() -> None:
    grown = [replace(COPYING, copied=200)]
    assert moved(BEGUN, grown, 1_000 + NOTED_MS - 1) == BEGUN
    assert moved(BEGUN, grown, 1_000 + NOTED_MS).at_ms == 1_000 + NOTED_MS


@pytest.mark.parametrize(
    "cause",
    [
        "PAUSED: by alice",
        "OUTSIDE_WINDOW: 22:00-04:00 UTC opens 2026-01-01T22:00:00Z",
        "ZONE_CAP: 4/4",
        "BANDWIDTH: the cluster's 1 MB/s are used up",
        "OPERATION_RUNS: 7-12 goes first, one at a time",
        "ZONE_DEACTIVATED",
    ],
)
def test_what_somebody_has_asked_for_holds_it_and_no_time_is_counted(cause: str) -> None:
    held = moved(BEGUN, [waiting(cause)], 2_000)
    assert held.held
    assert not held.is_stuck(DAY_MS)
    goes_on = moved(held, [COPYING], DAY_MS)
    assert not goes_on.is_stuck(DAY_MS + STUCK_MS - 1)
    assert goes_on.is_stuck(DAY_MS + STUCK_MS)


@pytest.mark.parametrize("cause", ["NODE_DOWN: n1", "COPY_STALLED: n2", "COPY_FAILED: 3 attempts", "NEW_WORD"])
def test_what_nobody_has_asked_for_does_not(cause: str) -> None:
    assert moved(BEGUN, [waiting(cause)], 2_000).is_stuck(2_000 + STUCK_MS)


def test_a_partition_that_waits_for_its_turn_does_not_excuse_one_that_hangs() -> None:
    both = moved(Movement(), [COPYING, UNTOUCHED], 1_000, limited=True)
    assert both.is_stuck(1_000 + STUCK_MS)
    assert not moved(Movement(), [DONE, UNTOUCHED], 1_000, limited=True).is_stuck(DAY_MS)
    assert moved(Movement(), [DONE, UNTOUCHED], 1_000).is_stuck(DAY_MS)


def test_a_drain_waits_for_its_dead_node_as_long_as_it_takes() -> None:
    steps = [waiting("NODE_DOWN: n1, n2")]
    assert moved(BEGUN, steps, 2_000, leaving={"n1", "n2"}).held
    assert not moved(BEGUN, steps, 2_000, leaving={"n1"}).held


def test_an_operation_is_stuck_only_while_more_of_it_may_begin() -> None:
    operation = Operation(OperationKind.DRAIN, ZoneId(7), "Z", 12, 3, 0, movement=BEGUN)
    assert operation.is_stuck(DAY_MS)
    for step in (Step.CANCELLED, Step.FAILED, Step.FINISHED):
        ended = operation.after(step, DAY_MS)
        assert ended is not None
        assert not ended.is_stuck(DAY_MS)
    paused = operation.after(Step.PAUSED, DAY_MS)
    assert paused is not None
    assert paused.state is OperationState.PAUSED


def test_a_record_of_an_earlier_build_has_never_been_looked_at() -> None:
    operation = Operation(OperationKind.DRAIN, ZoneId(7), "Z", 12, 3, 0)
    assert b"movement" not in operation.encode()
    assert Operation.decode(operation.encode()).movement == Movement()
    moving = replace(operation, movement=BEGUN)
    assert Operation.decode(moving.encode()) == moving
