"""Single maps, full maps, states of copies and topology versions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    TRANSITIONS,
    CopyReport,
    CopyState,
    FullMap,
    ImpossibleTransitionError,
    MapStamp,
    Reception,
    SingleMap,
    changed_state,
    union,
    with_single,
)
from rebalance.core.partition_maps.topology_version import Cluster, DiscoveryEvent, TopologyVersion, Trigger

ZONE = ZoneId(7)
V9 = TopologyVersion(9, 3)
OWNING, MOVING = CopyReport(CopyState.OWNING, 5, 4), CopyReport(CopyState.MOVING)


def single(node: str, sequence: int, **copies: CopyReport) -> SingleMap:
    """``p3=OWNING``."""
    return SingleMap(ZONE, node, V9, sequence, {int(name[1:]): each for name, each in copies.items()})


def full(*singles: SingleMap) -> FullMap:
    return union(ZONE, V9, "a", 1, {each.node: each for each in singles})


ALLOWED = {
    (None, CopyState.MOVING),
    (None, CopyState.OWNING),
    (None, CopyState.LOST),
    (CopyState.MOVING, CopyState.OWNING),
    (CopyState.MOVING, CopyState.RENTING),
    (CopyState.MOVING, CopyState.LOST),
    (CopyState.OWNING, CopyState.MOVING),
    (CopyState.OWNING, CopyState.RENTING),
    (CopyState.OWNING, CopyState.LOST),
    (CopyState.RENTING, CopyState.EVICTED),
    (CopyState.RENTING, CopyState.MOVING),
    (CopyState.RENTING, CopyState.LOST),
    (CopyState.EVICTED, CopyState.MOVING),
    (CopyState.EVICTED, CopyState.OWNING),
    (CopyState.EVICTED, CopyState.LOST),
    (CopyState.LOST, CopyState.OWNING),
    (CopyState.LOST, CopyState.MOVING),
    (CopyState.LOST, CopyState.RENTING),
}


@pytest.mark.row("PME-140")
@pytest.mark.parametrize(("before", "after"), list(itertools.product((None, *CopyState), CopyState)), ids=str)
def test_the_states_of_a_copy(before: CopyState | None, after: CopyState) -> None:
    """PME-140: OWNING, MOVING, RENTING, EVICTED, LOST; what is not in the table is refused, and the error says
    what is allowed."""
    if (before, after) in ALLOWED or before is after:
        assert changed_state(before, after) is after
        return
    with pytest.raises(ImpossibleTransitionError) as caught:
        changed_state(before, after)
    for each in TRANSITIONS[before]:
        assert each.value in str(caught.value)
    assert after.value in str(caught.value)


@pytest.mark.row("PME-062", "PME-063", "PME-065")
def test_what_a_single_map_shows() -> None:
    """PME-063: moving count, topology version, update sequence and size are fields and in the log line.
    PME-062, PME-065: one map per zone, with state, update counter and size of each partition."""
    seen = single("b", 161, p0=OWNING, p4=MOVING)
    assert (seen.moving, str(seen.version), seen.sequence, seen.size) == (1, "9.3", 161, 2)
    assert seen.describe() == "zone=7 moving=1 top=9.3 updateSeq=161 size=2"
    assert seen.zone == ZONE
    assert seen.copies[0] == CopyReport(CopyState.OWNING, counter=5, size=4)


@pytest.mark.row("PME-106", "PME-111")
def test_what_a_full_map_shows() -> None:
    """PME-106: coordinator, its order, update sequence, size and version; PME-111: node -> partition ->
    state."""
    seen = full(single("a", 0, p0=OWNING), single("b", 4, p0=MOVING, p1=OWNING), single("c", 0))
    assert seen.describe() == "zone=7 nodeId=a nodeOrder=1 updateSeq=0 size=3 topVer=9.3"
    assert seen.nodes["b"][1].state is CopyState.OWNING
    assert seen.states(0) == {"a": CopyState.OWNING, "b": CopyState.MOVING}
    assert seen.owners(0) == {"a"}
    assert seen.entries == 3


@pytest.mark.row("PME-017", "PME-098")
def test_the_full_map_is_the_union_of_the_single_maps() -> None:
    """PME-017, PME-098."""
    parts = [single("a", 1, p0=OWNING), single("b", 2, p0=MOVING), single("c", 3, p1=OWNING)]
    seen = full(*parts)
    assert {node: dict(copies) for node, copies in seen.nodes.items()} == {
        each.node: dict(each.copies) for each in parts
    }
    assert full(parts[0]).nodes == {"a": parts[0].copies}


@pytest.mark.row("PME-121")
@pytest.mark.parametrize(
    ("update", "reception"),
    [
        (single("b", 3, p0=OWNING), Reception.TAKEN),
        (single("b", 2, p0=OWNING), Reception.REPEATED),
        (single("b", 1, p0=OWNING), Reception.STALE),
        (single("x", 9, p0=OWNING), Reception.UNKNOWN_NODE),
    ],
)
def test_an_overtaken_or_repeated_map_changes_nothing(update: SingleMap, reception: Reception) -> None:
    """PME-121: the sequence of the full map grows with each change, and with nothing else."""
    before = full(single("a", 0, p0=OWNING), single("b", 2, p0=MOVING))
    after, found = with_single(before, update)
    assert found is reception
    if reception is Reception.TAKEN:
        assert after.nodes["b"] == update.copies
        assert after.nodes["a"] == before.nodes["a"]
        assert after.stamp == MapStamp(1, 1)
    else:
        assert after is before


@pytest.mark.row("PME-109")
@given(st.permutations([1, 2, 3, 4, 5]), st.lists(st.integers(0, 4), max_size=5))
def test_the_newest_map_wins_in_any_order(order: list[int], repeats: list[int]) -> None:
    """PME-109: what the full map says of a node may lag behind it, but is something that it said, and the
    newest once that has come, however messages were delayed or repeated."""
    seen = full(single("a", 0), single("b", 0))
    newest = 0
    for sequence in [*order, *(order[index] for index in repeats)]:
        seen, _ = with_single(seen, single("b", sequence, p0=CopyReport(CopyState.OWNING, sequence)))
        newest = max(newest, sequence)
        assert seen.nodes["b"][0].counter == newest == seen.heard["b"]


@pytest.mark.row("PME-019", "PME-020")
def test_versions_of_the_topology() -> None:
    """PME-019: members change 5.0 -> 6.0. PME-020: a zone that comes or goes changes 6.0 -> 6.1."""
    cluster = Cluster(TopologyVersion(5), servers={"a": 1})
    joined = cluster.after(
        DiscoveryEvent(cluster.version_after(Trigger.NODE_JOINED), Trigger.NODE_JOINED, "b", 2)
    )
    assert str(joined.version) == "6.0"
    for trigger in (Trigger.ZONE_START, Trigger.ZONE_STOP):
        assert str(joined.version_after(trigger)) == "6.1"
    assert str(TopologyVersion(6, 1).next_major) == "7.0"
    assert TopologyVersion(6, 10) > TopologyVersion(6, 9) > TopologyVersion(5, 99)
    assert TopologyVersion.parse("12.34") == TopologyVersion(12, 34)
    for text in ("", "6", "6.", "a.b", "-1.0", "1.2.3"):
        with pytest.raises(ValueError, match=r"major\.minor"):
            TopologyVersion.parse(text)


def test_an_event_out_of_turn_is_refused() -> None:
    cluster = Cluster(TopologyVersion(5), servers={"a": 1})
    with pytest.raises(ValueError, match=r"has version 7\.0, the next one is 6\.0"):
        cluster.after(DiscoveryEvent(TopologyVersion(7), Trigger.NODE_LEFT, "a"))


@pytest.mark.row("PME-110")
def test_the_coordinator_is_the_oldest_server() -> None:
    """PME-110: lowest order, by joins and not by names; exactly one while there is a server."""
    cluster = Cluster(servers={"a": 9, "b": 3, "c": 5}, clients={"z": 1})
    order = []
    while cluster.servers:
        assert cluster.coordinator is not None
        order.append(cluster.coordinator)
        event = DiscoveryEvent(cluster.version.next_major, Trigger.NODE_FAILED, cluster.coordinator)
        cluster = cluster.after(event)
    assert order == ["b", "c", "a"]
    assert cluster.coordinator is None
