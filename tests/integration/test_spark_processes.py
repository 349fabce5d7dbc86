"""The driver as a process: a killed parent, the archive of classes, and a machine without Java."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.ports.placement import Engine, EngineState, PlacementRequest
from spark.class_archive import archive_path
from spark.java import find_java
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig

WAIT_S = 4.0
REQUEST = PlacementRequest(ZoneId(1), ("a", "b", "c"), 8, 3, 3)

PARENT = """
import asyncio, sys
from pathlib import Path
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig

async def main():
    engine = SparkPlacementEngine(DriverConfig("local[*]", Path(sys.argv[1])))
    await engine.start()
    while engine.status().state.value != "ready":
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    "ready",
    [pytest.param(False, id="while starting"), pytest.param(True, id="when ready", marks=pytest.mark.soak)],
)
def test_a_killed_parent_leaves_no_driver_and_no_jvm(tmp_path: Path, ready: bool) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        if ready:
            assert parent.stdout is not None
            assert any(line == b"ready\n" for line in parent.stdout)
        family, names = _family_with_java(parent)
        assert any(name.startswith("python") for name in names)
    finally:
        parent.kill()
        parent.communicate()
    deadline = time.monotonic() + 60.0
    while not all(map(gone, family)):
        assert time.monotonic() < deadline, [process for process in family if not gone(process)]
        time.sleep(0.02)


@pytest.mark.slow("starts Spark twice, and its JVM writes 150 MB")
def test_a_start_maps_the_archive_that_the_set_up_wrote(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    archive = archive_path(find_java(), {"XDG_CACHE_HOME": str(cache)})
    for _ in range(2):
        command = [sys.executable, "-m", "spark.class_archive"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, check=True)
        assert list(cache.rglob("*")) == [archive.parent, archive]
    with _ready_jvm(tmp_path / "work", cache) as jvm:
        assert str(archive) in {area.path for area in jvm.memory_maps()}
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.truncate(5_000_000)
    with _ready_jvm(tmp_path / "again", cache):
        assert not archive.exists()


@pytest.mark.thorough("test_a_start_maps_the_archive_that_the_set_up_wrote: the JVM checks the file")
def test_an_archive_of_something_else_is_no_fault(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    archive = archive_path(find_java(), {"XDG_CACHE_HOME": str(cache)})
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"of something else" * 1000)
    with _ready_jvm(tmp_path / "work", cache) as jvm:
        assert str(archive) not in {area.path for area in jvm.memory_maps()}


@contextlib.contextmanager
def _ready_jvm(folder: Path, cache: Path) -> Iterator[psutil.Process]:
    """Yield the JVM of a Spark that is ready, whose user's cache directory is ``cache``."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, env=env
    ) as parent:
        try:
            assert parent.stdout is not None
            assert any(line == b"ready\n" for line in parent.stdout)
            family, _ = _family_with_java(parent)
            yield next(process for process in family if process.name() == "java")
        finally:
            parent.kill()


def _family_with_java(parent: subprocess.Popen[bytes]) -> tuple[list[psutil.Process], list[str]]:
    """All descendants and their names, at a moment when a JVM is one: the launcher, itself one, ends before
    Spark's begins."""
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        family = [each for each in psutil.Process(parent.pid).children(recursive=True) if not gone(each)]
        with contextlib.suppress(psutil.NoSuchProcess):
            names = [process.name() for process in family]
            if "java" in names:
                return family, names
        time.sleep(0.02)
    raise AssertionError("no JVM was started")


async def test_without_java_the_kernel_runs_locally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local after the wait the first time, without another one from then on; the status says what to
    install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    engine = SparkPlacementEngine(DriverConfig("local[*]", tmp_path / "work"), spark_wait_s=WAIT_S)
    started = time.monotonic()
    await engine.start()
    (result,) = await engine.place([REQUEST])
    assert time.monotonic() - started >= WAIT_S
    assert result.engine is Engine.LOCAL
    status = engine.status()
    assert status.state is EngineState.DOWN
    assert "install Java 17 or later" in status.message
    started = time.monotonic()
    (again,) = await engine.place([REQUEST])
    assert time.monotonic() - started < WAIT_S
    assert again.engine is Engine.LOCAL
    await engine.close()


async def test_closed_or_never_started_places_at_once(tmp_path: Path) -> None:
    engine = SparkPlacementEngine(DriverConfig("local[*]", tmp_path), spark_wait_s=600.0)
    assert engine.status().state is EngineState.DOWN
    (before,) = await engine.place([REQUEST])
    assert before.engine is Engine.LOCAL
    await engine.start()
    placing = asyncio.create_task(engine.place([REQUEST]))
    await asyncio.sleep(0.3)
    await engine.close()
    async with asyncio.timeout(60):
        (after,) = await placing
    assert after.engine is Engine.LOCAL
    assert engine.status().driver_pid is None
