"""The protocol's model, explored to an empty frontier: some of the faults at a time; all of them in soak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.assignments import Strategy
from rebalance.core.change_lock import decide_on_unlock
from rebalance.core.group_steps import GroupView, Step, next_step
from rebalance.core.guarded_write import Decision, Observed, Outcome
from rebalance.core.records import Stage
from tests.model.explorer import Exploration, Explorer
from tests.model.protocol import Protocol
from tests.model.scopes import A, B, S, small, stuck, whole
from tests.model.world import REAL, Decisions, Scope, initial_state

SMALL = [
    pytest.param(scope, id=f"{strategy.value}-{name}")
    for strategy in Strategy
    for name, scope in small(strategy)
]


def explore(scope: Scope, decisions: Decisions = REAL) -> Exploration:
    protocol = Protocol(scope, decisions)
    return Explorer(initial_state(scope), protocol.successors, protocol.at_rest).run()


@pytest.mark.parametrize("scope", SMALL)
def test_small_scope(scope: Scope) -> None:
    """S053, I3-004, I3-016..025, I3-035..037, I3-041, I3A-001..003, I3A-009, I3A-014..019, I3A-022..027: no
    order of handlers, agents, elections and losses breaks an invariant; each run can come to rest at the last
    target."""
    found = explore(scope)
    assert found.violation is None, str(found.violation)
    assert found.states > 500


@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.CANCEL])
def test_a_copy_that_never_ends_blocks_no_newer_target(strategy: Strategy) -> None:
    """I3A-002, I3A-003, I3A-014, M13: neither that of the first joiner nor that of the second."""
    first = replace(stuck(strategy), never_in_sync=frozenset({"b", "c"}), targets=(B, A, S))
    for scope in (first, stuck(strategy)):
        found = explore(scope)
        assert found.violation is None, str(found.violation)


def dying(strategy: Strategy) -> Scope:
    return replace(stuck(strategy), never_in_sync=frozenset(), dying=frozenset({"b"}), targets=(B, A, S))


@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.CANCEL])
def test_a_joiner_that_dies_under_the_lock_leaves_neither_lock_nor_move(strategy: Strategy) -> None:
    """I3A-018: in sync, locked, and never heard of again: the next target is reached."""
    found = explore(dying(strategy))
    assert found.violation is None, str(found.violation)


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


def test_a_leader_that_waits_for_no_mirror_is_seen() -> None:
    """IEP-043: the rule is broken at once when the group's steps leave the mirrors out."""

    def careless(view: GroupView, target: tuple[str, ...], stable: tuple[str, ...]) -> Step:
        members = tuple(replace(each, mirror_awaited=False) for each in view.members)
        return next_step(replace(view, members=members), target, stable)

    scope = dict(small(Strategy.QUEUE))["roles"]
    found = explore(scope, replace(REAL, next_step=careless))
    assert found.violation is not None
    assert "a demoted voter leaves no copy behind" in str(found.violation)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", list(Strategy), ids=lambda each: each.value)
def test_whole_scope(strategy: Strategy) -> None:
    """I3-004, I3-016..025, I3-035..037, I3A-001..028: the same with every fault in one run."""
    found = explore(whole(strategy))
    print(f"\n{strategy.value}: {found.states} states, {found.transitions} transitions, {found.seconds:.0f} s")
    assert found.violation is None, str(found.violation)
