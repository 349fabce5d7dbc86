"""Operations: every change that moves data, as a resource (VOL-020, VOL-087, VOL-089, VOL-095, VOL-104)."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response

from app.api.bodies import ActionRequest, FinaliseRequest, OperationPause, PartitionsCancel
from app.api.problems import answers
from app.api.services import SEEN_S, LoadedServices, Services, ServicesOf
from app.api.statements import WAIT_S_MAX
from app.contract.operations import (
    CancelledBody,
    FinaliseAnswer,
    KindName,
    OperationAnswer,
    OperationDetail,
    Operations,
    PartitionsCancelled,
    ReverseAnswer,
    StateName,
)
from app.process.logs import utc_now_ms
from app.requests.context import current_actor
from app.requests.errors import answered
from app.sql.statements.paging import page_offset, page_token
from app.views.keyspace_views import KeyspaceViews
from app.views.operation_views import OperationFilter, OperationViews
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.operation_control import checked_id, not_found
from rebalance.core.admission.move_admission import Pause
from rebalance.core.assignments.withdrawal import CancelledPartitions
from rebalance.core.operations.operation import OPERATION_ID, Operation, OperationKind, OperationState

router = APIRouter(prefix="/api/v1/operations", tags=["operations"])

OPERATIONS_DEFAULT = 50
PAGE_MAX = 1000
UNKNOWN_NAME = "unknown"

OperationName = Annotated[
    str,
    Path(
        description="zone id and event revision",
        examples=["3-1834"],
        json_schema_extra={"pattern": f"^{OPERATION_ID}$"},
    ),
]


@router.get("", **answers(Operations, 400, 404, 503))
async def list_operations(
    services: LoadedServices,
    zone: Annotated[str | None, Query(description="only of this zone, by name")] = None,
    state: Annotated[list[StateName] | None, Query(description="only in these states")] = None,
    kind: Annotated[list[KindName] | None, Query(description="only of these kinds")] = None,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = OPERATIONS_DEFAULT,
    token: Annotated[str | None, Query(alias="page_token", max_length=100)] = None,
) -> Response:
    """List operations, newest first: all in progress, and the last 200 ended ones of each zone that the caller
    may see."""
    zone_id: ZoneId | None = (await services.zone(zone)).zone_id if zone is not None else None
    states, kinds = frozenset(state or ()), frozenset(kind or ())
    subject = f"operations/{zone_id}/{sorted(states)}/{sorted(kinds)}"
    offset = page_offset(subject, token)
    named = {OperationState(name) for name in states}, {OperationKind(name) for name in kinds}
    views, now_ms, end = services.operation_views, utc_now_ms(), offset + page_size
    operations = views.listed(OperationFilter(zone_id, *named, await services.seen_zones()))
    shown = [views.summary(operation, item, now_ms) for operation, item in operations[offset:end]]
    following = page_token(subject, end) if end < len(operations) else None
    return JSONResponse(await services.dated({"operations": shown, "next_page_token": following}))


@router.get("/{operation:segment}", **answers(OperationAnswer, 400, 404, 503))
async def get_operation(
    operation: OperationName,
    services: LoadedServices,
    wait_timeout: Annotated[
        float, Query(ge=0, le=WAIT_S_MAX, description="seconds to wait until the operation is over")
    ] = 0,
    plan: Annotated[bool, Query(description="include donors, stealers and batches")] = True,
) -> Response:
    """Show an operation: its progress, what waits and why, and what it moves. With ``wait_timeout`` the answer
    comes when the operation is over or the time is up."""
    if services.operation_views.find(checked_id(operation)) is None:
        raise not_found(operation)

    def over() -> bool:
        entry = services.operation_views.find(operation)
        return entry is None or entry[0].is_over

    if wait_timeout and not over():
        await services.mirror.wait_until(over, wait_timeout)
    return await _shown(operation, services, with_plan=plan)


@router.post("/{operation:segment}/pause", **answers(OperationAnswer, 400, 404, 409, 503, 504))
async def pause_operation(operation: OperationName, body: OperationPause, services: ServicesOf) -> Response:
    """Pause an operation: no more of its moves start, running moves finish. The pause applies to its zone, so
    later operations of the zone wait too. Pausing again replaces the pause."""
    now_ms = utc_now_ms()
    until_ms = None if body.for_s is None else now_ms + max(1, round(body.for_s * 1_000))
    by, _ = _who(body, services)
    paused = await answered(services.operations.pause(operation, Pause(by, body.reason, now_ms, until_ms)))
    await _record(Action.PAUSE_OPERATION, operation, body, services)
    return await _changed(paused, services)


@router.post("/{operation:segment}/resume", **answers(OperationAnswer, 400, 404, 409, 503, 504))
async def resume_operation(operation: OperationName, body: ActionRequest, services: ServicesOf) -> Response:
    """End the pause of the operation's zone, and retry failed copies (COPY_FAILED) at once. A pause of the
    whole cluster stays (``/api/v1/rebalance/limits``)."""
    by, _ = _who(body, services)
    resumed = await answered(services.operations.resume(operation, by, body.reason))
    await _record(Action.RESUME_OPERATION, operation, body, services)
    return await _changed(resumed, services)


@router.post("/{operation:segment}/cancel", **answers(OperationAnswer, 400, 404, 409, 503, 504))
async def cancel_operation(operation: OperationName, body: ActionRequest, services: ServicesOf) -> Response:
    """Cancel an operation. Partitions that have not started stay where they are. Partitions that have started
    go back if no previous voter has been removed yet, and finish otherwise; ``cancelled`` lists them. The
    operation is ``over`` once nothing moves. The zone keeps its parameters: its next change or node event moves
    the rest. To undo the change itself, reverse the operation."""
    by, _ = _who(body, services)
    cancelled = await answered(services.operations.cancel(operation, by, body.reason))
    partitions = await answered(services.operations.cancelled(cancelled))
    await _record(Action.CANCEL_OPERATION, operation, body, services)
    return await _changed(cancelled, services, cancelled=_partitions(partitions))


@router.post("/{operation:segment}/partitions/cancel", **answers(PartitionsCancelled, 400, 404, 409, 503, 504))
async def cancel_partitions(operation: OperationName, body: PartitionsCancel, services: ServicesOf) -> Response:
    """Cancel the moves of some partitions, as cancel does for all of them. The operation continues with the
    others. The zone's next change or node event moves these."""
    by, _ = _who(body, services)
    numbers = frozenset(body.partitions)
    cancelled = await answered(services.operations.cancel_partitions(operation, numbers, by, body.reason))
    await _record(Action.CANCEL_PARTITIONS, operation, body, services)
    return JSONResponse({"operation_id": operation, **_partitions(cancelled)})


@router.post(
    "/{operation:segment}/finalise", status_code=202, **answers(FinaliseAnswer, 400, 404, 409, 503, 504)
)
async def finalise_operation(operation: OperationName, body: FinaliseRequest, services: ServicesOf) -> Response:
    """Delete the copies that nodes kept (limit ``keep_copies``) of members that left through this operation or
    an earlier one of its zone: as many as a dry run has shown. Refused (409) until the operation is over. Safe
    to repeat."""
    if not body.dry_run and body.copies is None:
        message = "name the number of copies that a dry run has shown"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    if not body.dry_run:
        services.audit.require_reason(body.reason)
    copies = await answered(services.operations.finalise(operation, body.copies, dry_run=body.dry_run))
    if not body.dry_run:
        await _record(Action.FINALISE_OPERATION, operation, body, services)
    answer = {"operation_id": operation, "dry_run": body.dry_run, "copies": copies}
    return JSONResponse(answer, status_code=202)


@router.post("/{operation:segment}/reverse", status_code=202, **answers(ReverseAnswer, 400, 404, 409, 503, 504))
async def reverse_operation(
    operation: OperationName, body: ActionRequest, services: LoadedServices
) -> Response:
    """Return to the previous assignment with a new operation: a new catalog version with the zone's previous
    parameters, and its previous target. Refused (409, REVERSE_IMPOSSIBLE) if the zone has had a later
    operation, if the catalog or the data nodes no longer allow the previous target, or if a reset discarded
    copies."""
    by, verified = _who(body, services)
    await answered(services.limits.require_rebalancing(f"reversing {operation} moves data back"))
    reversal = await answered(services.reverse.reverse(operation, by, body.reason, verified=verified))
    answer = {
        "reverses": operation,
        "catalog_version": reversal.version,
        "operation_id": reversal.operation_id,
    }
    location = f"/api/v1/operations/{reversal.operation_id or operation}"
    return JSONResponse(answer, status_code=202, headers={"Location": location})


async def _record(action: Action, name: str, body: ActionRequest, services: Services) -> None:
    await services.audit.record(
        action, name, body.model_dump(exclude={"by", "reason"}), by=body.by, reason=body.reason
    )


def _who(body: ActionRequest, services: Services) -> tuple[str, bool]:
    """The name of the caller, and True if it is verified. Raises RefusedError (REASON_REQUIRED)."""
    services.audit.require_reason(body.reason)
    actor = current_actor().named(body.by)
    return actor.name or UNKNOWN_NAME, actor.verified


def _partitions(cancelled: CancelledPartitions) -> CancelledBody:
    return {
        "given_up": list(cancelled.stays),
        "going_back": list(cancelled.goes_back),
        "begun": list(cancelled.goes_on),
    }


async def _changed(
    operation: Operation, services: Services, cancelled: CancelledBody | None = None
) -> Response:
    """Answer with the operation as it was written, once this server sees that; ``cancelled``: partitions whose
    moves were cancelled."""

    def seen() -> bool:
        entry = services.operation_views.find(operation.operation_id)
        return entry is None or entry[0].state is operation.state

    await services.mirror.wait_until(seen, SEEN_S)
    return await _shown(operation.operation_id, services, with_plan=False, cancelled=cancelled)


async def _shown(
    name: str, services: Services, *, with_plan: bool, cancelled: CancelledBody | None = None
) -> Response:
    """Answer with an operation, read from a copy in a thread: a zone may have many partitions."""
    keys, keyspace = services.mirror.copy(), services.views.keyspace
    now_ms, ownership, seen = utc_now_ms(), services.views.ownership, await services.seen_zones()

    def show() -> OperationDetail | None:
        of_keys = KeyspaceViews(keys, keyspace, ownership=lambda: ownership).seen_by(seen)
        views = OperationViews(keys, keyspace, of_keys)
        entry = views.find(name)
        return None if entry is None else views.detail(*entry, now_ms, with_plan=with_plan)

    body = await asyncio.to_thread(show)
    if body is None:
        raise not_found(name)
    if cancelled is not None:
        body["cancelled"] = cancelled
    return JSONResponse(await services.dated(body))
