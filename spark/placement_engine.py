"""Placement on Spark, and by the same kernel in this process while Spark cannot be had.

``SparkPlacementEngine`` never lets a placement wait for Spark longer than ``spark_wait_s``, counted from when
Spark was last usable: past that it runs the kernel here, in a thread, and the result says ``engine=local``.
The two give the same matrix to the last bit, so it is only a matter of where the work is done. What a request
itself does wrong is a ``PlacementError`` that names the zone; it is neither repeated nor held against the
driver.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import structlog

from rebalance.hosting.background import Background
from rebalance.ports.placement import Engine, EngineStatus, PlacementRequest, PlacementResult
from spark import batch as batches
from spark import frames
from spark.errors import DriverLostError, JobFailedError, SparkStalledError, SparkUnavailableError
from spark.frames import Frame, FrameKind
from spark.mapped import Analysis
from spark.supervisor import DriverConfig, DriverSupervisor, Endpoint

T = TypeVar("T")

SPARK_WAIT_S = 10.0
ATTEMPTS_MAX = 2
"""Maximum attempts on Spark; then the kernel runs here. A batch that takes two drivers down is not given a
third."""

THREADS = 2

_log = structlog.get_logger(__name__)


class SparkPlacementEngine:
    """Placement as one Spark job for each batch, in a driver process that this engine keeps alive.

    ``start`` and ``place`` belong to one event loop, that of the main thread.
    """

    def __init__(
        self, config: DriverConfig, spark_wait_s: float = SPARK_WAIT_S, background: Background | None = None
    ) -> None:
        self._supervisor = DriverSupervisor(config, background)
        self._silence_limit_s = config.silence_limit_s
        self._spark_wait_s = spark_wait_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="placement")

    async def start(self) -> None:
        """Spawns the driver in the background and returns at once."""
        self._supervisor.start()
        # pyarrow imports pandas at its first conversion, half a second that no placement should pay for.
        asyncio.get_running_loop().run_in_executor(self._threads, batches.encode, batches.WARM_UP)

    async def close(self) -> None:
        """Ends the driver and its JVM; placements under way end locally."""
        await self._supervisor.close()

    def status(self) -> EngineStatus:
        return self._supervisor.status()

    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        """Results in the order of the requests; all of them by one engine. Raises PlacementError naming a zone
        that cannot be placed anywhere."""
        if not batch:
            return []
        loop = asyncio.get_running_loop()
        zones = await loop.run_in_executor(self._threads, batches.encode, batch)
        results = await self._tried(FrameKind.PLACE, zones, lambda cells: batches.decode(batch, cells))
        if results is not None:
            return results
        _log.warning("placement.local", zones=len(batch), spark=self.status().message)
        return await loop.run_in_executor(self._threads, batches.place_locally, batch)

    async def answer(self, analysis: Analysis[T]) -> tuple[T, Engine]:
        """The answer, and where it was computed."""
        answer = await self._tried(analysis.kind, analysis.table, analysis.decode)
        if answer is not None:
            return answer, Engine.SPARK
        _log.warning("analysis.local", kind=analysis.kind.value, spark=self.status().message)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, analysis.here), Engine.LOCAL

    async def _tried(self, kind: FrameKind, table: pa.Table, decode: Callable[[pa.Table], T]) -> T | None:
        """The decoded answer of one job; None when Spark cannot be had within the limits."""
        loop = asyncio.get_running_loop()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            endpoint = await self._supervisor.ready(self._spark_wait_s)
            if endpoint is None:
                break
            try:
                answer = await self._on_spark(endpoint, kind, table)
                return await loop.run_in_executor(self._threads, decode, answer)
            except SparkUnavailableError as error:
                _log.warning(
                    "placement.attempt_failed", attempt=attempt, rows=table.num_rows, reason=str(error)
                )
                if isinstance(error, SparkStalledError):
                    self._supervisor.distrust(endpoint.generation, str(error), self._spark_wait_s)
                elif isinstance(error, DriverLostError):
                    self._supervisor.distrust(endpoint.generation, str(error))
        return None

    async def _on_spark(self, endpoint: Endpoint, kind: FrameKind, table: pa.Table) -> pa.Table:
        """The answer of one job. Raises SparkUnavailableError; being cancelled cancels the job."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, str(endpoint.socket))
                await frames.send_async(connection, Frame(kind, {}, table))
                frame = await self._answer(connection)
            except TimeoutError as error:
                raise DriverLostError(f"the driver was silent for {self._silence_limit_s:g} s") from error
            except OSError as error:
                raise DriverLostError(f"the driver was lost: {error}") from error
        if frame is None:
            raise DriverLostError("the driver ended before it answered")
        if frame.kind is not FrameKind.RESULT or frame.body is None:
            raise JobFailedError(frame.fields.get("message", f"an answer of kind {frame.kind.value}"))
        return frame.body

    async def _answer(self, connection: socket.socket) -> Frame | None:
        """The frame after the progress frames. Raises SparkStalledError when those say for ``spark_wait_s``
        that no task of the cluster runs, TimeoutError when there is no frame at all, OSError."""
        moved_at = time.monotonic()
        while True:
            async with asyncio.timeout(self._silence_limit_s):
                frame = await frames.receive_async(connection)
            if frame is None or frame.kind is not FrameKind.PROGRESS:
                return frame
            now = time.monotonic()
            if frame.fields["moving"]:
                moved_at = now
            elif now - moved_at > self._spark_wait_s:
                raise SparkStalledError(f"no task has run for {self._spark_wait_s:g} s: are there executors?")
