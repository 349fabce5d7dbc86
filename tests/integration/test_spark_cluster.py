"""Placement on a standalone Spark cluster: a real master and two workers, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from catalog.core.zone import ZoneId
from rebalance.kernels.rendezvous import place
from rebalance.ports.placement import (
    Engine,
    EngineState,
    PlacementRequest,
    PlacementResult,
    PreviousPlacement,
)
from spark import copies, plan_transfers, skew, what_if
from spark.batch import place_locally
from spark.java import find_java
from spark.placement_engine import SparkPlacementEngine
from spark.session import JVM_OPTIONS, spark_home
from spark.supervisor import DriverConfig
from tests.data.placement_golden import golden_cases, rows_of
from tests.fixtures.ports import free_block

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow("six JVMs"),
]
READY_LIMIT_S = 400.0


class Cluster:
    """A master, and workers of one core each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, *self._web_ports = free_block(4)
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._run("master.Master", "--port", str(self.port), "--webui-port", str(self._web_ports[0]))
        for number in (1, 2):
            self._run(
                "worker.Worker", "--webui-port", str(self._web_ports[number]), "--cores", "1", "--memory", "1g",
                "--work-dir", str(self.directory / f"worker-{number}"), self.url,
            )  # fmt: skip

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        # Executors, too, as the workers' children: the quick compiler, as the driver has it.
        environment["JDK_JAVA_OPTIONS"] = " ".join(JVM_OPTIONS)
        environment["JAVA_HOME"] = str(find_java().path.resolve().parent.parent)
        with (self.directory / "cluster.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [*command, "--host", "127.0.0.1", *arguments], stdout=log, stderr=log, env=environment
                )
            )

    def kill_worker(self) -> None:
        """With its executor, as when a machine is lost."""
        worker = self.processes.pop()
        for child in psutil.Process(worker.pid).children(recursive=True):
            child.kill()
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        for process in reversed(self.processes):
            family = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            process.wait(60)
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()


def stranger(directory: Path) -> Path:
    """A Python as on another machine: the packages are there, Zonekeeper is not installed."""
    packages = sysconfig.get_path("purelib")
    path = directory / "python"
    # Without `site` the installed packages are found by path, an editable install is not.
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("spark-cluster"))
    started.start()
    yield started
    started.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SparkPlacementEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", str(stranger(tmp_path_factory.mktemp("python"))))
        config = DriverConfig(cluster.url, tmp_path_factory.mktemp("driver"), silence_limit_s=60.0)
        opened = SparkPlacementEngine(config, READY_LIMIT_S)
        await opened.start()
        deadline = time.monotonic() + READY_LIMIT_S
        while opened.status().state is not EngineState.READY:
            assert time.monotonic() < deadline, opened.status().message
            await asyncio.sleep(0.1)
        yield opened
        await opened.close()


@pytest.mark.row("PME-077", "IEP-038", shows="service")
async def test_golden_vectors_on_executors(engine: SparkPlacementEngine) -> None:
    """IEP-038, PME-077: what the executors of a cluster compute is what Java computes."""
    cases = golden_cases()
    results = await engine.place([case.request for case in cases])
    for case, result in zip(cases, results, strict=True):
        assert result.engine is Engine.SPARK
        assert rows_of(result) == case.rows


async def test_executors_run_the_code_that_they_are_sent(engine: SparkPlacementEngine, tmp_path: Path) -> None:
    """No machine of a cluster needs Zonekeeper: every job runs where it cannot be imported from."""
    done = subprocess.run(
        [stranger(tmp_path), "-c", "import numpy, pyarrow; import rebalance"],
        capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": ""},
    )  # fmt: skip
    assert "No module named 'rebalance'" in done.stderr
    nodes = tuple(f"n{number}" for number in range(9))
    even = PlacementRequest(ZoneId(2), nodes, 1_000, 3, 3, "balanced")
    (placed,) = await engine.place([even])
    assert placed.engine is Engine.SPARK
    before = PreviousPlacement(nodes, placed.matrix, 3)
    asked = (
        what_if.analysis(before, [what_if.Candidate("one fewer", replace(even, nodes=nodes[1:]))]),
        plan_transfers.analysis(before, PreviousPlacement(nodes, placed.matrix[:, ::-1], 3)),
        skew.analysis(before, 10_000),
        copies.analysis([copies.Copy(1, 0, name, "OWNING", 1, 1) for name in nodes]),
    )
    for analysis in asked:
        _, where = await engine.answer(analysis)
        assert where is Engine.SPARK


async def test_a_lost_executor_costs_a_retry_and_no_result(
    engine: SparkPlacementEngine, cluster: Cluster
) -> None:
    """One of two machines dies under a job: the other one does its tasks again."""
    nodes = tuple(f"node-{number}" for number in range(200))
    even = PlacementRequest(ZoneId(2), nodes, 1_000, 3, 3, "balanced")
    large, running = await under_way(engine, PlacementRequest(ZoneId(1), nodes, 1_000_000, 3, 3), even)
    cluster.kill_worker()
    placed, balanced = await running
    assert placed.engine is Engine.SPARK
    assert np.array_equal(placed.matrix, place(nodes, range(large.partitions), 3))
    assert np.array_equal(balanced.matrix, place_locally([even])[0].matrix)
    (again,) = await engine.place([even])
    assert again.engine is Engine.SPARK


async def under_way(
    engine: SparkPlacementEngine, large: PlacementRequest, even: PlacementRequest
) -> tuple[PlacementRequest, asyncio.Task[Sequence[PlacementResult]]]:
    """Both in one job that is not done: a larger one where the machine was too fast."""
    while True:
        running = asyncio.create_task(engine.place([large, even]))
        await asyncio.sleep(0.3)
        if not running.done():
            return large, running
        large = replace(large, partitions=2 * large.partitions)
