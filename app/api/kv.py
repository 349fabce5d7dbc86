"""A zone's data: keys that are read and written through the server, the routing map for clients that connect to
the members themselves, and the comparison of copies by sample keys (``verify``)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AwareDatetime, Field

from app.api.addresses import Key, ZoneName
from app.api.bodies import JSON_INT_MAX, PartitionNumber, RequestBody, Whole
from app.api.problems import answers, documented
from app.api.services import LoadedServices, Services, ServicesOf
from app.api.statements import while_connected
from app.contract.keys import (
    ABANDONS_FIELD,
    TIMEOUT_FIELD,
    TIMEOUT_MAX_S,
    GetResult,
    PutResult,
    ReadFrom,
    RoutingMapBody,
    VerifyBody,
)
from app.contract.zones import PartitionBody, Roles
from app.metrics.outcomes import measured_put
from app.security.standing import while_allowed
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.core.moves.move_status import shortfall_of
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.data.store_attempts import StoreRefusedError
from rebalance.data.zone_router import READ_AT_LIMIT_S, TIME_LIMIT_S
from rebalance.groups.calls.data_client import AppliedWrite
from rebalance.groups.calls.group_checks import PartitionCheck, Samples
from rebalance.groups.calls.key_hash import partition_of
from rebalance.groups.calls.key_text import OPERATION_ID_PATTERN, OPERATION_IDS_PATTERN
from rebalance.groups.calls.replica_reads import NOW, ReplicaChoice, ReplicaDatum
from rebalance.ports.groups import (
    ConditionFailedError,
    GenerationRefusedError,
    GroupFullError,
    NobodyAskedError,
    OperationAbandonedError,
    OutcomeUnknownError,
    ReplicaBehindError,
    RevisionGoneError,
    ValueRefusedError,
)
from rebalance.store.core.store_messages import AnswerCode

TimeoutField = Annotated[
    float | None,
    Header(
        alias=TIMEOUT_FIELD,
        gt=0,
        le=TIMEOUT_MAX_S,
        allow_inf_nan=False,
        description="seconds the client waits for the answer; the server starts nothing for the request after "
        "that",
    ),
]


class Deadline:
    """Deadline of a request, from the start of its route. ``limit_s``: the time that its caller waits; None:
    the route's own."""

    def __init__(self, limit_s: float | None, own_s: float) -> None:
        self._at = time.monotonic() + (own_s if limit_s is None else limit_s)

    @property
    def left_s(self) -> float:
        return max(self._at - time.monotonic(), 0.0)


router = APIRouter(prefix="/api/v1", tags=["keys and values"])

_KINDS = {
    AnswerCode.LOST: ErrorKind.PARTITION_LOST,
    AnswerCode.WAITING_FOR_OWNERS: ErrorKind.OWNERS_AWAITED,
    AnswerCode.RESTING: ErrorKind.ZONE_DEACTIVATED,
    AnswerCode.TOO_MANY: ErrorKind.PARTITION_BUSY,
}
"""Error kinds for refusals of store servers."""
_FAILURES: Mapping[type[Exception], ErrorKind] = {
    GenerationRefusedError: ErrorKind.WRONG_GENERATION,
    NobodyAskedError: ErrorKind.PARTITION_UNAVAILABLE,
    GroupFullError: ErrorKind.PARTITION_FULL,
    ReplicaBehindError: ErrorKind.REPLICA_BEHIND,
}
_REFUSALS: Mapping[type[Exception], ErrorKind] = {
    ValueRefusedError: ErrorKind.INVALID_REQUEST,
    OperationAbandonedError: ErrorKind.OPERATION_ABANDONED,
    RevisionGoneError: ErrorKind.REVISION_GONE,
}

OperationId = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=OPERATION_ID_PATTERN,
        description="retries with this id are applied once; default: a new id",
    ),
]
AbandonsField = Annotated[
    str | None,
    Header(
        alias=ABANDONS_FIELD,
        pattern=OPERATION_IDS_PATTERN,
        description="ids, separated by spaces, of earlier puts and deletes of the key whose outcome is "
        "unknown: those not applied before this one never will be",
    ),
]
IfRevision = Annotated[
    int | None,
    Query(ge=1, le=JSON_INT_MAX, description="only if the key was written last at this revision, else 412"),
]
IfAbsent = Annotated[bool, Query(description="only if the key does not exist, else 409")]


class PutRequest(RequestBody):
    value: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    operation: str
    terms: WriteTerms
    timeout_s: float | None


async def _write_options(
    operation_id: OperationId = None,
    abandons: AbandonsField = None,
    if_revision: IfRevision = None,
    if_absent: IfAbsent = False,
    timeout: TimeoutField = None,
) -> WriteOptions:
    operation = operation_id or uuid.uuid4().hex
    try:
        terms = WriteTerms(
            if_revision, if_absent, tuple(dict.fromkeys(abandons.split(" "))) if abandons else ()
        )
        terms.check_operation(operation)
    except ValueError as error:
        raise RefusedError(ErrorKind.INVALID_REQUEST, str(error)) from error
    return WriteOptions(operation, terms, timeout)


WriteOptionsOf = Annotated[WriteOptions, Depends(_write_options)]


@router.put("/zones/{zone:segment}/kv/{key:key}", **answers(PutResult, 400, 404, 409, 412, 503, 504, 507))
async def put(
    zone: ZoneName,
    key: Key,
    body: PutRequest,
    services: ServicesOf,
    options: WriteOptionsOf,
    request: Request,
) -> Response:
    """Acknowledged means stored by a majority of the partition's voters; in a store zone by every copy that is
    in sync. The server retries for up to 15 s, or for `Zonekeeper-Timeout` seconds, and stops when the
    connection is closed; a 504 with SQLSTATE 40003 means that the outcome is unknown, also because the
    privilege was revoked meanwhile: send it again with the same id, or name the id in `Zonekeeper-Abandons` of
    the next put or delete of the key. After a 409, 412 or 503 nothing was written: 409, the key exists, or a
    later request has abandoned this one; 412, the key is not at `if_revision`; 40001, only members of another
    generation of the group answered; 58000, no member could be reached in time; in a store zone 57P04, it waits
    for servers that have the data, and 58030, no server has it."""
    return await _write(zone, key, body.value.encode(), services, options, request)


@router.delete("/zones/{zone:segment}/kv/{key:key}", **answers(PutResult, 400, 404, 409, 412, 503, 504, 507))
async def delete(
    zone: ZoneName, key: Key, services: ServicesOf, options: WriteOptionsOf, request: Request
) -> Response:
    """Delete a key, with the guarantees of a put. Deleting a key that does not exist succeeds."""
    return await _write(zone, key, None, services, options, request)


async def _write(
    zone: str, key: str, value: bytes | None, services: Services, options: WriteOptions, request: Request
) -> Response:
    gone = StoreError(ErrorKind.OUTCOME_UNKNOWN, "the caller has closed its connection")
    return await while_connected(request, _written(zone, key, value, services, options), gone)


async def _written(
    zone: str, key: str, value: bytes | None, services: Services, options: WriteOptions
) -> Response:
    deadline = Deadline(options.timeout_s, TIME_LIMIT_S)
    services.require_metastore()
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    with measured_put(services.metrics), _told(ErrorKind.OUTCOME_UNKNOWN):
        is_begun = False

        async def writing() -> AppliedWrite:
            nonlocal is_begun
            is_begun = True
            return await services.router.put(
                partition, key, value, options.operation, limit_s=deadline.left_s, terms=options.terms
            )

        try:
            written = await while_allowed(services.watch, writing())
        except StatementError as error:
            if not is_begun:
                raise
            raise StoreError(ErrorKind.OUTCOME_UNKNOWN, str(error)) from error
    return JSONResponse(
        {
            "zone": known_zone.name,
            "key": key,
            "partition": partition.partition,
            "operation_id": options.operation,
            "repeated": written.repeated,
            "revision": written.revision,
        }
    )


ReadOption = Annotated[
    ReadFrom,
    Query(description="learner: any learner; replica: any learner or voter that does not lead"),
]
RevisionOption = Annotated[
    int | None, Query(ge=1, le=JSON_INT_MAX, description="as of this revision of the partition's group")
]
TimeOption = Annotated[
    AwareDatetime | None,
    Query(description="see all writes acknowledged before this time by the leader's clock; with a time zone"),
]


@router.get("/zones/{zone:segment}/kv/{key:key}", **answers(GetResult, 400, 404, 410, 503, 504))
async def get(
    zone: ZoneName,
    key: Key,
    services: LoadedServices,
    read: ReadOption = ReadFrom.LEADER,
    at_revision: RevisionOption = None,
    at_time: TimeOption = None,
    timeout: TimeoutField = None,
) -> Response:
    """Read a key. Reads are linearizable: they see every put acknowledged before the request, also on a
    replica, which gets the leader's revision and waits until it has reached it. With `at_revision` or `at_time`
    a replica waits up to 5 s to reach that point, without asking the leader."""
    deadline = Deadline(timeout, TIME_LIMIT_S if read is ReadFrom.LEADER else READ_AT_LIMIT_S)
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    point = _read_point(read, at_revision, at_time)
    if read is not ReadFrom.LEADER and services.router.is_store(partition):
        message = f"zone {known_zone.name} is kept by store servers, which answer at the primary: read=leader"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    with _told(ErrorKind.PARTITION_UNAVAILABLE):
        if read is ReadFrom.LEADER:
            datum = await services.router.get(partition, key, limit_s=deadline.left_s)
            value, answer = datum.value, dict[str, Any](revision=datum.revision)
        else:
            choice = ReplicaChoice(read.value)
            copy = await services.router.read_at(partition, key, point, choice, deadline.left_s)
            value, answer = copy.value, _of_replica(copy)
    if value is None:
        raise RefusedError(ErrorKind.KEY_NOT_FOUND, f'zone {known_zone.name} has no key "{key}"')
    head = {"zone": known_zone.name, "key": key, "partition": partition.partition}
    return JSONResponse({**head, "value": value.decode(errors="replace"), **answer})


@contextmanager
def _told(unknown: ErrorKind) -> Iterator[None]:
    """Turn errors of groups and store servers into those that clients know. ``unknown``: the kind for an
    unknown outcome."""
    try:
        yield
    except OutcomeUnknownError as error:
        raise StoreError(unknown, str(error)) from error
    except ConditionFailedError as error:
        kind = ErrorKind.KEY_EXISTS if error.wants_absence else ErrorKind.REVISION_CHANGED
        raise RefusedError(kind, str(error)) from error
    except StoreRefusedError as error:
        # Whatever has no kind of its own passes by itself.
        raise StoreError(_KINDS.get(error.code, ErrorKind.PARTITION_UNAVAILABLE), str(error)) from error
    except tuple(_FAILURES) as error:
        raise StoreError(_FAILURES[type(error)], str(error)) from error
    except tuple(_REFUSALS) as error:
        raise RefusedError(_REFUSALS[type(error)], str(error)) from error


def _read_point(read: ReadFrom, at_revision: int | None, at_time: datetime | None) -> ReadPoint:
    """The point at which to read. Raises RefusedError for parameters that exclude each other."""
    if at_revision is not None and at_time is not None:
        raise RefusedError(ErrorKind.INVALID_REQUEST, "give at_revision or at_time, not both")
    if read is ReadFrom.LEADER and (at_revision is not None or at_time is not None):
        name = "at_time" if at_revision is None else "at_revision"
        raise RefusedError(
            ErrorKind.INVALID_REQUEST, f"{name} is for read=learner and read=replica, not read=leader"
        )
    if at_time is None:
        return ReadPoint(revision=at_revision) if at_revision is not None else NOW
    time_ms = int(at_time.timestamp() * 1000)
    if time_ms <= 0:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"at_time is after 1970, not {at_time.isoformat()}")
    return ReadPoint(time_ms=time_ms)


def _of_replica(datum: ReplicaDatum) -> dict[str, Any]:
    safe_time = datetime.fromtimestamp(datum.safe_time_ms / 1000, UTC) if datum.safe_time_ms else None
    return {
        "revision": datum.revision,
        "read_revision": datum.read_revision,
        "safe_time": safe_time.isoformat(timespec="milliseconds") if safe_time else None,
        "replica": datum.client_url,
    }


def _partition(zone: Zone, key: str) -> PartitionId:
    return PartitionId(zone.zone_id, partition_of(key, zone.partitions))


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
async def get_routing(zone: ZoneName, services: LoadedServices, known: KnownTags = None) -> Response:
    """Return the members that serve each partition. A key's partition is its `key_hash` modulo the number of
    partitions. A higher version is newer; on a 304 it is in the header `Zonekeeper-Map-Version`. If a member
    does not answer, get the map again."""
    document = services.routing.document(await services.zone(zone))
    # Weak: two bodies of one map differ in their version.
    tag = f'W/"{document.digest}"'
    headers = {"ETag": tag, VERSION_HEADER: str(document.version), "Cache-Control": "no-cache"}
    if known is not None and _names(known, document.digest):
        return Response(status_code=304, headers=headers)
    return JSONResponse(document.body, headers=headers)


def _names(known: str, digest: str) -> bool:
    """True if the header has the tag of ``digest``; compared weakly, as If-None-Match requires."""
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in known.split(",")]
    return digest in tags or "*" in tags


SAMPLES_DEFAULT = 10
SAMPLES_MAX = 1_000
PARTITIONS_MAX = 100
"""Most partitions in one request; a larger zone takes several."""
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
async def verify(zone: ZoneName, body: VerifyRequest, services: LoadedServices) -> Response:
    """Read sample keys directly from each voter and learner. A copy that is merely behind gets about 3 s to
    catch up; a copy that cannot be read counts as different. Missing replicas are counted separately."""
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

    partitions = await while_allowed(services.watch, check_all())
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
    """Numbers of the partitions to compare. Raises RefusedError."""
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
    """Roles and addresses of the copies in stable, by node; an empty address: there is none to read."""
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
