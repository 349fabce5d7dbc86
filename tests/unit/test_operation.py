"""The life of an operation: each state and step, the record, the id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.operations.operation import (
    KEPT_MAX,
    NOTES_MAX,
    STATES,
    Note,
    Operation,
    OperationKind,
    OperationState,
    Step,
    Tally,
    next_state,
    operation_id,
    parse_operation_id,
    too_old,
)

TABLE = """
            BEGUN    PAUSED  RESUMED  FINISHED  CANCELLED  FAILED  SUPERSEDED  REVERSED
WAITING     RUNNING  PAUSED  -        DONE      CANCELLED  FAILED  SUPERSEDED  REVERSED
RUNNING     -        PAUSED  -        DONE      CANCELLED  FAILED  SUPERSEDED  REVERSED
PAUSED      PAUSED   -       WAITING  DONE      CANCELLED  FAILED  SUPERSEDED  REVERSED
DONE        -        -       -        -         -          -       -           REVERSED
CANCELLED   -        -       -        -         -          -       -           REVERSED
FAILED      -        -       -        -         -          -       -           REVERSED
SUPERSEDED  -        -       -        -         -          -       -           -
REVERSED    -        -       -        -         -          -       -           -
"""
STEPS, *ROWS = (line.split() for line in TABLE.strip().splitlines())
OPEN = Operation(OperationKind.ALTER_ZONE, ZoneId(3), "ORDERS", 1834, 7, started_ms=1_000)


@pytest.mark.row("VOL-020", "VOL-089")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_state_and_step(row: list[str]) -> None:
    """VOL-020, VOL-089: the table above, word for word; what is not in it cannot happen."""
    state = OperationState(row[0])
    found = {step: next_state(state, Step(step)) for step in STEPS}
    assert {step: after.value if after else "-" for step, after in found.items()} == dict(
        zip(STEPS, row[1:], strict=True)
    )


def test_the_table_has_every_state_and_step() -> None:
    assert {row[0] for row in ROWS} == {state.value for state in OperationState} == {s.value for s in STATES}
    assert set(STEPS) == {step.value for step in Step}


def test_resuming_leads_back_to_where_it_was() -> None:
    paused = OPEN.after(Step.PAUSED, 2_000, "PAUSED: by alice")
    assert paused is not None
    assert paused.cause == "PAUSED: by alice"
    resumed = paused.after(Step.RESUMED, 3_000)
    assert resumed is not None
    assert (resumed.state, resumed.cause) == (OperationState.WAITING, "")
    begun = OPEN.after(Step.BEGUN, 2_000)
    assert begun is not None
    paused = begun.after(Step.PAUSED, 2_500)
    assert paused is not None
    resumed = paused.after(Step.RESUMED, 3_000)
    assert resumed is not None
    assert (resumed.state, resumed.begun_ms) == (OperationState.RUNNING, 2_000)


@pytest.mark.parametrize(
    ("step", "ended_ms"),
    [
        (Step.FINISHED, 5_000),
        (Step.SUPERSEDED, 5_000),
        (Step.REVERSED, 5_000),
        (Step.CANCELLED, None),
        (Step.FAILED, None),
    ],
)
def test_what_was_stopped_is_over_only_when_nothing_of_it_is_left(step: Step, ended_ms: int | None) -> None:
    ended = OPEN.after(step, 5_000)
    assert ended is not None
    assert (ended.ended_ms, ended.is_over) == (ended_ms, ended_ms is not None)
    assert ended.closed(6_000).ended_ms == (ended_ms or 6_000)
    assert ended.closed(6_000).state is ended.state
    assert ended.after(Step.FINISHED, 7_000) is None


def test_an_end_keeps_its_time() -> None:
    done = OPEN.closed(5_000)
    assert (done.state, done.ended_ms) == (OperationState.DONE, 5_000)
    reversed_ = done.after(Step.REVERSED, 9_000, "reversed by 3-1900")
    assert reversed_ is not None
    assert (reversed_.state, reversed_.ended_ms) == (OperationState.REVERSED, 5_000)


def test_the_record_comes_back_as_it_was() -> None:
    full = replace(
        OPEN,
        by="ålice",
        verified=True,
        reason="new disks",
        statement="ALTER ZONE orders SET (REPLICAS 3)",
        before=1700,
        before_version=6,
        moves=8,
        reverses="3-1700",
        tally=Tally(8, 3, 4_096, 1_024, 2_000),
        partitions=(1, 5),
    ).after(Step.BEGUN, 2_000)
    assert full is not None
    assert Operation.decode(full.encode()) == full
    assert Operation.decode(OPEN.encode()) == OPEN
    assert b"notes" not in OPEN.encode(), "what earlier builds read"
    noted = OPEN
    for number in range(NOTES_MAX + 2):
        noted = noted.noted(Note(number, "PAUSE OPERATION", "alice", "backup"))
    assert Operation.decode(noted.encode()) == noted
    assert [each.at_ms for each in noted.notes] == list(range(2, NOTES_MAX + 2)), "the newest are kept"
    with pytest.raises(ValueError, match="format"):
        Operation.decode(OPEN.encode().replace(b'"v":1', b'"v":2'))


@pytest.mark.parametrize("event", [1, 1834, (1 << 48) + 77])
def test_the_id_is_made_of_zone_and_event(event: int) -> None:
    """Every writer makes the same id, in every epoch."""
    assert parse_operation_id(operation_id(ZoneId(3), event)) == (ZoneId(3), event)


@pytest.mark.parametrize("text", ["", "3", "3-", "-3", "a-1", "3-1-2", "3-0", "03-1", "3-1 ", "../x"])
def test_what_is_no_id(text: str) -> None:
    assert parse_operation_id(text) is None


def test_the_newest_are_kept() -> None:
    events = list(range(KEPT_MAX + 3, 0, -1))
    assert too_old(events) == [1, 2, 3]
    assert too_old([5, 7]) == []
