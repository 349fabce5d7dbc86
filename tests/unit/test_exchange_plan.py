"""Plans of exchanges by event and node: types, steps, and what may be merged."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import PrimaryStrategy
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_states import (
    ExchangeType,
    affinity_strategy,
    is_mergeable,
    keeps_primaries,
    plan_exchange,
    waits_for_primaries,
)

A, B, C = (ZoneSpec(ZoneId(number), 4, 2) for number in (1, 2, 3))
CLUSTER = Cluster(TopologyVersion(5), {"a": 1, "b": 2}, {"k": 3}, zones={each.zone_id: each for each in (A, B)})


def event(trigger: Trigger, node: str = "", **more: Any) -> DiscoveryEvent:
    return DiscoveryEvent(CLUSTER.version_after(trigger), trigger, node, **more)


CUSTOM = [each for each in Trigger if not each.changes_members]


@pytest.mark.row("PME-007..011", "PME-015")
@pytest.mark.parametrize("trigger", CUSTOM, ids=lambda each: each.value)
def test_custom_events_start_an_exchange(trigger: Trigger) -> None:
    """PME-007 activation, PME-008 deactivation, PME-009 baseline, PME-010 start and PME-011 stop of a zone,
    PME-015 affinity change, and snapshots and log switches, which nothing asks for yet: an exchange of all
    servers, with the next minor version; clients take part as clients."""
    seen = event(trigger, zones=(C,))
    assert seen.version == TopologyVersion(5, 1)
    for server in ("a", "b"):
        plan = plan_exchange(seen, CLUSTER, server, rebalanced=True)
        assert plan.type is ExchangeType.ALL
        assert plan.is_distributed
    assert plan_exchange(seen, CLUSTER, "k", rebalanced=True).type is ExchangeType.CLIENT
    assert not is_mergeable(seen, CLUSTER)


@pytest.mark.row("PME-003", "PME-004", "PME-025", "PME-027", "PME-028")
@pytest.mark.parametrize(
    ("trigger", "node", "is_client", "viewer", "expected"),
    [
        (Trigger.NODE_JOINED, "c", False, "a", ExchangeType.ALL),
        (Trigger.NODE_JOINED, "c", False, "c", ExchangeType.ALL),
        (Trigger.NODE_JOINED, "c", False, "k", ExchangeType.CLIENT),
        (Trigger.NODE_LEFT, "b", False, "a", ExchangeType.ALL),
        (Trigger.NODE_FAILED, "b", False, "a", ExchangeType.ALL),
        (Trigger.NODE_FAILED, "b", False, "k", ExchangeType.CLIENT),
        (Trigger.NODE_JOINED, "c", True, "a", ExchangeType.NONE),
        (Trigger.NODE_JOINED, "c", True, "k", ExchangeType.NONE),
        (Trigger.NODE_JOINED, "c", True, "c", ExchangeType.CLIENT),
        (Trigger.NODE_LEFT, "k", True, "a", ExchangeType.NONE),
        (Trigger.NODE_FAILED, "k", True, "b", ExchangeType.NONE),
    ],
)
def test_types(trigger: Trigger, node: str, is_client: bool, viewer: str, expected: ExchangeType) -> None:
    """PME-025: ALL, CLIENT or NONE, told at the start. PME-003, PME-027: a client that comes or goes is NONE
    for everybody else. PME-028: and CLIENT for itself. PME-004: a server without a baseline that leaves starts
    one."""
    assert (
        plan_exchange(event(trigger, node, order=9, is_client=is_client), CLUSTER, viewer, False).type
        is expected
    )


@pytest.mark.row("PME-004", "PME-005", "PME-006")
@pytest.mark.parametrize(
    ("trigger", "baseline", "rebalanced", "is_local"),
    [
        (Trigger.NODE_LEFT, {"a", "b"}, True, True),
        (Trigger.NODE_LEFT, {"a", "b"}, False, False),
        (Trigger.NODE_LEFT, {"a"}, True, False),
        (Trigger.NODE_LEFT, None, True, False),
        (Trigger.NODE_FAILED, {"a", "b"}, True, False),
    ],
)
def test_a_node_of_the_baseline_leaves_in_order(
    trigger: Trigger, baseline: set[str] | None, rebalanced: bool, is_local: bool
) -> None:
    """PME-005: no node waits for another one then. PME-004: a node outside of the baseline starts an exchange,
    PME-006 so does one that failed, and one that leaves while copies are missing."""
    nodes = frozenset(baseline) if baseline is not None else None
    cluster = Cluster(TopologyVersion(5), {"a": 1, "b": 2}, baseline=nodes)
    plan = plan_exchange(event(trigger, "b"), cluster, "a", rebalanced)
    assert plan.type is ExchangeType.ALL
    assert plan.is_local is is_local


@pytest.mark.row("PME-029", "PME-030", "PME-031", "PME-032", "PME-033")
@pytest.mark.parametrize(
    ("trigger", "node", "zones", "viewer", "starts", "stops"),
    [
        (Trigger.ZONE_START, "", (C,), "a", (C,), ()),
        (Trigger.ACTIVATE, "", (), "a", (A, B), ()),
        (Trigger.NODE_JOINED, "c", (C,), "a", (C,), ()),
        (Trigger.NODE_JOINED, "c", (A,), "a", (), ()),
        (Trigger.NODE_JOINED, "c", (C,), "c", (A, B, C), ()),
        (Trigger.NODE_JOINED, "c", (), "c", (A, B), ()),
        (Trigger.ZONE_STOP, "", (A,), "a", (), (A.zone_id,)),
        (Trigger.DEACTIVATE, "", (), "a", (), (A.zone_id, B.zone_id)),
        (Trigger.ACTIVATE, "", (A,), "a", (A,), ()),
        (Trigger.DEACTIVATE, "", (A,), "a", (), (A.zone_id,)),
        (Trigger.SNAPSHOT_RESTORE, "", (A,), "a", (A,), (A.zone_id,)),
        (Trigger.NODE_LEFT, "b", (), "a", (), ()),
        (Trigger.NODE_FAILED, "b", (), "a", (), ()),
        (Trigger.BASELINE_SET, "", (), "a", (), ()),
        (Trigger.SNAPSHOT_CREATE, "", (), "a", (), ()),
        (Trigger.LOG_SWITCH, "", (), "a", (), ()),
        (Trigger.AFFINITY_CHANGE, "", (), "a", (), ()),
        (Trigger.LOSS_RESET, "", (A,), "a", (), ()),
    ],
)
def test_zones_that_open_and_close(
    trigger: Trigger,
    node: str,
    zones: tuple[ZoneSpec, ...],
    viewer: str,
    starts: tuple[ZoneSpec, ...],
    stops: tuple[ZoneId, ...],
) -> None:
    """PME-029 start and activation, PME-030 stop, PME-031 zones that a joining node brings, PME-032 all of them
    on the joining node; PME-033: nothing in any other case."""
    plan = plan_exchange(event(trigger, node, order=9, zones=zones), CLUSTER, viewer, False)
    assert (plan.starts, plan.stops) == (starts, stops)


ASSIGNS = {
    Trigger.NODE_JOINED,
    Trigger.ACTIVATE,
    Trigger.BASELINE_SET,
    Trigger.TARGET_SET,
    Trigger.ZONE_START,
    Trigger.SNAPSHOT_RESTORE,
}


@pytest.mark.row("PME-093", "PME-097")
@pytest.mark.parametrize("trigger", Trigger, ids=lambda each: each.value)
def test_steps_of_the_coordinator(trigger: Trigger) -> None:
    """PME-093: outdated owners are looked for when a node joins, at activation and when the baseline changes.
    PME-097: lost partitions when a node left or failed, instead."""
    plan = plan_exchange(event(trigger, "b", order=9), CLUSTER, "a", False)
    assert plan.assigns_states is (trigger in ASSIGNS)
    assert plan.detects_lost is (trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED))


@pytest.mark.row("PME-085", "PME-086", "PME-131", "PME-136")
@pytest.mark.parametrize(
    ("triggers", "strategy", "keeps"),
    [
        ([Trigger.ACTIVATE], PrimaryStrategy.AVAILABILITY, False),
        ([Trigger.BASELINE_SET], PrimaryStrategy.AVAILABILITY, True),
        ([Trigger.NODE_LEFT], PrimaryStrategy.AVAILABILITY, False),
        ([Trigger.NODE_FAILED], PrimaryStrategy.AVAILABILITY, False),
        ([Trigger.NODE_JOINED], PrimaryStrategy.JOIN, True),
        ([Trigger.NODE_JOINED, Trigger.NODE_JOINED], PrimaryStrategy.JOIN, True),
        ([Trigger.NODE_JOINED, Trigger.NODE_FAILED], PrimaryStrategy.AVAILABILITY, False),
        ([Trigger.AFFINITY_CHANGE], PrimaryStrategy.AVAILABILITY, False),
    ],
)
def test_strategies(triggers: list[Trigger], strategy: PrimaryStrategy, keeps: bool) -> None:
    """PME-085: by availability at activation, when the baseline changes, when a node leaves. PME-086: as
    backups when nodes only joined. PME-131, PME-136: whose primaries stay."""
    events = tuple(event(trigger, "b") for trigger in triggers)
    assert affinity_strategy(events) is strategy
    assert keeps_primaries(events) is keeps
    assert waits_for_primaries(events) is (Trigger.AFFINITY_CHANGE in triggers)


@pytest.mark.row("PME-067", "PME-070")
def test_what_may_be_merged() -> None:
    """PME-067: members that come or go. PME-070: not a join that brings a new zone, and no custom event."""
    assert is_mergeable(event(Trigger.NODE_JOINED, "c", zones=(A,)), CLUSTER)
    assert is_mergeable(event(Trigger.NODE_LEFT, "b"), CLUSTER)
    assert is_mergeable(event(Trigger.NODE_FAILED, "b"), CLUSTER)
    assert not is_mergeable(event(Trigger.NODE_JOINED, "c", zones=(C,)), CLUSTER)
