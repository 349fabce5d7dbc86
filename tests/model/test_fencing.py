"""The fence's model, explored to an empty frontier: no reset meets a member of the old group that serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.model.explorer import Exploration, Explorer
from tests.model.fence_mutants import (
    CALM,
    CHANGES,
    MUTANTS,
    OF_CHANGES,
    decreased_at_once,
    through_silence,
    without_a_chain,
)
from tests.model.fence_rules import LONG_S, REAL, SHORT_S, STOP_S, Rules, fence_s
from tests.model.fencing import FenceScope, Fencing, Member, State, initial

SCOPES = {
    "no outages": CALM,
    "no outages, a long fence": FenceScope(LONG_S, outages=False),
    "outages": FenceScope(SHORT_S),
    "a node without a fence": FenceScope(SHORT_S, has_fence=False),
    "members of the metastore restart in turn": FenceScope(SHORT_S, outages=False, rolling=1),
}
WHOLE = {
    "outages, a fence longer than the lease": FenceScope(7),
    "members restart in turn twice": FenceScope(SHORT_S, outages=False, rolling=2),
    "limits that change": CHANGES,
    "limits that change, late writes": replace(CHANGES, late_writes=True),
}


def explore(scope: FenceScope, rules: Rules = REAL) -> Exploration:
    return Explorer(initial(scope), Fencing(scope, rules).successors, None).run()


def walk(scope: FenceScope, steps: Sequence[str], rules: Rules = REAL) -> list[State]:
    """The states that ``steps`` lead to, one after the other. Raises KeyError where a step is not possible."""
    fencing, states = Fencing(scope, rules), [initial(scope)]
    for step in steps:
        reached = {name: state for name, _, state in fencing.successors(states[-1])}
        states.append(reached[step])
    return states


@pytest.mark.row("H1", "H2", "H4")
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
def test_no_reset_meets_a_serving_member(scope: FenceScope) -> None:
    """H1, H2, H4: whatever is cut, lost, late, stopped or elected."""
    exploration = explore(scope)
    assert exploration.violation is None, str(exploration.violation)
    assert exploration.states > (2 if not scope.has_fence else 1_000)


@pytest.mark.soak
@pytest.mark.parametrize("scope", WHOLE.values(), ids=WHOLE.keys())
def test_no_reset_meets_a_serving_member_whole(scope: FenceScope) -> None:
    """The same with more at a time."""
    exploration = explore(scope)
    print(f"{exploration.states} states, {exploration.transitions} steps, {exploration.seconds:.0f} s")
    assert exploration.violation is None, str(exploration.violation)


@pytest.mark.row("H1", "H2", "H3", "H4")
@pytest.mark.parametrize(("scope", "rules"), MUTANTS.values(), ids=MUTANTS.keys())
def test_each_rule_is_needed(scope: FenceScope, rules: Rules) -> None:
    """H1..H4: without it, a reset meets a serving member."""
    assert explore(scope, rules).violation is not None


@pytest.mark.row("H2")
@pytest.mark.soak
@pytest.mark.parametrize(("scope", "rules"), OF_CHANGES.values(), ids=OF_CHANGES.keys())
def test_each_rule_of_changes_is_needed(scope: FenceScope, rules: Rules) -> None:
    """H2: the same of how a node follows the limits."""
    assert explore(scope, rules).violation is not None


SECOND = "a second passes"
HEARD = "the metastore answers the controller"
LOOK = ("the controller reads the fences", "the controller judges")


def test_a_reset_happens() -> None:
    """The reset comes as soon as it may, and no second earlier."""
    lost = (SECOND, SECOND, "a's lease ends", HEARD, *LOOK)
    early = walk(CALM, (*lost, *(SHORT_S - 1) * (SECOND, HEARD), *LOOK))
    assert early[-1].plan is None
    states = walk(CALM, (*lost, *SHORT_S * (SECOND, HEARD), *LOOK, "the reset is committed"))
    assert states[-1].reset
    assert states[-1].member is Member.DEAD


def test_a_minute_without_the_metastore_fences_nobody() -> None:
    asks = (SECOND, "a asks the metastore's members", "no majority answers a")
    back = ("the metastore elects a leader", "a renews its lease", "a gets its answer")
    states = walk(FenceScope(SHORT_S), ("the metastore loses its leader", *60 * asks, *back))
    assert all(each.member is Member.RUNS for each in states)
    assert states[-1].lease == 0


def test_a_silent_metastore_fences_the_node() -> None:
    """No member answers, and none refuses."""
    states = walk(FenceScope(SHORT_S), (fence_s(SHORT_S) + STOP_S + 1) * (SECOND,))
    assert states[-1].member is Member.DEAD


def test_a_decrease_does_not_count_before_the_node_has_followed() -> None:
    scope = FenceScope(LONG_S, outages=False, changes=True)
    lost = (f"ha_reset_s becomes {SHORT_S} s", SECOND, SECOND, "a's lease ends", HEARD, *LOOK)
    early = walk(scope, (*lost, *SHORT_S * (SECOND, HEARD), *LOOK))
    assert early[-1].reset_s == SHORT_S
    assert early[-1].plan is None
    assert walk(scope, (*lost, *LONG_S * (SECOND, HEARD), *LOOK))[-1].plan
    short = fence_s(SHORT_S)
    followed = (
        f"ha_reset_s becomes {SHORT_S} s",
        f"a wants a fence of {short} s",
        f"a's fence of {short} s is written",
    )
    quick = walk(scope, (*followed, *lost[1:], *SHORT_S * (SECOND, HEARD), *LOOK))
    assert quick[-1].plan


@pytest.mark.row("H2")
def test_a_decrease_that_counts_at_once_meets_a_serving_member() -> None:
    """H2: the node has registered with the last of its lease, and keeps to the longer fence."""
    scope = FenceScope(LONG_S, outages=False, changes=True)
    lost = ("a's lease ends", HEARD, *LOOK)
    registered = (SECOND, SECOND, "a's lease ends", "a gets a lease", SECOND, SECOND, "a registers")
    begun = (*registered, "a gets its answer", f"ha_reset_s becomes {SHORT_S} s", *lost)
    waited = (*begun, *SHORT_S * (SECOND, HEARD), *LOOK)
    assert walk(scope, waited)[-1].plan is None
    mutant = replace(REAL, is_due=decreased_at_once)
    assert walk(scope, (*waited, "the reset is committed"), mutant)[-1].member is Member.RUNS


@pytest.mark.row("H1", "H4")
def test_a_silence_and_the_chain_of_evidence_protect_from_each_other() -> None:
    """H1, H4: an outage after the node's lease has ended. Without both rules it is evidence for the node, and
    the controller goes on counting."""
    asks = (SECOND, "a asks the metastore's members", "no majority answers a")
    lost = (SECOND, SECOND, "a's lease ends", HEARD, *LOOK, *2 * (SECOND, HEARD))
    outage = ("the metastore loses its leader", *7 * asks, "the metastore elects a leader", SECOND, HEARD)
    steps, scope = (*lost, *outage, *LOOK), FenceScope(LONG_S)
    goes_on, extends = {"unbroken": through_silence}, {"no_majority": without_a_chain}
    assert walk(scope, steps, replace(REAL, **goes_on))[-1].member is Member.DEAD
    assert walk(scope, steps, replace(REAL, **extends))[-1].plan is None
    both = walk(scope, (*steps, "the reset is committed"), replace(REAL, **goes_on, **extends))
    assert both[-1].member is Member.RUNS
