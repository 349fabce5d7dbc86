"""``POST /api/v1/zones/{zone:segment}/verify``: whether the copies of partitions agree on sample keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.addresses import ZoneName
from app.api.bodies import JSON_INT_MAX, RequestBody, Whole
from app.api.operation_models import PartitionNumber
from app.api.problems import answers
from app.api.services import Services, ServicesOf
from app.contract.keys import VerifyBody
from app.contract.zones import PartitionBody, Roles
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import shortfall_of
from rebalance.groups.calls.copy_reader import PartitionCheck, Samples

router = APIRouter(prefix="/api/v1", tags=["keys and values"])

SAMPLES_DEFAULT = 10
SAMPLES_MAX = 1_000
PARTITIONS_MAX = 100
"""In one request: a zone of more is asked for in parts."""
KEYS_MAX = 10_000
AT_ONCE = 8


class SavedKeys(RequestBody):
    partition: PartitionNumber
    keys: list[str] = Field(max_length=KEYS_MAX)


class VerifyRequest(RequestBody):
    partitions: list[PartitionNumber] | None = Field(
        None,
        min_length=1,
        max_length=PARTITIONS_MAX,
        description="null: all, if the zone has no more than a request may name",
    )
    samples: Whole = Field(SAMPLES_DEFAULT, ge=1, le=SAMPLES_MAX, description="sample keys per partition")
    seed: Whole = Field(0, ge=0, le=JSON_INT_MAX, description="the same seed chooses the same keys")
    saved: list[SavedKeys] | None = Field(
        None, max_length=PARTITIONS_MAX, description="check these keys instead: all of them must exist"
    )


@router.post("/zones/{zone:segment}/verify", **answers(VerifyBody, 400, 404, 503))
async def verify(zone: ZoneName, body: VerifyRequest, services: ServicesOf) -> Response:
    """Read sample keys directly from each voter and learner. A copy that is merely behind gets about 3 s to
    catch up; a copy that cannot be read counts as different. Missing replicas are counted separately."""
    services.require_metastore()
    known_zone = await services.zone(zone)
    numbers = _numbers(known_zone, body)
    saved = None if body.saved is None else {sample.partition: sample.keys for sample in body.saved}
    samples = Samples(body.seed, body.samples, saved)
    slots = asyncio.Semaphore(AT_ONCE)

    async def check(number: int) -> dict[str, Any]:
        async with slots:
            return await _checked(PartitionId(known_zone.zone_id, number), samples, services)

    async def check_all() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(check, numbers))

    partitions = await services.while_allowed(check_all())
    return JSONResponse(
        {
            "zone": known_zone.name,
            "zone_id": known_zone.zone_id,
            "seed": body.seed,
            "agrees": all(partition["agrees"] for partition in partitions),
            "partitions": partitions,
        }
    )


def _numbers(zone: Zone, body: VerifyRequest) -> Sequence[int]:
    """Raises RefusedError."""
    if body.saved is not None and body.partitions is None:
        numbers: Sequence[int] = sorted({sample.partition for sample in body.saved})
    elif body.partitions is not None:
        numbers = sorted(set(body.partitions))
    elif zone.partitions > PARTITIONS_MAX:
        message = f"zone {zone.name} has {zone.partitions} partitions: name up to {PARTITIONS_MAX} of them"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    else:
        numbers = range(zone.partitions)
    for number in numbers:
        if not 0 <= number < zone.partitions:
            message = f"zone {zone.name} has partitions 0 to {zone.partitions - 1}, and no {number}"
            raise RefusedError(ErrorKind.PARTITION_NOT_FOUND, message)
    return numbers


async def _checked(partition: PartitionId, samples: Samples, services: Services) -> dict[str, Any]:
    views = services.views
    roles, copies = _copies(views.partition(partition))
    view, _ = views.view(partition, views.placed(partition.zone_id))
    short = shortfall_of(view, views.alive())
    reads = None
    if views.is_store(partition.zone_id):
        copies, reads = services.endpoints.copy_urls(roles), services.router.copy_reads(partition)
    check = await services.copies.check(partition, copies, samples, reads)
    return {
        "partition": partition.partition,
        "agrees": check.agrees and bool(copies),
        "wanted": short.replicas or len(copies),
        "missing": short.missing,
        "keys": [{"key": key, "digest": digest} for key, digest in check.digests.items()],
        "copies": [_copy(name, role, check) for name, role in roles.items()],
    }


def _copies(partition: PartitionBody) -> tuple[dict[str, str], dict[str, str]]:
    """Role and address of each copy that stable asks for; an empty address: there is none to ask."""
    stable = partition["stable"] or Roles(peers=[], learners=[])
    members = {member["node"]: member for member in partition["members"]}
    roles = dict.fromkeys(stable["peers"], "VOTER") | dict.fromkeys(stable["learners"], "LEARNER")

    def address(node: str) -> str:
        member = members.get(node)
        if member is None:
            return ""
        if roles[node] != "LEARNER":
            return member["client_url"]
        return member["mirror"]["client_url"] if member["mirror"] else ""

    return roles, {node: address(node) for node in roles}


def _copy(node: str, role: str, check: PartitionCheck) -> dict[str, Any]:
    verdict = check.verdicts.get(node)
    return {
        "node": node,
        "role": role,
        "lacking": list(verdict.lacking) if verdict else [],
        "different": list(verdict.different) if verdict else [],
        "error": check.unread.get(node, ""),
    }
