"""A store zone as clients see it: state, leader, copies, routing and progress of its partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli.follow import FollowProgress
from app.contract.columns import Facts, sql_columns
from app.contract.zones import LocalCopy, MappedCopyRow, Progress
from app.views.partition_map import map_json
from app.views.recovery_views import partition_states
from app.views.routing import RoutingView
from catalog.core.zone import STORE_ENGINE
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.kernels.partition_map import decode_map
from tests.fixtures.committed_ring import incarnation_of, outcome
from tests.unit.store_world import NAMES, PARTITIONS, ZONE, Stored, stored_zone

AFFINITY = ("IDEAL", "EFFECTIVE", "PREFERRED_PRIMARY", "PRIMARY_NODE", "IS_IDEAL")


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    async with stored_zone(tmp_path) as zone:
        yield zone


def in_sql(row: type, body: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the row with the values that REST has."""
    return {sql: column.cell(Facts(None, body)) for sql, column in sql_columns(row).items()}


async def test_before_its_first_exchange_a_zone_waits_for_servers_and_owners(stored: Stored) -> None:
    """Members are not waited for: none will come."""
    assert stored.status() == ("WAITING", "SERVER_DOWN: n1, n2, n3")
    await stored.world.metastore.commit(stored.ring.after(NAMES, {}))
    await stored.world.settle()
    assert stored.status() == ("WAITING", "OWNERS_AWAITED: none yet")
    assert stored.endpoints.route(PartitionId(ZONE, 0)).engine == STORE_ENGINE
    await stored.commit([PartitionOutcome()] * PARTITIONS)
    assert stored.progress() == ("MOVING", {"OWNERS_AWAITED: none yet": PARTITIONS})


async def test_a_zone_whose_owners_are_the_assigned_ones_has_converged(stored: Stored) -> None:
    await stored.commit(stored.owned)
    assert stored.progress() == ("CONVERGED", {})
    body = stored.views.partition(PartitionId(ZONE, 0))
    primary = stored.lists[0][0]
    assert (body["leader"], body["term"], body["members"]) == (primary, None, [])
    assert body["copies"] == [
        {"node": name, "state": "HEALTHY", "leads": name == primary} for name in sorted(NAMES)
    ]
    assert [phase["state"] for phase in body["phases"]] == ["DONE", "NOT_BEGUN", "DONE", "DONE"]
    assert {node["name"]: node["copies"] for node in stored.views.nodes()} == dict.fromkeys(NAMES, PARTITIONS)


@pytest.mark.row("PME-076", "PME-080")
async def test_ideal_and_real_lists_are_shown_as_the_coordinator_has_them(stored: Stored) -> None:
    """PME-076: a late primary leads no sooner than the exchange that says so, though it owns its copy. PME-080:
    without one both are the same list."""
    late, alone, *rest = stored.owned
    first, second, third = stored.lists[0]
    late = replace(late, effective=(second, first, third))
    alone = replace(alone, in_sync=stored.lists[1][2:], effective=stored.lists[1][::-1])
    await stored.commit([late, alone, *rest])
    found = await stored.column("SELECT * FROM affinity ORDER BY partition_id", *AFFINITY)
    assert found == [
        (", ".join(ideal), ", ".join(outcome.effective), ideal[0], outcome.effective[0], number > 1)
        for number, (ideal, outcome) in enumerate(zip(stored.lists, [late, alone, *rest], strict=True))
    ]


async def test_rest_and_sql_tell_the_same_of_a_zone_that_moves(stored: Stored) -> None:
    """The zone's published map, its copies, and its progress are each made from one description."""
    await stored.commit([replace(one, position=StorePosition(1, 7)) for one in stored.owned], without=["n1"])
    (zone,) = (await stored.world.catalog.snapshot()).zones
    assert stored.map is not None
    place = {"zone_id": ZONE, "zone": zone.name}
    partitions = [stored.views.partition(PartitionId(ZONE, number)) for number in range(PARTITIONS)]
    told: Any = map_json(zone, stored.map)
    mapped = [
        {**told, **entry, **place, **copy, "node": node, "is_primary": node == entry["primary"]}
        for entry in told["partitions"]
        for node, copy in entry["copies"].items()
    ]
    assert await stored.objects("SELECT * FROM partition_map") == [
        in_sql(MappedCopyRow, each) for each in mapped
    ]
    copies = [
        {**place, "partition": body["partition"], **copy, "estimated_rows": None}
        for body in partitions
        for copy in body["copies"]
    ]
    found = await stored.objects("SELECT * FROM local_zone_partition_states")
    assert found == [in_sql(LocalCopy, each) for each in copies]
    progress = in_sql(Progress, stored.views.progress(ZONE, 1))
    (change,) = await stored.objects("SELECT * FROM operations")
    assert {name: change[name] for name in progress} == {**progress, "STATE": "WAITING"}


async def test_routes_name_the_primary_first_and_follow_exchanges(stored: Stored) -> None:
    await stored.commit(stored.owned)
    routing = RoutingView(stored.world.mirror, stored.world.keyspace, stored.endpoints, stored.endpoints.basis)
    (zone,) = (await stored.world.catalog.snapshot()).zones
    first = routing.document(zone)
    assert first.body["engine"] == STORE_ENGINE
    assert first.body["partitions"][0]["voters"] == [stored.url(name) for name in stored.lists[0]]
    assert routing.document(zone).body["partitions"] is first.body["partitions"]
    turned = [outcome(*reversed(stored.lists[0])), *stored.owned[1:]]
    await stored.commit(turned)
    second = routing.document(zone)
    assert second.body["partitions"][0]["voters"] == [stored.url(name) for name in stored.lists[0][::-1]]
    assert second.digest != first.digest
    assert second.version > first.version


async def test_a_server_that_failed_leads_nothing_and_is_not_routed_to(stored: Stored) -> None:
    """The same holds before the next exchange has found another primary."""
    await stored.commit(stored.owned, without=["n1"])
    for number, names in enumerate(stored.lists):
        assert stored.status(number) == ("WAITING", "SERVER_DOWN: n1")
        leader = "" if names[0] == "n1" else names[0]
        assert stored.views.partition(PartitionId(ZONE, number))["leader"] == leader
        urls = [stored.url(name) for name in names if name != "n1"]
        assert stored.endpoints.route(PartitionId(ZONE, number)).voters == tuple(urls)


@pytest.mark.parametrize("is_suspected", [True, False])
async def test_a_server_that_does_not_answer_is_named_before_it_has_failed(
    stored: Stored, is_suspected: bool
) -> None:
    """Another member suspects it, or its heartbeat was deleted. Its copies count again once it answers."""
    await stored.commit(stored.owned)
    keys, metastore = stored.world.keyspace, stored.world.metastore
    suspicion, heartbeat = keys.suspicion("n1", "n2"), keys.store_server("n2", incarnation_of("n2"))
    beat = stored.world.mirror.get(heartbeat)
    assert beat is not None
    change = Put(suspicion, b"") if is_suspected else Delete(heartbeat)
    await metastore.commit(Txn((), (change,)))
    await stored.world.settle()
    assert stored.progress() == ("MOVING", {"SERVER_SILENT: n2": PARTITIONS})
    copies = stored.views.partition(PartitionId(ZONE, 0))["copies"]
    expected = {"n1": "HEALTHY", "n2": "UNAVAILABLE", "n3": "HEALTHY"}
    assert {copy["node"]: copy["state"] for copy in copies} == expected
    states = await stored.column("SELECT * FROM global_zone_partition_states", "PARTITION_STATE")
    assert set(states) == {("DEGRADED",)}
    back = Delete(suspicion) if is_suspected else Put(heartbeat, beat.value)
    await metastore.commit(Txn((), (back,)))
    await stored.world.settle()
    assert stored.progress() == ("CONVERGED", {})


async def test_only_members_make_a_server_silent(stored: Stored) -> None:
    """A suspicion that was left by a server that has gone says nothing."""
    await stored.commit(stored.owned)
    await stored.world.put(stored.world.keyspace.suspicion("n9", "n2"), b"")
    await stored.world.settle()
    assert stored.progress() == ("CONVERGED", {})


async def test_all_servers_are_asked_about_a_partition_that_nobody_leads(stored: Stored) -> None:
    """Every server knows who is awaited, and who serves what is left."""
    await stored.commit([PartitionOutcome(in_sync=("n2",)), *stored.owned[1:]])
    assert stored.status() == ("WAITING", "OWNERS_AWAITED: n2")
    route = stored.endpoints.route(PartitionId(ZONE, 0))
    assert route.voters == tuple(stored.url(name) for name in NAMES)


async def test_a_lost_partition_says_so(stored: Stored) -> None:
    lost = PartitionOutcome(in_sync=("n2",), is_lost=True)
    await stored.commit([lost, *stored.owned[1:]])
    assert stored.status() == ("WAITING", "PARTITION_LOST: n2")
    states = await stored.column(
        "SELECT * FROM global_zone_partition_states", "PARTITION_ID", "PARTITION_STATE"
    )
    assert sorted(states) == [(0, "UNAVAILABLE"), *((number, "AVAILABLE") for number in range(1, PARTITIONS))]
    local = await stored.column(
        "SELECT * FROM local_zone_partition_states", "PARTITION_ID", "NODE_NAME", "PARTITION_STATE"
    )
    assert [row[1:] for row in local if row[0] == 0] == [("n2", "BROKEN")]


async def test_the_states_of_a_recovery_name_copies_and_who_is_in_sync(stored: Stored) -> None:
    names = stored.lists[0]
    lost = PartitionOutcome(in_sync=("n2",), is_lost=True)
    await stored.commit([outcome(*names[:2], filling=names[2:]), lost, *stored.owned[2:]])
    (zone,) = (await stored.world.catalog.snapshot()).zones
    filling, failed, whole = partition_states(stored.views, zone, [0, 1, 2])
    assert (filling["voters"], filling["voters_alive"]) == (2, 2)
    roles = {replica["node"]: (replica["voter"], replica["reason"]) for replica in filling["replicas"]}
    assert roles == {
        names[0]: (True, "primary"),
        names[1]: (True, "backup"),
        names[2]: (False, "being filled"),
    }
    assert (failed["voters"], failed["voters_alive"]) == (1, 0)
    assert [(replica["node"], replica["state"]) for replica in failed["replicas"]] == [("n2", "BROKEN")]
    assert (whole["state"], whole["voters_alive"], len(whole["replicas"])) == ("AVAILABLE", 3, 3)


async def test_a_move_names_what_is_filled_and_what_is_left_over(stored: Stored) -> None:
    """The status names them from the filling of the copy until the surplus one has left the set; then the rest
    is for the controller."""
    names = stored.lists[0]
    before, target = names[:2], (names[0], names[2])
    key = stored.world.keyspace.partition(PartitionId(ZONE, 0))
    stable = await stored.world.assignments(key.stable)
    assert stable is not None
    writes = (
        Put(key.stable, replace(stable, peers=before).encode()),
        Put(key.pending, replace(stable, peers=target).encode()),
    )
    await stored.world.metastore.commit(Txn((), writes))
    steps = {
        outcome(*before, filling=target[1:]): ("MOVING", f"FILLING: {target[1]}"),
        outcome(*names): ("MOVING", f"SURPLUS: {before[1]}"),
        outcome(*target): ("MOVING", "STABLE"),
    }
    for partition, status in steps.items():
        await stored.commit([partition, *stored.owned[1:]])
        assert stored.status() == status
    await stored.commit([outcome(*before, filling=target[1:]), *stored.owned[1:]])
    body = stored.views.partition(PartitionId(ZONE, 0))
    states = {copy["node"]: copy["state"] for copy in body["copies"]}
    assert states == {before[0]: "HEALTHY", before[1]: "HEALTHY", target[1]: "CATCHING_UP"}
    moving = body["phases"][1]
    assert (moving["state"], f"being filled: {target[1]}" in moving["steps"]) == ("RUNNING", True)


async def test_a_copy_that_is_filled_again_at_rest_is_waited_for(stored: Stored) -> None:
    names = stored.lists[0]
    await stored.commit([outcome(*names[:2], filling=names[2:]), *stored.owned[1:]])
    assert stored.progress() == ("MOVING", {f"FILLING: {names[2]}": 1})
    progress = stored.views.progress(ZONE, 1)
    assert progress["copies"] == {"assigned": 3 * PARTITIONS, "in_sync": 3 * PARTITIONS - 1}
    line = "3/4 done, 1 moving, 0 waiting, 11/12 copies in sync"
    assert FollowProgress.from_body("KEPT", progress).counts() == line
    states = await stored.column(
        "SELECT * FROM global_zone_partition_states", "PARTITION_ID", "PARTITION_STATE"
    )
    assert sorted(states)[0] == (0, "DEGRADED")


async def test_sql_says_who_leads(stored: Stored) -> None:
    await stored.commit(stored.owned)
    primaries = [(number, names[0]) for number, names in enumerate(stored.lists)]
    shown = await stored.column("SHOW PARTITIONS FROM kept", "PARTITION_ID", "LEADER")
    assert sorted(shown) == primaries
    reasons = await stored.column("EXPLAIN PARTITION kept.0", "NODE_NAME", "STATE", "REASON")
    assert {name: state for name, state, _ in reasons} == dict.fromkeys(NAMES, "HEALTHY")
    assert [name for name, _, reason in reasons if "it is the primary" in str(reason)] == [primaries[0][1]]
    counts = await stored.column("SELECT * FROM nodes", "NODE_NAME", "MEMBERS", "STORE_COPIES")
    assert counts == [(name, 0, PARTITIONS) for name in NAMES]
    affinity = await stored.column("SELECT * FROM affinity", "PRIMARY_NODE", "IS_IDEAL")
    assert affinity == [(name, True) for _, name in primaries]
    leading = "SELECT * FROM assignments WHERE is_leader"
    assert sorted(await stored.column(leading, "PARTITION_ID", "NODE_NAME")) == primaries


async def test_the_partition_map_is_that_of_the_last_result(stored: Stored) -> None:
    """The map's version and tag change with the exchange, and it can be sent in its compact form."""
    assert stored.map is None
    names = stored.lists[0]
    await stored.commit([outcome(*names[:2], filling=names[2:]), *stored.owned[1:]])
    first = stored.map
    assert first is not None
    (zone,) = (await stored.world.catalog.snapshot()).zones
    partition = map_json(zone, first)["partitions"][0]
    assert partition["primary"] == names[0]
    states = {name: copy["state"] for name, copy in partition["copies"].items()}
    assert states == {names[0]: "OWNING", names[1]: "OWNING", names[2]: "MOVING"}
    header, full = decode_map(first.data)
    assert (header.zone, full.names, full.copies) == (ZONE, NAMES, 3 * PARTITIONS)
    await stored.commit(stored.owned)
    second = stored.map
    assert second is not None
    assert second.pointer.version > first.pointer.version
    assert second.pointer.tag != first.pointer.tag
    rows = await stored.column("SELECT * FROM partition_map WHERE partition_state = 'OWNING'", "PARTITION_ID")
    assert len(rows) == 3 * PARTITIONS


async def test_a_deactivated_zone_is_not_available_and_nothing_of_it_moves(stored: Stored) -> None:
    await stored.commit(stored.owned, resting=[ZONE])
    assert stored.progress() == ("CONVERGED", {})
    states = await stored.column("SELECT * FROM global_zone_partition_states", "PARTITION_STATE")
    assert set(states) == {("UNAVAILABLE",)}


async def test_a_dropped_zone_is_cleaned_up_once_the_ring_has_no_more_of_it(stored: Stored) -> None:
    await stored.commit(stored.owned)
    result = await stored.world.run("DROP ZONE kept")
    version = result.catalog_version or 0
    assert stored.views.progress(ZONE, version)["state"] == "MOVING"
    await stored.world.metastore.commit(stored.ring.after(NAMES, {}))
    await stored.world.settle()
    assert stored.views.progress(ZONE, version)["state"] == "CONVERGED"
    assert {node["copies"] for node in stored.views.nodes()} == {0}


async def test_a_ring_that_cannot_be_read_is_reported_and_what_was_known_is_shown(stored: Stored) -> None:
    await stored.commit(stored.owned)
    assert stored.progress() == ("CONVERGED", {})
    await stored.world.put(stored.world.keyspace.exchange_ring, b"no ring")
    await stored.world.settle()
    assert stored.progress() == ("CONVERGED", {})
    assert [record.key for record in stored.views.unreadable()] == [stored.world.keyspace.exchange_ring]
