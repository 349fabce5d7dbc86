"""``CALL system.procedure``: recoveries, and the rest of zones, from SQL; refusals with a place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.requests.context import current_origin
from app.requests.errors import answered
from app.security.statement_policy import called_zone
from app.sql.statements.results import BIGINT, BOOLEAN, INTEGER, VARCHAR, ResultSet
from app.sql.views.show import result
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Position
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone
from parser.queries import Call, Procedure
from rebalance.controllers.planned_resets import PartitionReset
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.store_requests import RestRequest, StoreRequests
from rebalance.core.recovery.recovery_plan import ResetTerms

RESET_COLUMNS = {
    "PARTITION_ID": INTEGER,
    "OUTCOME": VARCHAR,
    "SURVIVOR": VARCHAR,
    "PLANNED": VARCHAR,
    "POSSIBLY_LOST_ENTRIES": BIGINT,
    "DETAIL": VARCHAR,
}
RESTART_COLUMNS = {"PARTITION_ID": INTEGER, "NODE_NAME": VARCHAR}
LOSS_COLUMNS = {
    "PARTITION_ID": INTEGER,
    **dict.fromkeys(("OUTCOME", "OWNERS", "DETAIL"), VARCHAR),
}
REST_COLUMNS = {
    **dict.fromkeys(("ZONE_NAME", "ZONE_STATE"), VARCHAR),
    "IS_CHANGED": BOOLEAN,
    **dict.fromkeys(("EXCHANGE", "DETAIL"), VARCHAR),
}
"""EXCHANGE: of SYSTEM.EXCHANGES; none where nothing was changed."""


@dataclass(frozen=True, slots=True)
class Procedures:
    """Services that carry calls out: ``recovery`` of partitions that are groups, ``stores`` of zones of store
    servers."""

    recovery: PartitionRecovery
    stores: StoreRequests

    async def run(self, call: Call, catalog: CatalogSnapshot) -> ResultSet:
        """OUTCOME of a reset: RESET, or the name of what was in the way. Never begins a partition empty: that
        takes `zonectl recovery reset --empty`. Raises RefusedError with a place, StoreError."""
        zone = _zone(call, catalog)
        try:
            if call.procedure.is_of_groups:
                self.stores.refuse_store(zone, "system.reset_lost_partitions, where partitions are lost")
                return await answered(_run_of_groups(call, zone, self.recovery))
            return await answered(_run_of_stores(call, zone, self.stores))
        except RefusedError as refused:
            raise RefusedError(refused.kind, refused.message, _place(call, zone, refused.kind)) from refused


async def _run_of_groups(call: Call, zone: Zone, recovery: PartitionRecovery) -> ResultSet:
    numbers = [partition.value for partition in call.partitions]
    if call.procedure is Procedure.RESET_PARTITIONS:
        terms = ResetTerms(
            source=call.source.value if call.source is not None else "",
            confirmed_dead=frozenset(node.value for node in call.nodes),
        )
        resets = await recovery.reset(zone, numbers, terms, origin=current_origin())
        return result(RESET_COLUMNS, (_reset_row(reset) for reset in resets))
    restarts = await recovery.restart(zone, numbers, [node.value for node in call.nodes])
    return result(
        RESTART_COLUMNS, ((restart.partition, node) for restart in restarts for node in restart.plan.nodes)
    )


async def _run_of_stores(call: Call, zone: Zone, stores: StoreRequests) -> ResultSet:
    if call.procedure is Procedure.RESET_LOST_PARTITIONS:
        resets = await stores.reset_lost(zone)
        rows = ((each.partition, each.outcome, ", ".join(each.owners) or None, each.detail) for each in resets)
        return result(LOSS_COLUMNS, rows)
    is_active = call.procedure is Procedure.ACTIVATE_ZONE
    request = await stores.set_active(zone, is_active=is_active)
    return replace(result(REST_COLUMNS, (_rest_row(request),)), applied=request.version is not None)


def call_details(call: Call) -> dict[str, object]:
    """Details of a call as the audit keeps them."""
    details: dict[str, object] = {}
    if call.procedure.is_of_groups:
        details["partitions"] = [number.value for number in call.partitions]
    if call.nodes:
        details["nodes"] = [node.value for node in call.nodes]
    if call.source is not None:
        details["from"] = call.source.value
    return details


def _rest_row(request: RestRequest) -> tuple[object, ...]:
    state = "ACTIVE" if request.is_active else "DEACTIVATED"
    version = None if request.version is None else str(request.version)
    detail = "" if request.is_done else "its exchange goes on: see SYSTEM.EXCHANGES"
    if version is None:
        detail = f"the zone is {state} already; nothing was changed"
    return request.zone.name, state, version is not None, version, detail


def _zone(call: Call, catalog: CatalogSnapshot) -> Zone:
    zone = called_zone(catalog, call)
    if zone is None:
        message = f"zone {call.zone.value} does not exist"
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, message, call.zone.position)
    return zone


def _reset_row(reset: PartitionReset) -> tuple[object, ...]:
    plan, refusal = reset.plan, reset.refusal
    if plan is None:
        assert refusal is not None
        return reset.partition, refusal.kind.name, None, None, None, refusal.message
    planned = ", ".join((*plan.then.peers, *plan.then.learners)) if plan.then is not None else None
    return reset.partition, "RESET", plan.survivor, planned, plan.possibly_lost_entries, ""


def _place(call: Call, zone: Zone, kind: ErrorKind) -> Position:
    """Position of the argument that is to blame, else of the procedure's name."""
    if kind is ErrorKind.PARTITION_NOT_FOUND:
        wrong = (partition.position for partition in call.partitions if partition.value >= zone.partitions)
        return next(wrong, call.position)
    if kind is ErrorKind.NODE_SET_ILLEGAL and call.source is not None:
        return call.source.position
    blamed = (ErrorKind.NODE_NOT_FOUND, ErrorKind.NODE_SET_ILLEGAL, ErrorKind.LOSS_NOT_CONFIRMED)
    if kind in blamed and call.nodes:
        return call.nodes[0].position
    return call.position
