"""Background tasks that end are errors: logged, told, and started again; in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from rebalance.core.keyspace.records import Trouble
from rebalance.hosting.background import RESTART, STEADY_S, Background, cancellation_kept
from simulator.control.virtual_time import run_virtually

LIMIT_S = 10.0


class GivenUpError(Exception):
    """Failure that a process is to end for."""


class Flaky:
    """Ends ``ends`` times, each ``after_s`` after its start, and then runs on."""

    def __init__(self, ends: int, after_s: float = 0.0, error: Exception | None = None) -> None:
        self.starts: list[float] = []
        self._ends = ends
        self._after_s = after_s
        self._error = error

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        if len(self.starts) > self._ends:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self._after_s)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [ValueError("broken\nin two lines"), None], ids=["raises", "returns"])
def test_a_task_that_ends_is_told_and_started_again(error: Exception | None) -> None:
    flaky, background = Flaky(3, error=error), Background()
    cause = "ValueError: broken" if error else "it returned"

    async def main() -> None:
        kept = asyncio.create_task(background.keep("mirror", flaky.run))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert background.troubles() == (Trouble("mirror", 1, cause, runs=False),)
        await asyncio.sleep(10 * RESTART.first_s)
        assert len(flaky.starts) == 4
        assert background.troubles() == (Trouble("mirror", 3, cause, runs=True),)
        await asyncio.sleep(STEADY_S)
        assert background.troubles() == ()
        assert background.tasks == 1
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)
        assert kept.cancelled()
        assert background.tasks == 0

    with capture_logs() as lines:
        run_virtually(main())
    ended = [line for line in lines if line["event"] == "background task ended"]
    assert [(line["log_level"], line["task"], line["error"]) for line in ended] == [
        ("error", "mirror", cause)
    ] * 3


def test_two_thousand_ends_are_two_thousand_starts() -> None:
    """Long past the point where a power of two overflows; the pauses stay at their bound."""
    flaky, background = Flaky(2_000, error=RuntimeError("again")), Background()

    async def main() -> None:
        kept = asyncio.create_task(background.keep("spark", flaky.run))
        while len(flaky.starts) <= 2_000:
            await asyncio.sleep(60.0)
        kept.cancel()

    with capture_logs():
        run_virtually(main())
    pauses = [later - before for before, later in zip(flaky.starts, flaky.starts[1:], strict=False)]
    assert max(pauses) <= RESTART.most_s
    assert min(pauses[10:]) >= RESTART.most_s * (1 - RESTART.jitter) - 1e-6


def test_a_task_that_ran_for_long_is_back_soon() -> None:
    flaky, background = Flaky(30, after_s=2 * STEADY_S, error=RuntimeError("now and then")), Background()

    async def main() -> None:
        kept = asyncio.create_task(background.keep("mirror", flaky.run))
        while len(flaky.starts) <= 30:
            await asyncio.sleep(60.0)
        kept.cancel()

    with capture_logs():
        run_virtually(main())
    pauses = [later - before for before, later in zip(flaky.starts, flaky.starts[1:], strict=False)]
    assert max(pauses) <= 2 * STEADY_S + RESTART.first_s


def test_a_final_error_ends_it() -> None:
    background = Background()
    with pytest.raises(GivenUpError):
        run_virtually(
            background.keep("registration", Flaky(1, error=GivenUpError()).run, final=(GivenUpError,))
        )
    assert background.tasks == 0


@pytest.mark.parametrize("error", [ValueError("broken"), None])
def test_without_restarts_an_end_is_raised(error: Exception | None) -> None:
    background = Background(restarts=False)
    with pytest.raises(type(error) if error else RuntimeError):
        run_virtually(background.keep("mirror", Flaky(1, error=error).run))


def test_an_end_of_one_leaves_the_others_alone() -> None:
    bad, good, background = Flaky(10**6, error=KeyError("x")), Flaky(0), Background()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, flaky in (("bad", bad), ("good", good)):
                tasks.create_task(background.keep(name, flaky.run))
            await asyncio.sleep(600.0)
            assert [trouble.task for trouble in background.troubles()] == ["bad"]
            raise GivenUpError

    with capture_logs(), pytest.raises(ExceptionGroup) as caught:
        run_virtually(main())
    assert caught.group_contains(GivenUpError)
    assert len(bad.starts) > 10
    assert len(good.starts) == 1


def test_a_defect_is_counted_and_logged_as_an_error() -> None:
    background = Background()
    with capture_logs() as lines:
        run_virtually(background.attempt("console warm-up", Flaky(1, error=TypeError("no")).run))
    assert background.defects == 1
    assert background.last_defect == "console warm-up: TypeError: no"
    assert [(line["event"], line["log_level"]) for line in lines] == [("defect", "error")]


def test_what_waits_for_somebody_is_told_until_it_goes_on() -> None:
    """A task that waits is no task that ended, and nothing starts it again."""
    background = Background()

    async def main() -> None:
        background.hold("start", "STORE_DAMAGED: a file")
        background.hold("start", "STORE_DAMAGED: another file")
        await asyncio.sleep(10 * STEADY_S)
        assert background.troubles() == (Trouble("start", 0, "STORE_DAMAGED: another file", runs=False),)
        background.hold("start", "")
        assert background.troubles() == ()

    run_virtually(main())


@pytest.mark.parametrize("error", [None, ConnectionError("lost")], ids=["it returns", "it fails"])
async def test_a_cancellation_that_a_call_swallows_ends_the_task(error: Exception | None) -> None:
    begun = asyncio.Event()

    async def call() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LIMIT_S)
        if error is not None:
            raise error

    async def work() -> None:
        while True:
            with suppress(ConnectionError), cancellation_kept():
                await asyncio.create_task(call())

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=LIMIT_S / 2)
    assert task.cancelled()
