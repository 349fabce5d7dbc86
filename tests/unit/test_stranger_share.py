"""Strangers have a share of the event loop's time, and their addresses have it in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rebalance.hosting.client_connections import SAVED_S, SHARE, StrangerShare

LIMIT_S = 60.0
COST_S = 2 * SAVED_S


class Times:
    """Two clocks of a share; ``work(who)``: an act that takes ``COST_S`` of the processor."""

    def __init__(self) -> None:
        self.now_s = self.processor_s = 0.0
        self.done: list[str] = []

    def share(self) -> StrangerShare:
        return StrangerShare(clock=lambda: self.now_s, processor=lambda: self.processor_s)

    def work(self, who: str) -> Callable[[], None]:
        def act() -> None:
            self.processor_s += COST_S
            self.done.append(who)

        return act

    async def until(self, count: int) -> None:
        """Time goes on, by what one piece of work has to wait for, until so many are done."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.done) < count:
                self.now_s += COST_S / SHARE
                before = len(self.done)
                while len(self.done) == before:
                    await asyncio.sleep(0.001)


async def test_who_comes_alone_waits_for_nobody() -> None:
    times = Times()
    share = times.share()
    assert share.ask("192.0.2.1", times.work("a")).is_over
    assert times.done == ["a"]


async def test_together_they_have_a_share_of_the_time() -> None:
    times = Times()
    share = times.share()
    for number in range(6):
        share.ask(f"192.0.2.{number}", times.work(str(number)))
    assert len(times.done) == 1
    await times.until(6)
    assert times.processor_s <= SAVED_S + SHARE * times.now_s + COST_S
    assert share.waiting == 0


async def test_addresses_have_turns_and_not_connections() -> None:
    """An address that comes later, with little, is next; also behind one that had its turns alone before."""
    times = Times()
    share = times.share()
    for _ in range(5):
        share.ask("192.0.2.1", times.work("many"))
    await times.until(2)
    share.ask("192.0.2.2", times.work("other"))
    share.ask("2001:db8::1", times.work("third"))
    share.ask("2001:db8::2", times.work("third"))
    await times.until(8)
    assert set(times.done[2:4]) | {"many"} == {"many", "other", "third"}
    assert times.done.index("other") < 5
    assert [who for who in times.done if who != "other"][-1] == "many"


async def test_what_follows_is_charged_too() -> None:
    times = Times()
    share = times.share()
    assert share.ask("192.0.2.1", lambda: None, COST_S).is_over
    assert not share.ask("192.0.2.2", times.work("next")).is_over
    await times.until(1)


async def test_what_nobody_wants_any_more_costs_nothing() -> None:
    times = Times()
    share = times.share()
    share.ask("192.0.2.1", times.work("first"))
    gone = [share.ask("192.0.2.1", times.work("gone"), COST_S) for _ in range(50)]
    share.ask("192.0.2.1", times.work("last"))
    for turn in gone:
        turn.forget()
    await times.until(2)
    assert times.done == ["first", "last"]
    assert times.now_s <= 2 * COST_S / SHARE


async def test_a_failure_of_one_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    share = times.share()
    share.ask("192.0.2.1", times.work("first"))

    def fail() -> None:
        raise ValueError("of this one")

    share.ask("192.0.2.1", fail)
    share.ask("192.0.2.1", times.work("last"))
    await times.until(2)
    assert times.done == ["first", "last"]
    assert "of this one" in caplog.text
