"""A zone's data nodes follow its filter, in the controllers and in the limit of members."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from app.sql.plan.member_counts import MemberCounts
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.core.topology.data_nodes import DataNodes, compute_data_nodes
from rebalance.core.topology.node_presence import Topology

LIVE = (
    Node("n1", (("region", "EU"),)),
    Node("n2", (("region", "EU"),)),
    Node("n3", (("region", "US"),)),
    Node("x", (("region", "EU"),), profiles=("other",)),
)
ZONE = Zone(ZoneId(1), "Z", 8, 3, None, ("default",))
EU = replace(ZONE, nodes_filter="$[?(@.region == 'EU')]")


@pytest.mark.row("IEP-012")
def test_an_altered_filter_is_followed_at_once() -> None:
    """IEP-012: who lives and no longer matches leaves; so do those that do not live."""
    everywhere = compute_data_nodes(None, Topology.of(LIVE), ZoneIntent(1, ZONE), JSON_PATH, 0)
    assert everywhere == DataNodes(("n1", "n2", "n3"), 2, 3)
    filtered = compute_data_nodes(everywhere, Topology.of(LIVE), ZoneIntent(2, EU), JSON_PATH, 0)
    assert filtered == DataNodes(("n1", "n2"), 2, 3, EU.nodes_filter)
    assert compute_data_nodes(everywhere, Topology.of(LIVE[:1]), ZoneIntent(2, EU), JSON_PATH, 0).nodes == (
        "n1",
    )
    assert DataNodes.decode(filtered.encode()) == filtered


def test_who_does_not_live_stays_while_the_filter_stays() -> None:
    """Decision 1: and no departure lowers the quorum, also of a node that came back without its attribute."""
    filtered = compute_data_nodes(None, Topology.of(LIVE), ZoneIntent(2, EU), JSON_PATH, 0)
    assert compute_data_nodes(filtered, Topology.of(LIVE[1:]), ZoneIntent(2, EU), JSON_PATH, 0) == filtered
    moved = (Node("n1", (("region", "US"),)), *LIVE[1:])
    assert compute_data_nodes(filtered, Topology.of(moved), ZoneIntent(2, EU), JSON_PATH, 0) == DataNodes(
        ("n2",), 2, 3, EU.nodes_filter
    )


def test_fewer_replicas_derive_a_smaller_quorum_a_new_name_does_not() -> None:
    """Decision 1: derived at ALTER of REPLICAS or of the filter, at nothing else."""
    one_left = compute_data_nodes(None, Topology.of(LIVE), ZoneIntent(1, ZONE), JSON_PATH, 0)
    renamed = replace(ZONE, name="OTHER")
    assert compute_data_nodes(one_left, Topology.of(LIVE), ZoneIntent(2, renamed), JSON_PATH, 0) == one_left
    single = replace(ZONE, replicas=1)
    assert compute_data_nodes(one_left, Topology.of(LIVE), ZoneIntent(2, single), JSON_PATH, 0).quorum == 1


def test_members_are_counted_where_the_filter_allows() -> None:
    counts = MemberCounts(lambda zone_id: ("gone", "n3"))
    assert set(counts.of_zone(replace(EU, replicas=9, quorum_size=3), LIVE)) == {"n1", "n2", "gone"}
    assert set(counts.of_zone(replace(ZONE, replicas=9, quorum_size=3), LIVE)) == {"n1", "n2", "n3", "gone"}


def test_the_total_follows_zones_that_come_change_and_go() -> None:
    """The total that is kept equals one that is counted afresh, whatever happens in between."""
    chooser = random.Random(4)
    kept = MemberCounts(lambda zone_id: ())
    zones: dict[int, Zone] = {}
    for _ in range(300):
        zone_id = ZoneId(chooser.randrange(8))
        if zone_id in zones and chooser.random() < 0.3:
            del zones[zone_id]
        else:
            replicas = chooser.choice((1, 2, 3))
            zones[zone_id] = replace(
                ZONE, zone_id=zone_id, partitions=chooser.randrange(1, 9), replicas=replicas
            )
        live = LIVE if chooser.random() < 0.8 else LIVE[:2]
        besides = ZoneId(chooser.randrange(8))
        fresh: Counter[str] = Counter()
        for zone in zones.values():
            if zone.zone_id != besides:
                fresh.update(MemberCounts(lambda zone_id: ()).of_zone(zone, live))
        assert +Counter(kept.of_others(tuple(zones.values()), besides, live)) == fresh
