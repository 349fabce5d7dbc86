"""State changes of a batch, both rollback tables, and what is done with a batch that lost its controller."""

from __future__ import annotations

import pytest

from simulator.stealing.core.steal_cluster import StoreKind
from simulator.stealing.core.steal_state_change import (
    BatchId,
    MigrationRollback,
    Recovery,
    StateChange,
    StealStateChange,
    StealStep,
    batch_steps,
    decide_on_recovery,
    rollback_after,
    rollback_of_migration,
    rollback_of_state_change,
    state_change,
)

REBALANCE, CLUSTER, SWAP = StealStateChange.REBALANCE, StealStateChange.CLUSTER, StealStateChange.SWAP
RO, RW = StoreKind.READ_ONLY, StoreKind.READ_WRITE


@pytest.mark.row("VOL-035", "VOL-090")
@pytest.mark.parametrize(
    ("has_ro", "has_rw", "steps"),
    [
        (True, True, [StealStep.CHANGE_RO, StealStep.MIGRATE_RO, StealStep.CHANGE_RW, StealStep.MIGRATE_RW]),
        (True, False, [StealStep.CHANGE_RO, StealStep.MIGRATE_RO, StealStep.CHANGE_RW]),
        (False, True, [StealStep.CHANGE_RW, StealStep.MIGRATE_RW]),
    ],
)
def test_steps_of_a_batch(has_ro: bool, has_rw: bool, steps: list[StealStep]) -> None:
    """VOL-035, VOL-090: without read-only stores there is no step of theirs."""
    assert list(batch_steps(has_ro, has_rw)) == steps


def test_no_stores() -> None:
    with pytest.raises(ValueError, match="there are no stores"):
        batch_steps(has_ro=False, has_rw=False)


@pytest.mark.row("VOL-033", "VOL-034", "VOL-039", "VOL-040", "VOL-041")
@pytest.mark.parametrize(
    ("step", "has_ro", "has_rw", "change", "stealer", "other"),
    [
        (StealStep.CHANGE_RO, True, True, StateChange(False, False, RO), (REBALANCE,), ()),
        (StealStep.CHANGE_RO, True, False, StateChange(False, False, RO), (REBALANCE,), ()),
        (
            StealStep.CHANGE_RW,
            True,
            True,
            StateChange(True, True, RW),
            (REBALANCE, CLUSTER, SWAP),
            (CLUSTER, SWAP),
        ),
        (StealStep.CHANGE_RW, True, False, StateChange(True, True, None), (CLUSTER, SWAP), (CLUSTER, SWAP)),
        (StealStep.CHANGE_RW, False, True, StateChange(False, True, RW), (REBALANCE, CLUSTER), (CLUSTER,)),
    ],
    ids=["VOL-033", "VOL-034", "VOL-039", "VOL-040", "VOL-041"],
)
def test_state_changes(
    step: StealStep,
    has_ro: bool,
    has_rw: bool,
    change: StateChange,
    stealer: tuple[StealStateChange, ...],
    other: tuple[StealStateChange, ...],
) -> None:
    """VOL-033, VOL-034, VOL-039, VOL-040, VOL-041: what changes on stealers, and on all other nodes. The
    redirect is there before the stealer owns."""
    assert state_change(step, has_ro, has_rw) == change
    assert change.on_node(is_stealer=True) == stealer
    assert change.on_node(is_stealer=False) == other


@pytest.mark.row("VOL-035")
@pytest.mark.parametrize("step", [StealStep.CHANGE_RO, StealStep.MIGRATE_RW])
def test_steps_that_change_no_state(step: StealStep) -> None:
    """VOL-035."""
    with pytest.raises(ValueError, match="is no state change"):
        state_change(step, has_ro=False, has_rw=True)


@pytest.mark.row("VOL-048", "VOL-049", "VOL-050", "VOL-051")
@pytest.mark.parametrize(
    ("swap", "cluster", "rebalance", "order"),
    [
        (False, True, True, (REBALANCE, CLUSTER)),
        (False, False, True, (REBALANCE,)),
        (True, True, False, (CLUSTER, SWAP)),
        (True, True, True, (REBALANCE, CLUSTER, SWAP)),
    ],
    ids=["VOL-048", "VOL-049", "VOL-050", "VOL-051"],
)
def test_rollback_of_a_state_change(
    swap: bool, cluster: bool, rebalance: bool, order: tuple[StealStateChange, ...]
) -> None:
    """VOL-048, VOL-049, VOL-050, VOL-051: row by row, in the order of the table."""
    assert rollback_of_state_change(swap, cluster, rebalance) == order


@pytest.mark.row("VOL-052..059")
@pytest.mark.parametrize(
    ("has_ro", "has_rw", "finished_ro", "found"),
    [
        (True, True, True, MigrationRollback(True, (CLUSTER, SWAP))),
        (True, True, False, MigrationRollback(True)),
        (True, False, True, MigrationRollback(False)),
        (True, False, False, MigrationRollback(True)),
        (False, True, True, MigrationRollback(True, (CLUSTER,))),
        (False, True, False, MigrationRollback(False)),
        (False, False, True, MigrationRollback(False)),
        (False, False, False, MigrationRollback(False)),
    ],
    ids=[f"VOL-{number:03d}" for number in range(52, 60)],
)
def test_rollback_of_a_migration(
    has_ro: bool, has_rw: bool, finished_ro: bool, found: MigrationRollback
) -> None:
    """VOL-052, VOL-053, VOL-054, VOL-055, VOL-056, VOL-057, VOL-058, VOL-059: row by row; not triggered means
    that no migration can fail that way."""
    assert rollback_of_migration(has_ro, has_rw, finished_ro) == found


@pytest.mark.row("VOL-046")
@pytest.mark.parametrize(
    ("step", "has_ro", "has_rw", "order"),
    [
        (StealStep.CHANGE_RO, True, True, (REBALANCE,)),
        (StealStep.MIGRATE_RO, True, True, (REBALANCE,)),
        (StealStep.MIGRATE_RO, True, False, (REBALANCE,)),
        (StealStep.CHANGE_RW, True, True, (REBALANCE, CLUSTER, SWAP)),
        (StealStep.CHANGE_RW, True, False, (CLUSTER, SWAP)),
        (StealStep.CHANGE_RW, False, True, (REBALANCE, CLUSTER)),
        (StealStep.MIGRATE_RW, True, True, (REBALANCE, CLUSTER, SWAP)),
        (StealStep.MIGRATE_RW, False, True, (REBALANCE, CLUSTER)),
    ],
)
def test_every_step_has_a_rollback(
    step: StealStep, has_ro: bool, has_rw: bool, order: tuple[StealStateChange, ...]
) -> None:
    """VOL-046."""
    assert rollback_after(step, has_ro, has_rw) == order


@pytest.mark.row("VOL-046")
@pytest.mark.parametrize(("has_ro", "has_rw"), [(True, False), (False, True), (True, True)])
def test_no_step_is_without_a_rollback(has_ro: bool, has_rw: bool) -> None:
    """VOL-046: whichever stores there are."""
    for step in batch_steps(has_ro, has_rw):
        assert rollback_after(step, has_ro, has_rw)


@pytest.mark.row("VOL-054")
def test_a_migration_that_cannot_fail() -> None:
    """VOL-054: without RW stores there is no migration of theirs."""
    with pytest.raises(ValueError, match="cannot fail"):
        rollback_after(StealStep.MIGRATE_RW, has_ro=True, has_rw=False)


ONE, TWO = BatchId("a", 1), BatchId("a", 2)


@pytest.mark.row("VOL-046")
@pytest.mark.parametrize(
    ("unfinished", "committed", "found"),
    [
        ([None, None], [ONE, ONE], (Recovery.NOTHING, None)),
        ([TWO, None], [ONE, ONE], (Recovery.BACK, TWO)),
        ([TWO, TWO], [ONE, None], (Recovery.BACK, TWO)),
        ([TWO, None], [ONE, TWO], (Recovery.FORWARD, TWO)),
    ],
)
def test_recovery(
    unfinished: list[BatchId | None], committed: list[BatchId | None], found: tuple[Recovery, BatchId | None]
) -> None:
    """VOL-046: a batch that no node committed goes back; once a node has committed it there is no way back."""
    assert decide_on_recovery(unfinished, committed) == found


def test_two_unfinished_batches() -> None:
    with pytest.raises(ValueError, match="batch 1 of run a, batch 2 of run a"):
        decide_on_recovery([ONE, TWO], [])
