"""Durations of moves, and of each of their stages, as the agent beside the leader sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import Stage
from rebalance.ports.measures import Measures
from rebalance.ports.metric_rows import Metric


@dataclass(frozen=True, slots=True)
class _Move:
    """Seconds of the clock."""

    stage: Stage
    stage_since: float
    begun: float


class MoveTimes:
    """Times of the moves of groups that one node leads. A move that another leader ends is not told: nobody
    knows how long it took as a whole."""

    def __init__(self, measures: Measures, clock: Callable[[], float] = time.monotonic) -> None:
        self._measures = measures
        self._clock = clock
        self._moves: dict[PartitionId, _Move] = {}

    def note(self, partition: PartitionId, stage: Stage) -> None:
        """Note the published stage of the group. NONE: no move has begun, or its last step is done."""
        now, move = self._clock(), self._moves.get(partition)
        if move is None:
            if stage is not Stage.NONE:
                self._moves[partition] = _Move(stage, now, now)
            return
        if stage is move.stage:
            return
        self._measures.observe(Metric.MOVE_STAGE_SECONDS, now - move.stage_since, move.stage.value)
        if stage is Stage.NONE:
            self._measures.observe(Metric.MOVE_SECONDS, now - move.begun)
            del self._moves[partition]
        else:
            self._moves[partition] = _Move(stage, now, move.begun)

    def forget(self, partition: PartitionId) -> None:
        """The node does not lead its group."""
        self._moves.pop(partition, None)
