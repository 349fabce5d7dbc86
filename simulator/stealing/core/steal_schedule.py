"""Schedule of a rebalancing: the unit that runs next, the sweeps that may run, and the progress.

Source: VOL-024, VOL-102, VOL-104..106.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from simulator.stealing.core.steal_checks import ServerState
from simulator.stealing.core.steal_plan import StealUnit


def next_units(
    waiting: Sequence[StealUnit], running: Iterable[StealUnit], max_parallel: int
) -> tuple[StealUnit, ...]:
    """Units to begin now: as many as there are free places.

    Each unit sweeps the disks of its stealer and its donor. One that shares no node with a unit that runs is
    taken before any that does (VOL-102); of those, the one that stands in the way of the fewest others. Places
    are not left empty: who asks for parallelism gets it, if need be with two sweeps on one node.
    """
    left = list(waiting)
    busy = Counter(node for unit in running for node in (unit.stealer, unit.donor))
    chosen: list[StealUnit] = []
    for _ in range(max_parallel - busy.total() // 2):
        if not left:
            break
        demand = Counter(node for unit in left for node in (unit.stealer, unit.donor))
        best = min(
            left, key=lambda unit: (_shared(unit, busy), _shared(unit, demand), unit.stealer, unit.donor)
        )
        left.remove(best)
        chosen.append(best)
        busy.update((best.stealer, best.donor))
    return tuple(chosen)


def _shared(unit: StealUnit, nodes: Counter[int]) -> int:
    return nodes[unit.stealer] + nodes[unit.donor]


class SweepFate(Enum):
    RUN = "RUN"
    DELAYED = "DELAYED"
    REFUSED = "REFUSED"


def decide_on_sweep(state: ServerState, open_streams: int) -> SweepFate:
    """Decide whether a job that reads a whole disk (such as one that hands hinted writes on) may run on a node.

    A stealer refuses it (VOL-105). A donor knows nothing of rebalancing, but sees streams of its whole
    partitions; the sweep waits until there are none (VOL-106)."""
    if state is ServerState.REBALANCING_MASTER:
        return SweepFate.REFUSED
    return SweepFate.DELAYED if open_streams else SweepFate.RUN


@dataclass(frozen=True, slots=True)
class StealProgress:
    """Progress of stores in units: each counts once, also when it is copied again after a failure."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"Number of stores completed - {self.done} / {self.total}"


@dataclass(frozen=True, slots=True)
class ProgressBoard:
    """``totals``: stores of each job that there will be; ``done``: of them, completed. Never goes back."""

    totals: Mapping[str, int]
    done: Mapping[str, int] = field(default_factory=dict)

    def heard(self, job: str, done: int) -> ProgressBoard:
        """A job's own count was pushed up; one that is older than what is known changes nothing. Raises
        ValueError for a job that is not on the board, or more stores than it has."""
        if not 0 <= done <= self.totals.get(job, -1):
            raise ValueError(f"job {job}: {done} of {self.totals.get(job)} stores")
        return replace(self, done={**self.done, job: max(done, self.done.get(job, 0))})

    def of_job(self, job: str) -> StealProgress:
        return StealProgress(self.done.get(job, 0), self.totals[job])

    @property
    def overall(self) -> StealProgress:
        return StealProgress(sum(self.done.values()), sum(self.totals.values()))
