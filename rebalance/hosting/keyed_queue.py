"""A queue of keys, not of events: a key is in it once, with one date, and is worked on by one worker at a time.

Level-triggered: a worker looks at the present state of its key. What is added while the key is worked on comes
up afterwards. A key that fails comes up again after a ``Backoff``; an addition meanwhile brings that date
forward, but never makes a second one, and no nearer to the failure than the first pause: what is added all the
time is not tried all the time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rebalance.core.backoff import Backoff

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Entry:
    """``since``: when the key was first wanted after it last had nothing to do. ``again``: wanted, for that
    date, while it is worked on. ``not_before``: after a failure."""

    due: float
    ticket: int
    since: float
    retry: Backoff
    not_before: float = 0.0
    running: bool = False
    again: float | None = None


class KeyedQueue(Generic[K]):
    """``take`` keys, and say of each how it ended: ``done`` or ``failed``. Times are the event loop's."""

    def __init__(self, retry: Backoff, chance: random.Random) -> None:
        self._retry = retry
        self._chance = chance
        self._entries: dict[K, _Entry] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._tickets = itertools.count()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Keys that are waiting for a date or being worked on."""
        return len(self._entries)

    @property
    def timers(self) -> int:
        """Dates that are set: never more than keys."""
        return sum(not self._is_outdated(item) for item in self._heap)

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Work on ``key`` after ``delay_s`` at the latest; an earlier date that is set already stays."""
        now = asyncio.get_running_loop().time()
        due = now + delay_s
        entry = self._entries.get(key)
        if entry is None:
            self._schedule(key, _Entry(due, 0, now, self._retry), due)
        elif entry.running:
            entry.again = due if entry.again is None else min(entry.again, due)
        elif max(due, entry.not_before) < entry.due:
            self._schedule(key, entry, max(due, entry.not_before))

    async def take(self, most: int | None = None) -> tuple[K, ...]:
        """Waits for keys that are due, and takes them in the order of their dates."""
        loop = asyncio.get_running_loop()
        while True:
            taken: list[K] = []
            while self._heap and (most is None or len(taken) < most):
                if self._is_outdated(self._heap[0]):
                    heapq.heappop(self._heap)
                elif self._heap[0][0] <= loop.time():
                    key = heapq.heappop(self._heap)[2]
                    self._entries[key].running = True
                    taken.append(key)
                else:
                    break
            if taken:
                return tuple(taken)
            self._wake.clear()
            alarm = loop.call_at(self._heap[0][0], self._wake.set) if self._heap else None
            try:
                await self._wake.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()

    def done(self, key: K, again_s: float | None = None) -> None:
        """Note that the work on a key did not fail. ``again_s``: the key wants to come up again by then; None:
        when it is added."""
        entry, now = self._entries[key], asyncio.get_running_loop().time()
        dates = [date for date in (entry.again, None if again_s is None else now + again_s) if date is not None]
        if not dates:
            del self._entries[key]
            return
        due = min(dates)
        self._schedule(key, _Entry(due, 0, now, self._retry), due)

    def failed(self, key: K) -> float:
        """The key comes up again after a delay that grows with each failure in a row; returns it (seconds)."""
        entry, now = self._entries[key], asyncio.get_running_loop().time()
        entry.retry = entry.retry.failed()
        delay_s = entry.retry.delay_s(self._chance.random())
        entry.not_before = now + min(delay_s, entry.retry.first_s)
        due = now + delay_s
        if entry.again is not None:
            due = min(due, max(entry.again, entry.not_before))
        self._schedule(key, entry, due)
        return due - now

    def give_back(self) -> None:
        """Make the taken keys due again at once, as their worker is gone."""
        now = asyncio.get_running_loop().time()
        for key, entry in self._entries.items():
            if entry.running:
                self._schedule(key, entry, now)

    def longest_wait(self) -> tuple[K, float] | None:
        """The key that has failed, or was due and not taken, for the longest time, and since when it was
        wanted; None: there is none."""
        now = asyncio.get_running_loop().time()
        late = [
            (entry.since, entry.ticket, key)
            for key, entry in self._entries.items()
            if entry.retry.has_failed or entry.running or entry.due <= now
        ]
        if not late:
            return None
        since, _, key = min(late, key=lambda item: item[:2])
        return key, since

    def _schedule(self, key: K, entry: _Entry, due: float) -> None:
        """Schedule an entry in place of the date that was set."""
        entry.due, entry.ticket, entry.running, entry.again = due, next(self._tickets), False, None
        self._entries[key] = entry
        heapq.heappush(self._heap, (due, entry.ticket, key))
        if self._heap[0][1] == entry.ticket:
            # Nothing else is due as soon.
            self._wake.set()

    def _is_outdated(self, item: tuple[float, int, K]) -> bool:
        entry = self._entries.get(item[2])
        return entry is None or entry.running or entry.ticket != item[1]


async def work_each(
    queue: KeyedQueue[K],
    handler: Callable[[K], Awaitable[float | None]],
    concurrency: int,
    on_error: Callable[[K, Exception, float], None],
) -> None:
    """Work until cancelled: each key in a task of its own, at most ``concurrency`` at a time.

    The handler returns after how many seconds it wants to see the key again; None: when somebody adds it.
    ``on_error`` hears what it raised, and in how many seconds it is tried again; other keys go on meanwhile.
    """
    slots = asyncio.Semaphore(concurrency)
    tasks: set[asyncio.Task[None]] = set()

    async def work(key: K) -> None:
        try:
            again_s = await handler(key)
        except Exception as error:  # the level stays as it is: look again later, whatever went wrong
            on_error(key, error, queue.failed(key))
        else:
            queue.done(key, again_s)
        finally:
            slots.release()

    try:
        while True:
            await slots.acquire()
            (key,) = await queue.take(1)
            task = asyncio.create_task(work(key), name=f"work {key}")
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        queue.give_back()
