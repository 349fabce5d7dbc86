"""Placement engines over one real Spark session: the contract of both, then what kills Spark.

Their order matters to the time that these tests take and not to their outcome: what kills something leaves an
engine that recovers by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import ZoneId
from rebalance.kernels.rendezvous import place
from rebalance.ports.placement import (
    Engine,
    EngineState,
    PlacementEngine,
    PlacementError,
    PlacementRequest,
    PlacementResult,
    PreviousPlacement,
)
from spark import copies, plan_transfers, skew
from spark.batch import place_locally
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig
from spark.what_if import Candidate, analysis
from tests.data.placement_golden import golden_cases, rows_of
from tests.fixtures.local_engine import LocalPlacementEngine

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

READY_LIMIT_S = 240.0
END_LIMIT_S = 60.0


def zone_of(partitions: int, nodes: int, replicas: int = 3, zone: int = 1) -> PlacementRequest:
    names = tuple(f"node-{number}" for number in range(nodes))
    return PlacementRequest(ZoneId(zone), names, partitions, replicas, 3)


def assert_right(result: PlacementResult, wanted: PlacementRequest) -> None:
    assert result.zone_id == wanted.zone_id
    assert result.nodes == wanted.nodes
    assert np.array_equal(result.matrix, place(wanted.nodes, range(wanted.partitions), wanted.replicas))


async def until(condition: Callable[[], bool], limit_s: float) -> float:
    """Seconds until it holds; fails after the limit."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, "it did not come true in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def driver_of(engine: SparkPlacementEngine) -> psutil.Process:
    pid = engine.status().driver_pid
    assert pid is not None
    return psutil.Process(pid)


def family_of(driver: psutil.Process) -> list[psutil.Process]:
    """The driver, its JVM and its Python workers."""
    return [driver, *driver.children(recursive=True)]


def jvm_of(engine: SparkPlacementEngine) -> psutil.Process:
    (jvm,) = [child for child in driver_of(engine).children() if child.name() == "java"]
    return jvm


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spark(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SparkPlacementEngine]:
    """Ready. It waits long for Spark, so that tests see Spark's own results also right after a restart."""
    work_dir: Path = tmp_path_factory.mktemp("spark")
    engine = SparkPlacementEngine(DriverConfig("local[*]", work_dir, silence_limit_s=60.0), READY_LIMIT_S)
    await engine.start()
    assert engine.status().state is EngineState.STARTING
    await until(lambda: engine.status().state is EngineState.READY, READY_LIMIT_S)
    yield engine
    family = family_of(driver_of(engine))
    await engine.close()
    assert engine.status().state is EngineState.DOWN
    assert engine.status().driver_pid is None
    await until(lambda: all(map(gone, family)), END_LIMIT_S)


@pytest_asyncio.fixture(loop_scope="module", params=list(Engine), ids=lambda engine: engine.value)
async def either(request: pytest.FixtureRequest, spark: SparkPlacementEngine) -> AsyncIterator[PlacementEngine]:
    if request.param is Engine.SPARK:
        yield spark
        return
    local = LocalPlacementEngine()
    await local.start()
    yield local
    await local.close()


def expected_engine(engine: PlacementEngine) -> Engine:
    return Engine.SPARK if isinstance(engine, SparkPlacementEngine) else Engine.LOCAL


@pytest.mark.thorough("unit/test_placement_golden has them; other tests here run on Spark")
@pytest.mark.row("PME-077", "IEP-035", "IEP-038")
async def test_golden_vectors(either: PlacementEngine) -> None:
    """IEP-035, IEP-038, PME-077: all cases of the Java implementation as one batch."""
    cases = golden_cases()
    results = await either.place([case.request for case in cases])
    assert [rows_of(result) for result in results] == [case.rows for case in cases]
    assert {result.engine for result in results} == {expected_engine(either)}


async def test_results_are_in_the_order_of_the_requests(either: PlacementEngine) -> None:
    requests = [zone_of(25 + zone, 3 + zone % 20, zone=zone) for zone in range(300, 0, -1)]
    results = await either.place(requests)
    for result, wanted in zip(results, requests, strict=True):
        assert_right(result, wanted)
    assert {result.engine for result in results} == {expected_engine(either)}


@pytest.mark.row("IEP-016", "IEP-034", "IEP-037")
async def test_seven_nodes_are_three_voters_and_four_learners(either: PlacementEngine) -> None:
    """IEP-034, IEP-016, IEP-037."""
    (result,) = await either.place([zone_of(25, 7, ALL_REPLICAS)])
    assert result.consensus == 3
    assignments = result.assignments(11)
    assert (len(assignments.peers), len(assignments.learners)) == (3, 4)
    assert assignments.primary == assignments.peers[0]


@pytest.mark.row("IEP-036")
async def test_balanced_zones_beside_others(either: PlacementEngine) -> None:
    """IEP-036: even, and from the previous placement; the engines agree, and zones know of each other."""
    nodes = tuple(f"n{number}" for number in range(7))
    plain = PlacementRequest(ZoneId(1), nodes, 100, 3, 3)
    even = [PlacementRequest(ZoneId(number), nodes, 100, 3, 3, "balanced") for number in (2, 3)]
    found = await either.place([plain, *even])
    assert rows_of(found[0]) == rows_of(place_locally([plain])[0])
    totals = np.zeros(7, dtype=np.int64)
    for result, expected in zip(found[1:], place_locally(even), strict=True):
        assert np.array_equal(result.matrix, expected.matrix)
        counts = np.bincount(result.matrix.ravel(), minlength=7)
        assert np.ptp(counts) <= 1
        totals += counts
    assert np.ptp(totals) <= 1
    before = PreviousPlacement(nodes, found[1].matrix, 3)
    fewer = PlacementRequest(ZoneId(2), nodes[1:], 100, 3, 3, "balanced", before)
    (after,) = await either.place([fewer])
    kept = np.array(nodes)[found[1].matrix][:, :, None] == np.array(nodes[1:])[after.matrix][:, None, :]
    assert 300 - np.count_nonzero(kept) == np.count_nonzero(found[1].matrix == 0)


async def test_what_if_on_spark_says_what_it_says_here(spark: SparkPlacementEngine) -> None:
    nodes = tuple(f"n{number}" for number in range(9))
    before = PreviousPlacement(nodes, place(nodes, range(200), 3), 3)
    asked = [
        Candidate(f"without {name}", PlacementRequest(ZoneId(0), rest, 200, 3, 3, algorithm))
        for at, name in enumerate(nodes)
        for rest in [nodes[:at] + nodes[at + 1 :]]
        for algorithm in ("balanced", "rendezvous")
    ]
    asked.append(Candidate("twice", PlacementRequest(ZoneId(0), ("a", "a"), 200, 3, 3)))
    asked_for = analysis(before, asked)
    found, engine = await spark.answer(asked_for)
    assert engine is Engine.SPARK
    assert found == asked_for.here()
    assert found[0].reason.startswith("best: ")
    assert found[-1].reason == "cannot be placed: nodes are named twice: 'a'"


@pytest.mark.row("PME-088", "VOL-086", "VOL-087")
async def test_plan_skew_and_copies_on_spark_are_those_of_here(spark: SparkPlacementEngine) -> None:
    """VOL-086, VOL-087, PME-088: the same figures, out of several tasks."""
    nodes = tuple(f"n{number}" for number in range(9))
    before = PreviousPlacement(nodes, place(nodes, range(150_000), 3), 3)
    after = PreviousPlacement(nodes[1:], place(nodes[1:], range(150_000), 3), 3)
    sizes = np.arange(150_000, dtype=np.int64)
    planned = plan_transfers.analysis(before, after, sizes)
    plan, engine = await spark.answer(planned)
    here = planned.here()
    assert engine is Engine.SPARK
    assert plan.nodes == here.nodes
    for mine, theirs in ((plan.single, here.single), (plan.total, here.total)):
        for name in mine.__slots__:
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    assert set(plan.total.donor.tolist()) == {0}

    spreading = skew.analysis(before, 1_000_000, sizes)
    spread, engine = await spark.answer(spreading)
    assert engine is Engine.SPARK
    expected = spreading.here().counts
    assert set(spread.counts) == set(expected)
    assert all(np.array_equal(spread.counts[name], expected[name]) for name in expected)

    reported = [
        copies.Copy(1, partition, node, "OWNING", 7 + (partition == 5 and node == "n2"), 100)
        for partition in range(50)
        for node in nodes[:3]
    ]
    comparing = copies.analysis(reported)
    found, engine = await spark.answer(comparing)
    assert engine is Engine.SPARK
    assert found == comparing.here()
    assert [each.partition for each in found] == [5]
    assert await spark.answer(copies.analysis([])) == ([], Engine.SPARK)


async def test_empty_batches_and_empty_zones(either: PlacementEngine) -> None:
    assert list(await either.place([])) == []
    empty, normal = await either.place([zone_of(5, 0, zone=1), zone_of(5, 3, zone=2)])
    assert empty.matrix.shape == (5, 0)
    assert_right(normal, zone_of(5, 3, zone=2))


async def test_concurrent_batches(either: PlacementEngine) -> None:
    requests = [zone_of(1000, 10 + zone, zone=zone) for zone in range(8)]
    for results, wanted in zip(
        await asyncio.gather(*(either.place([each]) for each in requests)), requests, strict=True
    ):
        assert_right(results[0], wanted)


async def test_a_poisoned_zone_is_named_and_spares_the_driver(either: PlacementEngine) -> None:
    before = either.status()
    for bad in (zone_of(8, 3, replicas=0, zone=99), PlacementRequest(ZoneId(99), ("a", "a"), 8, 2, 1)):
        with pytest.raises(PlacementError, match="zone 99 cannot be placed") as caught:
            await either.place([zone_of(8, 3), bad])
        assert caught.value.zone_id == 99
    after = either.status()
    assert (after.state, after.driver_pid) == (EngineState.READY, before.driver_pid)


async def test_the_loop_runs_on_while_a_million_partitions_are_placed(either: PlacementEngine) -> None:
    """Keep what the loop's own thread computes between two ticks short, whatever else the machine does."""
    longest, ticks = 0.0, 0

    async def tick() -> None:
        nonlocal longest, ticks
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            longest, ticks = max(longest, time.thread_time() - before), ticks + 1

    ticker = asyncio.create_task(tick())
    try:
        (result,) = await either.place([zone_of(1_000_000, 100)])
    finally:
        ticker.cancel()
    assert longest < 0.5
    assert ticks
    assert result.engine is expected_engine(either)
    assert_right(result, zone_of(1_000_000, 100))


@pytest.mark.thorough("a placement is cut short in test_the_driver_is_killed, too")
async def test_a_cancelled_placement_frees_the_cluster(spark: SparkPlacementEngine) -> None:
    """Cancel a placement that would keep the cluster busy for minutes: the next one is done long before."""
    placing = asyncio.create_task(spark.place([zone_of(400_000_000, 100, 1)]))
    await asyncio.sleep(0.7)
    placing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await placing
    async with asyncio.timeout(60):
        (result,) = await spark.place([zone_of(8, 3)])
    assert result.engine is Engine.SPARK


async def stopped_under_way(
    spark: SparkPlacementEngine, jvm: psutil.Process
) -> tuple[PlacementRequest, asyncio.Task[Sequence[PlacementResult]]]:
    """A placement whose JVM was stopped before it was done: a larger one where the machine was too fast."""
    partitions = 1_500_000
    while True:
        request = zone_of(partitions, 100)
        placing = asyncio.create_task(spark.place([request]))
        await asyncio.sleep(0.15)
        jvm.suspend()
        if not placing.done():
            return request, placing
        jvm.resume()
        partitions *= 2


@pytest.mark.thorough("test_the_driver_is_killed loses it with its JVM")
async def test_the_jvm_is_killed_during_a_request(spark: SparkPlacementEngine) -> None:
    """A lost driver costs a retry, not a result."""
    driver, jvm = driver_of(spark), jvm_of(spark)
    wanted, placing = await stopped_under_way(spark, jvm)
    jvm.kill()
    await until(lambda: gone(driver), END_LIMIT_S)
    await until(lambda: spark.status().driver_pid not in (None, driver.pid), END_LIMIT_S)
    (result,) = await placing
    assert_right(result, wanted)
    assert result.engine is Engine.SPARK


async def test_the_driver_is_killed(spark: SparkPlacementEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the driver: its JVM and workers go with it, a placement that may not wait is done here before Spark
    is back, and Spark comes back."""
    driver = driver_of(spark)
    family = family_of(driver)
    os.kill(driver.pid, signal.SIGKILL)
    await until(lambda: all(map(gone, family)), END_LIMIT_S)
    await until(lambda: spark.status().driver_pid not in (None, driver.pid), END_LIMIT_S)
    with monkeypatch.context() as hurried:
        hurried.setattr(spark, "_spark_wait_s", 0.1)
        (result,) = await spark.place([zone_of(8, 3)])
    assert result.engine is Engine.LOCAL
    assert_right(result, zone_of(8, 3))
    assert spark.status().state is not EngineState.READY
    assert "the Spark driver was killed" in spark.status().message
    # A driver that had not been ready for long is followed by another one a little later.
    await until(lambda: spark.status().state is EngineState.STARTING, END_LIMIT_S)
    assert "restart" in spark.status().message
    await until(lambda: spark.status().state is EngineState.READY, READY_LIMIT_S)
    (result,) = await spark.place([zone_of(8, 3)])
    assert result.engine is Engine.SPARK


@pytest.mark.thorough("test_the_driver_is_killed loses it with its JVM")
@pytest.mark.parametrize(
    "replaced", [pytest.param(False, id="noticed"), pytest.param(True, id="replaced", marks=pytest.mark.soak)]
)
async def test_the_jvm_is_killed_between_requests(spark: SparkPlacementEngine, replaced: bool) -> None:
    """The driver ends with it and the next one is spawned; ``replaced``: a placement waits for that one."""
    await until(lambda: spark.status().state is EngineState.READY, READY_LIMIT_S)
    driver, jvm = driver_of(spark), jvm_of(spark)
    family = family_of(driver)
    jvm.kill()
    if replaced:
        (result,) = await spark.place([zone_of(8, 3)])
        assert_right(result, zone_of(8, 3))
        assert result.engine is Engine.SPARK
    await until(lambda: spark.status().driver_pid not in (None, driver.pid), END_LIMIT_S)
    await until(lambda: all(map(gone, family)), END_LIMIT_S)
    if not replaced:
        assert "Spark's JVM ended" in spark.status().message
