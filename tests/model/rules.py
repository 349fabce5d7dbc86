"""The invariants of the protocol, judged on every step of the model."""

from __future__ import annotations

from collections.abc import Iterator

from rebalance.core.assignments.assignment import Assignments
from tests.model.store import LOCK, PENDING, PLANNED, STABLE, Nodes, Store, learners_in, trigger_in, voters_in
from tests.model.world import CallBack, Scope, State


def broken_rule(before: State, after: State, *, locks: bool) -> str:
    """The invariant that the step from ``before`` to ``after`` breaks, or "". ``locks``: the strategy locks."""
    store = after.store
    if after.newest < 0:
        return "an older event overrides a newer one"
    if trigger_in(store) < trigger_in(before.store):
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
    if not (assigned(store) & before.running - after.silent <= after.running):
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


def broken_rest(state: State, scope: Scope) -> str:
    """The last target that had an effect must be what is stable, or what was before it where it was called
    back, or either without joiners that died; and nothing else is there."""
    stable = Assignments.decode(state.store[STABLE][0] or b"")
    if state.voters != frozenset(stable.peers) or not any(
        _is_reached(stable, wanted, state, scope) for wanted in _wanted(state, scope)
    ):
        return "the last target is not reached"
    if any(state.store[slot][0] is not None for slot in (PENDING, PLANNED, LOCK)) or state.learners:
        return "work is left when nothing is requested"
    if state.mirrors != frozenset(stable.learners):
        return "the last target's learners have no mirrors, or others have"
    return "" if state.running == state.voters - state.silent else "a member runs that nobody needs"


def _wanted(state: State, scope: Scope) -> Iterator[Assignments]:
    """A cancel may come too late, or the partition may be on its way from the target before."""
    events = scope.targets
    last = events[-1]
    if isinstance(last, CallBack):
        last = events[state.newest - 1]
    if isinstance(last, CallBack):
        yield scope.stable
        yield from (each for each in events[: last.of - 1] if isinstance(each, Assignments))
    else:
        yield last


def _is_reached(stable: Assignments, wanted: Assignments, state: State, scope: Scope) -> bool:
    """M1: places of joiners that died are taken by voters that were to leave, or stay empty; never fewer voters
    than the smaller of both sets."""
    if stable == wanted:
        return True
    before = [scope.stable, *(each for each in scope.targets if isinstance(each, Assignments))]
    peers, target = frozenset(stable.peers), frozenset(wanted.peers)
    others = frozenset().union(*(each.peers for each in before))
    fewest = min(len(each.peers) for each in before)
    return target - peers <= state.silent and peers <= others and fewest <= len(peers) <= len(target)


def assigned(store: Store) -> Nodes:
    """Nodes that vote or are to vote."""
    return frozenset().union(*(voters_in(value) for value, _ in store[: PENDING + 1] if value is not None))


def learning(store: Store) -> Nodes:
    """Nodes that are learners or are to be."""
    return frozenset().union(*(learners_in(value) for value, _ in store[: PENDING + 1] if value is not None))
