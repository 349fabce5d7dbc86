"""Each rule of the fence taken away, with the scope in which the model sees it."""

from __future__ import annotations

from dataclasses import replace

from tests.model.fence_rules import EVER_S, LEASE_S, REAL, SHORT_S, Absence, Heard, Rules, fence_s
from tests.model.fencing import FenceScope

CALM = FenceScope(SHORT_S, outages=False)
OUTAGES = FenceScope(SHORT_S)
CHANGES = FenceScope(SHORT_S, outages=False, changes=True)


def from_the_answer(kept: int, mark: int | None, _sent: int) -> int | None:
    return REAL.confirmed(kept, mark, 0)


def without_a_chain(_kept: int, mark: int | None, sent: int) -> int | None:
    return min(sent, mark) if mark is not None else None


def without_waiting(age: int, unbroken_s: int, published_s: int | None, _reset_s: int) -> bool:
    return published_s is not None and min(age, unbroken_s) >= published_s


def decreased_at_once(age: int, unbroken_s: int, _published_s: int | None, reset_s: int) -> bool:
    return REAL.is_due(age, unbroken_s, fence_s(reset_s), reset_s)


def presumed(age: int, unbroken_s: int, published_s: int | None, reset_s: int) -> bool:
    return REAL.is_due(age, unbroken_s, published_s or LEASE_S, reset_s)


def of_anybody(absence: Absence | None, is_absent: bool) -> Absence | None:
    """Mutant: the absence counts, not the registration since which it lasts."""
    return REAL.looked(absence and Absence(absence.age), is_absent)


def through_silence(_hearing: Heard) -> int | None:
    return EVER_S


MUTANTS: dict[str, tuple[FenceScope, Rules]] = {
    "H1 the fence counts from the answer": (CALM, replace(REAL, confirmed=from_the_answer)),
    "H1 the reset does not wait longer than the fence": (CALM, replace(REAL, is_due=without_waiting)),
    "H1 the controller counts by a wall clock": (CALM, replace(REAL, jumps=True)),
    "H1 a controller takes recorded times over": (
        CALM,
        replace(REAL, takes_over=True, looked=of_anybody, unbroken=through_silence),
    ),
    "H1 who was there meanwhile still counts as absent": (CALM, replace(REAL, looked=of_anybody)),
    "H1 who is alive is read before the fences": (CALM, replace(REAL, reads_fences_first=False)),
    "H1 a reset is not guarded": (CALM, replace(REAL, guards_reset=False)),
    "H1 a loss goes on over a silence of the metastore": (OUTAGES, replace(REAL, unbroken=through_silence)),
    "H2 a fence is presumed where none was published": (
        replace(CALM, has_fence=False),
        replace(REAL, is_due=presumed),
    ),
    "H3 only the agent kills": (CALM, replace(REAL, has_watchdog=False)),
    "H3 members start without asking": (CALM, replace(REAL, asks_before_starts=False)),
    "H3 what was asked before the fence counts after it": (CALM, replace(REAL, asks_in_each_span=False)),
    "H4 time-outs are evidence": (CALM, replace(REAL, time_outs_count=True)),
    "H4 evidence counts though the lease may have ended": (
        FenceScope(8, outages=False, rolling=1),
        replace(REAL, no_majority=without_a_chain),
    ),
}

OF_CHANGES: dict[str, tuple[FenceScope, Rules]] = {
    "H2 a longer fence is used before it is published": (CHANGES, replace(REAL, publishes_first=False)),
    "H2 a shorter fence is published before it is used": (CHANGES, replace(REAL, uses_first=False)),
    "H2 a late write of the fence replaces a later one": (
        replace(CHANGES, late_writes=True),
        replace(REAL, guards_key=False),
    ),
    "H2 a late answer lengthens the fence": (CHANGES, replace(REAL, goes_by_revision=False)),
}
"""Limits that change make many states."""
