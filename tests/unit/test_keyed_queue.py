"""The keyed queue: one task a key, no lost wake-up, failures that do not stop others."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.backoff import Backoff
from rebalance.hosting.keyed_queue import KeyedQueue, work_each
from simulator.control.virtual_time import run_virtually

RETRY = Backoff(0.2, 10.0)


def new_queue() -> KeyedQueue[str]:
    return KeyedQueue[str](RETRY, random.Random(1))


@asynccontextmanager
async def working(handler: Callable[[str], Awaitable[float | None]], concurrency: int = 2):
    queue = new_queue()
    task = asyncio.create_task(work_each(queue, handler, concurrency, lambda *_: None))
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


def test_a_failing_key_is_repeated_and_others_go_on() -> None:
    """S094: retries do not hold up the rest."""
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

    async def main() -> None:
        async with working(handle) as queue:
            queue.add("bad")
            for number in range(100):
                queue.add(f"k{number}")
            await until(lambda: len(queue) == 0)

    run_virtually(main())
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


def now() -> float:
    return asyncio.get_running_loop().time()


def test_two_thousand_failures_in_a_row() -> None:
    """Long after a power of two of them would overflow, the key is tried as often as its backoff says."""

    async def main() -> list[float]:
        queue, at = new_queue(), []
        queue.add("bad")
        for _ in range(2_000):
            (key,) = await queue.take()
            at.append(now())
            queue.failed(key)
        return at

    at = run_virtually(main())
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert 0.8 * 0.2 <= pauses[0] <= 0.2
    assert all(8.0 - 1e-6 <= each <= 10.0 + 1e-6 for each in pauses[10:])


@pytest.mark.parametrize("resync_s", [30.0, 1.0])
def test_what_is_added_again_and_again_has_one_timer(resync_s: float) -> None:
    """A resync brings a failing key forward, and leaves no second chain of retries behind."""

    async def main() -> int:
        queue, attempts, end = new_queue(), 0, 600.0
        queue.add("bad")

        async def resync() -> None:
            while True:
                await asyncio.sleep(resync_s)
                queue.add("bad")
                assert queue.timers + bool(attempts) <= 2

        resyncing = asyncio.create_task(resync())
        while now() < end:
            for key in await queue.take():
                attempts += 1
                queue.failed(key)
                assert queue.timers == 1
        resyncing.cancel()
        return attempts

    attempts = run_virtually(main())
    # Seven to eight a minute by itself once the pauses are long, and one a resync.
    assert attempts <= 10 * 8 + 600 / resync_s + 10


def test_a_key_that_is_written_all_the_time_is_not_tried_all_the_time() -> None:
    async def main() -> int:
        queue, attempts = new_queue(), 0

        async def write() -> None:
            while True:
                await asyncio.sleep(0.001)
                queue.add("bad")

        writing = asyncio.create_task(write())
        while now() < 60.0:
            for key in await queue.take():
                attempts += 1
                queue.failed(key)
        writing.cancel()
        return attempts

    assert 60 / 0.21 <= run_virtually(main()) <= 60 / 0.16 + 1


def test_what_is_wanted_during_a_failing_round_comes_up_once() -> None:
    async def main() -> list[float]:
        queue, at = new_queue(), []
        queue.add("bad")
        for _ in range(6):
            (key,) = await queue.take()
            at.append(now())
            for _ in range(5):
                queue.add(key)
            queue.failed(key)
        queue.add("bad")
        await queue.take()
        queue.done("bad")
        assert len(queue) == queue.timers == 0
        return at

    at = run_virtually(main())
    assert all(later - earlier <= 0.2 + 1e-6 for earlier, later in itertools.pairwise(at))


def test_a_success_forgets_the_failures() -> None:
    async def main() -> tuple[float, float]:
        queue = new_queue()
        queue.add("k")
        for _ in range(50):
            await queue.take()
            late_s = queue.failed("k")
        await queue.take()
        queue.done("k")
        queue.add("k")
        await queue.take()
        return late_s, queue.failed("k")

    late_s, first_s = run_virtually(main())
    assert late_s >= 8.0
    assert first_s <= 0.2


def test_what_was_taken_is_given_back() -> None:
    """Another worker takes the keys of one that is gone."""

    async def main() -> None:
        queue = new_queue()
        for key in "abc":
            queue.add(key)
        assert sorted(await queue.take()) == ["a", "b", "c"]
        queue.done("a")
        queue.give_back()
        assert sorted(await queue.take()) == ["b", "c"]

    run_virtually(main())


def test_the_longest_wait_is_that_of_the_key_that_fails() -> None:
    async def main() -> None:
        queue = new_queue()
        queue.add("rests", 1_000.0)
        assert queue.longest_wait() is None
        queue.add("bad")
        while now() < 100.0:
            queue.failed(*await queue.take())
        queue.add("new")
        assert queue.longest_wait() == ("bad", 0.0)
        await asyncio.sleep(20.0)
        for key in await queue.take():
            queue.done(key)
        assert queue.longest_wait() is None

    run_virtually(main())


STEP = st.tuples(
    st.sampled_from(["add", "later", "done", "failed", "again", "give back"]), st.sampled_from("ab")
)


@given(st.lists(STEP, max_size=60))
def test_one_timer_a_key_and_none_is_lost(steps: list[tuple[str, str]]) -> None:
    """A key that is wanted is in the queue once, and comes up, whatever is done with it."""

    async def main() -> None:
        queue, running, wanted = new_queue(), set[str](), set[str]()
        for step, key in steps:
            if step in ("add", "later"):
                queue.add(key, 5.0 if step == "later" else 0.0)
                wanted.add(key)
            elif step == "give back":
                queue.give_back()
                wanted |= running
                running.clear()
            elif key in running:
                running.discard(key)
                if step == "done":
                    queue.done(key)
                elif step == "failed":
                    queue.failed(key)
                    wanted.add(key)
                else:
                    queue.done(key, 3.0)
                    wanted.add(key)
            elif wanted - running:
                taken = await queue.take()
                assert not running & set(taken)
                running |= set(taken)
                wanted -= set(taken)
            assert len(queue) == len(wanted | running)
            assert queue.timers == len(wanted - running)
        for key in running:
            queue.done(key)
        while wanted:
            taken = await queue.take()
            assert set(taken) <= wanted
            wanted -= set(taken)
            for key in taken:
                queue.done(key)
        assert queue.timers == 0

    run_virtually(main())
