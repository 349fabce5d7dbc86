"""An operation as told by the arrays of its zone, against the API's answer that reads every partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.console import actions
from app.console.feed import PartitionFeed
from app.console.operations_page import grid_of, plan_of, summary_of, waiting_of
from app.console.shared import Site
from app.console.zone_grid import ZoneGrid
from catalog.core.zone import ZoneId
from tests.console.scenes import small
from tests.console.stage import services_of
from tests.unit.sql_world import opened


async def test_arrays_tell_what_the_api_tells(tmp_path: Path) -> None:
    async with opened(tmp_path, nodes=()) as world, services_of(world) as services:
        await small(world)
        site = Site(services, PartitionFeed(world.mirror, world.keyspace))
        feeding = asyncio.create_task(site.feed.run())
        try:
            async with asyncio.timeout(60):
                while not site.feed.grids or site.feed.unread:
                    site.feed.watch()
                    await asyncio.sleep(0.01)
            found = await actions.operations(site, None, ["WAITING", "RUNNING", "PAUSED"])
            assert {each["zone"] for each in found} == {"ORDERS", "SESSIONS", "REFERENCE", "TELEMETRY"}
            for each in found:
                name = each["operation_id"]
                body = await actions.operation(site, name)
                plan, _ = body.pop("plan"), body.pop("metastore_silent_since")
                mine = summary_of(site, name, site.feed.grids[ZoneId(each["zone_id"])])
                assert mine == body
                stale = ZoneGrid(body["progress"]["partitions"]["total"])
                stale.arrived[:] = True
                early = summary_of(site, name, stale)["progress"]["partitions"]["done"]
                assert early <= body["progress"]["partitions"]["done"], "it is of an earlier target"
                assert await plan_of(site, name) == plan
                assert grid_of(site, name) is None, "small zones are read as the API reads them"
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def test_an_operation_that_is_not_remembered_is_the_apis_to_refuse(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, services_of(world) as services:
        site = Site(services, PartitionFeed(world.mirror, world.keyspace))
        assert grid_of(site, "1-1") is None
        assert summary_of(site, "1-1", ZoneGrid(1)) is None
        assert await plan_of(site, "1-1") is None


def test_nothing_waits_in_a_zone_that_is_not_read() -> None:
    assert waiting_of(ZoneGrid(3)) == []
