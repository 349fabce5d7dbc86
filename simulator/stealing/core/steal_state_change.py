"""State changes of a batch, and both tables by which they are taken back.

A state change has up to three parts on a node: the rebalance state (on stealers), the cluster metadata, and the
swap of read-only stores. They are made in this order while no request is served, so that a stealer redirects
before it owns. Source: VOL-033..035, VOL-039..041, VOL-046..059.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from simulator.stealing.core.steal_cluster import StoreKind


class StealStateChange(Enum):
    """A part of a state change; the order is the one in which they are made, and in which they are taken
    back."""

    REBALANCE = "rebalance state"
    CLUSTER = "cluster metadata"
    SWAP = "swap"


class StealStep(Enum):
    """Steps of a controller in a batch, in order."""

    CHANGE_RO = "state change (RO)"
    MIGRATE_RO = "migration (RO)"
    CHANGE_RW = "state change (RW)"
    MIGRATE_RW = "migration (RW)"


@dataclass(frozen=True, slots=True)
class StateChange:
    """``rebalance``: stores of this kind go into the rebalance state of the stealers; None: it stays as it
    is."""

    swap: bool
    cluster: bool
    rebalance: StoreKind | None

    def on_node(self, is_stealer: bool) -> tuple[StealStateChange, ...]:
        """The parts that a node has to make, in order. A node that steals nothing gets no rebalance state."""
        return _parts(self.swap, self.cluster, self.rebalance is not None and is_stealer)


def _parts(swap: bool, cluster: bool, rebalance: bool) -> tuple[StealStateChange, ...]:
    return tuple(
        part for part, is_made in zip(StealStateChange, (rebalance, cluster, swap), strict=True) if is_made
    )


@dataclass(frozen=True, slots=True)
class MigrationRollback:
    """``is_triggered``: False where no migration can fail that way. ``parts``: in order. The rebalance state is
    in none: it is taken back by the rollback of the state change that made it."""

    is_triggered: bool
    parts: tuple[StealStateChange, ...] = ()


def batch_steps(has_ro: bool, has_rw: bool) -> tuple[StealStep, ...]:
    """VOL-035: without RO stores nothing of theirs is done. Raises ValueError without any store."""
    if not has_ro and not has_rw:
        raise ValueError("there are no stores: nothing can be rebalanced")
    ro = (StealStep.CHANGE_RO, StealStep.MIGRATE_RO) if has_ro else ()
    return (*ro, StealStep.CHANGE_RW, *((StealStep.MIGRATE_RW,) if has_rw else ()))


def state_change(step: StealStep, has_ro: bool, has_rw: bool) -> StateChange:
    """The change that begins ``MIGRATE_RO`` or ``MIGRATE_RW`` (VOL-033, VOL-034, VOL-039..041). Raises
    ValueError for a step that is no state change of these stores."""
    if step not in batch_steps(has_ro, has_rw) or step not in (StealStep.CHANGE_RO, StealStep.CHANGE_RW):
        raise ValueError(f"{step.value} is no state change with RO stores {has_ro} and RW stores {has_rw}")
    if step is StealStep.CHANGE_RO:
        return StateChange(swap=False, cluster=False, rebalance=StoreKind.READ_ONLY)
    return StateChange(swap=has_ro, cluster=True, rebalance=StoreKind.READ_WRITE if has_rw else None)


def rollback_of_state_change(swap: bool, cluster: bool, rebalance: bool) -> tuple[StealStateChange, ...]:
    """Rollback of a node that has completed these parts, in order (VOL-048..051). Parts that are left out were
    not done. On a node without entries taking back the rebalance state changes nothing."""
    return _parts(swap, cluster, rebalance)


def rollback_of_parts(parts: Iterable[StealStateChange]) -> tuple[StealStateChange, ...]:
    """The same from the parts that are done."""
    done = set(parts)
    return tuple(part for part in StealStateChange if part in done)


def rollback_of_migration(has_ro: bool, has_rw: bool, finished_ro: bool) -> MigrationRollback:
    """Rollback after a migration failed, apart from the rebalance state (VOL-052..059).

    ``finished_ro``: RO stores, if there are any, are migrated: the failed migration is the one of RW stores.
    """
    if finished_ro and has_rw:
        return MigrationRollback(
            True, (StealStateChange.CLUSTER, *((StealStateChange.SWAP,) if has_ro else ()))
        )
    if has_ro and not finished_ro:
        return MigrationRollback(True)
    return MigrationRollback(False)


def rollback_after(step: StealStep, has_ro: bool, has_rw: bool) -> tuple[StealStateChange, ...]:
    """Rollback of every node that was changed when ``step`` fails, in order.

    A failed state change is taken back by its own row. A failed migration takes back the rebalance state (row
    F, F, T), and what its own table adds. Raises ValueError for a migration that cannot fail.
    """
    if step in (StealStep.CHANGE_RO, StealStep.CHANGE_RW):
        change = state_change(step, has_ro, has_rw)
        return rollback_of_state_change(change.swap, change.cluster, change.rebalance is not None)
    taken_back = rollback_of_migration(has_ro, has_rw, finished_ro=step is StealStep.MIGRATE_RW)
    if not taken_back.is_triggered:
        raise ValueError(f"{step.value} cannot fail with RO stores {has_ro} and RW stores {has_rw}")
    return rollback_of_parts((StealStateChange.REBALANCE, *taken_back.parts))


class Recovery(Enum):
    """Fate of a batch whose controller is gone."""

    NOTHING = "NOTHING"
    BACK = "BACK"  # nobody has committed it: every node takes back what it did
    FORWARD = "FORWARD"  # some node has committed it, so every copy was complete: the others commit too


@dataclass(frozen=True, slots=True)
class BatchId:
    run: str
    number: int

    def __str__(self) -> str:
        return f"batch {self.number} of run {self.run}"


def decide_on_recovery(
    unfinished: Iterable[BatchId | None], committed: Iterable[BatchId | None]
) -> tuple[Recovery, BatchId | None]:
    """Decide from what *every* node remembers: the batch that it has not finished, and the last one that it
    committed. Raises ValueError for two unfinished batches: each is recovered by its own nodes' answers, and
    nodes take part in one at a time."""
    batches = {node_batch for node_batch in unfinished if node_batch is not None}
    if not batches:
        return Recovery.NOTHING, None
    if len(batches) > 1:
        raise ValueError(f"{len(batches)} batches are unfinished: {', '.join(sorted(map(str, batches)))}")
    batch = batches.pop()
    return (Recovery.FORWARD if batch in set(committed) else Recovery.BACK), batch
