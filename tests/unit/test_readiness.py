"""Readiness of a server, over its real parts."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.responses import JSONResponse
from structlog.testing import capture_logs

from app.sql.engine.sql_engine import SqlEngine
from app.sql.statements.results import SessionContext
from app.sql.views.view_snapshot import ViewSources
from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import MetastoreSilence, MirrorFreshness
from app.views.processes import scrape_targets
from app.views.recovery_views import partition_states
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.zone import STORE_ENGINE, Node, ZoneId
from rebalance.core.admission.move_admission import utc
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import EngineRecord, ProcessRecord, WaitingZone
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.moves.drain import Drain
from rebalance.hosting.background import Background
from rebalance.metastore.registered_process import ProcessReport, TroubleReport
from tests.fixtures.committed_ring import CommittedRing, outcome
from tests.unit.readiness_world import SilentMetastore, reporting
from tests.unit.sql_world import DEFAULT_NODES

STORE_NODES = tuple(Node(name, engines=(("bulk", STORE_ENGINE),)) for name in ("n1", "n2"))
PARTITION = PartitionId(ZoneId(1), 0)


async def test_all_is_well(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        body = await found.report()
        assert (body["state"], body["ready"], body["degraded"]) == ("ready", True, [])
        assert (body["controller"], body["spark"], body["spark_driver_pid"]) == ("c1", "ready", 7)


async def test_without_a_leader_it_is_degraded_and_takes_statements(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        await found.remove(found.world.keyspace.controller_leader)
        body = await found.report()
        assert (body["state"], body["ready"], body["controller"]) == ("degraded", True, None)
        assert [each["part"] for each in body["degraded"]] == ["controller"]
        await found.put(found.world.keyspace.controller_leader, b"c2")
        assert (await found.report())["controller"] == "c2"


async def test_partitions_that_take_no_writes_and_nodes_that_are_gone_are_told(tmp_path: Path) -> None:
    async with reporting(tmp_path) as server:
        world = server.world
        await world.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 3)")
        await world.serve(1, 4)
        await world.settle()
        assert (await server.report())["state"] == "ready"
        await world.set_nodes(*DEFAULT_NODES[:2])
        body = await server.report()
        told = {each["cause"] for each in body["degraded"]}
        assert told == {
            "NODE_DOWN: node n3 is down; 4 replicas not served",
            "DEGRADED: 4 partitions with fewer replicas in order than wanted in zone ORDERS",
        }
        await world.set_nodes(*DEFAULT_NODES[:1])
        body = await server.report()
        assert "NO_MAJORITY: 4 partitions without a majority of voters in zone ORDERS" in {
            each["cause"] for each in body["degraded"]
        }
        assert body["state"] == "degraded"


async def test_a_zone_that_shrinks_below_its_quorum_says_so_until_it_is_altered(tmp_path: Path) -> None:
    """A node has another attribute, so that it matches no more, and no statement was checked for that. In SQL,
    in states and in readiness there is one cause."""
    async with reporting(tmp_path) as server:
        world = server.world
        zone = "REPLICAS 3, QUORUM SIZE 2, NODES FILTER '$[?(@.region == \"EU\")]'"
        await world.run(f"CREATE ZONE orders (PARTITIONS 2, {zone})")
        await world.serve(1, 2)
        assert (await server.report())["state"] == "ready"
        n1, n2, n3 = DEFAULT_NODES
        await world.set_nodes(n1, replace(n2, attributes=(("region", "US"),)), n3)
        assert await world.zones.reconcile([ZoneId(1)]) == {}
        for number in range(2):
            keys = world.keyspace.partition(PartitionId(ZoneId(1), number))
            left = Delete(world.keyspace.member(PartitionId(ZoneId(1), number), "n2"))
            switch = Put(keys.stable, Assignments(("n3",)).encode()), Delete(keys.pending), left
            await world.metastore.commit(Txn((), switch))
        await world.serve(1, 2)
        cause = "QUORUM_EXCEEDS_DATA_NODES: QUORUM SIZE 2, and 1 data node matches"
        shown = await world.run("SHOW PARTITIONS FROM orders")
        assert [row.count(cause) for row in shown.rows] == [1, 1]
        views = KeyspaceViews(world.mirror, world.keyspace)
        (stored,) = (await world.catalog.snapshot()).zones
        states = partition_states(views, stored, ())
        assert {state["state"] for state in states} == {"DEGRADED"}
        (wait,) = views.progress(ZoneId(1), 1)["causes"]
        assert (wait["cause"], wait["partitions"]) == (cause, 2)
        (degraded,) = (await server.report())["degraded"]
        told = "QUORUM_EXCEEDS_DATA_NODES: 2 partitions with fewer voters than QUORUM SIZE in zone ORDERS"
        assert (degraded["cause"], degraded["labels"]) == (told, {"zone": "ORDERS"})
        await world.run("ALTER ZONE orders SET (REPLICAS 1, QUORUM SIZE 1)")
        await world.serve(1, 2)
        assert (await server.report())["state"] == "ready"


async def test_a_node_that_keeps_nothing_is_missed_while_a_zone_counts_on_it(tmp_path: Path) -> None:
    async with reporting(tmp_path) as server:
        world = server.world
        await world.run("CREATE ZONE one (PARTITIONS 1, REPLICAS 1)")
        await world.serve(1, 1)
        (keeper,) = (await world.assignments(world.keyspace.partition(PARTITION).stable)).peers
        others = [node for node in DEFAULT_NODES if node.name != keeper]
        await world.set_nodes(*(node for node in DEFAULT_NODES if node is not others[0]))
        (degraded,) = (await server.report())["degraded"]
        assert degraded["cause"] == f"NODE_DOWN: node {others[0].name} is down; 0 replicas not served"
        assert degraded["labels"] == {"node": others[0].name}
        await world.put(world.keyspace.drain(others[0].name), Drain("me", "", 1).encode())
        await world.settle()
        assert (await server.report())["state"] == "ready"


async def test_partitions_that_take_no_writes_say_since_when_and_what_to_do(tmp_path: Path) -> None:
    async with reporting(tmp_path) as server:
        world = server.world
        await world.run("CREATE ZONE orders (PARTITIONS 1, REPLICAS 3)")
        await world.serve(1, 1)
        await world.set_nodes(*DEFAULT_NODES[:1])
        await server.count.round()
        began_ms = server.count.since_ms(PARTITION)
        assert began_ms is not None
        (zone,) = (await world.catalog.snapshot()).zones
        views = KeyspaceViews(world.mirror, world.keyspace)
        (state,) = partition_states(views, zone, (), MirrorFreshness(server.count.since_ms))
        assert (state["state"], state["since"]) == ("READ_ONLY", utc(began_ms))
        assert state["advice"] == "Start the nodes that are named: that loses nothing."
        (old,) = partition_states(views, zone, (), MirrorFreshness(lambda _: began_ms - 61_000))
        assert "zonectl recovery" in old["advice"]
        await server.count.round()
        assert server.count.since_ms(PARTITION) == began_ms, "nothing has changed"


async def test_states_are_unknown_while_the_metastore_is_silent(tmp_path: Path) -> None:
    """The last state of the mirror says nothing of who serves now."""
    async with reporting(tmp_path) as server:
        world = server.world
        await world.run("CREATE ZONE orders (PARTITIONS 1, REPLICAS 3)")
        await world.serve(1, 1)
        assert await server.reader(world.metastore).unknown_since_ms() is None
        (zone,) = (await world.catalog.snapshot()).zones
        views = KeyspaceViews(world.mirror, world.keyspace)
        (state,) = partition_states(views, zone, ())
        assert state["state"] == "AVAILABLE"
        began_ms = time.time_ns() // 1_000_000
        silent = server.reader(SilentMetastore())
        since_ms = await silent.unknown_since_ms()
        assert since_ms is not None
        assert abs(since_ms - began_ms) < 60_000
        (state,) = partition_states(views, zone, (), silence=MetastoreSilence(since_ms))
        assert (state["state"], state["since"], state["advice"]) == ("UNKNOWN", utc(since_ms), "")
        assert {replica["state"] for replica in state["replicas"]} == {"UNKNOWN"}


@pytest.mark.parametrize("since_ms", [None, 1_000])
async def test_views_of_states_are_unknown_then_as_well(tmp_path: Path, since_ms: int | None) -> None:
    async def silence() -> MetastoreSilence | None:
        return None if since_ms is None else MetastoreSilence(since_ms)

    async with reporting(tmp_path) as server:
        world = server.world
        await world.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 3)")
        await world.serve(1, 2)
        sources = ViewSources(world.mirror, world.keyspace, freshness=MirrorFreshness(lambda _: 2_000, silence))
        engine = SqlEngine(world.catalog, sources, world.sandbox, 60.0)
        whole = "AVAILABLE" if since_ms is None else "UNKNOWN"
        each = "HEALTHY" if since_ms is None else "UNKNOWN"
        try:
            for query, state in (
                ("SELECT DISTINCT partition_state FROM global_zone_partition_states", whole),
                ("SELECT DISTINCT partition_state FROM local_zone_partition_states", each),
            ):
                assert [*(await engine.execute(query, SessionContext())).rows] == [(state,)]
            since = "1970-01-01 00:00:02.000" if since_ms is None else "1970-01-01 00:00:01.000"
            query = "SELECT DISTINCT partition_state, state_since FROM global_zone_partition_states"
            assert [*(await engine.execute(query, SessionContext())).rows] == [(whole, since)]
            shown = await engine.execute("SHOW PARTITIONS FROM orders", SessionContext())
            assert [shown.columns[at].name for at in (2, -1)] == ["STATE", "SINCE"]
            assert {(row[2], row[-1]) for row in shown.rows} == {(whole, since)}
        finally:
            engine.close()


async def test_without_a_catalog_it_is_not_ready(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        found.catalog_error = StoreError(ErrorKind.CATALOG_UNAVAILABLE, "gone")
        body = await found.report()
        assert (body["state"], body["ready"]) == ("not ready", False)
        assert [each["part"] for each in body["degraded"]] == ["catalog"]


async def test_a_store_server_that_takes_no_part_is_named_once_a_zone_misses_it(tmp_path: Path) -> None:
    async with reporting(tmp_path) as server:
        world = server.world
        await world.set_nodes(*STORE_NODES)
        assert (await server.report())["degraded"] == []
        ring = CommittedRing(world.keyspace)
        owned = [outcome("n1"), outcome("n2")]
        await world.metastore.commit(ring.after(["n1", "n2"], {ZoneId(1): owned}))
        await world.settle()
        assert (await server.report())["degraded"] == []
        await world.metastore.commit(ring.after(["n1", "n2"], {ZoneId(1): owned}, without=["n2"]))
        await world.settle()
        body = await server.report()
        assert body["store_servers_down"] == ["n2"]
        assert [entry["cause"] for entry in body["degraded"]] == [
            "SERVER_DOWN: no store server takes part for node n2"
        ]


async def test_a_zone_that_waits_is_told_with_its_age(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        status = {"v": 1, "state": "ready", "message": "", "waiting": {"zone_id": 4, "since_ms": 1_000}}
        await found.put(found.world.keyspace.engine_status, json.dumps(status).encode())
        body = await found.report()
        assert body["state"] == "degraded"
        assert body["queue"]["zone_id"] == 4
        assert body["queue"]["zone_oldest_seconds"] > 1e9
        assert body["degraded"][0]["cause"].startswith("ZONE_LATE: zone 4 ")


ENGINE = {"state": "ready", "message": "local", "driver_pid": 7}
WRONG = [
    *(b"", b"\xff", b"[]", b"7", b'{"waiting": 3, "state": "ready"}', b'{"v": 1, "defects": 1e999}'),
    *(b'{"v": 1, "troubles": 5}', b'{"v": 1, "defects": "many"}', b'{"v": 1, "state": 5}', b"[" * 100_000),
    b'{"v": 1, "role": "node", "troubles": [], "defects": 1, "last_defect": "\\ud800"}',
    b'{"v": 1, "role": "node", "troubles": [{"task": []}], "defects": 1, "last_defect": ""}',
    json.dumps({"v": 1, **ENGINE, "message": "\ud800"}).encode(),
    json.dumps({"v": 1, **ENGINE, "driver_pid": "x"}).encode(),
    json.dumps({"v": 1, **ENGINE, "waiting": {"zone_id": "x", "since_ms": 1}}).encode(),
    json.dumps({"v": 1, **ENGINE, "waiting": {"zone_id": 1, "since_ms": 10**400}}).encode(),
]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value[:60]))
async def test_what_it_cannot_read_is_named_and_no_error(tmp_path: Path, value: bytes) -> None:
    async with reporting(tmp_path) as found:
        keys = found.world.keyspace
        await found.put(keys.engine_status, value)
        await found.put(keys.process("n1"), value)
        body = await found.report()
        assert JSONResponse(body).body, "it can be sent"
        assert (body["state"], body["ready"], body["spark"]) == ("degraded", True, "unknown")
        told = [each["cause"].split(": ")[:2] for each in body["degraded"]]
        assert told == [["RECORD_NOT_READABLE", key] for key in (keys.engine_status, keys.process("n1"))]
        assert [each["process"] for each in body["background"]["processes"]] == ["server"]


async def test_the_key_that_a_zone_waits_for_is_named(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        keys = found.world.keyspace
        waiting = WaitingZone(4, round(1_000 * time.time()))
        await found.put(keys.engine_status, EngineRecord("ready", "local", waiting=waiting).encode())
        assert (await found.report())["unreadable"] == []
        await found.put(keys.intent(ZoneId(4)), b'{"v":2}')
        body = await found.report()
        (cause,) = body["unreadable"]
        assert cause.startswith(f"RECORD_NOT_READABLE: {keys.intent(ZoneId(4))}: format 2")
        assert cause in [each["cause"] for each in body["degraded"]]


async def test_words_of_later_builds_are_unknown_ones(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        keys = found.world.keyspace
        await found.put(keys.engine_status, json.dumps({"v": 1, **ENGINE, "state": "asleep"}).encode())
        await found.put(keys.process("g1"), ProcessRecord("gateway", (), 1, "x").encode())
        body = await found.report()
        assert body["spark"] == "unknown"
        assert [each["role"] for each in body["background"]["processes"]] == ["server", ""]


async def test_a_background_task_that_ended_is_told_until_it_is_steady(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:

        async def broken() -> None:
            raise ValueError("no such key")

        with capture_logs():
            kept = asyncio.create_task(found.background.keep("keyspace mirror", broken))
            async with asyncio.timeout(30):
                while not found.background.troubles():
                    await asyncio.sleep(0)
        body = await found.report()
        assert body["state"] == "degraded"
        assert body["degraded"][0]["cause"] == "TASK_ENDED: server, keyspace mirror: ValueError: no such key"
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)
        assert (await found.report())["state"] == "ready"


async def test_what_goes_wrong_in_another_process_is_told_here(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        world, background = found.world, Background()
        lease = await world.metastore.grant_lease(60)
        key = world.keyspace.process("n2")
        report = TroubleReport(world.metastore, key, "node", lambda: lease, background)
        assert not await report.write_if_changed()
        with capture_logs():
            background.defect("a partition's round", KeyError("x"))
        assert await report.write_if_changed()
        assert not await report.write_if_changed()
        assert await world.mirror.wait_until(lambda: world.mirror.value(key) is not None, 30.0)
        body = await found.report()
        assert body["state"] == "ready"
        assert [
            (each["process"], each["role"], each["defects"]) for each in body["background"]["processes"]
        ] == [
            ("server", "server", 0),
            ("n2", "node", 1),
        ]


async def test_a_process_that_is_in_order_is_registered_and_not_told(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        world, background = found.world, Background()
        entry = ProcessRecord("node", build="1.2.3", formats=(1,), metrics="http://127.0.0.1:9/metrics")
        report = ProcessReport(world.metastore, world.keyspace, "n2", entry, background)
        own = TroubleReport(world.metastore, world.keyspace.process("n2"), "node", lambda: 1, background)
        running = asyncio.create_task(report.run())
        key = world.keyspace.process("n2")
        assert await world.mirror.wait_until(lambda: world.mirror.value(key) == entry.encode(), 60.0)
        told = (await found.report())["background"]["processes"]
        assert [each["process"] for each in told] == ["server"]
        assert scrape_targets(world.mirror, world.keyspace) == [
            {
                "targets": ["127.0.0.1:9"],
                "labels": {
                    "__scheme__": "http",
                    "__metrics_path__": "/metrics",
                    "process": "n2",
                    "role": "node",
                    "node": "n2",
                },
            }
        ]
        with capture_logs():
            background.defect("a partition's round", KeyError("x"))
        assert not await own.write_if_changed(), "it would overwrite the entry"
        assert await world.mirror.wait_until(lambda: world.mirror.value(key) != entry.encode(), 60.0)
        told = (await found.report())["background"]["processes"]
        assert [(each["process"], each["defects"]) for each in told] == [("server", 0), ("n2", 1)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await world.mirror.wait_until(lambda: world.mirror.value(key) is None, 60.0)


async def test_an_entry_that_cannot_be_read_is_no_target(tmp_path: Path) -> None:
    async with reporting(tmp_path) as found:
        world = found.world
        for name, value in (("n1", b"{"), ("n2", ProcessRecord("node").encode())):
            await world.metastore.commit(Txn((), (Put(world.keyspace.process(name), value),)))
        assert await world.mirror.wait_until(
            lambda: world.mirror.value(world.keyspace.process("n2")) is not None, 60.0
        )
        assert scrape_targets(world.mirror, world.keyspace) == []


@pytest.mark.parametrize(("needed_bytes", "is_full"), [(0, False), (1 << 62, True)])
async def test_a_process_whose_disk_has_less_than_it_needs_says_so(
    tmp_path: Path, needed_bytes: int, is_full: bool
) -> None:
    """A store server takes no writes then, however small a part of the disk that is."""
    async with reporting(tmp_path) as found:
        world, entry = found.world, ProcessRecord("node")
        report = ProcessReport(
            world.metastore, world.keyspace, "n2", entry, Background(), tmp_path, needed_bytes
        )
        running = asyncio.create_task(report.run())
        key, expected = world.keyspace.process("n2"), ProcessRecord("node", disk_full=is_full).encode()
        assert await world.mirror.wait_until(lambda: world.mirror.value(key) == expected, 60.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
