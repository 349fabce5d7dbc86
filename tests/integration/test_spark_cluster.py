"""Placement on a standalone Spark cluster: a real master and two workers, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio
import yaml

from app.configuration.settings import Settings
from app.configuration.spark_settings import spark_network
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
    pytest.mark.slow("eight JVMs"),
    pytest.mark.thorough("test_spark_engine has a driver whose executors are local"),
]
READY_LIMIT_S = 400.0
ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
HOST, LOOPBACK = "127.0.0.2", "127.0.0.1"


class Cluster:
    """A master, and workers of one core each, by the commands, the variables and the properties that ship. They
    are at an address of their own, so that what listens anywhere else is seen."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, *self._more_ports = free_block(6)
        self.processes: list[subprocess.Popen[bytes]] = []
        (directory / "scripts").mkdir()
        script = shutil.copy(ROOT / "scripts" / "secrets.sh", directory / "scripts")
        subprocess.run([script], capture_output=True, check=True)
        self.properties = directory / "secrets" / "spark-properties"

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start(self) -> None:
        self._run("spark-master", {"8080": str(self._more_ports[0])})
        for number in (1, 2):
            port, page = self._more_ports[2 * number - 1 : 2 * number + 1]
            places = {
                **{"spark-worker": HOST, "7078": str(port), "8081": str(page)},
                "/var/lib/zonekeeper/work": str(self.directory / f"worker-{number}"),
            }
            self._run("spark-worker", places, "--cores", "1", "--memory", "1g")

    def _run(self, service: str, places: Mapping[str, str], *more: str) -> None:
        shipped = COMPOSE[service]
        places = {
            **{"spark-master": HOST, "7077": str(self.port), "spark://spark-master:7077": self.url},
            "/run/secrets/spark-properties": str(self.properties),
            **places,
        }
        name, *words = (places.get(word, word) for word in shipped["command"])
        environment = {**os.environ, **shipped.get("environment", {}), "SPARK_DAEMON_MEMORY": "256m"}
        # Executors, too, as the workers' children: the quick compiler, as the driver has it.
        environment["JDK_JAVA_OPTIONS"] = " ".join(JVM_OPTIONS)
        environment["JAVA_HOME"] = str(find_java().path.resolve().parent.parent)
        command = [str(spark_home() / "bin" / "spark-class"), name, *more, *words]
        with (self.directory / "cluster.log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def listening(self) -> set[tuple[str, int]]:
        return {place for process in self.processes for place in listening(process.pid)}

    def own_ports(self) -> set[int]:
        """Ports of master and workers, without those of their pages."""
        return {self.port, self._more_ports[1], self._more_ports[3]}

    def pages(self) -> set[int]:
        return {self._more_ports[0], self._more_ports[2], self._more_ports[4]}

    def kill_worker(self) -> None:
        """Kill a worker with its executor, as when a machine is lost."""
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


@pytest.fixture(scope="module")
def driver_ports() -> range:
    return free_block(2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    cluster: Cluster, driver_ports: range, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SparkPlacementEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(stranger(tmp_path_factory.mktemp("python"))))
        settings = Settings(
            spark_master=cluster.url,
            spark_properties_file=cluster.properties,
            spark_driver_host=HOST,
            spark_driver_ports=f"{driver_ports[0]}-{driver_ports[-1]}",
        )
        opened = driven(settings, tmp_path_factory.mktemp("driver"))
        await opened.start()
        deadline = time.monotonic() + READY_LIMIT_S
        while opened.status().state is not EngineState.READY:
            assert time.monotonic() < deadline, opened.status().message
            await asyncio.sleep(0.1)
        yield opened
        await opened.close()


def driven(settings: Settings, directory: Path) -> SparkPlacementEngine:
    network = spark_network(settings)
    config = DriverConfig(settings.spark_master, directory, silence_limit_s=60.0, network=network)
    return SparkPlacementEngine(config, READY_LIMIT_S)


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports of a process and its children."""
    parent = psutil.Process(pid)
    return {
        (str(connection.laddr.ip).removeprefix("::ffff:"), connection.laddr.port)
        for process in (parent, *parent.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


async def test_nothing_listens_for_others_but_what_asks_for_the_secret(
    engine: SparkPlacementEngine, cluster: Cluster, driver_ports: range
) -> None:
    """Web pages at the loopback address, REST nowhere; of the driver its own ports. What is at the loopback
    address besides is between a JVM and its Python."""
    places = cluster.listening()
    assert {address for address, _ in places} <= {HOST, LOOPBACK}
    assert {port for address, port in places if address == LOOPBACK} >= cluster.pages()
    executors = {port for address, port in places if address == HOST} - cluster.own_ports()
    assert len(executors) == 2, "each executor has a port for blocks"
    assert cluster.own_ports() <= {port for address, port in places if address == HOST}
    driver = engine.status().driver_pid
    assert driver is not None
    own = listening(driver)
    assert {address for address, _ in own} <= {HOST, LOOPBACK}
    assert {port for address, port in own if address == HOST} == {*driver_ports}


def command_line(process: psutil.Process) -> str:
    """Empty of one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


async def test_the_secret_is_on_no_command_line(engine: SparkPlacementEngine, cluster: Cluster) -> None:
    (secret,) = re.findall(r"^spark\.authenticate\.secret\s+(\S+)$", cluster.properties.read_text(), re.M)
    driver = engine.status().driver_pid
    assert driver is not None
    parents = [psutil.Process(pid) for pid in (driver, *(process.pid for process in cluster.processes))]
    lines = [
        line
        for parent in parents
        for process in (parent, *parent.children(recursive=True))
        if (line := command_line(process))
    ]
    assert len(lines) >= 7
    assert [line for line in lines if secret in line] == []


async def test_a_driver_without_the_secret_or_with_another_is_refused(
    engine: SparkPlacementEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """The one of ``engine`` works meanwhile."""
    wrong = tmp_path / "properties"
    secret = r"(?m)^(spark\.authenticate\.secret\s+)\S+$"
    wrong.write_text(re.sub(secret, rf"\g<1>{'x' * 43}", cluster.properties.read_text()))
    refused = {
        name: driven(
            Settings(spark_master=cluster.url, spark_properties_file=file, spark_driver_host=HOST),
            tmp_path / name,
        )
        for name, file in (("without", None), ("wrong", wrong))
    }
    for strange in refused.values():
        await strange.start()
    try:
        for name, strange in refused.items():
            deadline = time.monotonic() + READY_LIMIT_S
            log = tmp_path / name / "spark-driver.log"
            while not log.exists() or "Failed to connect to master" not in log.read_text():
                assert time.monotonic() < deadline, strange.status().message
                assert strange.status().state is not EngineState.READY
                await asyncio.sleep(0.1)
        (placed,) = await engine.place([PlacementRequest(ZoneId(1), ("n1", "n2"), 16, 1, 1)])
        assert placed.engine is Engine.SPARK
    finally:
        for strange in refused.values():
            await strange.close()
    registered = re.findall("Registered app", (cluster.directory / "cluster.log").read_text())
    assert len(registered) == 1, "the one of the engine"


@pytest.mark.row("PME-077", "IEP-038")
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
    """Large request and running job of both, which is not done: with a larger request where the machine was too
    fast."""
    while True:
        running = asyncio.create_task(engine.place([large, even]))
        await asyncio.sleep(0.3)
        if not running.done():
            return large, running
        large = replace(large, partitions=2 * large.partitions)
