"""A node's watchdog, as its agent sees it: a process that kills guarded members at the node's deadline.

The process (``watchdog_process``) holds the deadline and the members, so that an agent which is stopped, hangs
or is dead leaves no member running. When the watchdog itself ends, or hangs, the agent starts another one at
once; the deadline stands still until that one has taken over, and if it passes the agent kills the members.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import structlog

from rebalance.core.backoff import Backoff
from rebalance.hosting import watchdog_process
from rebalance.hosting.child import SYSTEM, environment
from rebalance.ports.fence import WatchLostError

log = structlog.get_logger(__name__)

GUARD_S = 8.0
HANGS_S = 3.0
LOOK_S = 0.2
STEADY_S = 10.0
STOP_S = 5.0
AGAIN = Backoff(0.1, 2.0)


def boottime_ns() -> int:
    """Nanoseconds since the machine's start, also those in which it was suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Guarded:
    """``handle``: descriptor of the process itself, which its id may outlive."""

    started: int
    handle: int


@dataclass(slots=True)
class _WatchdogProcess:
    """A watchdog's process. ``sent`` and ``obeyed`` count lines, of which the first
    ``handed_over`` bring it to where the one before was; ``behind_since``: of the event loop's clock,
    since when something is not obeyed."""

    process: subprocess.Popen[bytes]
    started_at: float
    sent: int = 0
    obeyed: int = 0
    handed_over: int = 0
    behind_since: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    obeys: asyncio.Event = field(default_factory=asyncio.Event)
    rest: bytes = b""


class Watchdog:
    """A ``MemberKiller``. Belongs to one event loop; ``run`` keeps a watchdog there, ``close`` at the end.
    ``python``: the interpreter."""

    def __init__(self, python: str = sys.executable) -> None:
        self._killed: Callable[[tuple[int, ...]], None] = lambda _: None
        self._python = python
        self._deadline_ns = 0
        self._kept_ns = 0
        """The last deadline that was sent to a watchdog that guards everything."""
        self._is_covered = False
        self._guarded: dict[int, _Guarded] = {}
        self._current: _WatchdogProcess | None = None
        self._again = AGAIN
        self._failure = ""
        """Reason of the last end, where it never came so far as to guard anything: the next one may not either,
        and callers do not wait for it."""

    @property
    def is_watching(self) -> bool:
        """Check that a process keeps the deadline of everything that is guarded."""
        return self._is_covered and self._current is not None and not self._current.ended.is_set()

    def listen(self, killed: Callable[[tuple[int, ...]], None]) -> None:
        self._killed = killed

    def until(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns
        if self._send(f"until {deadline_ns}") and self._is_covered:
            self._kept_ns = deadline_ns

    async def guard(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            raise WatchLostError(f"process {pid} does not exist: {error}") from error
        self.unguard(pid)
        if self._failure and not self._is_covered:
            os.close(handle)
            raise WatchLostError(f"no watchdog has taken process {pid} over: {self._failure}")
        self._guarded[pid] = _Guarded(watchdog_process.start_time(pid), handle)
        self._send_guard(pid)
        try:
            async with asyncio.timeout(GUARD_S):
                await self._obeyed()
        except TimeoutError as error:
            self.unguard(pid)
            raise WatchLostError(f"no watchdog has taken process {pid} over within {GUARD_S:g} s") from error
        except asyncio.CancelledError:
            self.unguard(pid)
            raise

    def unguard(self, pid: int) -> None:
        guarded = self._guarded.pop(pid, None)
        if guarded is not None:
            os.close(guarded.handle)
            self._send(f"unguard {pid}")

    def kill(self) -> None:
        killed = tuple(self._guarded)
        for guarded in self._guarded.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(guarded.handle, signal.SIGKILL)
            os.close(guarded.handle)
        self._guarded.clear()
        if killed:
            self._killed(killed)

    async def run(self) -> None:
        stand_in = asyncio.create_task(self._stand_in(), name="stand-in of the watchdog")
        try:
            while True:
                if self._current is None:
                    await self._replace()
                await self._watched()
        finally:
            # The process goes on without us; ``close`` ends it.
            stand_in.cancel()
            await asyncio.gather(stand_in, return_exceptions=True)

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is None:
            self.kill()
            return
        asyncio.get_running_loop().remove_reader(_output(current))
        with suppress(OSError):
            _input(current).close()
        await asyncio.to_thread(_wait_or_kill, current.process)
        _close(current)
        self.kill()

    def _start(self) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        command = [self._python, "-I", "-S", watchdog_process.__file__]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(SYSTEM),
            start_new_session=True,
        )
        current = self._current = _WatchdogProcess(process, loop.time())
        for pipe in (_input(current).fileno(), _output(current)):
            os.set_blocking(pipe, False)
        loop.add_reader(_output(current), self._on_output, current)
        self._send(f"until {self._deadline_ns}")
        for pid in self._guarded:
            self._send_guard(pid)
        current.handed_over = current.sent

    async def _replace(self) -> None:
        """Replace the watchdog, after a pause where the last one ended soon."""
        if self._again.has_failed:
            await asyncio.sleep(self._again.delay_s(0.0))
        self._again = self._again.failed()
        try:
            self._start()
        except OSError as error:
            self._failure = f"it cannot be started: {error}"
            log.error("no watchdog", error=str(error))

    async def _watched(self) -> None:
        """Returns when the watchdog has ended, or has hung and was killed."""
        current = self._current
        if current is None:
            return
        loop = asyncio.get_running_loop()
        while not current.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await current.ended.wait()
            if not current.ended.is_set():
                # What has come while this process itself stood still is no sign of a watchdog that hangs.
                self._on_output(current)
            if current.obeyed < current.sent and loop.time() - current.behind_since > HANGS_S:
                log.error("watchdog hangs, it is replaced", pid=current.process.pid)
                break
            if loop.time() - current.started_at > STEADY_S:
                self._again = self._again.fresh()
        self._drop(current)

    def _drop(self, current: _WatchdogProcess) -> None:
        asyncio.get_running_loop().remove_reader(_output(current))
        self._note_end(current)
        current.process.kill()
        code = current.process.wait()
        _close(current)
        self._failure = "" if self._is_covered else f"it ended at its start with code {code}"
        self._current, self._is_covered = None, False
        log.error("watchdog ended", code=code, guarded=len(self._guarded))

    async def _stand_in(self) -> None:
        """Kills at the deadline while no watchdog would."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._is_covered and self._guarded and boottime_ns() >= self._kept_ns:
                self.kill()

    async def _obeyed(self) -> None:
        """Wait until a watchdog has obeyed all that was said up to now, or a later one has taken all of it
        over."""
        while True:
            current = self._current
            if current is None:
                await asyncio.sleep(LOOK_S / 4)
                continue
            number = current.sent
            while not current.ended.is_set() and current.obeyed < number:
                current.obeys.clear()
                await current.obeys.wait()
            if current.obeyed >= number and not current.ended.is_set():
                return
            await asyncio.sleep(LOOK_S / 4)

    def _send_guard(self, pid: int) -> None:
        self._send(f"guard {pid} {self._guarded[pid].started}")

    def _send(self, line: str) -> bool:
        current = self._current
        if current is None or current.ended.is_set():
            return False
        if current.obeyed == current.sent:
            current.behind_since = asyncio.get_running_loop().time()
        try:
            os.write(_input(current).fileno(), line.encode() + b"\n")
        except OSError:
            # Its pipe is full because it does not read, or it is gone: both are an end.
            self._note_end(current)
            return False
        current.sent += 1
        return True

    def _note_end(self, current: _WatchdogProcess) -> None:
        current.ended.set()
        current.obeys.set()

    def _on_output(self, current: _WatchdogProcess) -> None:
        try:
            received = os.read(_output(current), 1 << 16)
        except BlockingIOError:
            return
        if not received:
            asyncio.get_running_loop().remove_reader(_output(current))
            self._note_end(current)
            return
        *lines, current.rest = (current.rest + received).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"done":
                current.obeyed = int(numbers[0])
                current.behind_since = asyncio.get_running_loop().time()
                current.obeys.set()
                self._note_takeover(current)
            elif word == b"killed":
                self._on_killed(tuple(map(int, numbers)))

    def _note_takeover(self, current: _WatchdogProcess) -> None:
        if not self._is_covered and current is self._current and current.obeyed >= current.handed_over:
            self._is_covered, self._kept_ns, self._failure = True, self._deadline_ns, ""
            log.info("watchdog started", pid=current.process.pid, guarded=len(self._guarded))

    def _on_killed(self, pids: tuple[int, ...]) -> None:
        for pid in pids:
            guarded = self._guarded.pop(pid, None)
            if guarded is not None:
                os.close(guarded.handle)
        self._killed(pids)


def _input(current: _WatchdogProcess) -> IO[bytes]:
    assert current.process.stdin is not None, "it was started with pipes"
    return current.process.stdin


def _output(current: _WatchdogProcess) -> int:
    assert current.process.stdout is not None, "it was started with pipes"
    return current.process.stdout.fileno()


def _close(current: _WatchdogProcess) -> None:
    for pipe in (current.process.stdin, current.process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
