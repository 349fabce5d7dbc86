"""Rules of the product that the model of the fence takes, as small steps on whole seconds, and each rule as a
field that a mutant replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.loss_clock import AbsentNode, Hearing, LossClock, ResetRule, judge
from rebalance.core.topology.fencing import (
    ELECTION_MS,
    SECOND,
    STOP_MS,
    FenceRecord,
    FenceTime,
    fence_ms_of,
    reset_s_min,
)

LEASE_S = 2
STOP_S = STOP_MS // 1_000
ELECTION_S = ELECTION_MS // 1_000
SHORT_S = reset_s_min(LEASE_S)
LONG_S = 10
"""The two values of ``ha_reset_s``: the smallest, and one whose fence is longer than the lease."""
EVER_S = LONG_S + 4
"""Ages are counted so far: by then everything is over or due."""
NOW_S = 100
VIEW = PartitionView(None, Assignments(("a", "b", "c")), None, None, processed=True)


def fence_s(reset_s: int) -> int:
    return fence_ms_of(reset_s, LEASE_S) // 1_000


def _time(kept_s: int, mark: int | None) -> FenceTime:
    mark_ns = (NOW_S - mark) * SECOND if mark is not None else None
    return FenceTime(LEASE_S * SECOND, kept_s * SECOND, mark_ns)


@cache
def is_over(kept_s: int, mark: int | None) -> bool:
    """``mark``: how old what the fence counts from is."""
    return _time(kept_s, mark).is_over(NOW_S * SECOND)


def _age(time: FenceTime) -> int | None:
    return NOW_S - time.mark_ns // SECOND if time.mark_ns is not None else None


@cache
def confirmed(kept_s: int, mark: int | None, sent: int) -> int | None:
    return _age(_time(kept_s, mark).confirmed((NOW_S - sent) * SECOND))


@cache
def no_majority(kept_s: int, mark: int | None, sent: int) -> int | None:
    return _age(_time(kept_s, mark).no_majority((NOW_S - sent) * SECOND, NOW_S * SECOND))


@dataclass(frozen=True, slots=True)
class Heard:
    """``Hearing`` in ages. ``is_term``: the term that it knows is still the metastore's."""

    answered: int | None = None
    since: int | None = None
    is_term: bool = True

    @property
    def value(self) -> Hearing:
        since_ms, answered_ms = (
            (NOW_S - age) * 1_000 if age is not None else None for age in (self.since, self.answered)
        )
        return Hearing(LEASE_S * 1_000 // 2, since_ms, answered_ms, 2 if self.is_term else 1)


@cache
def heard(before: Heard) -> Heard:
    after = before.value.answered(NOW_S * 1_000, term=2)
    assert after.since_ms is not None
    return Heard(0, NOW_S - after.since_ms // 1_000)


@cache
def unbroken(hearing: Heard) -> int | None:
    """Seconds for which the metastore has answered."""
    since_ms = hearing.value.unbroken_since_ms(NOW_S * 1_000)
    return NOW_S - since_ms // 1_000 if since_ms is not None else None


@dataclass(frozen=True, slots=True)
class Absence:
    """Time for which the node has been absent by the ``LossClock``, and True if it still has the identity
    (``AbsentNode.identity``) that the clock knows."""

    age: int
    is_same: bool = True


ABSENT_BEFORE = AbsentNode("i", FenceRecord("i", 0), 1)
ABSENT = AbsentNode("i", FenceRecord("i", 0), 2)


@cache
def looked(absence: Absence | None, is_absent: bool) -> Absence | None:
    clock = LossClock()
    if absence is not None:
        before = ABSENT if absence.is_same else ABSENT_BEFORE
        clock = clock.looked((NOW_S - absence.age) * 1_000, {"a": before}, frozenset("c"))
    alive = frozenset("c" if is_absent else "ac")
    clock = clock.looked(NOW_S * 1_000, {"a": ABSENT} if is_absent else {}, alive)
    since_ms = clock.since_ms("a")
    return Absence(NOW_S - since_ms // 1_000) if since_ms is not None else None


@cache
def is_due(age: int, unbroken_s: int, published_s: int | None, reset_s: int) -> bool:
    """``judge`` of the partition a, b, c, where b is as absent as a is. ``published_s`` None: no fence."""
    record = FenceRecord("i", published_s * 1_000) if published_s is not None else None
    node, since_ms = AbsentNode("i", record, 2), (NOW_S - age) * 1_000
    absent = MappingProxyType({"a": node, "b": node})
    clock = LossClock().looked(since_ms, absent, frozenset("c"))
    heard_ms, rule = (NOW_S - unbroken_s) * 1_000, ResetRule(reset_s)
    loss = judge(VIEW, frozenset("c"), absent, clock, heard_ms, rule)
    return loss is not None and loss.is_due(NOW_S * 1_000)


@dataclass(frozen=True, slots=True)
class Rules:
    """The product's steps; a mutant has another one in a place, or a flag turned round."""

    confirmed: Callable[[int, int | None, int], int | None] = confirmed
    no_majority: Callable[[int, int | None, int], int | None] = no_majority
    looked: Callable[[Absence | None, bool], Absence | None] = looked
    unbroken: Callable[[Heard], int | None] = unbroken
    is_due: Callable[[int, int, int | None, int], bool] = is_due
    time_outs_count: bool = False
    """A round without an answer is evidence (H4)."""
    has_watchdog: bool = True
    """Otherwise the agent kills, which may be stopped (H3)."""
    asks_before_starts: bool = True
    """A member starts once ``group`` was read."""
    asks_in_each_span: bool = True
    """Readings from before the node was fenced do not count afterwards."""
    takes_over: bool = False
    """A new controller goes on with the times of the one before."""
    jumps: bool = False
    """The controller counts by a wall clock."""
    publishes_first: bool = True
    """A longer fence is used after it was published."""
    uses_first: bool = True
    """A shorter fence is used before it is published."""
    goes_by_revision: bool = True
    """An answer that tells of a fence which another write has replaced by now changes nothing."""
    guards_key: bool = True
    """Each fence key is written under a guard on its own revision."""
    guards_reset: bool = True
    """The reset is guarded by the absence of the node and by its fence key."""
    reads_fences_first: bool = True
    """A look reads fences before it reads who is alive."""


REAL = Rules()
