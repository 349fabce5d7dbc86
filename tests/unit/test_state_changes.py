"""Messages on copies whose states change between exchanges: the changes, and everything to a server that missed
some."""

from __future__ import annotations

from dataclasses import replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    CopyReport,
    CopyState,
    FullMap,
    MapStamp,
    Reception,
    SingleMap,
    changes_of,
)
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.held_maps import HeldMaps

ZONE, OTHER = ZoneId(1), ZoneId(2)
BASIS = TopologyVersion(4)
MOVING, OWNING = CopyReport(CopyState.MOVING), CopyReport(CopyState.OWNING, 7)


def held_maps() -> HeldMaps:
    copies = dict.fromkeys(range(100), MOVING)
    full = FullMap(ZONE, BASIS, "a", MapStamp(1), {"a": dict.fromkeys(range(100), OWNING), "b": copies})
    return HeldMaps(BASIS, BASIS, {ZONE: full, OTHER: replace(full, zone=OTHER)})


def single(sequence: int, owned: int) -> SingleMap:
    """``b`` owns so many of its copies."""
    copies = {number: OWNING if number < owned else MOVING for number in range(100)}
    return SingleMap(ZONE, "b", BASIS, sequence, copies)


def message(held: HeldMaps, sequence: int, owned: int) -> SingleMessage:
    """Message of ``b`` to the coordinator: the changes since what ``b`` knows that to have."""
    news = held.news_of(single(sequence, owned))
    assert news is not None
    copies, since = news
    assert since is not None
    return SingleMessage("b", 2, None, BASIS, {ZONE: copies}, since={ZONE: since})


def test_a_node_tells_what_has_changed() -> None:
    held = held_maps()
    assert held.news_of(single(1, 0)) is None
    told = message(held, 1, 3)
    assert told.maps[ZONE].copies == dict.fromkeys(range(3), OWNING)
    after, reception = held.with_state(told, 1)
    assert reception is Reception.TAKEN
    assert after.maps[ZONE].nodes["b"] == single(1, 3).copies
    assert after.news_of(single(1, 3)) is None
    assert after.with_state(told, 1) == (after, Reception.REPEATED)


def test_changes_of_a_node_fit_only_what_they_follow() -> None:
    """The coordinator has heard more than the node knows: what the node thinks is the same may be another."""
    held = held_maps()
    ahead, _ = held.with_state(message(held, 1, 3), 1)
    assert ahead.with_state(message(held, 2, 5), 1) == (ahead, Reception.GAP)
    after, reception = ahead.with_state(message(ahead, 2, 5), 1)
    assert reception is Reception.TAKEN
    assert after.maps[ZONE].nodes["b"] == single(2, 5).copies


def test_copies_that_are_gone_are_told_by_whole_maps() -> None:
    held = held_maps()
    shorter = SingleMap(ZONE, "b", BASIS, 1, dict.fromkeys(range(50), MOVING))
    assert held.news_of(shorter) == (shorter, None)
    after, _ = held.with_state(SingleMessage("b", 2, None, BASIS, {ZONE: shorter}), 1)
    assert after.maps[ZONE].nodes["b"] == shorter.copies
    assert changes_of(held.maps[ZONE], after.maps[ZONE]) is None
    assert held.with_update(after.changes_after(held, 1)) == (after, False)


def test_the_coordinator_tells_changes() -> None:
    before = held_maps()
    after, _ = before.with_state(message(before, 1, 3), 1)
    update = after.changes_after(before, 1)
    assert {zone: full.nodes for zone, full in update.maps.items()} == {
        ZONE: {"b": dict.fromkeys(range(3), OWNING)}
    }
    assert before.with_update(update) == (after, False)
    assert after.with_update(update) == (after, False), "again"


def test_who_missed_a_change_notices_and_takes_all_maps() -> None:
    first = held_maps()
    second, _ = first.with_state(message(first, 1, 3), 1)
    third, _ = second.with_state(message(second, 2, 5), 1)
    assert first.with_update(third.changes_after(second, 1)) == (first, True)
    # What is said now and then, so that it is noticed although nothing follows.
    assert first.with_update(third.stamps_message(1)) == (first, True)
    assert third.with_update(third.stamps_message(1)) == (third, False)
    assert first.with_update(third.update_message(1)) == (third, False)


def test_changes_of_another_exchange_say_nothing() -> None:
    before = held_maps()
    after, _ = before.with_state(message(before, 1, 3), 1)
    other = replace(before, basis=TopologyVersion(5))
    assert other.with_update(after.changes_after(before, 1)) == (other, False)
    assert other.with_update(after.stamps_message(1)) == (other, False)
