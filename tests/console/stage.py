"""A console to look at: the real server and pages over a metastore in memory, with a scene in it.

``python -m tests.console.stage --scene small --port 8000``. Lines on standard input change what is shown:
``touch 100`` has as many partitions change their leader, ``down n3`` ends a node, ``sql CREATE ZONE ...`` runs
a statement and the controllers' work after it, ``reconcile`` does that work for what pages have changed,
``fail n1 ORDERS 5 REFUSED: no`` has n1 tell of a change, ``found ORDERS`` has its groups do what pending asks
for, by a reset too. Each is answered by a line.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.application import build_app
from app.console.mount import Console
from app.edge.uvicorn_server import listen, serve_http
from app.request_audit import Audit
from app.services import Services
from app.sql.jobs import StatementJobs
from app.sql.operation_reverse import OperationReverse
from app.sql.trino_names import LowerCaseNames
from app.views.keyspace_views import KeyspaceViews
from app.views.readiness_probe import ReadinessProbe
from app.views.routing_view import RoutingView
from app.views.zone_directory import ZoneDirectory
from rebalance.controllers.clock import WallClock
from rebalance.controllers.drains import DrainKeeper
from rebalance.controllers.limits import LimitsKeeper
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.failures import Failing, FailureRecord, failure_after
from rebalance.core.keys import PartitionId
from rebalance.groups.copy_reader import CopyReader
from rebalance.groups.router import Router
from rebalance.hosting.background import Background
from rebalance.nodes.endpoints import MirroredEndpoints
from rebalance.nodes.partition_view import Mirrors
from tests.console.lost_scenes import LOST_SCENES, found_anew
from tests.console.scenes import SCENES, kill_node, touch
from tests.unit.sql_world import World, opened

ALL_SCENES = {**SCENES, **LOST_SCENES}


@asynccontextmanager
async def services_of(world: World) -> AsyncIterator[Services]:
    """What the routes and pages need, over the world's stores."""
    guard = StoreGuard(world.catalog, world.metastore, world.mirror, world.keyspace, world.relay.relay_once)
    endpoints = MirroredEndpoints(Mirrors(world.mirror, world.mirror, world.mirror, world.keyspace))
    views = KeyspaceViews(world.mirror, world.keyspace)
    control = OperationControl(world.metastore, world.keyspace, WallClock())
    router, jobs = Router(endpoints), StatementJobs(world.catalog)
    watching = asyncio.gather(guard.run(), jobs.run())
    try:
        yield Services(
            sql=world.engine,
            snapshot=world.catalog.snapshot,
            readiness=ReadinessProbe(
                world.catalog.snapshot,
                world.metastore,
                world.mirror,
                world.keyspace,
                guard,
                world.relay,
                Background(),
            ).report,
            zones=ZoneDirectory(world.mirror, world.keyspace, world.catalog.snapshot),
            views=views,
            mirror=world.mirror,
            router=router,
            copies=CopyReader(),
            routing=RoutingView(world.mirror, world.keyspace, endpoints),
            engine=LowerCaseNames(world.engine),
            reader=world.reader,
            jobs=jobs,
            stores=guard,
            recovery=world.recovery,
            store_requests=world.store_requests,
            limits=LimitsKeeper(world.metastore, world.keyspace, 5),
            drains=DrainKeeper(world.metastore, world.keyspace),
            operations=control,
            audit=Audit(world.catalog, world.catalog.snapshot),
            reverse=OperationReverse(world.catalog, control, world.mirror, world.keyspace, views),
        )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await jobs.close()
        await router.close()


async def _obey(world: World, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "touch":
        await touch(world, int(rest))
    elif word == "down":
        await kill_node(world, rest)
    elif word == "sql":
        await world.run(rest)
    elif word == "reconcile":
        await _reconcile(world)
    elif word == "fail":
        await _fail(world, *rest.split(" ", 3))
    elif word == "found":
        await found_anew(world, rest)
    else:
        raise ValueError(f"{line!r} is not known: touch, down, sql, reconcile, fail, found")


async def _fail(world: World, node: str, zone: str, partition: str, cause: str) -> None:
    """What ``node``, which leads, tells of a change after its third attempt."""
    found = (await world.catalog.snapshot()).zone(zone)
    assert found is not None
    failing = Failing(cause.partition(":")[0], cause, 3)
    told = failure_after(
        None, PartitionId(found.zone_id, int(partition)), 7, failing, time.time_ns() // 1_000_000
    )
    await world.put(world.keyspace.failures_of(node), FailureRecord((told,)).encode())
    await world.settle()


async def _reconcile(world: World) -> None:
    """What a controller does for all zones when it comes."""
    await world.relay.relay_once()
    zones = [each.zone_id for each in (await world.catalog.snapshot()).zones]
    assert await world.zones.reconcile(zones) == {}
    await world.settle()


async def _play(scene: str, port: int) -> None:
    with tempfile.TemporaryDirectory() as directory, listen("127.0.0.1", port) as listener:
        async with opened(Path(directory), nodes=()) as world, services_of(world) as services:
            await ALL_SCENES[scene](world)
            console = Console()
            app = build_app(services, console=console)
            serving = asyncio.gather(serve_http(app, listener, lambda: None), console.run(services))
            print(f"http://127.0.0.1:{listener.getsockname()[1]}/console/", flush=True)
            try:
                while line := await asyncio.to_thread(sys.stdin.readline):
                    await _obey(world, line.strip())
                    print("done", flush=True)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=sorted(ALL_SCENES), default="small")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    asyncio.run(_play(asked.scene, asked.port))


if __name__ == "__main__":
    main()
