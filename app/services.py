"""What the routes need, as one value: put together by ``bootstrap``, handed to each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from app.request_audit import Audit
from app.sql.change_plan import ChangePlan
from app.sql.ddl_files import DdlFile
from app.sql.desired_state import CatalogPlan
from app.sql.engine import QueryResult
from app.sql.jobs import StatementJobs
from app.sql.operation_reverse import OperationReverse
from app.sql.results import StatementEngine
from app.sql.script_reader import ScriptReader
from app.sql.statements import StatementResult
from app.views.keyspace_views import KeyspaceViews
from app.views.routing_view import RoutingView
from app.views.zone_directory import ZoneDirectory
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.snapshot import CatalogSnapshot
from rebalance.controllers.drains import DrainKeeper
from rebalance.controllers.limits import LimitsKeeper
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.store_guard import StoreGuard
from rebalance.groups.copy_reader import CopyReader
from rebalance.groups.router import Router
from rebalance.metastore.mirror import KeyspaceMirror


@dataclass(frozen=True, slots=True)
class Services:
    """``run_statements``, ``snapshot`` and ``readiness`` leave the event loop free; views answer at once."""

    run_statements: Callable[[str], Awaitable[Sequence[StatementResult | QueryResult]]]
    run_guarded: Callable[[str, int], Awaitable[Sequence[StatementResult]]]
    run_planned: Callable[[str, str], Awaitable[Sequence[StatementResult]]]
    plan: Callable[[Sequence[DdlFile], bool], Awaitable[CatalogPlan]]
    change_plan: Callable[..., Awaitable[ChangePlan]]
    """Of a script; ``limits``: other than the reader's."""
    check_plan: Callable[[str, str], Awaitable[None]]
    snapshot: Callable[[], Awaitable[CatalogSnapshot]]
    readiness: Callable[[], Awaitable[dict[str, Any]]]
    zones: ZoneDirectory
    views: KeyspaceViews
    mirror: KeyspaceMirror
    router: Router
    copies: CopyReader
    routing: RoutingView
    engine: StatementEngine
    reader: ScriptReader
    jobs: StatementJobs
    stores: StoreGuard
    recovery: PartitionRecovery
    limits: LimitsKeeper
    drains: DrainKeeper
    operations: OperationControl
    reverse: OperationReverse
    audit: Audit

    def require_metastore(self) -> None:
        """Raises StoreError until the keyspace was read once: an empty answer would be a lie."""
        if not self.mirror.is_loaded:
            raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, "etcd has not answered since this server started")


async def _services(request: Request) -> Services:
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


ServicesOf = Annotated[Services, Depends(_services)]
"""Annotate a route's parameter with it."""
