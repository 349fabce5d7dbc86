"""Services that the routes need, as one value, which ``bootstrap`` makes and each request gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from app.alerts.alert_watch import AlertWatch
from app.contract.nodes import NodeBody
from app.metrics.exposition import Exposition
from app.process.logs import LogLevelKeeper
from app.requests.context import current_caller, seen_zones
from app.requests.request_audit import Audit
from app.security.access_view import AccessView
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from app.sql.engine.operation_reverse import OperationReverse
from app.sql.engine.sql_engine import SqlEngine
from app.sql.engine.statement_jobs import StatementJobs
from app.sql.statements.results import StatementEngine
from app.sql.statements.script_reader import ScriptReader
from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import MirrorFreshness, as_of
from app.views.operation_views import OperationViews
from app.views.routing import RoutingView, ZoneDirectory, ZoneEndpoints
from catalog.core.authorisation import ALL_ZONES, Privilege, zone_object
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId
from rebalance.controllers.cluster_control import DrainKeeper, LimitsKeeper, NodeRemover
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.store_guard import StoreGuard
from rebalance.controllers.store_requests import StoreRequests
from rebalance.controllers.upgrade import UpgradeKeeper
from rebalance.core.keyspace.records import ProcessRole
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.group_checks import CopyReader
from rebalance.metastore.mirror import KeyspaceMirror

SEEN_S = 2.0


@dataclass(frozen=True, slots=True)
class Services:
    """Services of a server. ``sql``, ``snapshot`` and ``readiness`` leave the event loop free; views answer at
    once. ``engine`` is ``sql`` for the SQL protocol."""

    sql: SqlEngine
    snapshot: Callable[[], Awaitable[CatalogSnapshot]]
    readiness: Callable[[], Awaitable[dict[str, Any]]]
    freshness: MirrorFreshness
    zones: ZoneDirectory
    views: KeyspaceViews
    mirror: KeyspaceMirror
    router: ZoneRouter
    copies: CopyReader
    routing: RoutingView
    endpoints: ZoneEndpoints
    engine: StatementEngine
    reader: ScriptReader
    jobs: StatementJobs
    stores: StoreGuard
    recovery: PartitionRecovery
    store_requests: StoreRequests
    limits: LimitsKeeper
    drains: DrainKeeper
    removals: NodeRemover
    upgrades: UpgradeKeeper
    log_levels: LogLevelKeeper
    operations: OperationControl
    reverse: OperationReverse
    audit: Audit
    alerts: AlertWatch
    access: AccessView | None = None
    """View of users and privileges; None: no login is required."""
    sessions: SessionView | None = None
    """Sessions of the console; None: no login is required."""
    watch: StandingWatch | None = None
    """Watch over callers' standing; None: no login is required."""
    metrics: Exposition = field(default_factory=lambda: Exposition((ProcessRole.SERVER,)))

    @property
    def operation_views(self) -> OperationViews:
        return OperationViews(self.mirror, self.views.keyspace, self.views)

    async def zone(self, name: str) -> Zone:
        """The zone of that name, if the caller may see it. Raises RefusedError (ZONE_NOT_FOUND), StoreError."""
        caller = current_caller()
        if caller is None:
            return await self.zones.find(name)
        grants = (await self.snapshot()).grants if self.access is None else await self.access.grants()
        return await self.zones.find(
            name, lambda zone: caller.may(grants, Privilege.SEE, zone_object(zone.zone_id))
        )

    async def seen_zones(self) -> frozenset[ZoneId] | None:
        """Ids of the zones that the caller may see; None: all, also those that are gone."""
        caller = current_caller()
        if caller is None:
            return None
        if self.access is not None and caller.may(await self.access.grants(), Privilege.SEE, ALL_ZONES):
            return None
        return seen_zones(await self.snapshot())

    async def known_nodes(self, names: Collection[str]) -> list[NodeBody]:
        """The nodes of these names. Raises RefusedError (NODE_NOT_FOUND), which lists the known ones for a
        caller who sees all zones."""
        known = {node["name"]: node for node in self.views.nodes()}
        if unknown := sorted(set(names) - known.keys()):
            message = f"there is no node {', '.join(unknown)}"
            if await self.seen_zones() is None:
                message += f"; known nodes: {', '.join(sorted(known)) or 'none'}"
            raise RefusedError(ErrorKind.NODE_NOT_FOUND, message)
        return [known[name] for name in names]

    async def seen_views(self) -> KeyspaceViews:
        """The views as the caller may see them."""
        return self.views.seen_by(await self.seen_zones())

    async def dated(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``body``, which was read from the mirror, with the time as of which it is true."""
        return as_of(body, await self.freshness.silence())

    async def seen(self, revision: int) -> None:
        """Wait until this server sees what was written at ``revision``, but no longer than ``SEEN_S``."""
        await self.mirror.wait_until(lambda: self.mirror.revision >= revision, SEEN_S)

    def require_metastore(self) -> None:
        """Raise StoreError until the keyspace was read once: an empty answer would be wrong."""
        if not self.mirror.is_loaded:
            raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, "etcd has not answered since this server started")


async def _services(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


async def _loaded(services: Annotated[Services, Depends(_services)]) -> Services:
    services.require_metastore()
    return services


ServicesOf = Annotated[Services, Depends(_services)]
"""Annotation of a route's parameter for the services."""
LoadedServices = Annotated[Services, Depends(_loaded)]
"""The same for a route that needs the keyspace to have been read once."""
