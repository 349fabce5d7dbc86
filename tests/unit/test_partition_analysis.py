"""Conclusions of the coordinator from reported copies. Nodes are letters; ``a:O5`` owns with counter 5."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap, StorePosition, union
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.core.recovery.loss_policy import Access, why_refused
from rebalance.exchange.core.exchange_messages import CopyId, Supplier
from rebalance.exchange.core.partition_analysis import (
    History,
    ZoneOutcome,
    ZoneRules,
    analyse,
    decide_states,
    difference,
    outdated,
    supplier_for,
)

ZONE = ZoneId(1)
LETTERS = {each.value[0]: each for each in CopyState}


def at(counter: int) -> StorePosition:
    return StorePosition(0, counter)


def reports(text: str) -> dict[str, CopyReport]:
    """``a:O5 b:M``: state, counter, and as many rows."""
    return {
        each[0]: CopyReport(LETTERS[each[2]], int(each[3:] or 0), int(each[3:] or 0)) for each in text.split()
    }


def written(found: Mapping[str, CopyReport]) -> str:
    return " ".join(f"{node}:{each.state.value[0]}{each.counter or ''}" for node, each in sorted(found.items()))


def analysed(
    text: str,
    ideal: str,
    rules: ZoneRules,
    history: History | None = None,
) -> ZoneOutcome:
    """A zone of one partition."""
    version = TopologyVersion(4)
    singles = {node: SingleMap(ZONE, node, version, 1, {0: each}) for node, each in reports(text).items()}
    for node in ideal:
        singles.setdefault(node, SingleMap(ZONE, node, version, 1))
    return analyse(union(ZONE, version, "a", 1, singles), [tuple(ideal)], rules, history or {})


def decided(outcome: ZoneOutcome) -> str:
    return written({node: copies[0] for node, copies in outcome.full.nodes.items() if 0 in copies})


JOIN = ZoneRules(assigns_states=True)
LEFT = ZoneRules(detects_lost=True)


@pytest.mark.row("PME-088", "PME-089")
@pytest.mark.parametrize(
    ("seen", "differing"),
    [("a:O5 b:O5", ""), ("a:O5 b:O4", "ab"), ("a:O5 b:M4", ""), ("a:O5 b:R1 c:O7", "ac"), ("a:O5", "")],
)
def test_owners_are_compared(seen: str, differing: str) -> None:
    """PME-088: counters and sizes of owners. PME-089: the warning names zone, partition, nodes and values."""
    found = difference(ZONE, 3, reports(seen))
    if not differing:
        assert found is None
        return
    assert found is not None
    text = found.describe()
    assert "partition 3 of zone 1" in text
    for node in differing:
        assert f"{node} (counter {reports(seen)[node].counter}, size {reports(seen)[node].size})" in text


@pytest.mark.row("PME-088")
def test_sizes_alone_are_a_difference() -> None:
    """PME-088: shown, and nothing is changed by it."""
    seen = {"a": CopyReport(CopyState.OWNING, 5, 5), "b": CopyReport(CopyState.OWNING, 5, 4)}
    assert difference(ZONE, 0, seen) is not None
    assert decide_states(seen, "ab", JOIN) == (seen, False)


@pytest.mark.row("PME-088")
@pytest.mark.parametrize("rules", [JOIN, LEFT, ZoneRules()])
def test_differences_are_looked_for_in_every_exchange(rules: ZoneRules) -> None:
    """PME-088: also where no state is assigned; the exchange goes on."""
    outcome = analysed("a:O5 b:O4", "ab", rules)
    assert [each.partition for each in outcome.differences] == [0]
    assert decided(outcome) == ("a:O5 b:M5" if rules is JOIN else "a:O5 b:O4")


@pytest.mark.row("PME-090")
@pytest.mark.parametrize(
    ("seen", "low"),
    [("a:O100 b:O90", "b"), ("a:O100 b:O100", ""), ("a:O1 b:O2 c:O3", "ab"), ("a:M9 b:O2", ""), ("", "")],
)
def test_outdated_owners(seen: str, low: str) -> None:
    """PME-090: an owner whose counter is below another owner's."""
    assert outdated(reports(seen)) == frozenset(low)


@pytest.mark.row("PME-090", "PME-091", "PME-101", "PME-102")
def test_an_outdated_owner_is_filled_again() -> None:
    """PME-090: 100 and 90: the second is MOVING in the full map. PME-101: and counts as having 100, the actual
    counter, which is in the message. PME-091, PME-102: without history it is cleared and loaded from the
    start."""
    outcome = analysed("a:O100 b:O90", "ab", JOIN)
    assert decided(outcome) == "a:O100 b:M100"
    assert outcome.positions == {0: at(100)}
    assert outcome.reload == {CopyId(ZONE, 0, "b")}
    assert not outcome.suppliers


@pytest.mark.row("PME-056", "PME-091", "PME-103")
@pytest.mark.parametrize(
    ("earliest", "supplier"),
    [
        ({"a": 90}, "a"),
        ({"a": 91}, None),
        ({"a": 0}, "a"),
        ({}, None),
        ({"a": 90, "c": 10}, "c"),
        ({"d": 1}, None),
    ],
)
def test_who_replays_history(earliest: dict[str, int], supplier: str | None) -> None:
    """PME-056: the copy has 90: an owner whose log begins at 90 or before, the one that reaches back furthest;
    PME-103: named in the message with the counter to begin from. PME-091: without such an owner: reload."""
    history = {node: {(ZONE, 0): at(counter)} for node, counter in earliest.items()}
    found = supplier_for(ZONE, 0, reports("a:O100 b:M90 c:O100 d:M50"), at(90), history)
    assert found == (Supplier(supplier, at(90)) if supplier else None)
    outcome = analysed("a:O100 b:O90 c:O100", "abc", JOIN, history)
    copy = CopyId(ZONE, 0, "b")
    assert (copy in outcome.reload) is (supplier is None)
    assert outcome.suppliers == ({copy: Supplier(supplier, at(90))} if supplier else {})


@pytest.mark.row("PME-102")
def test_a_new_copy_has_no_history_and_nothing_to_clear() -> None:
    """PME-102: what never had a row is filled, not cleared."""
    outcome = analysed("a:O100 b:M", "ab", JOIN, {"a": {(ZONE, 0): at(0)}})
    assert not outcome.reload
    assert not outcome.suppliers


@pytest.mark.row("PME-094", "PME-096", "PME-097")
@pytest.mark.parametrize(
    ("seen", "ideal", "rules", "expected", "is_lost"),
    [
        # The node that had it left, and nobody else owns it.
        ("b:M c:R", "b", LEFT, "b:L c:R", True),
        ("b:M c:R", "b", ZoneRules(detects_lost=True, policy=LossPolicy.IGNORE), "b:O c:R", False),
        ("b:O c:M", "bc", LEFT, "b:O c:M", False),
        # It does not come out of it by itself, also when an owner returns.
        ("b:L d:O7", "bd", JOIN, "b:L d:L7", True),
        ("b:L d:O7", "bd", ZoneRules(reset=True), "b:M7 d:O7", False),
        ("b:L3 d:L3", "bd", ZoneRules(reset=True), "b:O3 d:O3", False),
        # Not looked for when a node joins.
        ("b:M", "b", JOIN, "b:M", False),
        # A zone that begins is owned at once.
        ("a:M b:M", "ab", ZoneRules(assigns_states=True, found=True), "a:O b:O", False),
        ("a:M b:O5", "ab", ZoneRules(assigns_states=True, found=True), "a:M5 b:O5", False),
        ("a:M4 b:M4", "ab", ZoneRules(found=True, detects_lost=True), "a:L4 b:L4", True),
    ],
)
def test_lost_partitions(seen: str, ideal: str, rules: ZoneRules, expected: str, is_lost: bool) -> None:
    """PME-094: no living owner: LOST. PME-096: with IGNORE the new copy owns at once. PME-097: only looked for
    when a node left or failed."""
    outcome = analysed(seen, ideal, rules)
    assert decided(outcome) == expected
    assert outcome.lost == (frozenset((0,)) if is_lost else frozenset())


@pytest.mark.row("PME-094")
def test_a_loss_without_any_copy_is_remembered() -> None:
    """PME-094: no node of the ideal list lives: there is no copy to be marked, and it is lost all the same,
    until it is reset."""
    assert analysed("", "", LEFT).lost == {0}
    assert analysed("a:O5", "a", ZoneRules(assigns_states=True, lost=frozenset((0,)))).lost == {0}
    reset = analysed("a:O5", "a", ZoneRules(reset=True, lost=frozenset((0,))))
    assert not reset.lost
    assert decided(reset) == "a:O5"


@pytest.mark.row("PME-059", "PME-074")
def test_a_copy_that_a_merged_event_assigned() -> None:
    """PME-059, PME-074: the ideal node has no copy yet, or one that was going: it is in the map as MOVING."""
    assert decided(analysed("a:O5", "ab", JOIN)) == "a:O5 b:M5"
    outcome = analysed("a:O5 b:R3", "ab", JOIN, {"a": {(ZONE, 0): at(0)}})
    assert decided(outcome) == "a:O5 b:M5"
    assert outcome.reload == {CopyId(ZONE, 0, "b")}
    assert decided(analysed("a:O5 b:E", "ab", JOIN)) == "a:O5 b:M5"


@pytest.mark.row("PME-137")
def test_a_partly_outdated_node() -> None:
    """PME-137: of two partitions one is outdated: that copy is filled again, the other one owns."""
    version = TopologyVersion(4)
    old, new = CopyReport(CopyState.OWNING, 3, 3), CopyReport(CopyState.OWNING, 8, 8)
    singles = {
        "a": SingleMap(ZONE, "a", version, 1, {1: old, 2: new}),
        "b": SingleMap(ZONE, "b", version, 1, {1: new, 2: new}),
    }
    lists = [("a", "b")] * 3
    outcome = analyse(union(ZONE, version, "b", 1, singles), lists, JOIN, {})
    assert outcome.full.nodes["a"][1].state is CopyState.MOVING
    assert outcome.full.nodes["a"][2].state is CopyState.OWNING


REFUSED = {
    LossPolicy.IGNORE: {},
    LossPolicy.READ_ONLY_SAFE: {(Access.READ, 1), (Access.WRITE, 0), (Access.WRITE, 1)},
    LossPolicy.READ_ONLY_ALL: {(Access.WRITE, 0), (Access.WRITE, 1)},
    LossPolicy.READ_WRITE_SAFE: {(Access.READ, 1), (Access.WRITE, 1)},
    LossPolicy.READ_WRITE_ALL: {},
}


@pytest.mark.row("PME-095")
@pytest.mark.parametrize("policy", LossPolicy, ids=lambda each: each.value)
def test_policies(policy: LossPolicy) -> None:
    """PME-095: partition 1 is lost, partition 0 is not; the reason names policy and partition."""
    for access in Access:
        for partition in (0, 1):
            reason = why_refused(policy, access, partition, {1})
            assert bool(reason) is ((access, partition) in REFUSED[policy])
            assert not reason or (policy.value in reason and "1" in reason)
            assert not why_refused(policy, access, partition, ())


REPORT = st.builds(CopyReport, st.sampled_from(CopyState), st.integers(0, 2), st.integers(0, 2))
SEEN = st.dictionaries(st.sampled_from("abc"), REPORT)
RULES = st.builds(
    ZoneRules,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from((frozenset[int](), frozenset((0,)))),
    st.sampled_from(LossPolicy),
)


@pytest.mark.row("PME-090", "PME-094")
@given(SEEN, st.permutations("abc").flatmap(lambda names: st.integers(0, 3).map(lambda n: names[:n])), RULES)
def test_what_holds_of_every_decision(seen: dict[str, CopyReport], ideal: list[str], rules: ZoneRules) -> None:
    """PME-090, PME-094: lost only if no node owns it, and then no copy is owned; where states are assigned all
    owners have the highest counter of the owners before; a copy that owned and does not any more is filled
    anew or lost."""
    states, is_lost = decide_states(seen, ideal, rules, 0 in rules.lost)
    owners = {node for node, each in states.items() if each.state is CopyState.OWNING}
    before = {node for node, each in seen.items() if each.state is CopyState.OWNING}
    if is_lost:
        assert not owners
    if rules.assigns_states and before and not is_lost:
        assert len({states[node].counter for node in owners}) <= 1
    was_lost = 0 in rules.lost or any(each.state is CopyState.LOST for each in seen.values())
    if before and not was_lost:
        assert not is_lost
        assert owners & before
        assert max(seen[node].counter for node in owners) == max(seen[node].counter for node in before)
    left = {states[node].state for node in before - owners}
    assert left <= {CopyState.MOVING, CopyState.LOST}
