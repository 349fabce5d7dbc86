"""Losses of a partition with a node, zones that a drain would strand, and data nodes that are drained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.quorum import majority
from catalog.core.zone import TIMER_OFF, Node, Zone, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    NodeRecord,
    Stage,
)
from rebalance.core.moves.drain import Drain, DrainLoss, left_without, losses
from rebalance.core.moves.move_status import PartitionView, StoreOwners
from rebalance.core.topology.data_nodes import compute_data_nodes, next_change_ms
from rebalance.core.topology.node_presence import Topology, observe

NODES = ("a", "b", "c", "d")


def view(
    voters: str, learners: str = "", running: str = "abcd", leader: str = "", stable: str = ""
) -> PartitionView:
    """Nodes are letters. Without ``voters`` the group has published no configuration yet."""
    configured = {name: ConfiguredMember("1", MemberRole.VOTER, "u") for name in voters}
    configured |= {name: ConfiguredMember("2", MemberRole.LEARNER, "u") for name in learners}
    states = {name: MemberState.RUNNING if name in running else MemberState.STARTING for name in NODES}
    return PartitionView(
        None,
        Assignments(tuple(stable)) if stable else None,
        None,
        None,
        True,
        {name: MemberRecord(state, "p", "c") for name, state in states.items()},
        ConfigurationRecord(1, leader, Stage.NONE, configured) if voters else None,
    )


@pytest.mark.parametrize(
    ("seen", "alive", "expected"),
    [
        (view("abc", leader="b"), "abcd", []),
        (view("abc", leader="a"), "abcd", [(DrainLoss.LEADER, "it leads the group; one of b, c takes over")]),
        (view("a", leader="a"), "abcd", [(DrainLoss.LAST_COPY, "no other copy runs; the group has a")]),
        (view("ab", leader="b"), "ab", [(DrainLoss.MAJORITY, "b of a, b would be left, a majority is 2")]),
        (view("abc"), "ab", [(DrainLoss.MAJORITY, "b of a, b, c would be left, a majority is 2")]),
        (
            view("abc", running="ab"),
            "abcd",
            [(DrainLoss.MAJORITY, "b of a, b, c would be left, a majority is 2")],
        ),
        (view("abc"), "a", [(DrainLoss.LAST_COPY, "no other copy runs; the group has a, b, c")]),
        (view("bcd"), "abcd", []),
        (view("bcd", "a"), "abcd", []),
        (view("b", "a"), "a", [(DrainLoss.LAST_COPY, "no other copy runs; the group has a, b")]),
        (view("a", "b"), "ab", [(DrainLoss.MAJORITY, "none of a would be left, a majority is 1")]),
        (view("", stable="ab"), "ab", [(DrainLoss.MAJORITY, "b of a, b would be left, a majority is 2")]),
        (view("", stable="bcd"), "abcd", []),
    ],
)
def test_what_is_lost_with_a(seen: PartitionView, alive: str, expected: list[tuple[DrainLoss, str]]) -> None:
    assert list(losses(seen, "a", frozenset(alive))) == expected


def stored(effective: str, in_sync: str = "", servers: str = "abcd") -> PartitionView:
    owners = StoreOwners(tuple(in_sync or effective), tuple(effective), servers=frozenset(servers))
    return PartitionView(None, Assignments(tuple(in_sync or effective)), None, None, True, owners=owners)


@pytest.mark.parametrize(
    ("seen", "alive", "expected"),
    [
        (stored("bac"), "abcd", []),
        (stored("abc"), "abcd", [(DrainLoss.LEADER, "it is the primary; one of b, c takes over")]),
        (stored("ab"), "ab", [(DrainLoss.LEADER, "it is the primary; one of b takes over")]),
        (stored("ba"), "ab", []),
        (stored("a"), "abcd", [(DrainLoss.LAST_COPY, "no other copy runs that is in sync; the set is a")]),
        (stored("ab"), "a", [(DrainLoss.LAST_COPY, "no other copy runs that is in sync; the set is a, b")]),
        (
            stored("ab", servers="ac"),
            "abcd",
            [(DrainLoss.LAST_COPY, "no other copy runs that is in sync; the set is a, b")],
        ),
        (stored("b", "ab"), "abcd", []),
        (stored("bc"), "abcd", []),
    ],
)
def test_what_is_lost_with_a_store_server(
    seen: PartitionView, alive: str, expected: list[tuple[DrainLoss, str]]
) -> None:
    """One copy that is in sync goes on alone: there is no majority."""
    assert list(losses(seen, "a", frozenset(alive))) == expected


@given(
    st.sets(st.sampled_from(NODES), min_size=1).map(sorted),
    st.sets(st.sampled_from(NODES)),
    st.sets(st.sampled_from(NODES)),
    st.sampled_from(NODES),
)
def test_who_may_stop_leaves_a_majority_that_was_there(
    voters: list[str], alive: set[str], running: set[str], leader: str
) -> None:
    """A node may stop exactly when it is no voter, or leaves a majority of running voters behind."""
    seen = view("".join(voters), running="".join(running), leader=leader)
    hinders = any(loss.hinders for loss, _ in losses(seen, "a", frozenset(alive)))
    left = (set(voters) & alive & running) - {"a"}
    assert hinders == ("a" in voters and len(left) < majority(len(voters)))


@pytest.mark.parametrize(
    ("data_nodes", "living", "drained", "expected"),
    [
        ({"Z": "abc"}, "abc", "a", ()),
        ({"Z": "a", "Y": "ab"}, "abc", "a", ("Z",)),
        ({"Z": "ab"}, "ac", "a", ("Z",)),
        ({"Z": "ab"}, "abc", "ab", ("Z",)),
        ({"Z": ""}, "abc", "a", ()),
        ({"Z": "b"}, "a", "a", ()),
    ],
)
def test_zones_that_would_be_stranded(
    data_nodes: dict[str, str], living: str, drained: str, expected: tuple[str, ...]
) -> None:
    """A zone whose data nodes are all down is no reason: the drain takes nothing from it."""
    assert left_without(data_nodes.items(), frozenset(living), frozenset(drained)) == expected


ZONE = Zone(ZoneId(1), "Z", 4, 3, None, ("default",))
INTENT = ZoneIntent(1, ZONE)


@pytest.mark.parametrize("timers", [(0, TIMER_OFF), (0, 0), (50, 50), (TIMER_OFF, TIMER_OFF)])
def test_a_drained_node_is_no_data_node_at_once(timers: tuple[int, int]) -> None:
    """Timers make no difference, nor whether the node lives; the same holds in a new zone. No quorum is
    lowered."""
    up, down = timers
    intent = ZoneIntent(1, Zone(ZoneId(1), "Z", 4, 3, None, ("default",), up, down))
    records = [NodeRecord(Node(name), "1") for name in "abc"]
    topology = observe(Topology(), records, 1_000)
    before = compute_data_nodes(None, topology, intent, JSON_PATH, 1_000)
    for live in (records, records[:2]):
        drained = observe(topology, live, 2_000, drained=["c"])
        assert (drained.drained, drained.version) == (("c",), topology.version + 1)
        assert observe(drained, live, 3_000, drained=["c"]) is drained
        assert Topology.decode(drained.encode()) == drained
        assert next_change_ms(before, drained, intent.zone, JSON_PATH) == 0
        after = compute_data_nodes(before, drained, intent, JSON_PATH, 2_000)
        assert (after.nodes, after.quorum) == (("a", "b"), before.quorum)
        assert next_change_ms(after, drained, intent.zone, JSON_PATH) is None
        assert compute_data_nodes(None, drained, intent, JSON_PATH, 2_000).nodes == ("a", "b")


def test_a_node_that_is_drained_no_more_comes_in_as_one_that_joined_when_it_did() -> None:
    topology = observe(Topology(), [NodeRecord(Node(name), "1") for name in "abc"], 1_000, drained=["c"])
    without = compute_data_nodes(None, topology, INTENT, JSON_PATH, 1_000)
    back = observe(topology, [NodeRecord(Node(name), "1") for name in "abc"], 9_000)
    assert compute_data_nodes(without, back, INTENT, JSON_PATH, 9_000).nodes == ("a", "b", "c")


def test_a_drain_is_stored() -> None:
    drain = Drain("alice", "größer", 5)
    assert Drain.decode(drain.encode()) == drain
    with pytest.raises(ValueError, match="is not known"):
        Drain.decode(b'{"v":2}')
