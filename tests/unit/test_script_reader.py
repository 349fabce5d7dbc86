"""Reading happens in threads of its own, and ends with the caller that waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.sql.statements.script_reader import LONG_CHARS, ScriptReader, to_the_end
from catalog.core.errors import ErrorKind, ParseError
from parser.text import ReadingStoppedError, ScriptLimits, StopFlag

LATE_S = 60.0


async def test_whoever_is_cancelled_stops_the_reading() -> None:
    reader, begun, stopped = ScriptReader(), threading.Event(), threading.Event()
    over = threading.Event()

    def endless(stop: StopFlag) -> None:
        begun.set()
        try:
            # Not for ever: a thread that nobody stops would keep the tests' process.
            while not over.wait(0.001):
                stop.check()
        except ReadingStoppedError:
            stopped.set()
            raise

    reading = asyncio.create_task(reader.run(1, endless))
    try:
        assert await asyncio.to_thread(begun.wait, LATE_S)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await asyncio.to_thread(stopped.wait, LATE_S)
    finally:
        over.set()
        reader.close()


async def test_long_texts_leave_a_thread_to_short_ones() -> None:
    reader, release = ScriptReader(), threading.Event()
    long = [asyncio.create_task(reader.run(LONG_CHARS + 1, lambda _: release.wait(LATE_S))) for _ in range(5)]
    async with asyncio.timeout(LATE_S):
        for _ in range(3):
            assert (await reader.statement("SHOW ZONES")).source == "SHOW ZONES"
    assert not any(each.done() for each in long)
    release.set()
    assert await asyncio.gather(*long) == [True] * 5
    reader.close()


async def test_a_text_beyond_the_limit_takes_no_thread() -> None:
    reader = ScriptReader(ScriptLimits(text_bytes_max=10))
    with pytest.raises(ParseError) as refused:
        await reader.script("SHOW ZONES;")
    assert refused.value.kind is ErrorKind.TEXT_TOO_LARGE
    reader.close()


async def test_what_has_begun_to_change_something_comes_to_its_end() -> None:
    release = asyncio.Event()

    async def committing() -> str:
        await release.wait()
        return "committed"

    task = asyncio.create_task(to_the_end(asyncio.ensure_future(committing())))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    assert await task == "committed"
