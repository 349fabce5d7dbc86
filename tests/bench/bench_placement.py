"""Placement: the kernel alone, and the whole way through Spark."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

import psutil

from catalog.core.zone import ZoneId
from rebalance.kernels.rendezvous import place
from rebalance.ports.placement import Engine, EngineState, PlacementRequest, PreviousPlacement
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig
from spark.what_if import Candidate, analysis
from tests.bench.figures import ratio, report, timed

SIZES = ((8, 3), (1_000, 100), (65_536, 100), (1_000_000, 100))


async def test_placement(tmp_path: Path) -> None:
    engine = SparkPlacementEngine(DriverConfig("local[*]", tmp_path / "spark"), spark_wait_s=120)
    begun = time.perf_counter()
    await engine.start()
    while engine.status().state is not EngineState.READY:
        await asyncio.sleep(0.05)
    print(f"{'Spark from start to ready':<62} {time.perf_counter() - begun:.2f} s")
    try:
        for partitions, count in SIZES:
            nodes = tuple(f"node-{number}" for number in range(count))
            request = PlacementRequest(ZoneId(1), nodes, partitions, 3, 3)
            found = []
            for _ in range(4):
                begun = time.perf_counter()
                (result,) = await engine.place([request])
                found.append(time.perf_counter() - begun)
                assert result.engine is Engine.SPARK
            name = f"{partitions:,} partitions, {count} nodes, 3 replicas"
            ours = report(f"Spark job: {name}", found[1:])
            kernel = report(
                f"kernel alone: {name}", timed(lambda n=nodes, p=partitions: place(n, range(p), 3), 3)
            )  # type: ignore[misc]
            ratio("Spark job", ours, kernel)
            print(f"{'... the cost of Spark itself':<62} {(ours - kernel) * 1e3:.0f} ms")
        even = PlacementRequest(ZoneId(1), nodes, partitions, 3, 3, "balanced")
        found = []
        for _ in range(4):
            begun = time.perf_counter()
            (result,) = await engine.place([even])
            found.append(time.perf_counter() - begun)
            assert result.engine is Engine.SPARK
        report(f"Spark job, balanced: {partitions:,} partitions, {len(nodes)} nodes", found[1:])
        await what_if(engine)
        driver = engine.status().driver_pid
        assert driver is not None
        megabytes = psutil.Process(driver).memory_info().rss / 1e6
        print(f"{'memory of the driver (Python process)':<62} {megabytes:.0f} MB")
    finally:
        await engine.close()


async def what_if(engine: SparkPlacementEngine) -> None:
    """200 candidates for a zone of 65,536 partitions: one to four nodes more or fewer, chosen at random."""
    nodes = tuple(f"node-{number}" for number in range(100))
    request = PlacementRequest(ZoneId(1), nodes, 65_536, 3, 3, "balanced")
    (placed,) = await engine.place([request])
    choose = random.Random(1)
    asked = []
    for number in range(200):
        gone = choose.sample(nodes, choose.randint(0, 4))
        joined = [f"new-{at}" for at in range(choose.randint(0, 4))]
        changed = (*(name for name in nodes if name not in gone), *joined)
        asked.append(Candidate(f"{number}: -{len(gone)} +{len(joined)}", replace(request, nodes=changed)))
    begun = time.perf_counter()
    found, where = await engine.answer(analysis(PreviousPlacement(nodes, placed.matrix, 3), asked))
    print(f"{'what-if: 200 topologies, 65,536 partitions, on Spark':<62} {time.perf_counter() - begun:.2f} s")
    assert where is Engine.SPARK
    print(f"  {found[0].candidate.name}: {found[0].reason}")
