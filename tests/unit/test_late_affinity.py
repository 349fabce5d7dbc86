"""Effective assignments from exchange to exchange, the wait list of the switch, and copies not needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    CopyReport,
    CopyState,
    FullMap,
    MapStamp,
    PrimaryStrategy,
)
from rebalance.core.partition_maps.topology_version import Cluster, TopologyVersion, ZoneSpec
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.exchange.core.late_affinity import (
    ZoneAffinity,
    can_switch,
    has_ready_primaries,
    ideal_lists,
    is_rebalanced,
    late_effective,
    surplus_partitions,
    wait_list,
    without_node,
    zone_affinity,
)

ZONE = ZoneId(1)
LETTERS = {each.value[0]: each for each in CopyState}


def states(text: str) -> dict[str, CopyState]:
    return {each[0]: LETTERS[each[2]] for each in text.split()}


def full(*partitions: str) -> FullMap:
    """One text for each partition: ``a:O b:M``."""
    nodes: dict[str, dict[int, CopyReport]] = {node: {} for node in "abcd"}
    for number, text in enumerate(partitions):
        for node, state in states(text).items():
            nodes[node][number] = CopyReport(state)
    return FullMap(ZONE, TopologyVersion(4), "a", MapStamp(1), nodes)


def affinity(*pairs: str) -> ZoneAffinity:
    """``ideal/effective`` by partition."""
    split = [each.split("/") for each in pairs]
    return ZoneAffinity(tuple(tuple(ideal) for ideal, _ in split), tuple(tuple(real) for _, real in split))


@pytest.mark.row("PME-081", "PME-083", "PME-084", "PME-086", "PME-131", "PME-133", "PME-136")
@pytest.mark.parametrize(
    ("ideal", "reported", "previous", "strategy", "joined", "keeps", "expected"),
    [
        # PME-083, PME-084: by availability.
        ("ab", "a:O b:M", "", PrimaryStrategy.AVAILABILITY, "", False, "ab"),
        ("ab", "a:M b:O", "", PrimaryStrategy.AVAILABILITY, "", False, "ba"),
        ("ab", "a:M b:M c:O", "", PrimaryStrategy.AVAILABILITY, "", False, "cab"),
        # PME-133: ideal [n4, n2], before [n2, n3]: n2 leads, n4 is a backup.
        ("db", "d:M b:O c:O", "bc", PrimaryStrategy.JOIN, "d", True, "bd"),
        # PME-081: and still does when n4 owns its copy, until the switch ran.
        ("db", "d:O b:O c:O", "bd", PrimaryStrategy.JOIN, "", True, "bd"),
        ("db", "d:O b:O c:O", "bd", PrimaryStrategy.AVAILABILITY, "", False, "db"),
        # The primary is in nobody's plan any more, and stays all the same.
        ("db", "d:M b:O c:O", "cb", PrimaryStrategy.JOIN, "d", True, "cdb"),
        # PME-136: the baseline changed: primaries keep their place.
        ("ab", "a:O b:O", "ba", PrimaryStrategy.AVAILABILITY, "", True, "ba"),
        # The primary's copy is outdated: it cannot stay.
        ("ab", "a:O b:M", "ba", PrimaryStrategy.AVAILABILITY, "", True, "ab"),
        # PME-086: a joiner is a backup, whoever led before.
        ("db", "d:O b:O", "", PrimaryStrategy.JOIN, "d", True, "bd"),
    ],
)
def test_the_effective_list(
    ideal: str, reported: str, previous: str, strategy: PrimaryStrategy, joined: str, keeps: bool, expected: str
) -> None:
    """PME-081, PME-083, PME-084, PME-086, PME-131, PME-133, PME-136."""
    found = late_effective(ideal, states(reported), previous, strategy, joined, keeps)
    assert "".join(found) == expected


@pytest.mark.row("PME-105")
def test_a_zone_of_several_partitions() -> None:
    """PME-105: what is not ideal is the difference that the full message carries; both ways give one result."""
    seen = full("a:O b:O", "a:M b:O", "b:O c:O")
    found = zone_affinity(
        seen, (("a", "b"), ("a", "b"), ("b", "c")), (), PrimaryStrategy.AVAILABILITY, (), False
    )
    assert found.diff == {1: ("b", "a")}
    assert ZoneAffinity.from_diff(found.ideal, found.diff) == found
    assert [found.primary(number) for number in range(3)] == ["a", "b", "b"]


@pytest.mark.row("PME-134", "PME-138")
@pytest.mark.parametrize(
    ("reported", "waiting", "switches"),
    [
        (("d:M b:O", "d:M c:O"), {(ZONE, 0): "d", (ZONE, 1): "d"}, False),
        (("d:O b:O", "d:M c:O"), {(ZONE, 1): "d"}, False),
        (("d:O b:O", "d:O c:O"), {}, True),
    ],
)
def test_the_wait_list(
    reported: tuple[str, ...], waiting: dict[tuple[ZoneId, int], str], switches: bool
) -> None:
    """PME-134: the switch is asked for when every new primary owns its copy. PME-138: the list follows from the
    maps, which every server has."""
    held = {ZONE: affinity("db/bd", "dc/cd")}
    assert wait_list(held, {ZONE: full(*reported)}) == waiting
    assert can_switch(held, {ZONE: full(*reported)}) is switches


@pytest.mark.row("PME-134", "PME-138")
def test_a_lost_partition_holds_up_nobody() -> None:
    """PME-134, PME-138: it is not in the wait list, and the late primaries of other partitions switch."""
    held = {ZONE: affinity("db/bd", "dc/")}
    seen = {ZONE: full("d:O b:O", "d:L c:L")}
    assert not wait_list(held, seen)
    assert can_switch(held, seen)


@pytest.mark.row("PME-134")
def test_a_switch_leaves_primaries_whose_successors_are_not_ready_where_they_are() -> None:
    """PME-134: the switch is that of other partitions, or of another zone. No other node leads for the time
    between."""
    seen = full("a:O b:O d:M", "a:O b:O d:O")
    before = (("a", "d", "b"), ("a", "d", "b"))
    ideal = (("d", "b"), ("d", "b"))
    switched = zone_affinity(seen, ideal, before, PrimaryStrategy.AVAILABILITY, (), False, waits=True)
    assert switched.effective == (("a", "d", "b"), ("d", "b"))


@pytest.mark.row("PME-134")
def test_some_late_primary_is_ready() -> None:
    """PME-134: what is asked when the others have been waited for long enough."""
    assert has_ready_primaries(affinity("db/bd", "dc/cd"), full("d:M b:O", "d:O c:O"))
    assert not has_ready_primaries(affinity("db/bd", "dc/cd"), full("d:M b:O", "d:M c:O"))
    assert not has_ready_primaries(affinity("ab/ab"), full("a:O b:O"))


@pytest.mark.row("PME-134")
def test_owners_in_another_order_are_switched() -> None:
    """PME-134: no copy is filled for that, and the new primary is ready at once."""
    assert can_switch({ZONE: affinity("ba/ab")}, {ZONE: full("a:O b:O")})
    assert not can_switch({ZONE: affinity("ba/ab")}, {ZONE: full("a:O b:M")})


@pytest.mark.row("PME-134")
def test_nothing_to_switch() -> None:
    """PME-134: nothing is late, or it is lost, or its ideal nodes are away: no switch would ever end that."""
    assert not can_switch({ZONE: affinity("ab/ab")}, {ZONE: full("a:O b:O")})
    assert not can_switch({ZONE: affinity("ab/")}, {ZONE: full("a:L b:L")})
    assert not can_switch({ZONE: affinity("/c")}, {ZONE: full("c:O")})


@pytest.mark.row("PME-080")
@pytest.mark.parametrize(
    ("lists", "reported", "expected"),
    [
        ("ab/ab", "a:O b:O", True),
        ("ab/ba", "a:O b:O", False),
        ("ab/ab", "a:O b:M", False),
        ("ab/ab", "a:O", False),
    ],
)
def test_rebalanced(lists: str, reported: str, expected: bool) -> None:
    """PME-080: every list ideal, every copy in it owned."""
    assert is_rebalanced({ZONE: affinity(lists)}, {ZONE: full(reported)}) is expected


@pytest.mark.row("PME-082", "PME-119")
@pytest.mark.parametrize(
    ("lists", "reported", "own", "goes"),
    [
        ("db/db", "d:O b:O a:O", "O", True),
        ("db/db", "d:M b:O a:O", "O", False),
        ("db/db", "d:O a:O", "O", False),
        # It still leads: not before the switch.
        ("db/adb", "d:O b:O a:O", "O", False),
        # The map has not heard that it owns; the others do.
        ("db/db", "d:O b:O a:M", "O", True),
        ("db/db", "d:M b:O a:M", "O", False),
        # A move that was given up: nobody counts on it.
        ("db/db", "d:M b:O a:M", "M", True),
        ("ab/ab", "a:O b:O", "O", False),
        ("db/db", "d:L b:L a:L", "L", False),
        # All ideal nodes are away.
        ("/a", "a:O", "O", False),
    ],
)
@pytest.mark.parametrize("in_sync", [None, "bd", "abd"])
def test_copies_that_go(lists: str, reported: str, own: str, goes: bool, in_sync: str | None) -> None:
    """PME-119, PME-082: node a gives up its copy when it is in neither list and every ideal node owns one; not
    before a result has it out of the in-sync set."""
    outcomes = () if in_sync is None else (PartitionOutcome(tuple(in_sync)),)
    found = surplus_partitions(full(reported), affinity(lists), "a", {0: LETTERS[own]}, outcomes)
    assert found == (frozenset((0,)) if goes and in_sync != "abd" else frozenset())


@pytest.mark.row("PME-005")
def test_a_node_that_left_in_order() -> None:
    """PME-005: the next in each list is the first."""
    assert without_node(affinity("ab/ab", "bc/bc", "ca/ca"), "a") == affinity("b/b", "bc/bc", "c/c")


@pytest.mark.row("PME-005")
def test_a_baseline_node_that_is_away_keeps_its_place() -> None:
    """PME-005: its copies are not made anew elsewhere."""

    def function(zone: ZoneSpec, nodes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        return (nodes[: zone.copies], nodes[-zone.copies :])

    zone, there = ZoneSpec(ZONE, 2, 2), {"a": 1, "b": 2, "c": 3}
    assert ideal_lists(function, zone, Cluster(servers=there)) == (("a", "b"), ("b", "c"))
    base = frozenset(("a", "b", "z"))
    assert ideal_lists(function, zone, Cluster(servers=there, baseline=base)) == (("a", "b"), ("b",))


NAMES = "abcd"
LISTS = st.permutations(NAMES).flatmap(lambda order: st.integers(1, 3).map(lambda count: tuple(order[:count])))
REPORTED = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CopyState))


@pytest.mark.row("PME-079", "PME-131")
@given(
    LISTS,
    REPORTED,
    LISTS,
    st.sampled_from(PrimaryStrategy),
    st.frozensets(st.sampled_from(NAMES)),
    st.booleans(),
)
def test_what_holds_of_every_list(
    ideal: tuple[str, ...],
    reported: dict[str, CopyState],
    previous: tuple[str, ...],
    strategy: PrimaryStrategy,
    joined: frozenset[str],
    keeps: bool,
) -> None:
    """PME-079: the primary owns its copy; there is one as soon as anybody does. PME-131: with late affinity the
    primary changes only if it must. No node is there twice, every ideal node is there."""
    found = late_effective(ideal, reported, previous, strategy, joined, keeps)
    owners = {node for node, state in reported.items() if state is CopyState.OWNING}
    assert bool(found) is bool(owners)
    if found:
        assert found[0] in owners
        assert len(set(found)) == len(found)
        assert set(ideal) <= set(found) <= {*ideal, found[0]}
    if keeps and previous[0] in owners:
        assert found[0] == previous[0]
