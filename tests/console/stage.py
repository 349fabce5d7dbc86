"""A console to look at: the real server and pages over a metastore in memory, with a scene in it.

``python -m tests.console.stage --scene small --port 8000``. Lines on standard input change what is shown:
``touch 100`` has as many partitions change their leader, ``down n3`` ends a node, ``sql CREATE ZONE ...`` runs
a statement and the controllers' work after it, ``reconcile`` does that work for what pages have changed,
``fail n1 ORDERS 5 REFUSED: no`` has n1 tell of a change, ``found ORDERS`` has its groups do what pending asks
for, by a reset too, ``require reasons`` refuses changes without one, ``up`` has all nodes live, and ``judge``
has the server judge its alerts, which fire at once. Each is answered by a line. With ``--login`` users log in,
over HTTPS, and ``link`` is answered by a link that logs in as an administrator.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme
from starlette.types import ASGIApp

from app.alerts.alert_watch import AlertWatch
from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import ReadinessProbe
from app.api.services import Services
from app.bootstrap.server import build_app
from app.console.mount import Console
from app.counts.partition_count import PartitionCount
from app.counts.serving_watch import ServingWatch
from app.edge.uvicorn_server import listen, serve_http
from app.process.logs import LogLevelKeeper, configure
from app.requests.request_audit import Audit
from app.security.administrator import LOCAL_ADMIN
from app.sql.engine.operation_reverse import OperationReverse
from app.sql.engine.statement_jobs import StatementJobs
from app.sql.trino.pages import LowerCaseNames
from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import AskSilence, MirrorFreshness
from app.views.routing import RoutingView, ZoneDirectory, ZoneEndpoints
from rebalance.controllers.clock import WallClock
from rebalance.controllers.cluster_control import DrainKeeper, LimitsKeeper, NodeRemover
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.store_guard import StoreGuard
from rebalance.controllers.upgrade import UpgradeKeeper
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import Failing, FailureRecord, failure_after
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.group_checks import CopyReader
from rebalance.hosting.background import Background
from rebalance.nodes.partition_view import MirroredEndpoints, Mirrors
from tests.console.lost_scenes import LOST_SCENES, found_anew
from tests.console.scenes import SCENES, kill_node, touch
from tests.fixtures.known_users import user_of
from tests.fixtures.login_gate import login_gate
from tests.unit.sql_world import World, opened

AT_ONCE = 1e9
ALL_SCENES = {**SCENES, **LOST_SCENES}


@asynccontextmanager
async def services_of(
    world: World, silence: AskSilence | None = None, divisor: float = 1.0
) -> AsyncIterator[Services]:
    """Services that the routes and pages need, over the world's stores. ``silence``: of the metastore, in place
    of the world's, which always speaks. ``divisor``: of the times of alerts."""
    guard = StoreGuard(world.catalog, world.metastore, world.mirror, world.keyspace, world.relay.relay_once)
    groups = MirroredEndpoints(Mirrors(world.mirror, world.mirror, world.mirror, world.keyspace))
    count = PartitionCount(world.mirror, world.keyspace, RingReader(world.mirror, world.keyspace))
    views = KeyspaceViews(world.mirror, world.keyspace, since_ms=count.since_ms)
    control = OperationControl(world.metastore, world.keyspace, WallClock())
    ring = RingReader(world.mirror, world.keyspace)
    endpoints = ZoneEndpoints(world.mirror, ring, groups, views.is_store)
    router, jobs = ZoneRouter(endpoints), StatementJobs(world.catalog)
    counted = (world.metastore, world.mirror, count, world.keyspace)
    facts = FactReader(world.catalog.snapshot, *counted, guard, world.relay)
    stores = (world.metastore, world.mirror, world.keyspace)
    alerts = AlertWatch(facts.facts, *stores, "stage", divisor=divisor)
    # The first look writes the epoch, which fences what is being placed.
    await guard.check()
    watching = asyncio.gather(guard.run(), jobs.run(), count.run())
    try:
        yield Services(
            sql=world.engine,
            snapshot=world.catalog.snapshot,
            readiness=ReadinessProbe(facts, lambda: alerts.alerts, views, Background()).report,
            freshness=MirrorFreshness(
                count.since_ms, silence or ServingWatch(facts.unknown_since_ms, router, count.sizes).silence
            ),
            zones=ZoneDirectory(world.mirror, world.keyspace, world.catalog.snapshot),
            views=views,
            mirror=world.mirror,
            router=router,
            copies=CopyReader(),
            routing=RoutingView(world.mirror, world.keyspace, endpoints, endpoints.basis),
            endpoints=endpoints,
            engine=LowerCaseNames(world.engine),
            reader=world.reader,
            jobs=jobs,
            stores=guard,
            recovery=world.recovery,
            store_requests=world.store_requests,
            limits=LimitsKeeper(world.metastore, world.keyspace, 5),
            drains=DrainKeeper(world.metastore, world.keyspace),
            removals=NodeRemover(world.metastore, world.keyspace),
            upgrades=UpgradeKeeper(
                *(world.metastore, world.keyspace, world.mirror), guard, world.catalog.raise_level
            ),
            log_levels=LogLevelKeeper(world.metastore, world.keyspace),
            operations=control,
            audit=Audit(world.catalog, world.catalog.snapshot),
            alerts=alerts,
            reverse=OperationReverse(world.catalog, control, world.mirror, world.keyspace, views),
        )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await jobs.close()
        await router.close()


async def _obey(world: World, services: Services, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "judge":
        await services.alerts.look()
    elif word == "up":
        await world.set_nodes(*world.nodes)
    elif word == "touch":
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
    elif word == "require":
        world.catalog.requires_reason = rest == "reasons"
    else:
        raise ValueError(f"{line!r} is not known: see what this module says")


async def _fail(world: World, node: str, zone: str, partition: str, cause: str) -> None:
    """Write the failure that ``node``, which leads, reports of a change after its third attempt."""
    found = (await world.catalog.snapshot()).zone(zone)
    assert found is not None
    failing = Failing(cause.partition(":")[0], cause, 3)
    told = failure_after(
        None, PartitionId(found.zone_id, int(partition)), 7, failing, time.time_ns() // 1_000_000
    )
    await world.put(world.keyspace.failures_of(node), FailureRecord((told,)).encode())
    await world.settle()


async def _reconcile(world: World) -> None:
    """Reconcile all zones, as a controller does when it comes."""
    await world.relay.relay_once()
    zones = [each.zone_id for each in (await world.catalog.snapshot()).zones]
    assert await world.zones.reconcile(zones) == {}
    await world.settle()


async def _play(scene: str, port: int) -> None:
    with tempfile.TemporaryDirectory() as directory, listen("127.0.0.1", port) as listener:
        async with opened(Path(directory), nodes=()) as world, services_of(world, divisor=AT_ONCE) as services:
            await ALL_SCENES[scene](world)
            console = Console()
            app = build_app(services, console=console)
            async with _serving(app, listener, console, services) as url:
                print(url, flush=True)
                while line := await _line():
                    await _obey(world, services, line)
                    print("done", flush=True)


async def _play_with_login(scene: str, port: int) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    console = Console()
    with tempfile.TemporaryDirectory() as directory, listen("127.0.0.1", port) as listener:
        async with opened(Path(directory), nodes=()) as world, services_of(world, divisor=AT_ONCE) as services:
            await ALL_SCENES[scene](world)
            for sql in (f"CREATE USER {LOCAL_ADMIN}", f"GRANT administrator TO {LOCAL_ADMIN}"):
                await world.run(sql)
            with login_gate(world, services, console) as gate:
                async with _serving(gate.app, listener, console, gate.services, tls) as url:
                    print(url, flush=True)
                    while line := await _line():
                        if line != "link":
                            await _obey(world, services, line)
                            print("done", flush=True)
                        else:
                            owner = await user_of(world.catalog, LOCAL_ADMIN)
                            secret = await gate.sessions.new_link(owner)
                            print(f"{url}login#{secret}", flush=True)


@asynccontextmanager
async def _serving(
    app: ASGIApp,
    listener: socket.socket,
    console: Console,
    services: Services,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """The console's URL."""
    serving = asyncio.gather(
        serve_http(app, listener, lambda: None, tls=tls and (lambda: tls)), console.run(services)
    )
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{listener.getsockname()[1]}/console/"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _line() -> str:
    """Read a line of standard input; empty: it has ended."""
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


def main() -> None:
    # To standard error: nobody empties the pipe of standard output for what is not an address.
    configure("stage")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=sorted(ALL_SCENES), default="small")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--login", action="store_true")
    given = parser.parse_args()
    play = _play_with_login if given.login else _play
    asyncio.run(play(given.scene, given.port))


if __name__ == "__main__":
    main()
