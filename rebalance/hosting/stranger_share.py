"""Limit of the event loop's work for connections of unknown users: together a share of its time, and their
addresses in turns.

Each piece of work is charged with what it took of the processor, and with what it has the loop do later
(handshakes, answers). While more is spent than the share comes to, further pieces wait in a ``FairQueue``. So a
stranger who is alone waits for nobody, many wait for each other, and whoever has logged in waits for none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rebalance.hosting.client_network import network_of
from rebalance.hosting.fair_queue import FairQueue

SHARE = 0.25
"""Share of the time that passes."""
SAVED_S = 0.02
"""Maximum saved time in seconds: also the longest that the loop works for strangers at once."""
HANDSHAKE_S = 0.001
REQUEST_S = 0.001
"""Cost in seconds of an answer to a stranger, behind the parser: with its handshake, a connection takes 2.2
ms."""


Act = Callable[[], None]
_LET_IN: ContextVar[Act | None] = ContextVar("what lets a connection in", default=None)


def let_in() -> None:
    """Note that the sender on the connection that this runs for has logged in."""
    act = _LET_IN.get()
    if act is not None:
        act()


@contextmanager
def knocking(act: Act) -> Iterator[None]:
    """Run the block for a connection that ``act`` lets in."""
    before = _LET_IN.set(act)
    try:
        yield
    finally:
        _LET_IN.reset(before)


class StrangerTurn:
    """A piece of work that waits until it ``is_over``: it has begun, or nobody wants it any more."""

    def __init__(self, act: Act, later_s: float) -> None:
        self._act: Act | None = act
        self.later_s = later_s

    @property
    def is_over(self) -> bool:
        return self._act is None

    def forget(self) -> None:
        self._act = None

    def take(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class StrangerShare:
    """Strangers' share of one event loop. ``clock`` and ``processor``: seconds."""

    def __init__(
        self,
        share: float = SHARE,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share = share
        self._clock = clock
        self._processor = processor
        self._credit_s = SAVED_S
        self._at_s = clock()
        self._queue: FairQueue[StrangerTurn] = FairQueue()
        self._is_working = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Pieces of work, those that nobody wants any more too."""
        return len(self._queue)

    def ask(self, address: str, act: Act, later_s: float = 0.0) -> StrangerTurn:
        """``act`` runs at once, or when its turn comes. ``later_s``: what follows from it, in seconds of the
        processor."""
        turn = StrangerTurn(act, later_s)
        self._queue.put(network_of(address), turn)
        if self._timer is None and not self._is_working:
            self._work()
        return turn

    def _work(self) -> None:
        self._timer = None
        self._is_working = True
        now_s = self._clock()
        self._credit_s = min(SAVED_S, self._credit_s + self._share * (now_s - self._at_s))
        self._at_s = now_s
        try:
            while self._credit_s > 0.0 and self._next():
                pass
        finally:
            self._is_working = False
            if self._queue:
                wait_s = max(0.0, -self._credit_s) / self._share
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._work)

    def _next(self) -> bool:
        begun_s = self._processor()
        taken = self._queue.take()
        if taken is None:
            return False
        network, turn = taken
        cost_s = 0.0 if turn.is_over else turn.later_s
        try:
            turn.take()
        finally:
            cost_s += self._processor() - begun_s
            self._credit_s -= cost_s
            self._queue.spent(network, cost_s)
        return True
