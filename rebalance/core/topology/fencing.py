"""Times for which members of HIGH_AVAILABILITY zones go on serving on a node that is not heard, and a partition
that lost its majority waits, longer than that, before it is founded anew.

A node is *fenced* when its metastore has confirmed no renewal of its lease for ``fence_ms``, counted from when
the last confirmed one was sent: then every member of such a zone on it is killed, and none starts before the
node is heard again. A controller that has seen a majority of voters absent for ``reset_after_ms`` of each of
their fences, without a break, may take them for silent: no client gets an answer from them.

Moments are nanoseconds of one clock that also counts while the machine is suspended. Nothing counts from the
moment of an answer: what was confirmed was so when it was asked, and an answer may be old when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Form, Record, natural

STOP_MS = 1_000
"""Longest time from the end of a node's time to its processes being dead."""
ELECTION_MS = 2_000
"""An election of the metastore's takes no longer."""
MARGIN_MS = 1_000
WAIT_MS = STOP_MS + ELECTION_MS + MARGIN_MS


@dataclass(frozen=True, slots=True)
class FenceRecord(Record):
    """``fences/<node>``: what the node of this incarnation keeps to, in milliseconds. It stays when the node's
    lease ends: it says how long nobody may count on its silence."""

    incarnation: str
    fence_ms: int


FenceRecord.codec = Codec(
    FenceRecord,
    required=("incarnation", "fence_ms"),
    forms={"fence_ms": Form(natural, int)},
)


def reset_s_min(lease_s: int) -> int:
    """The smallest ``Limits.ha_reset_s`` that nodes with leases of ``lease_s`` can keep to."""
    return lease_s + -(-WAIT_MS // 1_000)


def fence_ms_of(reset_s: int, lease_s: int) -> int:
    """Fence, in milliseconds, of a node with leases of ``lease_s`` while ``Limits.ha_reset_s`` is
    ``reset_s``."""
    return max(1_000 * reset_s - WAIT_MS, 1_000 * lease_s)


def reset_after_ms(reset_s: int, fence_ms: int) -> int:
    """Milliseconds that a voter's node, which kept to ``fence_ms``, must have been absent. More than
    ``reset_s`` after a decrease that the node had not followed when it was last heard."""
    return max(1_000 * reset_s, fence_ms + WAIT_MS)


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
        """Moment from which the fence counts; None: there is none yet."""
        marks = [mark for mark in (self.confirmed_ns, self.excused_ns) if mark is not None]
        return max(marks, default=None)

    @property
    def deadline_ns(self) -> int:
        """Moment from which on no member runs; 0 before the first confirmation."""
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
