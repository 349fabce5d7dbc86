"""The routing map, for clients that talk to the groups' members themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response

from app.api.addresses import ZoneName
from app.api.problems import documented
from app.api.services import ServicesOf
from app.contract.keys import RoutingMapBody

router = APIRouter(prefix="/api/v1", tags=["keys and values"])

VERSION_HEADER = "Zonekeeper-Map-Version"

KnownTags = Annotated[
    str | None,
    Header(alias="If-None-Match", description="ETag of the client's map: 304 if it has not changed"),
]


@router.get(
    "/zones/{zone:segment}/routing",
    response_model=RoutingMapBody,
    responses={**documented(400, 404, 503), 304: {"description": "The map has not changed"}},
)
async def get_routing(zone: ZoneName, services: ServicesOf, known: KnownTags = None) -> Response:
    """Return the members that serve each partition. A key's partition is its `key_hash` modulo the number of
    partitions. A higher version is newer; on a 304 it is in the header `Zonekeeper-Map-Version`. If a member
    does not answer, get the map again."""
    services.require_metastore()
    document = services.routing.document(await services.zone(zone))
    # Weak: two bodies of one map differ in their version.
    tag = f'W/"{document.digest}"'
    headers = {"ETag": tag, VERSION_HEADER: str(document.version), "Cache-Control": "no-cache"}
    if known is not None and _names(known, document.digest):
        return Response(status_code=304, headers=headers)
    return JSONResponse(document.body, headers=headers)


def _names(known: str, digest: str) -> bool:
    """Tags are compared weakly, as If-None-Match wants it."""
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in known.split(",")]
    return digest in tags or "*" in tags
