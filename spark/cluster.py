"""The session as the driver's server uses it: jobs, their cancellation, and whether anything moves.

Jobs run on a few threads of their own, because pyspark ties a thread of the JVM to each of ours; questions
about the state run on one more, so that they are answered while jobs run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from spark import placement_job
from spark.batch import WARM_UP, encode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
