"""The scopes that the model is explored in. S, then A, B, A: the same target comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rebalance.core.assignments import Assignments, Strategy
from tests.model.world import Scope

S, A, B = (Assignments(tuple(nodes)) for nodes in ("a", "b", "ab"))
TARGETS = (A, B, A)
ROLES = (Assignments(("a",), ("b",)), Assignments(("b",), ("a",)), Assignments(("a",), ("b",)))
"""Each of two nodes votes and learns in turn."""

STUCK = (Assignments(("a", "b", "c")), Assignments(("a", "b")), Assignments(("b",)))
"""The second joiner never is in sync."""


def stuck(strategy: Strategy) -> Scope:
    """With an election while it copies. Not for `queue`, which waits for it."""
    calm = Scope(strategy, S, STUCK, crashes=(0, 0), replays=0, unknowns=0, stale_steps=0, failures=0)
    return replace(calm, never_in_sync=frozenset({"c"}))


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
