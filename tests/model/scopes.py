"""The scopes that the model is explored in. S, then A, B, A: the same target comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rebalance.core.assignments.assignment import Assignments, Strategy
from tests.model.world import CallBack, Scope

S, A, B = (Assignments(tuple(nodes)) for nodes in ("a", "b", "ab"))
TARGETS = (A, B, A)
ROLES = (Assignments(("a",), ("b",)), Assignments(("b",), ("a",)), Assignments(("a",), ("b",)))
"""Each of two nodes votes and learns in turn."""

STUCK = (Assignments(("a", "b", "c")), Assignments(("a", "b")), Assignments(("b",)))
"""The second joiner never is in sync."""


ABC, ABD, ABE, ADE = (Assignments(tuple(nodes)) for nodes in ("abc", "abd", "abe", "ade"))
CALLED_BACK = (A, CallBack(1))
"""The operator cancels what A has begun, or not begun, or brought to an end."""


def stuck(strategy: Strategy) -> Scope:
    """Scope with an election while a joiner copies. Not for `queue`, which waits for it."""
    return replace(calm(strategy, S, *STUCK), never_in_sync=frozenset({"c"}), elections=1)


def whole(strategy: Strategy) -> Scope:
    """Three events, two handlers with one crash each, a replay, an unknown outcome, an election with a stale
    step, a failure of the change: all in one run."""
    return Scope(strategy, S, TARGETS)


def small(strategy: Strategy) -> Iterator[tuple[str, Scope]]:
    """The same, a part of the faults at a time."""
    yield "handlers", Scope(strategy, S, TARGETS, stale_steps=0, elections=0, failures=0, unknowns=0)
    yield (
        "group",
        Scope(strategy, S, TARGETS, crashes=(0, 0), replays=0, unknowns=0),
    )
    yield (
        "roles",
        Scope(strategy, B, ROLES, crashes=(0, 0), replays=0, unknowns=0, failures=0),
    )
    yield (
        "unknown",
        Scope(strategy, S, TARGETS, crashes=(0, 0), replays=0, elections=0, stale_steps=0),
    )


def calm(strategy: Strategy, stable: Assignments, *targets: Assignments | CallBack) -> Scope:
    """Scope without faults but those that are added."""
    return Scope(
        strategy, stable, targets, (0, 0), replays=0, unknowns=0, stale_steps=0, elections=0, failures=0
    )


def gone(strategy: Strategy, *targets: Assignments | CallBack) -> Scope:
    """A joiner of a group of three that dies for good at any stage, with an election and a stale call. It takes
    no majority with it, once it votes (M11)."""
    scope = calm(strategy, ABC, *targets)
    return replace(scope, mortal=frozenset({"d"}), elections=1, stale_steps=1)


def endings(strategy: Strategy) -> Iterator[tuple[str, Scope]]:
    """Moves that their targets do not end: joiners that are gone are given up, and the operator cancels."""
    yield "gone", replace(gone(strategy, ABD), unknowns=1)
    yield "gone-newer", replace(gone(strategy, ABD, ABE), elections=0)
    yield "gone-cancelled", replace(gone(strategy, ABD, CallBack(1)), elections=0)
    yield "gone-of-two", replace(gone(strategy, ADE), unknowns=1, elections=0)
    yield "gone-both", replace(calm(strategy, ABC, ADE), mortal=frozenset({"d", "e"}), unknowns=1)
    faults = replace(calm(strategy, S, *CALLED_BACK), elections=1, stale_steps=1)
    yield "cancelled", replace(faults, unknowns=1)
    yield "cancelled-planned", replace(faults, targets=(A, B, CallBack(2)))
    yield "cancelled-newer", replace(faults, targets=(*CALLED_BACK, B), elections=0)


def whole_endings(strategy: Strategy) -> Iterator[tuple[str, Scope]]:
    """The same with every fault in one run; both at once without those of the handlers."""
    yield "gone", replace(Scope(strategy, ABC, (ABD,)), mortal=frozenset({"d"}))
    both = replace(Scope(strategy, ABC, (ABD, CallBack(1))), mortal=frozenset({"d"}))
    yield "gone-cancelled", replace(both, crashes=(0, 0), replays=0)
    yield "cancelled", Scope(strategy, S, CALLED_BACK)
