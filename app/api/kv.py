"""Reading and writing data in a zone's partitions, so that a move can be shown to lose nothing."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Header, Path
from fastapi.responses import JSONResponse, Response

from app.api.models import GetResult, PutRequest, PutResult
from app.api.problems import documented
from app.services import ServicesOf
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.zone import Zone
from rebalance.core.keys import PartitionId
from rebalance.groups.key_hash import partition_of
from rebalance.ports.groups import GroupFullError, OutcomeUnknownError, ValueRefusedError

router = APIRouter(prefix="/api/v1", tags=["keys and values"])

ZoneName = Annotated[str, Path(description="exactly, or as SQL reads it unquoted", examples=["ORDERS"])]
Key = Annotated[str, Path(min_length=1, max_length=1024)]
OperationId = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        description="a put that is sent again with the same id is stored once; default: a new one",
    ),
]


@router.put(
    "/zones/{zone}/kv/{key:path}", response_model=PutResult, responses=documented(400, 404, 503, 504, 507)
)
async def put(
    zone: ZoneName, key: Key, body: PutRequest, services: ServicesOf, operation_id: OperationId = None
) -> Response:
    """Acknowledged means stored by a majority of the partition's voters. The server repeats for up to 15 s;
    a 504 with SQLSTATE 40003 means that the outcome is unknown: send it again with the same id."""
    services.require_metastore()
    found = await services.zones.find(zone)
    partition = _partition(found, key)
    operation = operation_id or uuid.uuid4().hex
    try:
        stored = await services.router.put(partition, key, body.value.encode(), operation)
    except OutcomeUnknownError as error:
        raise StoreError(ErrorKind.OUTCOME_UNKNOWN, str(error)) from error
    except GroupFullError as error:
        raise StoreError(ErrorKind.PARTITION_FULL, str(error)) from error
    except ValueRefusedError as error:
        raise RefusedError(ErrorKind.INVALID_REQUEST, str(error)) from error
    return JSONResponse(
        {
            "zone": found.name,
            "key": key,
            "partition": partition.partition,
            "operation_id": operation,
            "repeated": stored.repeated,
        }
    )


@router.get("/zones/{zone}/kv/{key:path}", response_model=GetResult, responses=documented(400, 404, 503, 504))
async def get(zone: ZoneName, key: Key, services: ServicesOf) -> Response:
    """Linearizable: it sees every put that was acknowledged before it was asked."""
    services.require_metastore()
    found = await services.zones.find(zone)
    partition = _partition(found, key)
    try:
        stored = await services.router.get(partition, key)
    except OutcomeUnknownError as error:
        raise StoreError(ErrorKind.PARTITION_UNAVAILABLE, str(error)) from error
    if stored.value is None:
        raise RefusedError(ErrorKind.KEY_NOT_FOUND, f'zone {found.name} has no key "{key}"')
    return JSONResponse(
        {
            "zone": found.name,
            "key": key,
            "partition": partition.partition,
            "value": stored.value.decode(errors="replace"),
            "revision": stored.revision,
        }
    )


def _partition(zone: Zone, key: str) -> PartitionId:
    return PartitionId(zone.zone_id, partition_of(key, zone.partitions))
