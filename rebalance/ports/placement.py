"""The placement engine as controllers see it: one call places all zones of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments


class PlacementError(ValueError):
    """One zone's request cannot be placed, on Spark or elsewhere; trying again will not help."""

    def __init__(self, zone_id: ZoneId, reason: str) -> None:
        super().__init__(f"zone {zone_id} cannot be placed: {reason}")
        self.zone_id = zone_id
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PreviousPlacement:
    """``matrix`` int32 [partitions, replicas]: indexes into ``nodes``; the first ``consensus`` columns vote."""

    nodes: tuple[str, ...]
    matrix: npt.NDArray[np.int32]
    consensus: int


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """``replicas`` may be ALL_REPLICAS; ``consensus`` is the number of voters, ``min(2q - 1, r)``."""

    zone_id: ZoneId
    nodes: tuple[str, ...]
    partitions: int
    replicas: int
    consensus: int
    algorithm: str = "rendezvous"
    previous: PreviousPlacement | None = None
    """Places where the replicas are or were meant to be: what the balanced algorithm starts from."""
    weights: tuple[float, ...] = ()
    """One positive number a node, empty: all equal. Balanced only."""
    domains: tuple[str, ...] = ()
    """The failure domain of each node, empty: none. Balanced only."""
    elsewhere: npt.NDArray[np.float64] | None = field(default=None, compare=False)
    """float64 [3, N]: how far other zones' replicas, voters and primaries on each node are above their shares.
    Balanced only; the zones of one batch are always taken into account."""


class Engine(Enum):
    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """``matrix`` is int32 [partitions, effective replicas]: indexes into ``nodes``, in preference order.
    The first ``consensus`` columns vote, the rest learn."""

    zone_id: ZoneId
    nodes: tuple[str, ...]
    matrix: npt.NDArray[np.int32]
    consensus: int
    engine: Engine
    surplus: npt.NDArray[np.float64] | None = field(default=None, compare=False)
    """float64 [3, N] of a balanced zone: how far its replicas, voters and primaries are above exact shares."""

    def assignments(self, partition: int) -> Assignments:
        """One row as the controllers write it. Not for bulk loops over replicas."""
        names = [self.nodes[index] for index in self.matrix[partition]]
        voters = max(1, self.consensus)
        return Assignments(tuple(names[:voters]), tuple(names[voters:]))


class EngineState(Enum):
    STARTING = "starting"
    READY = "ready"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """State of Spark, which takes a batch or not; ``since_s`` is how long it has been in this state."""

    state: EngineState
    since_s: float
    message: str = ""
    driver_pid: int | None = None


class PlacementEngine(Protocol):
    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        """Results in the order of the requests. Waits for Spark for at most its limit (10 s), then the same
        kernel runs locally and the result says ``engine=local``."""
        ...

    def status(self) -> EngineStatus: ...

    async def start(self) -> None:
        """Begins to warm up in the background and returns at once."""
        ...

    async def close(self) -> None: ...
