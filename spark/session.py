"""A JVM of ours, and the Spark session in it.

The JVM is started here and not by ``SparkSession.builder``, for two reasons: it must die with this process even
while it is still starting (pyspark's own launch uses a ``preexec_fn`` and relies on the JVM reading its stdin,
which it does only once it is up), and its process must be known, so that its death is noticed at once. pyspark
then connects to it by PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET, as it does under ``spark-submit``.

The driver's server uses it for jobs and their cancellation, and asks whether anything moves. Jobs run on a few
threads of their own, because pyspark ties a thread of the JVM to each of ours; questions about the state run on
one more, so that they are answered while jobs run.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

import catalog
import rebalance
import spark
from rebalance.hosting.child import SPARK, environment, guarded_command
from spark import placement_job
from spark.batch import WARM_UP, encode
from spark.cluster_network import SparkNetwork, is_local, network_settings
from spark.errors import SessionError
from spark.placement_job import ROWS_PER_BATCH_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JVM_START_LIMIT_S = 120.0
JVM_OPTIONS = ("-XX:-UsePerfData", "-XX:TieredStopAtLevel=1")
"""The quick compiler only: Spark is ready in two thirds of the time, and the heavy work is done in Python."""

SHIPPED = (rebalance, spark, catalog)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """``scratch`` is a directory of the driver's own: Spark's temporary files, its warehouse, the code zip.
    ``memory`` is the JVM's heap as Spark writes it ("1g"). ``options`` are more options of the JVM."""

    master: str
    scratch: Path
    memory: str = "1g"
    network: SparkNetwork = field(default_factory=SparkNetwork)
    options: tuple[str, ...] = ()


def launch_jvm(config: SessionConfig) -> subprocess.Popen[bytes]:
    """Start the JVM and wait until it can be connected to; call it from the main thread, because the JVM dies
    with the thread that calls. Sets the gateway's variables in ``os.environ``. Raises SessionError."""
    config.scratch.mkdir(parents=True, exist_ok=True)
    connection_info = config.scratch / "gateway"
    connection_info.unlink(missing_ok=True)
    submit = spark_home() / "bin" / "spark-submit"
    process = subprocess.Popen(
        guarded_command([str(submit), *_submit_options(config), "pyspark-shell"]),
        stdin=subprocess.PIPE,
        env=environment(
            SPARK, {**_environment(config), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_info)}
        ),
    )
    deadline = time.monotonic() + JVM_START_LIMIT_S
    # The import takes a second; the JVM starts meanwhile.
    importlib.import_module("pyspark.sql")
    while not connection_info.exists():
        if (code := process.poll()) is not None:
            raise SessionError(f"Spark's JVM ended with code {code} before it was up; its output is in the log")
        if time.monotonic() > deadline:
            process.kill()
            raise SessionError(f"Spark's JVM was not up within {JVM_START_LIMIT_S:.0f} s")
        time.sleep(0.02)
    port, secret = _read_connection_info(connection_info)
    os.environ |= {**_environment(config), "PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    return process


def spark_home() -> Path:
    """SPARK_HOME, or the Spark inside the installed pyspark, found without importing it."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SessionError("pyspark is not installed: pip install 'pyspark>=4.3,<4.4'")
    return Path(spec.submodule_search_locations[0])


def open_session(config: SessionConfig) -> SparkSession:
    """The session in the JVM that ``launch_jvm`` started, with our code shipped to the executors."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(config.master).appName("zonekeeper").getOrCreate()
    session.sparkContext.addPyFile(str(build_code_zip(config.scratch / "zonekeeper.zip")))
    return session


def build_code_zip(path: Path) -> Path:
    """One zip of the packages that executors import from, at ``path``. The kernels need none of the others;
    the job's function is pickled by its module's name, so ``spark`` goes along."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in SHIPPED:
            root = Path(package.__path__[0])
            for source in sorted(root.rglob("*.py")):
                archive.write(source, source.relative_to(root.parent))
    return path


def _environment(config: SessionConfig) -> dict[str, str]:
    """Workers run on this interpreter: PATH's python3 may lack pyarrow. On a cluster PYSPARK_PYTHON may name
    another one, which the workers' machines have."""
    if is_local(config.master):
        return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}


def _submit_options(config: SessionConfig) -> list[str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.local.dir": str(config.scratch / "local"),
        "spark.sql.warehouse.dir": str(config.scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH_MAX),
        "spark.driver.maxResultSize": "0",
        "spark.python.worker.reuse": "true",
        "spark.driver.extraJavaOptions": _java_options(config),
        **network_settings(config.master, config.network),
    }
    options = ["--driver-memory", config.memory]
    if config.network.properties is not None and not is_local(config.master):
        # By its name: a command line is read by everybody on the machine.
        options += ["--properties-file", str(config.network.properties.absolute()), "--load-spark-defaults"]
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    return options


def _java_options(config: SessionConfig) -> str:
    scratch = (f"-Djava.io.tmpdir={config.scratch}", f"-XX:ErrorFile={config.scratch}/jvm-error-%p.log")
    options = (*JVM_OPTIONS, *config.options, *scratch)
    return " ".join(f'"{option}"' for option in options)


def _read_connection_info(path: Path) -> tuple[int, str]:
    """Port and secret as the JVM writes them: int32, then a length and UTF-8. The file appears complete: the
    JVM writes it elsewhere and renames it."""
    content = path.read_bytes()
    port, size = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + size].decode()


Job = Callable[["SparkSession", pa.Table, int], pa.Table]

JOBS_MAX = 4
"""Maximum jobs at a time; more wait for a thread."""


class PlacementJob(NamedTuple):
    """A job that was submitted. ``result`` yields *cells* or raises Spark's error."""

    group: str
    result: Future[pa.Table]


class SparkCluster:
    """Owns the session from here on."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = session.sparkContext
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="spark-job")
        self._questions = ThreadPoolExecutor(1, thread_name_prefix="spark-question")
        self._numbers = itertools.count()

    def describe(self) -> str:
        return f"Spark {self._session.version} at {self._context.master}"

    def warm_up(self) -> None:
        """One small job: it starts the Python workers and shows that executors can be had. Raises Spark's
        errors; waits as long as a cluster gives it no executor."""
        self.submit(encode(WARM_UP)).result.result()

    def submit(self, table: pa.Table, run: Job = placement_job.run) -> PlacementJob:
        """``run`` is a job's function of session, table and parallelism."""
        group = f"placement-{next(self._numbers)}"
        return PlacementJob(group, self._jobs.submit(self._run, group, table, run))

    def cancel(self, job: PlacementJob) -> None:
        """Cancel a job, also one that Spark has not heard of yet, because its tasks are still being made."""
        if not job.result.cancel():
            self._questions.submit(self._context._jsc.sc().cancelJobGroupAndFutureJobs, job.group)

    def is_moving(self, timeout_s: float) -> bool:
        """Check that any task runs now, or none waits to. False also when the JVM does not answer in time."""
        try:
            return self._questions.submit(self._tasks_move).result(timeout_s)
        except TimeoutError:
            return False

    def is_stopped(self, timeout_s: float) -> bool:
        """Check that Spark has shut its context down (its master is lost, for example). Raises TimeoutError
        when the JVM does not answer, and py4j's errors when it is gone."""
        is_stopped: Future[bool] = self._questions.submit(self._context._jsc.sc().isStopped)
        return is_stopped.result(timeout_s)

    def _run(self, group: str, table: pa.Table, run: Job) -> pa.Table:
        self._context.setJobGroup(group, "placement", interruptOnCancel=True)
        return run(self._session, table, self._context.defaultParallelism)

    def _tasks_move(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        waiting = any(stage.numCompletedTasks < stage.numTasks for stage in known)
        return not waiting or any(stage.numActiveTasks > 0 for stage in known)
