"""Work of many senders, in the order of what each has had: who has had the least is next.

What a sender has had is counted from where the one stood whose turn was last: nobody saves turns up by asking
for nothing, and who comes anew is next. Of one sender, work is done in its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

REMEMBERED = 1_000

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
            self._had_s = {
                one: had_s
                for one, had_s in self._had_s.items()
                if one in self._waiting or had_s > self._level_s
            }
