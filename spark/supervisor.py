"""Keeps one Spark driver process alive for an engine, on the engine's event loop.

A driver that ends, or is silent for too long, is killed with everything in its process group and a
new one is spawned: within a second or so where Spark did start, with growing pauses where it did not. Spawned
from the loop's thread, which is the main one: the kernel ends the driver with the thread that spawned it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from rebalance.core.backoff import Backoff
from rebalance.hosting.background import Background, describe
from rebalance.hosting.child import SPARK, MissingToolError, rotate_log, rotate_open_log, spawn
from rebalance.ports.placement import EngineState, EngineStatus
from spark import frames
from spark.board import DriverState, JobExitCode
from spark.cluster_network import SparkNetwork
from spark.errors import JavaMissingError
from spark.frames import Frame, FrameKind
from spark.java import java_path

WARM_UP_LIMIT_S = 300.0
STEADY_S = 20.0
PAUSE_STEADY_S = 0.1
PAUSE_SHAKY_S = 1.0
NEVER_READY = Backoff(PAUSE_SHAKY_S, 30.0)
"""Pause before the next driver: after one that was ready for STEADY_S, for less, and, doubling up to the
maximum, after each one that never was."""

DRIVER_MODULE = "spark.driver"
POLL_S = 0.05
LISTEN_LIMIT_S = 60.0
LOG_BYTES_MAX = 16 << 20
SOCKET_PATH_BYTES_MAX = 100
CODE_ROOT = Path(__file__).parent.parent
"""The driver imports the code that runs here, wherever it was started from."""

_CAUSES: dict[int | None, str] = {
    -signal.SIGKILL: "the Spark driver was killed",
    JobExitCode.JVM_LOST: "Spark's JVM ended",
    JobExitCode.CONTEXT_STOPPED: "Spark shut its context down: its master is lost or refused us",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """``work_dir`` holds the log, the socket and Spark's temporary files; one engine per directory. ``memory``
    is the heap of the driver's JVM. A driver sends a frame each second; without one for ``silence_limit_s`` it
    counts as hung. ``module`` is what runs as the driver: tests have another. ``log_bytes_max``: of the
    log, and of the part before it."""

    master: str
    work_dir: Path
    memory: str = "1g"
    silence_limit_s: float = 10.0
    module: str = DRIVER_MODULE
    log_bytes_max: int = LOG_BYTES_MAX
    network: SparkNetwork = field(default_factory=SparkNetwork)

    @property
    def log(self) -> Path:
        return self.work_dir / "spark-driver.log"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A driver that is ready. ``generation`` tells it from those before and after it."""

    generation: int
    socket: Path


class DriverSupervisor:
    def __init__(self, config: DriverConfig, background: Background | None = None) -> None:
        self._config = config
        self._background = background or Background()
        self._generation = 0
        self._killed: int | None = None
        """The last generation that was killed for being of no use."""
        self._process: subprocess.Popen[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._state = EngineState.DOWN
        self._message = "not started"
        self._since = time.monotonic()
        self._usable_at = float("-inf")
        self._ready_s = 0.0
        self._restarted_because = ""
        self._socket_dir: Path | None = None
        self._random = random.Random()

    def status(self) -> EngineStatus:
        alive = self._process is not None and not _has_ended(self._process)
        pid = self._process.pid if self._process is not None and alive else None
        return EngineStatus(self._state, time.monotonic() - self._since, self._message, pid)

    def start(self) -> None:
        """Begin to warm up; again: no effect."""
        if self._task is not None:
            return
        self._usable_at = time.monotonic()
        self._enter(EngineState.STARTING, "Spark is starting")
        self._task = asyncio.create_task(self._background.keep("Spark's driver", self._keep_alive))

    async def close(self) -> None:
        """Kill the driver and wait for its end. Placements under way lose it and run locally."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._usable_at = float("-inf")
        self._enter(EngineState.DOWN, "closed")
        self._ready.set()
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)

    async def ready(self, wait_s: float) -> Endpoint | None:
        """The driver once it is ready; None when Spark has not been usable for ``wait_s``."""
        while self._state is not EngineState.READY:
            left_s = self._usable_at + wait_s - time.monotonic()
            if left_s <= 0:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._ready.wait()
        return Endpoint(self._generation, self._socket_path())

    def distrust(self, generation: int, reason: str, unusable_s: float = 0.0) -> None:
        """Kill the driver of this generation, if it is still that one: a request was lost with it, or saw that
        Spark has been of no use for ``unusable_s``."""
        self._usable_at = min(self._usable_at, time.monotonic() - unusable_s)
        if generation == self._generation and self._state is EngineState.READY:
            self._leave_ready(reason)
            self._killed = generation
            if self._process is not None:
                _kill_group(self._process)

    async def _keep_alive(self) -> None:
        never_ready = NEVER_READY
        while True:
            self._ready_s = 0.0
            try:
                reason = await self._one_driver()
            except JavaMissingError as error:
                reason = str(error)
            except (OSError, MissingToolError) as error:
                reason = f"the Spark driver could not be spawned: {error}"
            if self._ready_s > 0.0:
                never_ready = NEVER_READY
                pause_s = PAUSE_STEADY_S if self._ready_s >= STEADY_S else PAUSE_SHAKY_S
            else:
                self._enter(EngineState.DOWN, reason)
                never_ready = never_ready.failed()
                pause_s = never_ready.delay_s(self._random.random())
            ready_s = round(self._ready_s, 1)
            _log.warning("spark.driver_ended", reason=reason, was_ready_s=ready_s, next_in_s=round(pause_s, 1))
            await asyncio.sleep(pause_s)

    async def _one_driver(self) -> str:
        """Spawn a driver and follow it to its end; returns why it ended."""
        self._generation += 1
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)
        process = self._spawn()
        self._process = process
        reason = "closed"
        try:
            reason = await self._follow(process)
        except Exception as error:
            reason = f"its supervisor failed: {describe(error)}"
            self._enter(EngineState.DOWN, reason)
            raise
        finally:
            _kill_group(process)
            await asyncio.shield(_reap(process))
            self._leave_ready(reason)
        return reason

    def _spawn(self) -> subprocess.Popen[bytes]:
        if self._config.module == DRIVER_MODULE:
            # Else each attempt costs a Python process, and there is one every half minute.
            java_path()
        command = [sys.executable, "-P", "-m", self._config.module, "--socket", str(self._socket_path())]
        command += ["--master", self._config.master, "--memory", self._config.memory]
        command += ["--scratch", str(self._scratch)]
        if host := self._config.network.host:
            command += ["--host", host]
        if (properties := self._config.network.properties) is not None:
            command += ["--properties", str(properties)]
        if (ports := self._config.network.ports) is not None:
            command += ["--ports", str(ports[0]), str(ports[-1])]
        paths = [str(CODE_ROOT), os.environ.get("PYTHONPATH", "")]
        self._config.work_dir.mkdir(parents=True, exist_ok=True)
        rotate_log(self._config.log, self._config.log_bytes_max, kept=1)
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return spawn(command, log=self._config.log, inherited=SPARK, env=environment)

    async def _follow(self, process: subprocess.Popen[bytes]) -> str:
        """Read the driver's state frames until they end, stop coming, or say that it could not start."""
        warm_by = time.monotonic() + WARM_UP_LIMIT_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            try:
                if not await self._connect(connection, process):
                    return self._end_of(process)
                await frames.send_async(connection, Frame(FrameKind.WATCH))
                while (frame := await self._next_frame(connection)) is not None:
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(rotate_open_log, self._config.log, self._config.log_bytes_max)
                    state = DriverState(frame.fields["state"])
                    if state is DriverState.FAILED:
                        return str(frame.fields["message"])
                    if state is DriverState.READY:
                        self._heard_ready(frame.fields["message"])
                    elif self._state is EngineState.STARTING:
                        self._message = frame.fields["message"] + self._restarted_because
                    if state is DriverState.STARTING and time.monotonic() > warm_by:
                        return f"Spark was not ready within {WARM_UP_LIMIT_S:.0f} s; see {self._config.log}"
            except TimeoutError:
                silence_s = self._config.silence_limit_s
                return f"the Spark driver was silent for {silence_s:g} s; see {self._config.log}"
            except OSError:
                pass
        if self._state is EngineState.READY:
            self._usable_at = time.monotonic()
        # Its end of the connection closes a moment before its exit code is there.
        for _ in range(10):
            if _has_ended(process):
                break
            await asyncio.sleep(POLL_S)
        return self._end_of(process)

    async def _connect(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> bool:
        """Connect; True if the driver listened before it ended. The socket of the driver before may still be
        there."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + LISTEN_LIMIT_S
        while not _has_ended(process) and time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                await loop.sock_connect(connection, str(self._socket_path()))
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _next_frame(self, connection: socket.socket) -> Frame | None:
        async with asyncio.timeout(self._config.silence_limit_s):
            return await frames.receive_async(connection)

    def _heard_ready(self, message: str) -> None:
        if self._killed == self._generation:
            return  # said before it was killed, heard after
        self._usable_at = time.monotonic()
        if self._state is not EngineState.READY:
            _log.info("spark.ready", after_s=round(time.monotonic() - self._since, 1), spark=message)
            self._enter(EngineState.READY, message)
            self._ready.set()

    def _leave_ready(self, reason: str) -> None:
        if self._state is EngineState.READY:
            self._ready_s = time.monotonic() - self._since
            self._ready.clear()
            self._restarted_because = f" (restarted: {reason})"
            self._enter(EngineState.STARTING, f"Spark is restarting: {reason}")

    def _enter(self, state: EngineState, message: str) -> None:
        if state is not self._state:
            self._since = time.monotonic()
        self._state, self._message = state, message

    def _end_of(self, process: subprocess.Popen[bytes]) -> str:
        cause = _CAUSES.get(_exit_code(process), "the Spark driver ended")
        return f"{cause}; see {self._config.log}"

    @property
    def _scratch(self) -> Path:
        return self._config.work_dir / "spark-scratch"

    def _socket_path(self) -> Path:
        """Return the socket's path in the work directory, or, where that path is too long for a socket, in a
        temporary one."""
        path = self._config.work_dir / "spark.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        if self._socket_dir is None:
            self._socket_dir = Path(tempfile.mkdtemp(prefix="zonekeeper-"))
        return self._socket_dir / "spark.sock"


def _wait_status(process: subprocess.Popen[bytes]) -> os.waitid_result | None:
    """Return how the process ended, without reaping it: until it is reaped its process group's id is not given
    to another. None while it runs."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.returncode is not None or _wait_status(process) is not None


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code as subprocess gives it: minus the signal's number when a signal ended it."""
    if process.returncode is not None:
        return process.returncode
    status = _wait_status(process)
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver and its JVM. Only before the process is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _reap(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        await asyncio.sleep(POLL_S / 5)
