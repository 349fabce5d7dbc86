"""Resources of the nodes: those that live or are leaving, and the losses if one stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.bodies import Person, Reason, RequestBody
from app.api.problems import answers
from app.api.services import LoadedServices, Services
from app.contract.columns import without_sums
from app.contract.nodes import CanStop, DrainResult, NodeBody, NodeRemoval, Nodes
from app.process.logs import utc_now_ms
from app.requests.context import current_actor, seen_zones
from app.requests.errors import answered
from app.views.holdings import counting_zones, records_of
from app.views.node_stop import can_stop
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.cluster_control import node_alive
from rebalance.core.moves.drain import Drain, DrainLoss, left_without

router = APIRouter(prefix="/api/v1", tags=["nodes"])

NodeName = Annotated[str, Path(description="name of the node, case-sensitive", examples=["n3"])]


class DrainRequest(RequestBody):
    by: Person = Field(min_length=1, description="name recorded in the audit log and shown with the drain")
    reason: Reason = ""


class RemovalRequest(DrainRequest):
    dry_run: bool = Field(False, description="report what would be done, and change nothing")


@router.get("/nodes", **answers(Nodes, 503))
async def list_nodes(services: LoadedServices) -> Response:
    """List live nodes, and nodes that are down but are data nodes of a zone or hold members. Members are
    counted for callers who may see all zones."""
    seen = await services.seen_zones()
    nodes = [node if seen is None else without_sums(NodeBody, node) for node in services.views.nodes()]
    return JSONResponse(await services.dated({"nodes": nodes}))


@router.put("/nodes/{node:segment}/drain", **answers(DrainResult, 400, 404, 409, 503, 504))
async def drain_node(node: NodeName, body: DrainRequest, services: LoadedServices) -> Response:
    """Mark the node as leaving. It stops being a data node of any zone at once, regardless of timers, and
    serves its replicas until they have moved (``members`` and ``copies`` are 0). It stays drained across
    restarts. Refused if a zone would be left without a live data node."""
    services.audit.require_reason(body.reason)
    await services.known_nodes([node])
    revision = await _drain(node, body, services)
    return await _result(node, revision, services)


async def _drain(node: str, body: DrainRequest, services: Services) -> int:
    await answered(services.limits.require_rebalancing(f"draining {node} moves its data to other nodes"))
    actor = current_actor().named(body.by)
    drain = Drain(actor.name, body.reason, utc_now_ms(), actor.verified)
    snapshot = await services.snapshot()
    zones, seen = {zone.zone_id: zone.name for zone in snapshot.zones}, seen_zones(snapshot)
    shown = [name for zone_id, name in zones.items() if seen is None or zone_id in seen]

    def check(drained: frozenset[str]) -> None:
        stored = ((zones[zone_id], services.views.data_nodes(zone_id)) for zone_id in zones)
        data_nodes = [(zone, nodes.nodes) for zone, nodes in stored if nodes is not None]
        living = services.views.alive()
        stranded = left_without(data_nodes, living, drained)
        if stranded:
            raise RefusedError(ErrorKind.DRAIN_LEAVES_NO_DATA_NODE, _stranded(node, stranded, shown))

    revision = await answered(services.drains.drain(node, drain, check))
    if revision:
        await services.audit.record(Action.DRAIN_NODE, node, {}, by=body.by, reason=body.reason)
    return revision


@router.delete("/nodes/{node:segment}/drain", **answers(DrainResult, 400, 404, 409, 503, 504))
async def undrain_node(node: NodeName, services: LoadedServices) -> Response:
    """Return the node to service. Zones use it again, subject to their timers; a zone with AUTO SCALE UP OFF
    does not."""
    services.audit.require_reason()
    await services.known_nodes([node])
    await answered(services.limits.require_rebalancing(f"taking {node} back moves data onto it"))
    revision = await answered(services.drains.undrain(node))
    if revision:
        await services.audit.record(Action.UNDRAIN_NODE, node, {})
    return await _result(node, revision, services)


@router.post("/nodes/{node:segment}/removal", **answers(NodeRemoval, 400, 404, 409, 503, 504))
async def remove_node(node: NodeName, body: RemovalRequest, services: LoadedServices) -> Response:
    """Remove a node that is gone for good. It is drained, and its replicas are rebuilt on other nodes from the
    remaining copies; a repeated request deletes its records once no zone needs the node. Its old directory and
    processes are not used again: the node can only come back as a new one. Refused while the node is alive, and
    if a partition would be left without a majority or without a copy."""
    services.audit.require_reason(body.reason)
    (known,) = await services.known_nodes([node])
    if known["alive"]:
        raise node_alive(node)
    zones = {zone.zone_id: zone.name for zone in (await services.snapshot()).zones}
    verdict = can_stop(node, services.views, zones, await services.freshness.silence())
    removal: NodeRemoval = {
        "node": node,
        "state": "PLANNED",
        "zones": await _counting(node, zones, services),
        "losses": {loss: count for loss, count in verdict["losses"].items() if DrainLoss(loss).hinders},
        "partitions": [loss for loss in verdict["partitions"] if DrainLoss(loss["loss"]).hinders],
    }
    if body.dry_run:
        return JSONResponse(removal)
    if not verdict["can_stop"]:
        raise RefusedError(ErrorKind.NODE_NEEDED, _needed(node, removal))
    if node not in services.views.drains():
        revision = await _drain(node, body, services)
        await services.seen(revision)
        removal["zones"] = await _counting(node, zones, services)
    removal["state"] = "DRAINING"
    if not removal["zones"]:
        await _remove(node, body, services)
        removal["state"] = "REMOVED"
    return JSONResponse(removal)


async def _counting(node: str, zones: Mapping[ZoneId, str], services: Services) -> dict[str, int]:
    """Zones that count on the node, each with its number of partitions that do; a zone that is being dropped
    is named by its id."""
    copy, views = services.mirror.copy(), services.views
    counts = await asyncio.to_thread(counting_zones, copy, views.keyspace, views.ownership, node)
    return {zones.get(zone_id, str(zone_id)): count for zone_id, count in sorted(counts.items())}


async def _remove(node: str, body: RemovalRequest, services: Services) -> None:
    actor = current_actor().named(body.by)
    copy, keyspace = services.mirror.copy(), services.views.keyspace
    records = await asyncio.to_thread(lambda: list(records_of(copy, keyspace, node)))
    removing = services.removals.remove(node, actor.name, body.reason, records, verified=actor.verified)
    revision = await answered(removing)
    await services.audit.record(Action.REMOVE_NODE, node, {}, by=body.by, reason=body.reason)
    await services.seen(revision)


def _needed(node: str, removal: NodeRemoval) -> str:
    if not removal["partitions"]:
        return f"etcd does not answer, so nobody can tell what would be lost with {node}"
    first = removal["partitions"][0]
    others = sum(removal["losses"].values()) - 1
    more = f", and {others} more" if others else ""
    return (
        f"without {node}, partition {first['zone']}.{first['partition']}{more} would be left without a "
        f"majority or a copy ({first['loss']}: {first['detail']}); start {node}, or give up what only it has: "
        f"`zonectl recovery reset {first['zone']} --confirm-dead {node}`, of store zones `reset-lost`"
    )


@router.get("/nodes/{node:segment}/can-stop", **answers(CanStop, 404, 503))
async def can_stop_node(node: NodeName, services: LoadedServices) -> Response:
    """Check whether the node can be stopped now, and list what each partition would lose. The answer is no
    while the metastore does not respond, since the losses are unknown then."""
    (body,) = await services.known_nodes([node])
    zones = {zone.zone_id: zone.name for zone in (await services.snapshot()).zones}
    stop = can_stop(node, services.views, zones, await services.freshness.silence())
    return JSONResponse({**stop, "alive": body["alive"], "drain": body["drain"]})


def _stranded(node: str, zones: Sequence[str], shown: Collection[str]) -> str:
    """The reason for a refused drain. ``shown``: zones that may be named and counted."""
    known = [zone for zone in zones if zone in shown]
    named = f"zone {known[0]}" if known else "a zone that you may not see"
    more = f" and {len(known) - 1} more" if len(known) > 1 else ""
    return (
        f"without {node}, {named}{more} has no living data node; accepted once the zone has another: "
        "start one that its filter and profiles allow, or alter the filter; or drop the zone"
    )


async def _result(node: str, revision: int, services: Services) -> Response:
    await services.seen(revision)
    row = next((other for other in services.views.nodes() if other["name"] == node), None)
    is_whole = await services.seen_zones() is None
    body: DrainResult = {
        "node": node,
        "changed": revision > 0,
        "members": (row["members"] if row is not None else 0) if is_whole else None,
        "copies": (row["copies"] if row is not None else 0) if is_whole else None,
        "drain": row["drain"] if row is not None else None,
    }
    return JSONResponse(body)
