"""The keyed queue: one task a key, no lost wake-up, failures that do not stop others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from rebalance.nodes.work_queue import KeyedQueue


@asynccontextmanager
async def working(handler: Callable[[str], Awaitable[float | None]], concurrency: int = 2):
    queue = KeyedQueue[str](handler, concurrency)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_additions_are_merged_and_none_is_lost() -> None:
    """S095: Ten additions before the start are one round; one during a round is one more."""
    rounds: Counter[str] = Counter()
    gate = asyncio.Event()

    async def handle(key: str) -> None:
        rounds[key] += 1
        await gate.wait()

    async with working(handle) as queue:
        for _ in range(10):
            queue.add("a")
        await until(lambda: rounds["a"] > 0)
        for _ in range(10):
            queue.add("a")
        assert rounds["a"] == 1
        gate.set()
        await until(lambda: len(queue) == 0)
        assert rounds["a"] == 2


async def test_a_key_is_never_worked_on_twice_at_once() -> None:
    """S117: bounded concurrency over keys, none within a key, so start and stop never overlap."""
    running: Counter[str] = Counter()
    most = 0

    async def handle(key: str) -> float | None:
        nonlocal most
        running[key] += 1
        assert running[key] == 1
        most = max(most, sum(running.values()))
        await asyncio.sleep(0.001)
        running[key] -= 1
        return 0.001

    async with working(handle, 3) as queue:
        for number in range(9):
            queue.add(f"k{number}")
        await until(lambda: most >= 3)
        await asyncio.sleep(0.1)
    assert most == 3


async def test_a_failing_key_is_repeated_and_others_go_on() -> None:
    """S094, I3-054: retries do not hold up the rest."""
    rounds: Counter[str] = Counter()
    rounds_before_retries = 0

    async def handle(key: str) -> float | None:
        nonlocal rounds_before_retries
        if key == "bad" and rounds[key] == 1:
            rounds_before_retries = rounds.total()
        rounds[key] += 1
        if key == "bad" and rounds[key] < 3:
            raise RuntimeError("as planned")
        return None

    async with working(handle) as queue:
        queue.add("bad")
        for number in range(100):
            queue.add(f"k{number}")
        await until(lambda: len(queue) == 0)
    assert rounds == Counter({"bad": 3} | {f"k{number}": 1 for number in range(100)})
    assert rounds_before_retries == 101


async def test_an_earlier_date_wins() -> None:
    """A key that sleeps is woken by an addition."""
    rounds: Counter[str] = Counter()

    async def handle(key: str) -> float | None:
        rounds[key] += 1
        return 60.0

    async with working(handle) as queue:
        queue.add("a", 30.0)
        queue.add("a")
        await until(lambda: rounds["a"] > 0)
        # Until the round is over: what is added during it comes with its date.
        await asyncio.sleep(0.01)
        queue.add("a", 30.0)
        queue.add("a", 0.01)
        await until(lambda: rounds["a"] > 1)
        await asyncio.sleep(0.05)
    assert rounds["a"] == 2
