"""A queue of keys, not of events: a key that is added ten times is worked on once, by one task at a time.

Level-triggered: the handler looks at the present state of its key. It returns after how many seconds it wants
to see the key again (None: when somebody adds it). A handler that raises is tried again with a growing delay;
other keys go on meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

FAILURE_DELAY_S = 0.2
FAILURE_DELAY_MAX_S = 2.0


@dataclass(slots=True)
class _Entry:
    due: float
    ticket: int
    running: bool = False
    again: bool = False
    failures: int = 0


class KeyedQueue(Generic[K]):
    """``run`` works until it is cancelled; at most ``concurrency`` keys at a time."""

    def __init__(self, handler: Callable[[K], Awaitable[float | None]], concurrency: int) -> None:
        self._handler = handler
        self._slots = asyncio.Semaphore(concurrency)
        self._entries: dict[K, _Entry] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._tickets = itertools.count()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Work on ``key`` after ``delay_s`` at the latest; an earlier date that is set already stays."""
        entry = self._entries.get(key)
        if entry is not None and entry.running:
            entry.again = entry.again or delay_s <= 0.0
            return
        due = asyncio.get_running_loop().time() + delay_s
        if entry is not None and entry.due <= due:
            return
        failures = entry.failures if entry else 0
        self._schedule(key, _Entry(due, next(self._tickets), failures=failures))

    def __len__(self) -> int:
        """Keys that are waiting for a date or being worked on."""
        return len(self._entries)

    async def run(self) -> None:
        try:
            while True:
                key = await self._next()
                await self._slots.acquire()
                task = asyncio.create_task(self._work(key), name=f"work {key}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> K:
        """The next key that is due, marked as running."""
        loop = asyncio.get_running_loop()
        while True:
            while self._heap and self._is_outdated(self._heap[0]):
                heapq.heappop(self._heap)
            wait_s = self._heap[0][0] - loop.time() if self._heap else None
            if wait_s is not None and wait_s <= 0:
                key = heapq.heappop(self._heap)[2]
                self._entries[key].running = True
                return key
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _work(self, key: K) -> None:
        entry = self._entries[key]
        delay_s: float | None
        try:
            delay_s = await self._handler(key)
            entry.failures = 0
        except Exception as error:  # the level stays as it is: look again later, whatever went wrong
            delay_s = min(FAILURE_DELAY_S * 2**entry.failures, FAILURE_DELAY_MAX_S)
            entry.failures = min(entry.failures + 1, 16)
            log.info("work failed, tried again", key=str(key), error=repr(error), delay_s=delay_s)
        finally:
            self._slots.release()
        if entry.again:
            delay_s = min(delay_s, FAILURE_DELAY_S) if entry.failures and delay_s is not None else 0.0
        if delay_s is None:
            del self._entries[key]
            return
        due = asyncio.get_running_loop().time() + delay_s
        self._schedule(key, _Entry(due, next(self._tickets), failures=entry.failures))

    def _schedule(self, key: K, entry: _Entry) -> None:
        self._entries[key] = entry
        heapq.heappush(self._heap, (entry.due, entry.ticket, key))
        self._wake.set()

    def _is_outdated(self, item: tuple[float, int, K]) -> bool:
        entry = self._entries.get(item[2])
        return entry is None or entry.running or entry.ticket != item[1]
