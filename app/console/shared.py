"""Resources that all pages share: the services, the feed, and answers that one reading of serves every page."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from markupsafe import Markup

from app.api.services import Services
from app.console.feed import PartitionFeed, Topic
from app.console.fragments import link, load_templates, render
from app.console.viewer import Viewer, current_viewer, for_everybody, may_use, renewed, sees, sees_all_zones
from app.core.alerts import Alert, Silence
from app.security.policy import PageControl
from app.security.statement_policy import only_zones
from app.sql.statements.results import ResultSet, SessionContext
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.mirror_freshness import MetastoreSilence
from catalog.core.audit import AuditFilter
from catalog.core.errors import RefusedError, StatementError
from catalog.core.names import written
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone

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
    _silence: MetastoreSilence | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _judged: tuple[int, tuple[Silence, ...]] = (0, ())
    _alerts: list[Alert] = field(default_factory=list)
    _catalog_version: int = -1
    _audited: int = -1
    _history: tuple[int, tuple[ConsoleEvent, ...] | None] = (-1, None)
    _reading: asyncio.Task[None] | None = None

    async def readiness(self) -> dict[str, Any]:
        """Return the readiness as ``/readyz`` tells it, asked anew every few seconds at most, whatever number
        of pages is open."""
        async with self._asking:
            if time.monotonic() - self._readiness_at >= READINESS_S:
                self._readiness = await self.services.readiness()
                self._silence = await self.services.freshness.silence()
                if self._readiness["catalog"] == "ok":
                    with suppress(StatementError):
                        await self._look_at_catalog()
                self._readiness_at = time.monotonic()
            return self._readiness

    async def silence(self) -> MetastoreSilence | None:
        """Return the metastore's silence, asked with the readiness: what pages show of zones, partitions and
        nodes is as of its beginning."""
        await self.readiness()
        return self._silence

    def look_at_alerts(self) -> None:
        """Look at alerts: they are judged beside the keyspace, and silences end by time, so nothing else says
        that they have changed."""
        alerts = self.services.alerts
        before, self._judged = self._judged, (alerts.judged_ms, alerts.silences.now())
        if self._judged != before:
            shown, self._alerts = self._alerts, alerts.alerts
            if self._alerts != shown or self._judged[1] != before[1]:
                self.feed.note(Topic.ALERTS)

    async def _look_at_catalog(self) -> None:
        """Look at the catalog, and at what was audited: not each of it is a change of the catalog."""
        version = (await self.services.snapshot()).version
        newest = await self.services.audit.read(AuditFilter(), 1, None)
        seen = version, newest[0].number if newest else 0
        if seen != (self._catalog_version, self._audited):
            self._catalog_version, self._audited = seen
            self.feed.note(Topic.STATEMENTS)

    async def warm_up(self) -> None:
        """Prepare what the first page would wait for otherwise."""
        await asyncio.to_thread(load_templates)
        await self.services.mirror.loaded()
        with suppress(StatementError):
            await self.readiness()
            self.history(self._catalog_version)
            if self._reading is not None:
                await self._reading

    async def catalog(self) -> CatalogSnapshot:
        """Return the catalog with the zones that the viewer sees. Raises StoreError."""
        return _seen_of(await self.services.snapshot())

    async def viewer(self) -> Viewer | None:
        """Return the viewer as of now; None where no login is required. For timers, which outlive the request
        that began them. Raises StatementError when the session is over, or cannot be read."""
        viewer, sessions = current_viewer(), self.services.sessions
        return None if viewer is None or sessions is None else await renewed(viewer, sessions)

    async def zone(self, name: str) -> Zone:
        """Find the zone of exactly this name, as links of pages have it, else as SQL reads it; one that the
        viewer does not see is not there. Raises RefusedError (ZONE_NOT_FOUND)."""
        find = self.services.zones.find
        with suppress(RefusedError):
            return await find(written(name), lambda zone: sees(zone.zone_id))
        return await find(name, lambda zone: sees(zone.zone_id))

    def history(self, version: int) -> tuple[ConsoleEvent, ...] | None:
        """The last statements, the newest first; None while those up to ``version`` are being read for the
        first time; none for a viewer that may not read them. A query takes longer than a page should wait for,
        so a later drawing has the new ones."""
        if not may_use(PageControl.READ_STATEMENTS):
            return ()
        known, events = self._history
        if known != version and (self._reading is None or self._reading.done()):
            with for_everybody():
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
        """Return a snapshot of everything, with the zones that the viewer sees, for readers in a thread. Raises
        StoreError."""
        self.services.require_metastore()
        catalog = await self.catalog()
        copy = self.services.mirror.copy()
        views, at_ms = self.services.views, time.time_ns() // 1_000_000
        silence = await self.silence()
        return SystemSnapshot(catalog, copy, views.keyspace, at_ms, ownership=views.ownership, silence=silence)


def no_zone() -> Markup:
    """Return the text in place of zones: where there is none, or none that the viewer sees."""
    may_create = may_use(PageControl.CREATE_ZONE)
    target = link("sql", text=NEW_ZONE)
    return render("empty", what="zone", example=NEW_ZONE, target=target, may_create=may_create)


def _seen_of(catalog: CatalogSnapshot) -> CatalogSnapshot:
    if sees_all_zones():
        return catalog
    return only_zones(catalog, [zone for zone in catalog.zones if sees(zone.zone_id)])
