"""The watchdog: a process that kills what it guards at a deadline, whatever has become of who asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rebalance.hosting.watchdog import Watchdog, boottime_ns
from rebalance.ports.fence import WatchLostError

WAIT_S = 60.0
SECOND = 1_000_000_000
ROOT = Path(__file__).parents[2]
LONG_NS = 600 * SECOND


async def until(condition: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.02)


def dogs(parent: int | None = None) -> list[psutil.Process]:
    """Watchdog processes of a process, which live."""
    living = []
    for process in psutil.Process(parent).children():
        with contextlib.suppress(psutil.Error):
            if any("watchdog_process" in part for part in process.cmdline()):
                living.append(process)
    return living


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that sleep."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def watchdog() -> AsyncIterator[Watchdog]:
    dog = Watchdog()
    dog.until(boottime_ns() + LONG_NS)
    task = asyncio.create_task(dog.run())
    try:
        await until(lambda: dog.is_watching)
        yield dog
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await dog.close()


async def test_guarded_processes_end_at_the_deadline(sleeper) -> None:
    """End guarded processes at the deadline and not before, and others never; report each killed one to the
    listener."""
    guarded, taken_back, other = sleeper(), sleeper(), sleeper()
    killed: list[int] = []
    async with watchdog() as dog:
        dog.listen(killed.extend)
        for process in (guarded, taken_back):
            await dog.guard(process.pid)
        dog.unguard(taken_back.pid)
        deadline_ns = boottime_ns() + SECOND
        dog.until(deadline_ns)
        await until(lambda: guarded.poll() is not None)
        ended_ns = boottime_ns()
        assert guarded.returncode == -signal.SIGKILL
        assert ended_ns >= deadline_ns
        print(f"{(ended_ns - deadline_ns) / 1e6:.0f} ms after the deadline")
        await until(lambda: killed == [guarded.pid])
        assert taken_back.poll() is None
        assert other.poll() is None


async def test_a_deadline_that_moves_on_kills_nobody(sleeper) -> None:
    guarded = sleeper()
    async with watchdog() as dog:
        await dog.guard(guarded.pid)
        begun = time.monotonic()
        while time.monotonic() - begun < 3:
            dog.until(boottime_ns() + 2 * SECOND)
            await asyncio.sleep(0.2)
        assert guarded.poll() is None


async def test_what_is_guarded_too_late_ends_at_once(sleeper) -> None:
    guarded = sleeper()
    async with watchdog() as dog:
        dog.until(boottime_ns() - 1)
        await dog.guard(guarded.pid)
        await until(lambda: guarded.poll() is not None)


async def test_a_process_that_has_taken_the_id_is_not_the_guarded_one(sleeper) -> None:
    """Leave a process with the guarded one's id: only by their start times the two differ."""
    other = sleeper()
    command = [sys.executable, "-I", "-S", str(ROOT / "rebalance" / "hosting" / "watchdog_process.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as dog:
        assert dog.stdin is not None
        assert dog.stdout is not None
        dog.stdin.write(b"until 0\nguard %d 12345\n" % other.pid)
        dog.stdin.flush()
        assert dog.stdout.readline().startswith(b"done")
        dog.stdin.close()
        assert dog.wait(WAIT_S) == 0
    assert other.poll() is None


async def test_a_watchdog_that_ends_is_replaced(sleeper) -> None:
    """Replace a watchdog that ends: its guarded processes run on, and the next one keeps their deadline."""
    guarded = sleeper()
    async with watchdog() as dog:
        await dog.guard(guarded.pid)
        (first,) = dogs()
        first.kill()
        await until(lambda: [process.pid for process in dogs()] not in ([], [first.pid]))
        # Heard by the next one: it has taken over what was guarded.
        await dog.guard(sleeper().pid)
        assert guarded.poll() is None
        dog.until(boottime_ns() - 1)
        await until(lambda: guarded.poll() is not None)


async def test_a_watchdog_that_hangs_is_replaced(sleeper) -> None:
    guarded = sleeper()
    async with watchdog() as dog:
        (first,) = dogs()
        first.suspend()
        await dog.guard(guarded.pid)
        assert first.pid not in [process.pid for process in dogs()]
        assert guarded.poll() is None


async def test_what_no_watchdog_guards_is_ended(sleeper) -> None:
    guarded = sleeper()
    dog = Watchdog(python="/nonexistent/python")
    dog.until(boottime_ns() + LONG_NS)
    task = asyncio.create_task(dog.run())
    try:
        with pytest.raises(WatchLostError, match="no watchdog has taken process"):
            await dog.guard(guarded.pid)
        assert guarded.poll() is not None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await dog.close()


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
async def test_nobody_waits_for_a_watchdog_that_cannot_be_started(sleeper, python: str) -> None:
    """Each start of a member would take its place for seconds; the reason is told instead."""
    dog = Watchdog(python=python)
    dog.until(boottime_ns() + LONG_NS)
    task = asyncio.create_task(dog.run())
    try:
        with pytest.raises(WatchLostError):
            await dog.guard(sleeper().pid)
        begun = time.monotonic()
        for _ in range(10):
            with pytest.raises(WatchLostError, match=r"over: it (cannot be started|ended at its start)"):
                await dog.guard(sleeper().pid)
        assert time.monotonic() - begun < 4.0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await dog.close()


async def test_signals_that_stop_a_service_do_not_end_it(sleeper) -> None:
    guarded = sleeper()
    async with watchdog() as dog:
        (process,) = dogs()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        await dog.guard(guarded.pid)
        assert [each.pid for each in dogs()] == [process.pid]


async def test_it_is_small() -> None:
    async with watchdog():
        (process,) = dogs()
        size = process.memory_info().rss
        print(f"{size / 1e6:.1f} MB")
        assert size < 15e6


AGENT = """
import asyncio, subprocess, sys
from rebalance.hosting.watchdog import Watchdog, boottime_ns

async def main():
    dog = Watchdog()
    dog.until(boottime_ns() + int(float(sys.argv[1]) * 1e9))
    task = asyncio.create_task(dog.run())
    member = subprocess.Popen(["sleep", "600"])
    await dog.guard(member.pid)
    print(f"member {member.pid}", flush=True)
    await task

asyncio.run(main())
"""


@pytest.mark.thorough("test_fence stops and kills agents")
@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGSTOP, 2.0), (signal.SIGKILL, 600.0)])
async def test_whoever_asked_is_stopped_or_dead(number: signal.Signals, seconds: float) -> None:
    """Stop or kill the agent: stopped, it keeps no member alive past its deadline; dead, none at all."""
    command = [sys.executable, "-c", AGENT, str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as agent:
        try:
            assert agent.stdout is not None
            words = next(line for line in agent.stdout if line.startswith(b"member ")).split()
            member = psutil.Process(int(words[1]))
            (dog,) = dogs(agent.pid)
            agent.send_signal(number)
            await until(lambda: not member.is_running() or member.status() == psutil.STATUS_ZOMBIE)
            agent.kill()
            await until(lambda: not dog.is_running())
        finally:
            agent.kill()
