"""Until when a node's members of HIGH_AVAILABILITY zones may run: arithmetic on moments.

Moments are nanoseconds of one clock that also counts while the machine is suspended. Nothing counts from the
moment of an answer: what was confirmed was so when it was asked, and an answer may be old when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MS = 1_000_000
SECOND = 1_000 * MS


@dataclass(frozen=True, slots=True)
class FenceTime:
    """``lease_ns``: of the node's lease. ``fence_ns``: how long its members go on unheard, never less than the
    lease. ``confirmed_ns``: when the last request was sent whose answer showed the node's own entry in the
    metastore. ``excused_ns``: when the last round of requests was sent that showed a metastore without a
    majority. None: there was none.

    Invariant: no evidence moves a deadline that has passed (``no_majority`` needs a mark that is younger than
    the lease, and the fence is not shorter).
    """

    lease_ns: int
    fence_ns: int
    confirmed_ns: int | None = None
    excused_ns: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a fence that is shorter than the lease."""
        if not 0 < self.lease_ns <= self.fence_ns:
            raise ValueError(f"a fence of {self.fence_ns} ns is shorter than a lease of {self.lease_ns} ns")

    @property
    def mark_ns(self) -> int | None:
        """What the fence counts from."""
        marks = [mark for mark in (self.confirmed_ns, self.excused_ns) if mark is not None]
        return max(marks, default=None)

    @property
    def deadline_ns(self) -> int:
        """From this moment on no member runs; 0 before the first confirmation."""
        mark = self.mark_ns
        return mark + self.fence_ns if mark is not None else 0

    def is_over(self, now_ns: int) -> bool:
        return now_ns >= self.deadline_ns

    def confirmed(self, sent_ns: int) -> FenceTime:
        """The metastore has shown the node's own entry, in answer to what was sent at ``sent_ns``."""
        return replace(self, confirmed_ns=max(sent_ns, self.confirmed_ns or sent_ns))

    def no_majority(self, sent_ns: int, answered_ns: int) -> FenceTime:
        """A majority of the metastore's members had no leader at some moments from ``sent_ns`` to
        ``answered_ns``. The lease did not end before a leader is elected again, and begins anew then: if it had
        not ended before. So this counts only while it surely had not, by the last mark."""
        mark = self.mark_ns
        if mark is None or answered_ns - mark > self.lease_ns - self.lease_ns // 10:
            return self
        return replace(self, excused_ns=max(sent_ns, self.excused_ns or sent_ns))

    def kept_to(self, fence_ms: int) -> FenceTime:
        """The same marks under another fence. Raises ValueError when it is shorter than the lease."""
        return replace(self, fence_ns=fence_ms * MS)
