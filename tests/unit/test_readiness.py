"""What counts as degraded, and what a server says of itself over its real parts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter
from structlog.testing import capture_logs

from app.contract.health import InstallationPart
from app.contract.health import Readiness as Body
from app.views.readiness_judge import LATE_S, ObservedParts, judge
from app.views.readiness_probe import ReadinessProbe
from app.views.scrape_targets import scrape_targets
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import STORE_ENGINE, Node, ZoneId
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.self_reports import EngineRecord, ProcessRecord, WaitingZone
from rebalance.core.txn import Delete, Put, Txn
from rebalance.hosting.background import Background
from rebalance.metastore.registered_process import ProcessReport
from rebalance.metastore.trouble_report import TroubleReport
from tests.fixtures.committed_ring import CommittedRing, outcome
from tests.unit.sql_world import World, opened

STORE_NODES = tuple(Node(name, engines=(("bulk", STORE_ENGINE),)) for name in ("n1", "n2"))
WELL = ObservedParts("ok", "ok", "c1", "ready", "", 3, 0.0, 0.0, None, ())


@pytest.mark.parametrize(
    ("change", "part", "cause"),
    [
        (
            {"catalog": "no answer within 1 s"},
            InstallationPart.CATALOG,
            "CATALOG_UNAVAILABLE: no answer within 1 s",
        ),
        ({"metastore": "loading"}, InstallationPart.METASTORE, "METASTORE_UNAVAILABLE: loading"),
        (
            {"unreadable": ("RECORD_NOT_READABLE: topology: not an object",)},
            InstallationPart.METASTORE,
            "RECORD_NOT_READABLE: topology: not an object",
        ),
        (
            {"controller": None},
            InstallationPart.CONTROLLER,
            "NO_LEADER: no controller leads, so nothing is placed or moved",
        ),
        (
            {"spark": "down", "spark_message": "no Java"},
            InstallationPart.SPARK,
            "SPARK_DOWN: no Java; placements are computed without it",
        ),
        ({"nodes": 0}, InstallationPart.NODES, "NO_NODE: no node is alive"),
        (
            {"store_servers_down": ("n1", "n3")},
            InstallationPart.NODES,
            "SERVER_DOWN: no store server takes part for n1, n3",
        ),
        (
            {"lost_partitions": ({"zone": "BULK", "partitions": 2},)},
            InstallationPart.ZONES,
            "PARTITION_LOST: 2 partitions have no in-sync copy left in zone BULK",
        ),
        (
            {"outbox_s": LATE_S},
            InstallationPart.QUEUE,
            "OUTBOX_LATE: a version has not been published for 30 s",
        ),
        (
            {"zone_s": 61.2, "zone_id": 7},
            InstallationPart.QUEUE,
            "ZONE_LATE: zone 7 has waited for its placement for 61 s",
        ),
        (
            {"unreadable": ("RECORD_NOT_READABLE: z/topology: format 2",)},
            InstallationPart.METASTORE,
            "RECORD_NOT_READABLE: z/topology: format 2",
        ),
        (
            {"tasks": (("n2", "mirrors", "ValueError: x"),)},
            InstallationPart.BACKGROUND,
            "TASK_ENDED: n2, mirrors: ValueError: x",
        ),
        (
            {"tasks": (("n2 store", "start", "STORE_DAMAGED: x"),)},
            InstallationPart.NODES,
            "STORE_DAMAGED: x",
        ),
    ],
)
def test_one_part_one_cause(change: dict[str, Any], part: InstallationPart, cause: str) -> None:
    assert judge(WELL) == ()
    fields = {name: getattr(WELL, name) for name in ObservedParts.__slots__}
    (found,) = judge(ObservedParts(**{**fields, **change}))
    assert (found.part, found.cause) == (part, cause)


@pytest.mark.parametrize(
    "change", [{"spark": "starting"}, {"outbox_s": LATE_S - 1}, {"zone_s": LATE_S - 1, "zone_id": 7}]
)
def test_what_is_ordinary_is_not_degraded(change: dict[str, Any]) -> None:
    fields = {name: getattr(WELL, name) for name in ObservedParts.__slots__}
    assert judge(ObservedParts(**{**fields, **change})) == ()


def test_a_silent_metastore_is_one_cause() -> None:
    """Who leads and who lives cannot be seen then."""
    seen = ObservedParts("ok", "no answer", None, "unknown", "", 0, 0.0, 0.0, None, ())
    assert [each.part for each in judge(seen)] == [InstallationPart.METASTORE]


class Reporting:
    """A server's readiness over a catalog and a metastore in memory."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.background = Background()
        self.guard = StoreGuard(
            world.catalog, world.metastore, world.mirror, world.keyspace, world.relay.relay_once
        )
        self.readiness = self.over(world.relay)

    def over(self, relay: OutboxRelay) -> ReadinessProbe:
        world = self.world
        return ReadinessProbe(
            self.snapshot,
            world.metastore,
            world.mirror,
            world.keyspace,
            self.guard,
            relay,
            self.background,
        )

    catalog_error: Exception | None = None

    async def snapshot(self) -> CatalogSnapshot:
        if self.catalog_error is not None:
            raise self.catalog_error
        return await self.world.catalog.snapshot()

    async def report(self) -> dict[str, Any]:
        """Read by the model that documents it."""
        found = await self.readiness.report()
        assert TypeAdapter(Body).validate_python(found) == found
        return found

    async def put(self, key: str, value: bytes) -> None:
        await self.world.metastore.commit(Txn((), (Put(key, value),)))
        assert await self.world.mirror.wait_until(lambda: self.world.mirror.value(key) == value, 30.0)

    async def remove(self, key: str) -> None:
        await self.world.metastore.commit(Txn((), (Delete(key),)))
        assert await self.world.mirror.wait_until(lambda: self.world.mirror.value(key) is None, 30.0)

    async def lead(self) -> None:
        keys = self.world.keyspace
        await self.put(keys.controller_leader, b"c1")
        status = {"v": 1, "state": "ready", "message": "local", "driver_pid": 7, "waiting": None}
        await self.put(keys.engine_status, json.dumps(status).encode())


@asynccontextmanager
async def reporting(directory: Path) -> AsyncIterator[Reporting]:
    async with opened(directory) as world:
        found = Reporting(world)
        await found.guard.check()
        await found.lead()
        yield found


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
            "SERVER_DOWN: no store server takes part for n2"
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
