"""What views are made of besides the catalog."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.alert_state import Alert
from app.sql.statements.query_line import QueryEntry
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.sight import NO_SIGHT, PartitionSight
from app.views.store_copies import ServerCopies
from catalog.core.snapshot import CatalogSnapshot
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.store.core.ownership import StoreOwnership


async def _no_copies() -> tuple[ServerCopies, ...]:
    """Where there are no store servers to be asked."""
    return ()


@dataclass(frozen=True, slots=True)
class ViewSources:
    """``ownership``: of store zones as of the mirror, where it was read already. ``store_copies`` asks the
    store servers. ``alerts``: as this server judges them."""

    mirror: KeyspaceMirror
    keyspace: Keyspace
    ownership: Callable[[], StoreOwnership] | None = None
    store_copies: Callable[[], Awaitable[tuple[ServerCopies, ...]]] = _no_copies
    alerts: Callable[[], Sequence[Alert]] = tuple
    sight: PartitionSight = NO_SIGHT

    async def snapshot(self, catalog: CatalogSnapshot, queries: tuple[QueryEntry, ...]) -> SystemSnapshot:
        """The keyspace as it is now."""
        ownership = self.ownership() if self.ownership is not None else None
        return SystemSnapshot(
            catalog,
            self.mirror.copy(),
            self.keyspace,
            taken_at_ms=time.time_ns() // 1_000_000,
            queries=queries,
            ownership=ownership,
            alerts=tuple(self.alerts()),
            silence=await self.sight.silence(),
            since_ms=self.sight.since_ms,
        )
