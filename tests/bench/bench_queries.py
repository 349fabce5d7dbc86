"""Latency of questions with few and with many zones: a warm sandbox, SQLite, the keyspace in memory.

``changed`` has the metastore move between any two questions, so that no view is reused.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import pytest

from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import SessionContext
from catalog.core.snapshot import CatalogSnapshot, EntryKind, ZoneEntry
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.txn import Operation, Put, Txn
from rebalance.core.topology.data_nodes import DataNodes
from tests.fixtures.script_runner import new_version
from tests.unit.sql_world import World, opened

STATEMENTS = (
    "SHOW ZONES",
    "SHOW CREATE ZONE z7",
    "SELECT * FROM zones WHERE zone_name = 'Z7'",
    "SELECT zone_replicas, count(*) FROM zones GROUP BY 1",
    "EXPLAIN ALTER ZONE z7 SET (REPLICAS 1)",
)
ROUNDS = 15


async def fill(world: World, count: int) -> None:
    """One catalog version with all zones, published, with data nodes; no partition is placed."""
    zones = [
        Zone(ZoneId(n), f"Z{n}", partitions=1, replicas=1, quorum_size=None, storage_profiles=("default",))
        for n in range(1, count + 1)
    ]
    entries = tuple(ZoneEntry(EntryKind.WRITTEN, zone) for zone in zones)
    base = CatalogSnapshot()
    world.catalog._store.unit_of_work.commit(base, [new_version(base, entries, "x" * 32, "many")])
    writes: list[Operation] = []
    for zone in zones:
        data_nodes = DataNodes(1, tuple(node.name for node in world.nodes), 2)
        writes.append(Put(world.keyspace.intent(zone.zone_id), ZoneIntent(1, zone).encode()))
        writes.append(Put(world.keyspace.data_nodes(zone.zone_id), data_nodes.encode()))
    for start in range(0, len(writes), 100):
        await world.metastore.commit(Txn((), tuple(writes[start : start + 100])))
    await world.settle()


@pytest.mark.parametrize("count", [10, 10_000])
async def test_latency(tmp_path: Path, count: int) -> None:
    async with opened(tmp_path) as world:
        await fill(world, count)
        for sql in STATEMENTS:
            for changed in (False, True):
                await world.engine.execute(sql, SessionContext())
                took = []
                for number in range(ROUNDS):
                    if changed:
                        await world.put("test/other", str(number).encode())
                        await world.settle()
                    begun = time.perf_counter()
                    await world.engine.execute(sql, SessionContext())
                    took.append((time.perf_counter() - begun) * 1000)
                state = "changed" if changed else "same   "
                print(f"{count:6} zones, {state}: {median(took):7.1f} ms median, {max(took):7.1f} max: {sql}")


async def test_a_cheap_query_beside_heavy_ones(tmp_path: Path) -> None:
    """Print the time of SELECT 1 while eight queries run or wait, and that of the next query's begin after a
    cancel."""
    endless = (
        "WITH RECURSIVE t (x) AS (SELECT 1 UNION ALL SELECT (x * 7) % 1000003 FROM t) SELECT count(*) FROM t"
    )
    pool = SandboxPool(QueryLimits(timeout_s=600, waiting_s=600), spares=2)
    async with opened(tmp_path, pool) as world:
        await world.engine.execute("SELECT 1", SessionContext())
        heavy = [asyncio.create_task(world.engine.execute(endless, SessionContext())) for _ in range(8)]
        while len(pool.queries) < len(heavy):
            await asyncio.sleep(0.01)
        took = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            await world.engine.execute("SELECT 1", SessionContext())
            took.append((time.perf_counter() - begun) * 1000)
        print(f"SELECT 1 beside {len(heavy)}: {median(took):7.1f} ms median, {max(took):7.1f} max")
        begun = time.perf_counter()
        heavy.pop(0).cancel()
        while len(pool.queries) > len(heavy) or sum(each.position == 0 for each in pool.queries) < 2:
            await asyncio.sleep(0.001)
        print(f"after a cancel the next begins after {(time.perf_counter() - begun) * 1000:7.1f} ms")
        for task in heavy:
            task.cancel()
        await asyncio.gather(*heavy, return_exceptions=True)
    await pool.close()
