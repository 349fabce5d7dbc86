"""A server's readiness over a catalog and a metastore in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import ReadinessProbe
from app.contract.health import Readiness as Body
from app.counts.partition_count import PartitionCount
from app.views.keyspace_views import KeyspaceViews
from catalog.core.snapshot import CatalogSnapshot
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keyspace.txn import Delete, Put, Txn, TxnResult
from rebalance.hosting.background import Background
from rebalance.ports.metastore import Metastore, MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore
from tests.unit.sql_world import World, opened


class SilentMetastore(MemoryMetastore):
    """Metastore that is not there: each commit raises MetastoreUnavailableError."""

    async def commit(self, txn: Txn) -> TxnResult:
        raise MetastoreUnavailableError("not there")


class Reporting:
    """A server's readiness over a catalog and a metastore in memory."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.background = Background()
        self.guard = StoreGuard(
            world.catalog, world.metastore, world.mirror, world.keyspace, world.relay.relay_once
        )
        self.count = PartitionCount(world.mirror, world.keyspace, RingReader(world.mirror, world.keyspace))
        self.readiness = self.over(world.relay)

    def over(self, relay: OutboxRelay) -> ReadinessProbe:
        world = self.world
        return ReadinessProbe(
            self.reader(world.metastore, relay),
            lambda: (),
            KeyspaceViews(world.mirror, world.keyspace),
            self.background,
        )

    def reader(self, metastore: Metastore, relay: OutboxRelay | None = None) -> FactReader:
        world = self.world
        stores = (metastore, world.mirror, self.count, world.keyspace, self.guard)
        return FactReader(self.snapshot, *stores, relay or world.relay)

    catalog_error: Exception | None = None

    async def snapshot(self) -> CatalogSnapshot:
        if self.catalog_error is not None:
            raise self.catalog_error
        return await self.world.catalog.snapshot()

    async def report(self) -> dict[str, Any]:
        """Read by the model that documents it, after all was counted."""
        await self.count.round()
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
