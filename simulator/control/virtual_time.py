"""An event loop whose clock jumps, and what happens on it.

Nobody waits, and the order of everything follows from the program alone. A loop of its own and not the
selector's: there is no socket to look at, and half of the time of a simulation was that loop's bookkeeping.
What happened is kept as lines for a person and as one digest for a comparison of two runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NothingLeftError(Exception):
    """Every task waits for another one: in virtual time nobody will ever come."""


class _Call(asyncio.TimerHandle):
    """A callback that is due now or at ``at``. Everything of its base that is public is its own."""

    __slots__ = ("args", "at", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: Any, context: Context | None, at: float) -> None:
        self.callback = callback
        self.args = args
        self.context = context if context is not None else contextvars.copy_context()
        self.at = at
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.at

    def __repr__(self) -> str:
        return f"<{self.callback!r} at {self.at:.6f} s{', cancelled' if self.is_cancelled else ''}>"


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """``time`` starts at 0 and moves when every task waits, straight to the next timer. Timers of one moment
    run in the order in which they were set.

    Work for threads (``asyncio.to_thread``) runs inline: a thread's end would come at a moment of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._ready: deque[_Call] = deque()
        self._scheduled: list[tuple[float, int, _Call]] = []
        self._tickets = itertools.count()

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(callback, args, context, self._now)
        self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon
    """A handler of a signal calls it, between two instructions of this thread."""

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        call = _Call(callback, args, context, when)
        heapq.heappush(self._scheduled, (when, next(self._tickets), call))
        return call

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        """Run the calls that are due now; when none is, time goes on first. Raises NothingLeftError. It
        replaces the base class's step, which would ask a selector."""
        ready, timers = self._ready, self._scheduled
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise NothingLeftError("no task can go on and no timer is set")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            call = ready.popleft()
            if call.is_cancelled:
                continue
            try:
                call.context.run(call.callback, *call.args)
            except Exception as error:
                self.call_exception_handler({"message": f"{call!r} has failed", "exception": error})


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``; Ctrl-C cancels ``main``."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


LINES_MAX = 100_000


@dataclass(slots=True)
class Trace:
    """``steps`` counts what invariants are checked after: revisions of the store and steps of groups."""

    steps: int = 0
    lines: list[tuple[float, str]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, kind: str, text: str) -> None:
        """Note an event; ``kind`` is counted."""
        self.events[kind] += 1
        now = asyncio.get_running_loop().time()
        if len(self.lines) < LINES_MAX:
            self.lines.append((now, f"{kind}: {text}" if text else kind))
        self._digest.update(f"{now:.6f} {kind} {text}\n".encode())

    def step(self, content: bytes) -> None:
        self.steps += 1
        self._digest.update(content)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]
