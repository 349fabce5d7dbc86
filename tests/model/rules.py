"""The invariants of the protocol, judged on every step of the model."""

from __future__ import annotations

from functools import cache

from rebalance.core.guarded_write import decode_trigger
from tests.model.store import LOCK, PENDING, PLANNED, STABLE, TRIGGER, Nodes, Store, learners_in, voters_in
from tests.model.world import State


def broken_rule(before: State, after: State, *, locks: bool) -> str:
    """The invariant that the step from ``before`` to ``after`` breaks, or "". ``locks``: the strategy locks."""
    store = after.store
    if after.newest < 0:
        return "an older event overrides a newer one"
    if _trigger(store) < _trigger(before.store):
        return "the trigger goes back"
    pending = store[PENDING][0]
    if pending is None and store[PLANNED][0] is not None:
        return "planned without pending"
    if pending is None and store[LOCK][0] is not None:
        return "locked without pending"
    stable = store[STABLE][0]
    if stable is None:
        return "stable is gone"
    if voters_in(stable) != after.applied and (pending is None or voters_in(pending) != after.applied):
        return "stable is not what the group applied last"
    if after.leader not in after.voters:
        return "one that is no voter leads"
    if len(after.voters & after.running) <= len(after.voters) // 2:
        return "the voters have lost their majority"
    if not (assigned(store) & before.running <= after.running):
        return "a member is stopped that stable or pending needs"
    return _broken_by_change(before, after, locks=locks)


def _broken_by_change(before: State, after: State, *, locks: bool) -> str:
    """One change at a time: voters are touched for nothing but the pending that is there, and locked; who is
    promoted is in sync."""
    if before.voters == after.voters or before.stale is not None:
        return ""
    change, token = before.change, before.store[PENDING][1]
    if change is None:
        return "voters change and nobody changes them"
    if not after.voters - before.voters <= before.synced:
        return "one votes that is not in sync"
    if not (before.voters - after.voters) & learners_in(change.target) <= before.mirrors:
        return "a demoted voter leaves no copy behind"
    if voters_in(change.target) == voters_in(before.store[STABLE][0] or b""):
        # It brings the group back to where it was, after a stale step.
        return ""
    if change.token and change.token != token:
        return "voters change for what is not pending any more"
    if change.token and locks and before.store[LOCK][0] is None:
        return "voters change and pending is not locked"
    return ""


def assigned(store: Store) -> Nodes:
    """Who votes or is to vote."""
    return frozenset().union(*(voters_in(value) for value, _ in store[: PENDING + 1] if value is not None))


def learning(store: Store) -> Nodes:
    """Who is a standing learner or is to be one."""
    return frozenset().union(*(learners_in(value) for value, _ in store[: PENDING + 1] if value is not None))


@cache
def _decoded_trigger(value: bytes) -> int:
    return decode_trigger(value)


def _trigger(store: Store) -> int:
    value = store[TRIGGER][0]
    return _decoded_trigger(value) if value is not None else 0
