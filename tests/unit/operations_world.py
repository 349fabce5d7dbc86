"""The REST API in one process, over SQLite and a metastore in memory; tests bring its operations forward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from app.alerts.alert_watch import AlertWatch
from app.alerts.conditions import InstallationFacts
from app.bootstrap.server import build_app
from app.process.logs import LogLevelKeeper
from app.requests.request_audit import Audit
from app.sql.engine.operation_reverse import OperationReverse
from app.sql.engine.statement_jobs import StatementJobs
from app.sql.trino.pages import LowerCaseNames
from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import MIRROR_ALONE, MirrorFreshness
from app.views.routing import ZoneDirectory
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import WallClock
from rebalance.controllers.cluster_control import DrainKeeper, LimitsKeeper, NodeRemover
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decide_on_configuration_applied
from tests.fixtures.checked_answers import CheckedTransport
from tests.fixtures.observed_partitions import observe
from tests.fixtures.partial_services import services_with
from tests.unit.sql_world import World, opened

VERIFIED = "X-Checked-User"


class OperationsWorld:
    """``http`` speaks to the API; ``world`` is what lies below."""

    def __init__(self, world: World, http: httpx.AsyncClient, keeper: OperationKeeper, app: FastAPI) -> None:
        self.app = app
        self.world = world
        self.http = http
        self.keeper = keeper

    async def run(self, sql: str, headers: dict[str, str] | None = None) -> None:
        """A statement over REST, and the controllers' work."""
        answer = await self.http.post("/statements", json={"sql": sql}, headers=headers)
        assert answer.status_code == 200, answer.text
        await self.reconcile()

    async def reconcile(self) -> None:
        await self.world.relay.relay_once()
        ids = [zone.zone_id for zone in (await self.world.catalog.snapshot()).zones]
        assert await self.world.zones.reconcile(ids) == {}
        await self.world.settle()

    async def look(self) -> None:
        """The keeper at every operation, once."""
        for item in (await self.world.metastore.range(self.world.keyspace.operations)).items:
            await self.keeper.look(item)
        await self.world.settle()

    async def end_moves(self, zone_id: int = 1) -> None:
        """Groups do all that pending asks for, and their members run."""
        keyspace, store = self.world.keyspace, self.world.metastore
        partitions = 0
        again = True
        while again:
            items = (await store.range(keyspace.zone_partitions(ZoneId(zone_id)))).items
            found = observe(keyspace, items)
            again, partitions = False, len(found)
            for seen in found.values():
                if seen.pending is not None:
                    decision = decide_on_configuration_applied(seen, Assignments.decode(seen.pending.value))
                    assert decision.transaction is not None
                    assert (await store.commit(decision.transaction)).succeeded
                    again = True
        await self.world.serve(zone_id, partitions)

    async def get(self, path: str, status: int = 200, **query: Any) -> dict:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(
        self, path: str, body: dict, status: int = 200, headers: dict[str, str] | None = None
    ) -> dict:
        answer = await self.http.post(path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        await self.world.settle()
        return answer.json()

    async def newest(self) -> dict:
        found = (await self.get("/operations"))["operations"]
        return found[0]


async def _facts() -> InstallationFacts:
    """Refuse to answer: no test judges the installation here."""
    raise AssertionError


@asynccontextmanager
async def operations_world(
    directory: Path, freshness: MirrorFreshness = MIRROR_ALONE
) -> AsyncIterator[OperationsWorld]:
    async with opened(directory) as world:
        views = KeyspaceViews(world.mirror, world.keyspace, since_ms=freshness.since_ms)
        control = OperationControl(world.metastore, world.keyspace, WallClock())
        jobs = StatementJobs(world.catalog)
        made = {
            "jobs": jobs,
            "engine": LowerCaseNames(world.engine),
            "reader": world.reader,
            "sql": world.engine,
            "snapshot": world.catalog.snapshot,
            "freshness": freshness,
            "zones": ZoneDirectory(world.mirror, world.keyspace, world.catalog.snapshot),
            "views": views,
            "mirror": world.mirror,
            "recovery": world.recovery,
            "store_requests": world.store_requests,
            "limits": LimitsKeeper(world.metastore, world.keyspace, 5),
            "drains": DrainKeeper(world.metastore, world.keyspace),
            "removals": NodeRemover(world.metastore, world.keyspace),
            "log_levels": LogLevelKeeper(world.metastore, world.keyspace),
            "alerts": AlertWatch(_facts, world.metastore, world.mirror, world.keyspace, "api"),
            "operations": control,
            "audit": Audit(world.catalog, world.catalog.snapshot),
            "reverse": OperationReverse(world.catalog, control, world.mirror, world.keyspace, views),
        }
        services = services_with(**made)
        keeper = OperationKeeper(world.metastore, world.keyspace, WallClock(), lambda: world.admission.limits)
        app = build_app(services, VERIFIED)
        transport = CheckedTransport(app, client=("10.0.0.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://api/api/v1") as http:
            following = asyncio.create_task(keeper.mirror.run())
            await keeper.mirror.loaded()
            yield OperationsWorld(world, http, keeper, app)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await jobs.close()
