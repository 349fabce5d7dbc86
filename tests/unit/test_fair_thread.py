"""A thread works for the sender that has had the least of its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from weakref import WeakSet

import pytest

from rebalance.hosting.fair_queue import REMEMBERED, FairQueue, FairThread

LIMIT_S = 60.0


def order(queue: FairQueue[str], costs: dict[str, float], count: int) -> list[str]:
    taken = []
    for _ in range(count):
        one = queue.take()
        assert one is not None
        sender, work = one
        queue.spent(sender, costs[work[0]])
        taken.append(work)
    return taken


def test_turns_are_of_time_and_not_of_pieces() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(10):
        queue.put("a", f"a{number}")
        queue.put("b", f"b{number}")
    taken = order(queue, {"a": 1.0, "b": 3.0}, 12)
    assert [work for work in taken if work[0] == "a"] == [f"a{number}" for number in range(9)]
    assert [work for work in taken if work[0] == "b"] == ["b0", "b1", "b2"]


def test_who_comes_anew_is_next_and_has_saved_nothing() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(20):
        queue.put("a", f"a{number}")
    order(queue, {"a": 1.0}, 10)
    for number in range(10):
        queue.put("b", f"b{number}")
    taken = order(queue, {"a": 1.0, "b": 1.0}, 6)
    assert [work[0] for work in taken].count("b") == 3
    assert "b0" in taken[:2]


def test_who_has_gone_is_forgotten() -> None:
    """Time that an address has had is not remembered for ever, however many addresses come, one after the other
    or at once; that of those who have had the most is."""

    class Sender:
        """Address that can be seen to be forgotten."""

    for at_once in (1, 5 * REMEMBERED):
        queue: FairQueue[str] = FairQueue()
        heavy, senders = Sender(), WeakSet[Sender]()
        queue.put(heavy, "heavy")
        order(queue, {"h": 100.0}, 1)
        for _ in range(5 * REMEMBERED // at_once):
            for _ in range(at_once):
                sender = Sender()
                senders.add(sender)
                queue.put(sender, "x")
            order(queue, {"x": 1.0}, at_once)
        del sender
        assert queue.take() is None
        assert len(senders) <= REMEMBERED + 1
        queue.put(heavy, "heavy")
        queue.put(Sender(), "new")
        assert order(queue, {"h": 1.0, "n": 1.0}, 2) == ["new", "heavy"]


async def test_much_of_one_sender_leaves_room_for_another() -> None:
    thread, release = FairThread("test"), threading.Event()
    ended: list[str] = []
    work: Callable[[str], None] = ended.append
    busy = asyncio.ensure_future(thread.run("mallory", release.wait, LIMIT_S))
    many = [asyncio.ensure_future(thread.run("mallory", work, "mallory")) for _ in range(50)]
    other = asyncio.ensure_future(thread.run("anna", work, "anna"))
    last = asyncio.ensure_future(thread.last(lambda: ended.append("last")))
    await asyncio.sleep(0)
    many[0].cancel()
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(busy, other, last, *many[1:])
    assert ended == ["anna", *["mallory"] * 49, "last"]
    thread.close(wait=True)


async def test_what_fails_says_so_and_what_is_given_up_is_cancelled() -> None:
    thread, begun, release = FairThread("test"), threading.Event(), threading.Event()

    def fail() -> None:
        raise ValueError("of this one")

    def wait() -> bool:
        begun.set()
        return release.wait(LIMIT_S)

    with pytest.raises(ValueError, match="of this one"):
        await thread.run("anna", fail)
    busy = asyncio.ensure_future(thread.run("anna", wait))
    waiting = asyncio.ensure_future(thread.run("anna", fail))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    thread.close(wait=False)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert await busy
