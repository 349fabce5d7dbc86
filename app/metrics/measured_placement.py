"""A placement engine around another one: how often, how long, by which engine, and how much."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rebalance.ports.metric_rows import Measures, Metric
from rebalance.ports.placement import EngineStatus, PlacementEngine, PlacementRequest, PlacementResult

NO_ENGINE = "none"
"""Label of a batch that no engine could place."""


class MeasuredPlacement:
    """Implements ``PlacementEngine``."""

    def __init__(self, engine: PlacementEngine, measures: Measures) -> None:
        self._engine = engine
        self._measures = measures

    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        begun, measures = time.perf_counter(), self._measures
        try:
            results = await self._engine.place(batch)
        except Exception:
            measures.count(Metric.PLACEMENTS, NO_ENGINE, "failed", by=len(batch))
            raise
        for result in results:
            measures.count(Metric.PLACEMENTS, result.engine.value, "ok")
            measures.count(Metric.PLACED_PARTITIONS, result.engine.value, by=len(result.matrix))
        if results:
            measures.observe(Metric.PLACEMENT_SECONDS, time.perf_counter() - begun, results[0].engine.value)
        return results

    def status(self) -> EngineStatus:
        return self._engine.status()

    async def start(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()
