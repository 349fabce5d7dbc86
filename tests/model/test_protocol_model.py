"""The protocol's model, explored to an empty frontier: some of the faults at a time; all of them in soak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import decide_on_unlock
from rebalance.core.assignments.guarded_write import Decision, Observed, Outcome
from rebalance.core.assignments.withdrawal import decide_on_call_back
from rebalance.core.keyspace.records import Stage
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.moves.group_steps import GroupView, Step, next_step
from rebalance.core.moves.joiners import decide_on_joiners_gone
from tests.fixtures.model_exploration import explore
from tests.model.explorer import Explorer
from tests.model.protocol import Move, Protocol
from tests.model.scopes import ABD, A, B, S, endings, gone, small, stuck, whole, whole_endings
from tests.model.store import LOCK, STABLE, joiners_in, voters_in
from tests.model.world import REAL, Scope, State, initial_state

LONG = {"update-group", "cancel-group", "update-roles", "update-unknown"}
"""Most of the states, left to ``make soak``: elections and stale steps under the lock are in the endings, and
the strategy ``cancel`` has the same roles and unknown outcomes."""

SMALL = [
    pytest.param(scope, id=name, marks=[pytest.mark.soak] if name in LONG else [])
    for name, scope in (
        (f"{strategy.value}-{name}", scope) for strategy in Strategy for name, scope in small(strategy)
    )
]
ENDINGS = [
    pytest.param(scope, id=f"{strategy.value}-{name}")
    for strategy in Strategy
    for name, scope in endings(strategy)
]
WHOLE_ENDINGS = [
    pytest.param(scope, id=f"{strategy.value}-{name}")
    for strategy in Strategy
    for name, scope in whole_endings(strategy)
]


@pytest.mark.row(
    "I3-004",
    "I3-016..025",
    "I3-035..037",
    "I3-041",
    "I3A-001..003",
    "I3A-009",
    "I3A-014..019",
    "I3A-022..027",
)
@pytest.mark.parametrize("scope", SMALL)
def test_small_scope(scope: Scope) -> None:
    """S053, I3-004, I3-016..025, I3-035..037, I3-041, I3A-001..003, I3A-009, I3A-014..019, I3A-022..027: no
    order of handlers, agents, elections and losses breaks an invariant; each run can come to rest at the last
    target."""
    found = explore(scope)
    assert found.violation is None, str(found.violation)
    assert found.states > 500


@pytest.mark.row("M1", "M8", "M10")
@pytest.mark.parametrize("scope", ENDINGS)
def test_ending(scope: Scope) -> None:
    """M1, M8, M10: whenever joiners die, and whenever the operator cancels, each run can come to rest at the
    target, at what was before it, or at the target in which the places of the dead are taken or empty."""
    found = explore(scope)
    assert found.violation is None, str(found.violation)
    assert found.states > 200


STAGES = ("reserved", "copying", "in sync", "in sync, locked", "promoted", "the old voter has left")


def stage_of_joiner(state: State, node: str) -> str:
    """Stage at which a joiner dies; \"\" where it is no joiner."""
    if node not in joiners_in(state.store):
        return ""
    if node in state.voters:
        has_left = not voters_in(state.store[STABLE][0] or b"") <= state.voters
        return "the old voter has left" if has_left else "promoted"
    if node not in state.synced:
        return "copying" if node in state.learners else "reserved"
    return "in sync, locked" if state.store[LOCK][0] is not None else "in sync"


@pytest.mark.row("M1")
@pytest.mark.parametrize("strategy", list(Strategy), ids=lambda each: each.value)
def test_a_joiner_dies_at_each_stage_and_the_move_ends_both_ways(strategy: Strategy) -> None:
    """M1: nothing of it is left out. It is given up at each stage; too late only once the group has reached the
    target, which is what is stable then."""
    scope = gone(strategy, ABD)
    protocol = Protocol(scope)
    died: set[str] = set()
    given_up: set[str] = set()
    ends: set[str] = set()

    def successors(state: State) -> Iterator[Move]:
        for step, broken, reached in protocol.successors(state):
            if "d dies" in step:
                died.add(stage_of_joiner(state, "d"))
            if "commits JOINERS_GIVEN_UP" in step:
                given_up.add("voter" if "d" in state.voters else "learner" if "d" in state.learners else "")
            yield step, broken, reached

    def at_rest(state: State) -> str:
        ends.add("".join(sorted(voters_in(state.store[STABLE][0] or b""))))
        return protocol.at_rest(state)

    found = Explorer(initial_state(scope), successors, at_rest).run()
    assert found.violation is None, str(found.violation)
    stages = set(STAGES) - (set() if strategy.locks_pending else {"in sync, locked"})
    assert died - {""} == stages
    assert given_up == {"voter", "learner", ""}
    assert ends == {"abc", "abd"}


def keeps_waiting(*_: object, **__: object) -> Decision:
    return Decision(Outcome.NO_JOINER_IS_GONE)


def leaves_places_empty(observed: Observed, gone_nodes: dict[str, str], **told: Any) -> Decision:
    """Pending without the dead, and without who was to leave."""
    found = decide_on_joiners_gone(observed, gone_nodes, **told)
    if found.transaction is None or observed.pending is None:
        return found
    pending = Assignments.decode(observed.pending.value)
    peers = tuple(each for each in pending.peers if each not in gone_nodes)
    put = Put(observed.keys.pending, replace(pending, peers=peers).encode())
    success = (put, *(each for each in found.transaction.success if each.key != put.key))
    return replace(found, transaction=Txn(found.transaction.compares, success))


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    ("decision", "rule"),
    [
        (keeps_waiting, "work is left when nothing is requested"),
        (leaves_places_empty, "the last target is not reached"),
    ],
)
def test_a_joiner_that_is_waited_for_or_a_voter_too_few_is_seen(
    decision: Callable[..., Decision], rule: str
) -> None:
    """M1: without giving up the move stays; with a place that nobody takes the group has fewer voters than
    both before and after the move."""
    found = explore(gone(Strategy.QUEUE, ABD), replace(REAL, on_joiners_gone=decision))
    assert found.violation is not None
    assert found.violation.rule == rule


@pytest.mark.row("M8")
def test_a_call_back_that_deletes_pending_is_seen() -> None:
    """M8: what is planned would be left alone, and a switch that is late finds nothing to switch."""

    def careless(observed: Observed, *told: Any) -> Decision:
        found = decide_on_call_back(observed, *told)
        if found.transaction is None:
            return found
        keys = observed.keys
        kept = (each for each in found.transaction.success if each.key == keys.trigger)
        return replace(found, transaction=Txn(found.transaction.compares, (Delete(keys.pending), *kept)))

    scope = dict(endings(Strategy.QUEUE))["cancelled-planned"]
    found = explore(scope, replace(REAL, on_call_back=careless))
    assert found.violation is not None
    assert found.violation.rule == "planned without pending"


@pytest.mark.row("I3A-002", "I3A-003", "I3A-014", "M13")
@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.CANCEL])
def test_a_copy_that_never_ends_blocks_no_newer_target(strategy: Strategy) -> None:
    """I3A-002, I3A-003, I3A-014, M13: neither that of the first joiner nor that of the second."""
    first = replace(stuck(strategy), never_in_sync=frozenset({"b", "c"}), targets=(B, A, S))
    for scope in (first, stuck(strategy)):
        found = explore(scope)
        assert found.violation is None, str(found.violation)


def dying(strategy: Strategy) -> Scope:
    return replace(stuck(strategy), never_in_sync=frozenset(), dying=frozenset({"b"}), targets=(B, A, S))


@pytest.mark.row("I3A-018")
@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.CANCEL])
def test_a_joiner_that_dies_under_the_lock_leaves_neither_lock_nor_move(strategy: Strategy) -> None:
    """I3A-018: in sync, locked, and never heard of again: the next target is reached."""
    found = explore(dying(strategy))
    assert found.violation is None, str(found.violation)


@pytest.mark.row("M7", "M13")
@pytest.mark.parametrize("scope", [stuck(Strategy.UPDATE), dying(Strategy.CANCEL)], ids=["copies", "dies"])
def test_a_lock_that_outlives_its_step_is_seen(scope: Scope) -> None:
    """M7, M13: taken for a joiner and kept while nobody is promoted, the last target is never reached."""

    def keeps(observed: Observed, stage: Stage, *, term: int, of_earlier_terms: bool) -> Decision:
        found = decide_on_unlock(observed, stage, term=term, of_earlier_terms=of_earlier_terms)
        return found if stage is Stage.NONE else Decision(Outcome.LOCK_KEPT)

    found = explore(scope, replace(REAL, on_unlock=keeps))
    assert found.violation is not None
    assert found.violation.rule in (
        "the last target is not reached",
        "work is left when nothing is requested",
        "it can never come to rest from here",
    )


@pytest.mark.row("IEP-043")
def test_a_leader_that_waits_for_no_mirror_is_seen() -> None:
    """IEP-043: the rule is broken at once when the group's steps leave the mirrors out."""

    def careless(view: GroupView, target: tuple[str, ...], stable: tuple[str, ...]) -> Step:
        members = tuple(replace(each, mirror_awaited=False) for each in view.members)
        return next_step(replace(view, members=members), target, stable)

    scope = dict(small(Strategy.QUEUE))["roles"]
    found = explore(scope, replace(REAL, next_step=careless))
    assert found.violation is not None
    assert "a demoted voter leaves no copy behind" in str(found.violation)


@pytest.mark.row("I3-004", "I3-016..025", "I3-035..037", "I3A-001..028")
@pytest.mark.soak
@pytest.mark.parametrize("strategy", list(Strategy), ids=lambda each: each.value)
def test_whole_scope(strategy: Strategy) -> None:
    """I3-004, I3-016..025, I3-035..037, I3A-001..028: the same with every fault in one run."""
    found = explore(whole(strategy))
    print(f"\n{strategy.value}: {found.states} states, {found.transitions} transitions, {found.seconds:.0f} s")
    assert found.violation is None, str(found.violation)


@pytest.mark.row("M1", "M8", "M10")
@pytest.mark.soak
@pytest.mark.parametrize("scope", WHOLE_ENDINGS)
def test_whole_ending(scope: Scope) -> None:
    """M1, M8, M10: the same with every fault in one run."""
    found = explore(scope)
    print(f"\n{found.states} states, {found.transitions} transitions, {found.seconds:.0f} s")
    assert found.violation is None, str(found.violation)
