"""Ownership, and what an exchange commits. ``a:O7@3`` owns up to counter 7 of epoch 3; M moves, L is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, StorePosition
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import (
    PartitionOutcome,
    ResultRecord,
    ResultState,
    changed_outcomes,
)
from rebalance.exchange.core.late_affinity import partition_outcome, waited_for
from rebalance.exchange.core.partition_analysis import ZoneRules, decide_states, untrusted

LETTERS = {item.value[0]: item for item in CopyState}


def reports(text: str) -> dict[str, CopyReport]:
    copies = {}
    for item in text.split():
        counter, _, epoch = item[3:].partition("@")
        copies[item[0]] = CopyReport(LETTERS[item[2]], int(counter or 0), epoch=int(epoch or 0))
    return copies


def states(copies: dict[str, CopyReport]) -> str:
    return " ".join(f"{node}:{item.state.value[0]}" for node, item in sorted(copies.items()))


def outcome(
    in_sync: str, filling: str = "", position: tuple[int, int] = (0, 0), **more: object
) -> PartitionOutcome:
    return PartitionOutcome(tuple(in_sync), tuple(filling), StorePosition(*position), **more)


@pytest.mark.row("PME-090", "PME-139")
@pytest.mark.parametrize(
    ("seen", "known", "joined", "expected"),
    [
        # A tail of a dead primary has more records than was acknowledged since, and counts for nothing.
        ("a:O10@7 b:O12@5", outcome("a"), "b", "a:O b:M"),
        # As many records, of another primary.
        ("a:O11@7 b:O11@5", outcome("a"), "b", "a:O b:M"),
        # Exactly where the owners are (PME-139).
        ("a:O11@7 b:O11@7", outcome("a"), "b", "a:O b:O"),
        # One that stayed is levelled, and stays an owner (PME-093).
        ("a:O11@7 b:O10@7", outcome("ab"), "", "a:O b:O"),
        ("a:O11@7 b:O10@7", outcome("a", "b"), "", "a:O b:O"),
        # No member is there: who comes back with a disk of before must not own.
        ("b:O12@5", outcome("a"), "b", "b:M"),
        ("b:O12@5", outcome("a"), "", "b:M"),
        # It was waited for while it was filled, and has all of it since.
        ("b:O12@5", outcome("a", "b"), "", "b:O"),
        ("b:O12@5", outcome("a", "b"), "b", "b:M"),
        # The last member comes back; with an emptied disk it is none.
        ("a:O9@5", outcome("a", position=(5, 9)), "a", "a:O"),
        ("a:O0@0", outcome("a", position=(5, 9)), "a", "a:M"),
    ],
)
def test_who_may_own(seen: str, known: PartitionOutcome, joined: str, expected: str) -> None:
    rules = ZoneRules(assigns_states=True, joined=frozenset(joined), outcomes=(known,))
    decided, is_lost = decide_states(reports(seen), "ab", rules, outcome=known)
    assert states(decided) == expected
    assert not is_lost


@pytest.mark.row("PME-094", "PME-097")
@pytest.mark.parametrize(
    ("known", "gone", "expected", "is_lost"),
    [
        # Total restart: members have not come back yet.
        (outcome("a"), "", "b:M", False),
        # Another server failed while they are waited for.
        (outcome("a"), "c", "b:M", False),
        # The last owner just went.
        (outcome("a"), "a", "b:L", True),
        (outcome("ac"), "ca", "b:L", True),
    ],
)
def test_waiting_for_owners_is_not_lost(
    known: PartitionOutcome, gone: str, expected: str, is_lost: bool
) -> None:
    rules = ZoneRules(detects_lost=True, gone=tuple(gone), failed=frozenset(gone), outcomes=(known,))
    decided, lost = decide_states(reports("b:M3@1"), "b", rules, outcome=rules.outcome(0))
    assert (states(decided), lost) == (expected, is_lost)


@pytest.mark.parametrize(
    ("seen", "known", "expected", "is_lost"),
    [
        # The last member is back without its copy, or with less than it had.
        ("a:M b:O9@5", outcome("a", position=(5, 9)), "a:M b:L", True),
        ("b:O9@5", outcome("a", position=(5, 9)), "b:L", True),
        ("a:O3@5 b:M", outcome("a", position=(5, 9)), "a:L b:L", True),
        # So are all members; as long as one is away, it may bring everything.
        ("a:M b:M", outcome("ab"), "a:M b:M", True),
        ("a:M b:M", outcome("ac"), "a:M b:M", False),
        # One of them owns.
        ("a:M b:O9@5", outcome("ab", position=(5, 9)), "a:M b:O", False),
    ],
)
def test_members_that_are_all_back_without_their_copies_have_lost_the_partition(
    seen: str, known: PartitionOutcome, expected: str, is_lost: bool
) -> None:
    """No other server can bring it, so none is waited for; then a reset takes the most that is left."""
    joined = frozenset("ab")
    rules = ZoneRules(assigns_states=True, joined=joined, reported=joined, outcomes=(known,))
    decided, lost = decide_states(reports(seen), "ab", rules, outcome=known)
    assert (states(decided), lost) == (expected, is_lost)
    if not lost:
        return
    reset = ZoneRules(reset=True, reported=joined, outcomes=(replace(known, is_lost=True),))
    again, lost = decide_states(decided, "ab", reset, True, reset.outcomes[0])
    assert not lost
    most = max(copy.counter for copy in decided.values())
    assert {copy.counter for copy in again.values() if copy.state is CopyState.OWNING} == {most}


def test_a_partition_whose_last_owner_left_in_order_waits_for_it() -> None:
    """The owner has everything on its disk. One that failed since the last result takes the partition along."""
    known = outcome("ac")
    rules = ZoneRules(detects_lost=True, gone=("c", "a"), failed=frozenset("c"), outcomes=(known,))
    decided, lost = decide_states(reports("b:M3@1"), "b", rules, outcome=rules.outcome(0))
    assert (states(decided), lost) == ("b:M", False)
    rules = replace(rules, failed=frozenset("ca"))
    assert decide_states(reports("b:M3@1"), "b", rules, outcome=rules.outcome(0))[1]


@pytest.mark.row("PME-095", "PME-096")
def test_a_reset_prefers_members_to_longer_logs() -> None:
    known = outcome("a", position=(7, 10), is_lost=True)
    rules = ZoneRules(reset=True, outcomes=(known,))
    decided, lost = decide_states(reports("a:L10@7 b:L12@8 c:L"), "abc", rules, True, known)
    assert (states(decided), lost) == ("a:O b:M c:M", False)
    failed = frozenset("a")
    ignored = ZoneRules(
        detects_lost=True, policy=LossPolicy.IGNORE, gone=("a",), failed=failed, outcomes=(known,)
    )
    decided, lost = decide_states(reports("b:M"), "b", ignored, False, outcome("a"))
    assert (states(decided), lost) == ("b:O", False)


def test_a_reset_is_void_when_the_last_member_went_in_the_same_exchange() -> None:
    """The member was alive when the reset was asked for."""
    known = outcome("a", position=(7, 10), is_lost=True)
    rules = ZoneRules(reset=True, detects_lost=True, gone=("a",), outcomes=(known,))
    decided, lost = decide_states(reports("b:L12@8"), "b", rules, True, known)
    assert (states(decided), lost) == ("b:L", True)


def test_members_that_go_leave_the_set_and_the_last_one_stays() -> None:
    assert outcome("abc").without("ba").in_sync == ("c",)
    assert outcome("abc").without("bca").in_sync == ("a",)
    assert outcome("a").without("a").in_sync == ("a",)


def test_a_set_grows_by_filled_copies_and_shrinks_by_surplus_ones() -> None:
    known = outcome("ab", "c", (5, 9), epoch=5, effective=("a", "c"))
    filled = partition_outcome(known, tuple("ac"), tuple("ac"), reports("a:O9@5 b:O9@5 c:O9@5"), 6, "", False)
    assert filled == outcome("ac", position=(5, 9), epoch=5, effective=("a", "c"))
    # Until all that shall own do, nobody is surplus, and the copy that is filled is waited for.
    unfilled = partition_outcome(known, tuple("ac"), tuple("ac"), reports("a:O9@5 b:O9@5 c:M"), 6, "", False)
    assert unfilled is known
    assert waited_for(unfilled) == {"a", "b", "c"}


def test_a_surplus_member_stays_while_those_that_are_needed_are_levelled() -> None:
    """A surplus member may be the only one that can supply them."""
    known = outcome("ab", (), (5, 9), epoch=5, effective=("a",))
    behind = partition_outcome(known, ("a",), ("a",), reports("a:O7@5 b:O9@5"), 6, "", False)
    assert behind.in_sync == ("a", "b")
    ahead = partition_outcome(known, ("a",), ("a",), reports("a:O9@5 b:O7@5"), 6, "", False)
    assert ahead.in_sync == ("a",)


def test_an_owner_that_was_shed_from_the_set_owns_only_where_the_members_are() -> None:
    """No write has waited for it since. One that was filled meanwhile was waited for."""
    shed, filled = outcome("a"), outcome("a", "b")
    assert untrusted(reports("a:O9@5 b:O7@5"), shed, ()) == {"b"}
    assert untrusted(reports("a:O9@5 b:O9@5"), shed, ()) == set()
    assert untrusted(reports("a:O9@5 b:O7@5"), filled, ()) == set()
    assert untrusted(reports("a:O9@5 b:O7@5"), filled, ("b",)) == {"b"}


def test_an_epoch_begins_with_another_primary_or_another_server_of_its_name() -> None:
    known = outcome("ab", position=(5, 9), epoch=5, effective=("a", "b"))
    seen = reports("a:O9@5 b:O9@5")
    assert partition_outcome(known, tuple("ab"), tuple("ab"), seen, 6, "", False).epoch == 5
    assert partition_outcome(known, tuple("ba"), tuple("ba"), seen, 6, "", False).epoch == 6
    assert partition_outcome(known, tuple("ab"), tuple("ab"), seen, 6, "a", False).epoch == 6
    # Nobody owns: the set stays.
    lost = partition_outcome(known, tuple("ab"), tuple(""), reports("b:L"), 6, "", True)
    assert (lost.in_sync, lost.epoch, lost.is_lost) == (("a", "b"), 5, True)


def test_results_are_a_chain_of_changes() -> None:
    one, two = outcome("a", epoch=1), outcome("ab", epoch=1)
    zone = ZoneId(1)
    first = ResultRecord(TopologyVersion(1), TopologyVersion(2), TopologyVersion(0), {zone: {0: one, 1: one}})
    second = ResultRecord(TopologyVersion(3), TopologyVersion(3), TopologyVersion(2), {zone: {1: two}})
    state = ResultState().after(first).after(second)
    assert state.outcomes == {zone: (one, two)}
    assert changed_outcomes({zone: (one, one)}, {zone: (one, two)}) == {zone: {1: two}}
    with pytest.raises(ValueError, match="follows"):
        ResultState().after(second)


@pytest.mark.parametrize("effective", ["", "bc"])
def test_the_set_of_a_lost_partition_stays_whoever_would_lead_by_the_lists(effective: str) -> None:
    """b and c joined in the exchange that failed the last member: neither has what it has."""
    known = outcome("a", position=(5, 9), epoch=5, effective=("a",))
    lost = partition_outcome(known, tuple("bc"), tuple(effective), reports("b:L3@4 c:L0@0"), 6, "bc", True)
    assert lost == outcome("a", position=(5, 9), epoch=5, is_lost=True)
    assert partition_outcome(lost, tuple("bc"), tuple(effective), reports("b:L3@4"), 7, "", True) is lost
