"""The engine and its supervisor over drivers that misbehave; no Spark and no Java is needed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from catalog.core.zone import ZoneId
from rebalance.hosting.background import Background
from rebalance.ports.placement import Engine, EngineState, PlacementRequest
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig

REQUEST = PlacementRequest(ZoneId(1), ("a", "b", "c"), 8, 3, 3)

Starter = Callable[..., Coroutine[Any, Any, SparkPlacementEngine]]


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def started(tmp_path: Path) -> AsyncIterator[Starter]:
    engines = []

    async def start(behaviour: str, wait_s: float = 5.0, silence_s: float = 60.0) -> SparkPlacementEngine:
        module = "tests.data.placement_fake_driver"
        config = DriverConfig(behaviour, tmp_path, silence_limit_s=silence_s, module=module)
        engine = SparkPlacementEngine(config, wait_s)
        engines.append(engine)
        await engine.start()
        if behaviour != "broken":
            await until(lambda: engine.status().state is EngineState.READY)
        return engine

    yield start
    for engine in engines:
        await engine.close()


async def timed(engine: SparkPlacementEngine) -> tuple[Engine, float]:
    before = time.monotonic()
    (result,) = await engine.place([REQUEST])
    return result.engine, time.monotonic() - before


async def test_a_cluster_that_runs_no_task_is_given_up_after_the_wait(started: Starter) -> None:
    """The wait comes once: the next placement does not wait for the same thing again."""
    wait_s = 3.0
    engine = await started("stalled", wait_s=wait_s)
    by, took_s = await timed(engine)
    assert by is Engine.LOCAL
    assert took_s >= wait_s
    assert "are there executors" in engine.status().message
    by, took_s = await timed(engine)
    assert by is Engine.LOCAL
    assert took_s < wait_s


async def test_a_frozen_driver_is_replaced(started: Starter) -> None:
    engine = await started("fails", wait_s=0.5, silence_s=3.0)
    pid = engine.status().driver_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    by, _ = await timed(engine)
    assert by is Engine.LOCAL
    await until(lambda: engine.status().driver_pid not in (None, pid))
    await until(lambda: engine.status().state is EngineState.READY)


async def test_a_failed_job_is_tried_again_then_done_here_and_spares_the_driver(started: Starter) -> None:
    engine = await started("fails")
    pid = engine.status().driver_pid
    by, _ = await timed(engine)
    assert by is Engine.LOCAL
    assert engine.status().driver_pid == pid


async def test_a_batch_that_takes_two_drivers_down_is_not_given_a_third(started: Starter) -> None:
    engine = await started("dies")
    by, _ = await timed(engine)
    assert by is Engine.LOCAL


async def test_a_silent_driver_is_replaced(started: Starter) -> None:
    engine = await started("silent", silence_s=0.5)
    pid = engine.status().driver_pid
    await until(lambda: engine.status().driver_pid not in (None, pid))
    await until(lambda: engine.status().state is EngineState.READY)


async def test_one_that_cannot_start_is_down_says_why_and_is_tried_ever_more_rarely(started: Starter) -> None:
    engine = await started("broken", wait_s=0.2)
    await until(lambda: engine.status().state is EngineState.DOWN)
    assert engine.status().message == "install Java 99"
    pids = set()
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        pids.add(engine.status().driver_pid)
        await asyncio.sleep(0.02)
    assert 1 <= len(pids - {None}) <= 3
    assert engine.status().state is EngineState.DOWN


async def test_a_work_directory_too_deep_for_a_socket(started: Starter, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    module = "tests.data.placement_fake_driver"
    engine = SparkPlacementEngine(DriverConfig("fails", deep, module=module))
    await engine.start()
    await until(lambda: engine.status().state is EngineState.READY)
    await engine.close()
    await engine.start()
    assert engine.status().state is EngineState.DOWN
    assert (deep / "spark-driver.log").exists()


async def test_a_drivers_log_is_bounded_while_it_runs(tmp_path: Path) -> None:
    module = "tests.data.placement_fake_driver"
    config = DriverConfig("talkative", tmp_path, module=module, log_bytes_max=5_000)
    engine = SparkPlacementEngine(config)
    await engine.start()
    earlier = tmp_path / "spark-driver.log.1"
    await until(earlier.exists)
    pid, begun = engine.status().driver_pid, earlier.stat().st_mtime_ns
    await until(lambda: earlier.stat().st_mtime_ns != begun)
    assert engine.status().driver_pid == pid
    assert config.log.stat().st_size < 50_000
    await engine.close()


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.3])
async def test_closing_at_any_moment_leaves_no_driver(started: Starter, tmp_path: Path, pause_s: float) -> None:
    module = "tests.data.placement_fake_driver"
    engine = SparkPlacementEngine(DriverConfig("fails", tmp_path, module=module))
    await engine.start()
    await asyncio.sleep(pause_s)
    pid = engine.status().driver_pid
    await engine.close()
    assert engine.status().driver_pid is None
    assert pid is None or not Path(f"/proc/{pid}").exists()


async def test_what_the_supervisor_does_not_understand_does_not_end_it(tmp_path: Path) -> None:
    """The supervisor fails, is reported, and starts the next driver: Spark does not stay away for good."""
    background = Background()
    config = DriverConfig("babbles", tmp_path, module="tests.data.placement_fake_driver")
    engine = SparkPlacementEngine(config, 5.0, background)
    with capture_logs() as lines:
        await engine.start()
        await until(lambda: any(each.ends >= 2 for each in background.troubles()))
        (trouble,) = background.troubles()
        assert trouble.task == "Spark's driver"
        assert trouble.cause == "ValueError: 'of a later build' is not a valid DriverState"
        assert "its supervisor failed" in engine.status().message
        await engine.close()
    assert {line["log_level"] for line in lines if line["event"] == "background task ended"} == {"error"}
    assert background.tasks == 0
