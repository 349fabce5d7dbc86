"""Every reference scenario of data nodes and filters has a test that names it, or a line here says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog.core.zone import Node
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.topology.data_nodes import ENTRIES_MAX, NAMES_MAX, DataNodesHistory
from rebalance.core.topology.node_presence import DEPARTED_MAX, EVENTS_MAX, HoldRule, Topology, observe

TESTS = Path(__file__).parents[1]

NUMBERS = (132, 133, *range(135, 138), 139, 141, *range(143, 158), 159, *range(161, 164), *range(165, 168))
SCENARIOS = [f"S{number}" for number in (*NUMBERS, *range(169, 175))]

NOT_APPLICABLE = {
    "S151": "no version comes from outside: ours is guarded by the record's own revision in one store",
    "S156": "no task per zone: one sleep for all zones, and what is due is a short write",
    "S157": "no scheduled tasks to cancel: what waits follows from stored times",
    "S159": "there is no statement that recalculates by hand",
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_scenario_is_accounted_for(scenario: str) -> None:
    named = [
        path
        for path in (*TESTS.rglob("*.py"), *TESTS.rglob("scripts/*.txt"))
        if path != Path(__file__) and re.search(rf"\b{scenario}\b", path.read_text())
    ]
    own = [each.__doc__ or "" for each in globals().values() if callable(each)]
    found = bool(named) or any(re.search(rf"\b{scenario}\b", text) for text in own)
    assert found != (scenario in NOT_APPLICABLE), f"{scenario}: named in {named}"


def test_history_is_bounded_and_keeps_the_last() -> None:
    """S145: the oldest entries go, the last one stays however large it is."""
    history = DataNodesHistory()
    for number in range(ENTRIES_MAX + 10):
        history = history.extended((f"n{number}",), number, number)
    assert len(history.entries) == ENTRIES_MAX
    assert history.at_time(9) is None
    assert history.at_time(10) == ("n10",)
    assert DataNodesHistory.decode(history.encode()) == history
    large = tuple(f"n{number}" for number in range(NAMES_MAX + 1))
    history = history.extended(large, 100, 100)
    assert [each.nodes for each in history.entries] == [large]
    assert history.extended(large, 200, 200) is history


def test_a_clock_that_goes_back_moves_no_event_back() -> None:
    """S155: an entry is never earlier than the one before; neither is an event of a node."""
    history = DataNodesHistory().extended(("a",), 1_000, 0).extended(("b",), 500, 1)
    assert [each.at_ms for each in history.entries] == [1_000, 1_000]
    node = Node("a")
    there = observe(Topology(), [NodeRecord(node, "1")], 1_000)
    away = observe(there, [], 500)
    back = observe(away, [NodeRecord(node, "2")], 700)
    assert [each.at_ms for each in back.events] == [1_000, 1_000, 1_000]
    assert observe(back, [NodeRecord(node, "2")], 2_000) is back


def test_what_is_remembered_of_departed_nodes_is_bounded() -> None:
    """Nodes that left first go first; that they did, and when at the latest, is kept."""
    topology = Topology()
    for number in range(DEPARTED_MAX + 5):
        topology = observe(topology, [NodeRecord(Node(f"n{number:04}"), "1")], 10 * number)
    topology = observe(topology, [], 10 * (DEPARTED_MAX + 5))
    assert (len(topology.nodes), len(topology.events)) == (DEPARTED_MAX, EVENTS_MAX)
    assert topology.nodes[0].node.name == "n0005"
    assert topology.forgotten_ms == 50
    assert Topology.decode(topology.encode()) == topology


def test_most_nodes_gone_at_once_are_waited_for() -> None:
    """One after the other within one lease counts together; the grace period does not begin anew."""
    hold = HoldRule(lease_ms=5_000, grace_ms=10_000)
    names = "abcde"
    records = {name: NodeRecord(Node(name), "1") for name in names}
    topology = observe(Topology(), records.values(), 0, hold)
    topology = observe(topology, [records[name] for name in "bcde"], 20_000, hold)
    topology = observe(topology, [records[name] for name in "cde"], 22_000, hold)
    assert [each.left_ms for each in topology.nodes] == [20_000, 22_000, None, None, None]
    topology = observe(topology, [records[name] for name in "de"], 24_000, hold)
    assert topology.hold_until_ms == 34_000
    topology = observe(topology, [records["e"]], 30_000, hold)
    assert (topology.hold_until_ms, len(topology.seen)) == (34_000, 1)
    returned = observe(topology, records.values(), 33_000, hold)
    assert returned.hold_until_ms is None
    assert [each.joined_ms for each in returned.nodes] == [33_000, 33_000, 0, 0, 0]
    topology = observe(topology, [records["e"]], 34_000, hold)
    assert [each.left_ms for each in topology.nodes] == [20_000, 22_000, 24_000, 30_000, None]


@pytest.mark.row("I3-061")
def test_after_a_silence_nobody_is_believed_gone_for_the_grace_period() -> None:
    """I3-061: leases that end one by one, each less than a majority, after the metastore was silent."""
    hold = HoldRule(lease_ms=5_000, grace_ms=10_000)
    records = {name: NodeRecord(Node(name), "1") for name in "abcde"}
    before = observe(Topology(), records.values(), 0, hold)

    def see(topology: Topology, names: str, now_ms: int, silent_ms: int | None) -> Topology:
        return observe(topology, [records[name] for name in names], now_ms, hold, None, silent_ms)

    topology = see(before, "abcd", 101_000, 100_000)
    assert topology.hold_until_ms == 110_000
    topology = see(topology, "abc", 103_000, 100_000)
    assert topology.hold_until_ms == 110_000
    assert topology.events == before.events
    # All back: nothing happened. Silent again: the time begins anew. Over: they left when they went missing.
    assert see(topology, "abcde", 105_000, 100_000).nodes == before.nodes
    assert see(topology, "abc", 109_000, 108_000).hold_until_ms == 118_000
    over = see(topology, "abc", 110_000, 100_000)
    assert [(each.node, each.at_ms) for each in over.events[5:]] == [("e", 101_000), ("d", 103_000)]
    # Long after the silence, or without one, a departure is one at once.
    for silent_ms in (None, 100_000):
        assert see(before, "abcd", 110_000, silent_ms).hold_until_ms is None
