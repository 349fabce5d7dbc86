"""Work of many senders, in the order of what each has had: who has had the least is next.

What a sender has had is counted from where the one stood whose turn was last: nobody saves turns up by asking
for nothing, and who comes anew is next. Of one sender, work is done in its order. ``FairThread`` is a thread
that works by this order, and counts its processor time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import nlargest
from typing import Any, Generic, TypeVar

REMEMBERED = 1_000
"""Senders that wait for nothing, of which is remembered what they have had."""

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._level_s = 0.0
        self._had_s: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, sender: Hashable, work: T) -> None:
        if sender not in self._waiting:
            self._waiting[sender] = deque()
            self._had_s[sender] = max(self._had_s.get(sender, 0.0), self._level_s)
        self._waiting[sender].append(work)

    def take(self) -> tuple[Hashable, T] | None:
        """``spent`` is to be told what it took, before the next one is taken. None: nothing waits."""
        if not self._waiting:
            return None
        sender = min(self._waiting, key=self._had_s.__getitem__)
        waiting = self._waiting[sender]
        work = waiting.popleft()
        if not waiting:
            del self._waiting[sender]
        self._level_s = self._had_s[sender]
        return sender, work

    def spent(self, sender: Hashable, seconds: float) -> None:
        self._had_s[sender] += seconds
        if len(self._had_s) > REMEMBERED + 2 * len(self._waiting):
            idle = (one for one in self._had_s if one not in self._waiting)
            # Half, so that few calls sort; those that have had the most would gain most by being forgotten.
            kept = nlargest(REMEMBERED // 2, idle, key=self._had_s.__getitem__)
            self._had_s = {one: self._had_s[one] for one in (*self._waiting, *kept)}


class FairThread:
    """One thread that takes the senders' work in turns; what has begun is never interrupted, so long work is
    submitted in pieces."""

    def __init__(self, name: str) -> None:
        """``processor``: seconds that the thread has had of one."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._queue: FairQueue[tuple[Future[Any], Callable[[], Any]]] = FairQueue()

    async def run(self, sender: Hashable, function: Callable[..., T], *arguments: object) -> T:
        """Return or raise what ``function`` does. Whoever is cancelled before it begins takes it back."""
        return await asyncio.wrap_future(self.submit(sender, function, *arguments))

    def submit(self, sender: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(sender, (future, partial(function, *arguments)))
        self._thread.submit(self._next)
        return future

    async def last(self, function: Callable[[], T]) -> T:
        """Run a function behind all that was asked for before."""
        return await asyncio.wrap_future(self._thread.submit(function))

    def close(self, *, wait: bool) -> None:
        """``wait``: until all is done; else what has not begun is given up."""
        while not wait and (taken := self._taken()) is not None:
            taken[1].cancel()
        self._thread.shutdown(wait=wait)

    def _taken(self) -> tuple[Hashable, Future[Any], Callable[[], Any]] | None:
        with self._lock:
            taken = self._queue.take()
        return None if taken is None else (taken[0], *taken[1])

    def _next(self) -> None:
        taken = self._taken()
        if taken is None:
            return
        sender, future, work = taken
        if not future.set_running_or_notify_cancel():
            return
        begun_s = time.thread_time()
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            with self._lock:
                self._queue.spent(sender, time.thread_time() - begun_s)
            del taken, future, work
