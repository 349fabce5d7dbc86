"""What all pages share: the services, the feed, and answers that one reading of serves every page."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.console.feed import PartitionFeed, Topic
from app.services import Services
from app.sql.results import ResultSet, SessionContext
from app.sql.view_snapshot import SystemSnapshot
from catalog.core.errors import StatementError
from catalog.core.snapshot import CatalogSnapshot

log = structlog.get_logger(__name__)

NEW_ZONE = "CREATE ZONE orders (PARTITIONS 16, REPLICAS 3) STORAGE PROFILES ['default'];"
READINESS_S = 4.0
HISTORY_MAX = 500
HISTORY = (
    "SELECT catalog_version, committed_at, statement, actor, reason FROM events "
    f"ORDER BY catalog_version DESC LIMIT {HISTORY_MAX}"
)


@dataclass(frozen=True, slots=True)
class ConsoleEvent:
    """A statement that made a catalog version; ``at`` in UTC."""

    version: int
    at: str
    statement: str
    by: str = ""
    reason: str = ""


@dataclass
class Site:
    services: Services
    feed: PartitionFeed
    _readiness: dict[str, Any] = field(default_factory=dict)
    _readiness_at: float = -READINESS_S
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _catalog_version: int = -1
    _history: tuple[int, tuple[ConsoleEvent, ...] | None] = (-1, None)
    _reading: asyncio.Task[None] | None = None

    async def readiness(self) -> dict[str, Any]:
        """As ``/readyz`` tells it, asked anew every few seconds at most, whatever number of pages is open."""
        async with self._asking:
            if time.monotonic() - self._readiness_at >= READINESS_S:
                self._readiness = await self.services.readiness()
                if self._readiness["catalog"] == "ok":
                    with suppress(StatementError):
                        await self._look_at_catalog()
                self._readiness_at = time.monotonic()
            return self._readiness

    async def _look_at_catalog(self) -> None:
        version = (await self.catalog()).version
        if version != self._catalog_version:
            self._catalog_version = version
            self.feed.note(Topic.STATEMENTS)

    async def warm_up(self) -> None:
        """What the first page would wait for otherwise. Raises StatementError."""
        await self.readiness()
        self.history(self._catalog_version)
        if self._reading is not None:
            await self._reading

    async def catalog(self) -> CatalogSnapshot:
        """Raises StoreError."""
        return await self.services.snapshot()

    def history(self, version: int) -> tuple[ConsoleEvent, ...] | None:
        """The last statements, the newest first; None while those up to ``version`` are being read for the
        first time. A query takes longer than a page should wait for, so a later drawing has the new ones."""
        known, events = self._history
        if known != version and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_history(version))
        return events

    async def _read_history(self, version: int) -> None:
        try:
            answer = await self.ask(HISTORY)
        except StatementError as error:
            log.warning("the console cannot read the catalog's history", error=str(error))
            await asyncio.sleep(READINESS_S)
            return
        events = tuple(
            ConsoleEvent(int(n), str(at)[:19], str(sql), by or "", why) for n, at, sql, by, why in answer.rows
        )
        self._history = version, events
        self.feed.note(Topic.STATEMENTS)

    async def ask(self, sql: str) -> ResultSet:
        """One statement, as clients ask it. Raises StatementError."""
        return await self.services.engine.execute(sql, SessionContext(user="console"))

    async def snapshot(self) -> SystemSnapshot:
        """Everything, for readers in a thread. Raises StoreError."""
        self.services.require_metastore()
        catalog = await self.services.snapshot()
        copy = self.services.mirror.copy()
        views, at_ms = self.services.views, time.time_ns() // 1_000_000
        return SystemSnapshot(catalog, copy, views.keyspace, at_ms, ownership=views.ownership)
