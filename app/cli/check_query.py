"""SELECTs in a script for ``zonectl check``, answered from the catalog that the script has made so far.

No cluster is behind it: views of partitions and members show zones that are not placed. The module is loaded
only for a script with a query, since DDL needs no query engine.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sortedcontainers import SortedList

from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import ResultSet
from app.sql.views.metadata import registry_with_metadata
from app.sql.views.view_registry import ViewRegistry, arrow_stream
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.snapshot import CatalogSnapshot, Topology
from parser.queries import Query
from parser.select import PreparedQuery, prepare_query
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.mirror import KeyspaceCopy

KEYSPACE = Keyspace("check/")


def answer(query: Query, catalog: CatalogSnapshot, topology: Topology) -> dict[str, Any]:
    """Answer one SELECT with ``{"op": "rows", "rows"}``. Raises StatementError."""
    items = {}
    for node in topology:
        key = KEYSPACE.node(node.name)
        items[key] = KeyValue(key, NodeRecord(node, "check").encode(), 1, 1, 1)
    keys = KeyspaceCopy(KEYSPACE.prefix, 1, items, SortedList(items))
    snapshot = SystemSnapshot(catalog, keys, KEYSPACE, time.time_ns() // 1_000_000)
    registry = registry_with_metadata()
    prepared = prepare_query(query.source, lambda name: registry.find(name).relation)
    result = asyncio.run(_run(prepared, snapshot, registry))
    return {"op": "rows", "rows": [list(row) for row in result.rows]}


async def _run(query: PreparedQuery, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    pool = SandboxPool(QueryLimits(), spares=0)
    try:
        views = [registry.relation(relation) for relation in sorted(query.relations)]
        tables = {view.relation: arrow_stream(view.columns, view.rows(snapshot)) for view in views}

        async def load() -> dict[str, bytes]:
            return tables

        return await pool.run(query, load)
    finally:
        await pool.close()
