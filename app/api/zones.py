"""Read-only resources of zones, their partitions and the progress of their rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import JSONResponse, Response

from app.api.addresses import ZoneName
from app.api.bodies import JSON_INT_MAX
from app.api.problems import answers, documented
from app.api.services import LoadedServices, Services
from app.contract.zones import PartitionAnswer, PartitionMap, Partitions, ProgressAnswer, ZoneDetail, Zones
from app.requests.context import seen_zones
from app.views.keyspace_views import KeyspaceViews
from app.views.partition_map import MAP_MEDIA_TYPE, map_json, partition_map_of
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.zone import ZoneId
from catalog.core.zone_options import PARTITIONS_MAX
from rebalance.core.keyspace.keys import PartitionId

T = TypeVar("T")

READ_IN_PLACE_MAX = 500
"""Most partitions that are read on the event loop, which takes some 20 ms."""

router = APIRouter(prefix="/api/v1", tags=["zones"])


@router.get("/zones", **answers(Zones, 503))
async def list_zones(services: LoadedServices) -> Response:
    snapshot = await services.snapshot()
    seen = seen_zones(snapshot)
    zones = [
        services.views.zone(zone, snapshot) for zone in snapshot.zones if seen is None or zone.zone_id in seen
    ]
    return JSONResponse(await services.dated({"catalog_version": snapshot.version, "zones": zones}))


@router.get("/zones/{zone:segment}", **answers(ZoneDetail, 404, 503))
async def get_zone(zone: ZoneName, services: LoadedServices) -> Response:
    known_zone = await services.zone(zone)
    snapshot = await services.snapshot()
    body = services.views.zone(known_zone, snapshot)
    version = body["catalog_version"]
    progress = await _read(
        services, known_zone.partitions, lambda views: views.progress(known_zone.zone_id, version)
    )
    return JSONResponse(await services.dated({**body, "progress": progress}))


@router.get("/zones/{zone:segment}/partitions", **answers(Partitions, 404, 503))
async def list_partitions(zone: ZoneName, services: LoadedServices) -> Response:
    """List the partitions of a zone: assignments, members, and the progress of moves or what they wait for."""
    known_zone = await services.zone(zone)
    count = known_zone.partitions
    partitions = await _read(services, count, lambda views: views.partitions(known_zone.zone_id, count))
    body = {"zone": known_zone.name, "zone_id": known_zone.zone_id, "partitions": partitions}
    return JSONResponse(await services.dated(body))


@router.get("/zones/{zone:segment}/partitions/{partition}", **answers(PartitionAnswer, 400, 404, 503))
async def get_partition(
    zone: ZoneName, partition: Annotated[int, Path(ge=0, lt=PARTITIONS_MAX)], services: LoadedServices
) -> Response:
    known_zone = await services.zone(zone)
    if partition >= known_zone.partitions:
        message = f"zone {known_zone.name} has partitions 0 to {known_zone.partitions - 1}"
        raise RefusedError(ErrorKind.PARTITION_NOT_FOUND, message)
    views = await services.seen_views()
    return JSONResponse(await services.dated(views.partition(PartitionId(known_zone.zone_id, partition))))


@router.get(
    "/zones/{zone:segment}/partition-map",
    response_model=PartitionMap,
    responses={
        **documented(404, 503),
        200: {"content": {MAP_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The map has not changed"},
    },
)
async def get_partition_map(
    zone: ZoneName,
    services: LoadedServices,
    accept: Annotated[str, Header(description=f"{MAP_MEDIA_TYPE} for the compact form")] = "*/*",
    if_none_match: Annotated[str | None, Header(description="ETag of the client's map")] = None,
) -> Response:
    """Return the copies, their states and the leaders of all partitions, for clients that route requests
    themselves. Poll with the ETag, which holds topology version and update sequence."""
    known_zone = await services.zone(zone)
    published = partition_map_of(
        services.mirror, services.views.keyspace, services.views.ownership, known_zone.zone_id
    )
    if published is None:
        message = (
            f"no partition map of zone {known_zone.name} is published yet: no living node has reported a copy"
        )
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, message)
    tag = f'"{published.pointer.tag}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    if MAP_MEDIA_TYPE in accept:
        return Response(published.data, media_type=MAP_MEDIA_TYPE, headers=headers)
    return JSONResponse(map_json(known_zone, published), headers=headers)


@router.get("/progress/{zone_id}", **answers(ProgressAnswer, 400, 404, 503))
async def get_progress(
    zone_id: Annotated[int, Path(ge=1, le=JSON_INT_MAX)],
    services: LoadedServices,
    version: Annotated[int, Query(ge=0, le=JSON_INT_MAX, description="catalog version to wait for")] = 0,
) -> Response:
    """Show the progress of a zone by its id, which also works for dropped zones. CONVERGED: the zone matches
    this catalog version or a later one, and nothing moves."""
    known_id = ZoneId(zone_id)
    intent = services.views.intent(known_id)
    if intent is not None and intent.version >= version:
        count = intent.zone.partitions
        progress = await _read(services, count, lambda views: views.progress(known_id, version))
        return JSONResponse(await services.dated(progress))
    zone = (await services.snapshot()).zone_with_id(known_id)
    if zone is None and intent is None:
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, f"there was never a zone with id {zone_id}")
    return JSONResponse(await services.dated((await services.seen_views()).progress(known_id, version, zone)))


async def _read(services: Services, partitions: int, reading: Callable[[KeyspaceViews], T]) -> T:
    """Read views of that many partitions: from a copy in a thread, where they would hold other requests up."""
    seen = await services.seen_zones()
    if partitions <= READ_IN_PLACE_MAX:
        return reading(services.views.seen_by(seen))
    keys, ownership = services.mirror.copy(), services.views.ownership
    since_ms = services.freshness.since_ms
    views = KeyspaceViews(keys, services.views.keyspace, ownership=lambda: ownership, since_ms=since_ms)
    return await asyncio.to_thread(reading, views.seen_by(seen))
