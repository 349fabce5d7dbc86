"""``/api/v1/zones/{zone}/recovery``: the health of partitions, and the recovery from a lost majority."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.addresses import ZoneName
from app.api.bodies import PartitionNumber, RequestBody, Whole
from app.api.problems import answers
from app.api.services import LoadedServices, Services, ServicesOf
from app.contract.recovery import LossResets, PartitionStates, Resets, Restarts
from app.requests.context import current_origin
from app.requests.errors import answered
from app.views.mirror_freshness import as_of
from app.views.recovery_views import loss_reset_body, partition_states, reset_body, restart_body
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Zone
from catalog.core.zone_options import PARTITIONS_MAX
from rebalance.controllers.planned_resets import ShownReset
from rebalance.controllers.recovery import check_numbers
from rebalance.core.recovery.recovery_plan import ResetTerms

NODES_MAX = 1_000
"""Most names in one request."""

router = APIRouter(prefix="/api/v1/zones/{zone:segment}/recovery", tags=["recovery"])

NodeNames = Annotated[list[str], Field(max_length=NODES_MAX)]
Numbers = Annotated[list[PartitionNumber], Field(description="partition numbers; empty: all")]


class ShownResetBody(RequestBody):
    """Result of a dry run, for the partitions that share it."""

    partitions: list[PartitionNumber] = Field(max_length=PARTITIONS_MAX)
    survivor: str
    empty: bool
    possibly_lost_entries: Whole = Field(ge=0)


class ResetRequest(RequestBody):
    """Either ``dry_run``, or what a dry run has ``shown``: when more would be lost by now, or another copy
    would be kept, nothing is done (409)."""

    partitions: Numbers = Field(default_factory=list)
    source: str = Field(
        "",
        alias="from",
        description="node whose copy is used, also one that is not the best; empty: the best copy is",
    )
    empty: bool = Field(
        False, description="start without data; refused (COPIES_LEFT) while a living node has a copy"
    )
    discard_copies: NodeNames = Field(
        default_factory=list, description="with `empty`: every live node whose copy may be discarded"
    )
    confirm_dead: NodeNames = Field(
        default_factory=list,
        description="nodes that are known to be dead: those of `to_confirm` in a dry run (LOSS_NOT_CONFIRMED)",
    )
    dry_run: bool = Field(False, description="only say what would be done and lost")
    tell_refusals: bool = Field(
        False,
        description="with `dry_run` and `partitions`: report every partition with its copies and obstacles, "
        "instead of the first refusal",
    )
    shown: list[ShownResetBody] | None = Field(
        None,
        max_length=PARTITIONS_MAX,
        description="what is accepted, of all partitions that a dry run names",
    )


class RestartRequest(RequestBody):
    partitions: Numbers = Field(default_factory=list)
    nodes: list[str] = Field(default_factory=list, description="empty: every living node with a replica")
    cleanup: bool = Field(
        False, description="discard the data and copy it again from the others; requires one node"
    )
    dry_run: bool = False


class LossResetRequest(RequestBody):
    """Every lost partition of the zone is reset."""

    confirm_dead: NodeNames = Field(
        default_factory=list,
        description="nodes that are known to be dead: partitions that wait only for these are reset, too",
    )


@router.get("/states", **answers(PartitionStates, 400, 404, 503))
async def recovery_states(
    zone: ZoneName,
    services: LoadedServices,
    partition: Annotated[list[PartitionNumber] | None, Query(description="default: every partition")] = None,
    node: Annotated[list[str] | None, Query(description="only partitions with a replica on this node")] = None,
) -> Response:
    """Return the state of each partition and of its replicas, as the views of partition states do. While the
    metastore does not respond, replicas are UNKNOWN since its last response."""
    known_zone = await services.zone(zone)
    check_numbers(known_zone, partition or ())
    await services.known_nodes(node or ())
    freshness, silence = services.freshness, await services.freshness.silence()
    states = [
        state
        for state in partition_states(services.views, known_zone, partition or (), freshness, silence)
        if node is None or any(replica["node"] in node for replica in state["replicas"])
    ]
    return JSONResponse(
        as_of({"zone": known_zone.name, "zone_id": known_zone.zone_id, "partitions": states}, silence)
    )


@router.post("/reset", **answers(Resets, 400, 404, 409, 503, 504))
async def reset_partitions(zone: ZoneName, request: ResetRequest, services: ServicesOf) -> Response:
    """Found groups that lost their majority anew: first on the best copy of a live node, voter or learner, then
    on the full set. Members are probed first: a group that serves is left alone. Each partition named must need
    a reset; without names, every partition that needs one is reset. The nodes carry it out: poll the states to
    see when it is done."""
    if not request.dry_run and request.shown is None:
        raise RefusedError(ErrorKind.INVALID_REQUEST, "send what a dry run has shown in `shown`")
    if not request.dry_run:
        services.audit.require_reason()
    shown = [
        ShownReset(number, reset.survivor, reset.empty, reset.possibly_lost_entries)
        for reset in request.shown or ()
        for number in reset.partitions
    ]
    known_zone = await _zone_of(services, zone)
    services.store_requests.refuse_store(known_zone, "reset-lost, where partitions are lost")
    resets = await answered(
        services.recovery.reset(
            known_zone,
            request.partitions,
            ResetTerms(
                source=request.source,
                empty=request.empty,
                discarded=frozenset(request.discard_copies),
                confirmed_dead=frozenset(request.confirm_dead),
            ),
            dry_run=request.dry_run,
            tells_refusals=request.tell_refusals,
            origin=current_origin(),
            shown=shown,
        )
    )
    if not request.dry_run:
        details = request.model_dump(
            by_alias=True, exclude={"dry_run", "tell_refusals", "shown"}, exclude_defaults=True
        )
        details |= {"partitions": request.partitions, "empty": request.empty}
        await services.audit.record(Action.RESET_PARTITIONS, known_zone.name, details)
    bodies = [reset_body(reset) for reset in resets]
    return JSONResponse({"zone": known_zone.name, "dry_run": request.dry_run, "partitions": bodies})


@router.post("/restart", **answers(Restarts, 400, 404, 409, 503, 504))
async def restart_partitions(zone: ZoneName, request: RestartRequest, services: ServicesOf) -> Response:
    """Restart members; with `cleanup` they discard their data and copy it again. In store zones only with
    `cleanup`: a copy leaves the in-sync set, is emptied and filled again from the others."""
    if not request.dry_run:
        services.audit.require_reason()
    known_zone = await _zone_of(services, zone)
    partitions, nodes, dry_run = request.partitions, request.nodes, request.dry_run
    if request.cleanup and services.store_requests.keeps(known_zone):
        check_numbers(known_zone, partitions)
        answer = services.store_requests.refill(known_zone, partitions, nodes, dry_run=dry_run)
    else:
        instead = "reset-lost, where partitions are lost; restart with clean-up of one node's copies"
        services.store_requests.refuse_store(known_zone, instead)
        cleanup = request.cleanup
        answer = services.recovery.restart(known_zone, partitions, nodes, cleanup=cleanup, dry_run=dry_run)
    restarts = await answered(answer)
    if not request.dry_run:
        await services.audit.record(
            Action.RESTART_PARTITIONS, known_zone.name, request.model_dump(exclude={"dry_run"})
        )
    bodies = [restart_body(restart) for restart in restarts]
    return JSONResponse({"zone": known_zone.name, "dry_run": request.dry_run, "partitions": bodies})


@router.post("/reset-lost", **answers(LossResets, 400, 404, 409, 503, 504))
async def reset_lost_partitions(zone: ZoneName, body: LossResetRequest, services: ServicesOf) -> Response:
    """Accept data loss and bring lost partitions of a store zone online: in-sync members that are back become
    owners again; where there is none, the copy with the most data does. Partitions that wait for absent servers
    are left alone, unless all of these are in `confirm_dead`."""
    services.audit.require_reason()
    known_zone = await _zone_of(services, zone)
    resets = await answered(services.store_requests.reset_lost(known_zone, body.confirm_dead))
    details = body.model_dump(exclude_defaults=True)
    await services.audit.record(Action.RESET_LOST_PARTITIONS, known_zone.name, details)
    bodies = [loss_reset_body(reset) for reset in resets]
    return JSONResponse({"zone": known_zone.name, "partitions": bodies})


async def _zone_of(services: Services, name: str) -> Zone:
    """The zone as the catalog has it now; a newer one may be on its way to the metastore. Raises RefusedError
    (ZONE_NOT_FOUND) and StoreError."""
    services.require_metastore()
    reference = await services.zone(name)
    zone = (await services.snapshot()).zone_with_id(reference.zone_id)
    if zone is None:
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, f'zone "{name}" does not exist')
    return zone
