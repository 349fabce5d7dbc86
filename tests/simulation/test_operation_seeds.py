"""Operations and limits over seeds: what is told of moves is so, and what is limited does not begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.zone import ZoneId
from rebalance.controllers import admission, operation_keeper
from rebalance.core.admission.move_admission import Limits, Loads, Rooms
from rebalance.core.moves import move_status
from rebalance.core.moves.move_status import MoveState, MoveStatus
from rebalance.core.operations import operation
from rebalance.core.operations.operation import (
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    Step,
    Tally,
)
from simulator.control.moves import (
    CAUSE,
    COUNTED,
    ENDS_ONCE,
    LIFE,
    NOT_DONE,
    PROGRESS,
    broken_records,
)
from simulator.control.run import Simulation, simulate
from tests.simulation.seeds import first_broken

LEARNING = Simulation(0, nodes=6, partitions=8, events=14)
LIMITED = Simulation(1, nodes=4, partitions=16, events=8, cluster_moves=4)


@pytest.mark.row("VOL-020", "VOL-089", "VOL-104")
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_progress_is_what_is_so(seed: int) -> None:
    """VOL-020, VOL-089, VOL-104: report progress that never falls behind an earlier report and never exceeds
    what is done. DONE comes with the last partition and the last copy, and each one that waits names its cause;
    when events stop every operation comes to its end."""
    report = simulate(Simulation(seed, partitions=8, events=10))
    assert report.broken is None
    assert report.operations_done > 0


@pytest.mark.row("VOL-008", "VOL-024")
@pytest.mark.parametrize(
    "wanted",
    [
        *(Simulation(seed, partitions=16, events=10, cluster_moves=2) for seed in range(2)),
        Simulation(3, partitions=16, events=12, strategy="update", cluster_moves=3),
        Simulation(2, partitions=24, events=10, cluster_moves=6),
        Simulation(105, nodes=12, partitions=400, events=10, bulk=True, cluster_moves=40),
    ],
    ids=lambda wanted: str(wanted.seed),
)
def test_limits_hold_and_everything_arrives(wanted: Simulation) -> None:
    """VOL-008, VOL-024: caps of cluster, zone, donor and receiver and the batch size hold whenever a move
    begins, none begins in a pause of the cluster or of its zone, controllers crash as ever, and the last target
    is reached under the cap."""
    report = simulate(wanted)
    assert report.broken is None
    assert report.switches > 0
    assert report.moves_begun > 0
    assert report.events["limits"] > 1


def test_moves_that_nobody_counts_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission that takes the cluster for idle each time."""
    monkeypatch.setattr(Loads, "add", lambda self, zone_id, move, count=1: None)
    broken = first_broken(Simulation(1, partitions=16, events=10, cluster_moves=2), seeds=4)
    assert broken == "no more partitions move than the cluster's limit"


@pytest.mark.thorough("the limits hold above; this is of what they would find")
@pytest.mark.parametrize(
    ("ignored", "broken", "seed"),
    [
        ({"zone_moves": None}, "no more partitions move than the zone's limit", 1),
        ({"donor_moves": None}, "no more partitions move than the donor's limit", 8),
        ({"receiver_moves": None}, "no more partitions move than the receiver's limit", 1),
        ({"batch_size": None}, "a batch begins when none of the last moves", 15),
        ({"zone_pauses": {}}, "no move begins while it is paused", 5),
        ({"pause": None}, "no move begins while it is paused", 16),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_limit_that_nobody_looks_at_is_caught(
    ignored: dict[str, Any], broken: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(Rooms):
        def __init__(self, limits: Limits, *more: Any) -> None:
            super().__init__(replace(limits, **ignored), *more)

    monkeypatch.setattr(admission, "Rooms", Forgetful)
    assert first_broken(replace(LIMITED, seed=seed), seeds=3) == broken


def test_progress_that_follows_each_crash_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a keeper that counts what lives at the moment, and forgets the count before."""

    def living(
        number: int, view: move_status.PartitionView, alive: frozenset[str], _: int = 0
    ) -> PartitionStep:
        status = move_status.partition_status(view, alive)
        return PartitionStep(number, status.state, status.cause)

    def forgetful(_before: Tally, steps: Sequence[PartitionStep], at_ms: int) -> Tally:
        return operation.advance(Tally(), steps, at_ms)

    monkeypatch.setattr(operation_keeper, "step_of", living)
    monkeypatch.setattr(operation_keeper, "advance", forgetful)
    assert first_broken(LEARNING, seeds=8) == PROGRESS


def test_an_end_that_comes_with_the_first_partition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_is_enough(steps: Sequence[PartitionStep]) -> bool:
        return any(step.state is MoveState.DONE for step in steps)

    monkeypatch.setattr(operation_keeper, "is_finished", first_is_enough)
    assert first_broken(LEARNING, seeds=8) == NOT_DONE


def test_copies_that_are_not_waited_for_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Voters are there, learners have no copy yet."""

    def only_voters(view: move_status.PartitionView) -> bool:
        return view.processed and view.stable == view.target and view.configuration is not None

    monkeypatch.setattr(operation, "_is_there", only_voters)
    assert first_broken(LEARNING, seeds=8) in (NOT_DONE, COUNTED)


def test_a_wait_without_a_cause_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(nodes: frozenset[str], alive: frozenset[str]) -> MoveStatus | None:
        return MoveStatus(MoveState.WAITING) if nodes - alive else None

    monkeypatch.setattr(move_status, "_down", silent)
    assert first_broken(LEARNING, seeds=8) == CAUSE


RUNNING = Operation(
    kind=OperationKind.ALTER_ZONE,
    zone_id=ZoneId(1),
    zone="Z1",
    event_revision=20,
    catalog_version=2,
    started_ms=1,
    state=OperationState.RUNNING,
    begun_ms=2,
    tally=Tally(total=8, done=3, at_ms=5),
)
DONE = RUNNING.after(Step.FINISHED, 9)
assert DONE is not None


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        (RUNNING, DONE, []),
        (RUNNING, replace(RUNNING, state=OperationState.PAUSED), []),
        (replace(RUNNING, state=OperationState.PAUSED), RUNNING, []),
        (RUNNING, replace(RUNNING, tally=Tally(total=8, done=2, at_ms=6)), [PROGRESS]),
        (RUNNING, replace(RUNNING, tally=Tally(total=7, done=3, at_ms=6)), [PROGRESS]),
        (RUNNING, replace(RUNNING, state=OperationState.WAITING), [LIFE]),
        (DONE, RUNNING, [LIFE, ENDS_ONCE]),
        (DONE, replace(DONE, state=OperationState.CANCELLED), [LIFE]),
        (DONE, replace(DONE, ended_ms=10), [ENDS_ONCE]),
    ],
)
def test_what_two_records_tell(before: Operation, after: Operation, broken: list[str]) -> None:
    assert [invariant for invariant, _ in broken_records(before, after)] == broken
