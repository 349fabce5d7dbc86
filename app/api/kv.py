"""Reading and writing data in a zone's partitions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AwareDatetime

from app.api.addresses import Key, ZoneName
from app.api.bodies import JSON_INT_MAX, RequestBody
from app.api.caller_presence import Deadline, TimeoutField, while_present
from app.api.problems import answers
from app.api.services import Services, ServicesOf
from app.contract.keys import ABANDONS_FIELD, GetResult, PutResult
from app.contract.read_from import ReadFrom
from app.metrics.outcomes import measured_put
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.groups.calls.data_client import Datum
from rebalance.groups.calls.key_hash import partition_of
from rebalance.groups.calls.key_text import OPERATION_ID_PATTERN, OPERATION_IDS_PATTERN
from rebalance.groups.calls.replica_reads import NOW, ReplicaChoice, ReplicaDatum
from rebalance.groups.calls.router import READ_AT_LIMIT_S, TIME_LIMIT_S
from rebalance.ports.groups import (
    GenerationRefusedError,
    GroupFullError,
    OutcomeUnknownError,
    ReplicaBehindError,
    RevisionGoneError,
    ValueRefusedError,
)
from rebalance.ports.write_refusals import ConditionFailedError, NobodyAskedError, OperationAbandonedError
from rebalance.store.core.store_messages import AnswerCode
from rebalance.store.shell.store_client import StoreRefusedError

router = APIRouter(prefix="/api/v1", tags=["keys and values"])

_KINDS = {
    AnswerCode.LOST: ErrorKind.PARTITION_LOST,
    AnswerCode.WAITING_FOR_OWNERS: ErrorKind.OWNERS_AWAITED,
    AnswerCode.RESTING: ErrorKind.ZONE_DEACTIVATED,
    AnswerCode.TOO_MANY: ErrorKind.PARTITION_BUSY,
}
"""Of what store servers refuse."""

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
    writing = _write(zone, key, body.value.encode(), services, options)
    return await while_present(request, writing)


@router.delete("/zones/{zone:segment}/kv/{key:key}", **answers(PutResult, 400, 404, 409, 412, 503, 504, 507))
async def delete(
    zone: ZoneName, key: Key, services: ServicesOf, options: WriteOptionsOf, request: Request
) -> Response:
    """Delete a key, with the guarantees of a put. Deleting a key that does not exist succeeds."""
    return await while_present(request, _write(zone, key, None, services, options))


async def _write(
    zone: str, key: str, value: bytes | None, services: Services, options: WriteOptions
) -> Response:
    deadline = Deadline(options.timeout_s, TIME_LIMIT_S)
    services.require_metastore()
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    with measured_put(services.metrics):
        try:
            writing = services.router.put(
                partition, key, value, options.operation, limit_s=deadline.left_s, terms=options.terms
            )
            written = await services.while_allowed(writing)
        except (OutcomeUnknownError, StatementError) as error:
            raise StoreError(ErrorKind.OUTCOME_UNKNOWN, str(error)) from error
        except GenerationRefusedError as error:
            raise StoreError(ErrorKind.WRONG_GENERATION, str(error)) from error
        except (StoreRefusedError, NobodyAskedError) as error:
            raise _refusal(error) from error
        except GroupFullError as error:
            raise StoreError(ErrorKind.PARTITION_FULL, str(error)) from error
        except ValueRefusedError as error:
            raise RefusedError(ErrorKind.INVALID_REQUEST, str(error)) from error
        except ConditionFailedError as error:
            kind = ErrorKind.KEY_EXISTS if error.wants_absence else ErrorKind.REVISION_CHANGED
            raise RefusedError(kind, str(error)) from error
        except OperationAbandonedError as error:
            raise RefusedError(ErrorKind.OPERATION_ABANDONED, str(error)) from error
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
    services: ServicesOf,
    read: ReadOption = ReadFrom.LEADER,
    at_revision: RevisionOption = None,
    at_time: TimeOption = None,
    timeout: TimeoutField = None,
) -> Response:
    """Read a key. Reads are linearizable: they see every put acknowledged before the request, also on a
    replica, which gets the leader's revision and waits until it has reached it. With `at_revision` or `at_time`
    a replica waits up to 5 s to reach that point, without asking the leader."""
    deadline = Deadline(timeout, TIME_LIMIT_S if read is ReadFrom.LEADER else READ_AT_LIMIT_S)
    services.require_metastore()
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    point = _read_point(read, at_revision, at_time)
    if read is not ReadFrom.LEADER and services.router.is_store(partition):
        message = f"zone {known_zone.name} is kept by store servers, which answer at the primary: read=leader"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    try:
        if read is ReadFrom.LEADER:
            value, answer = _from_leader(await services.router.get(partition, key, limit_s=deadline.left_s))
        else:
            choice = ReplicaChoice(read.value)
            value, answer = _from_replica(
                await services.router.read_at(partition, key, point, choice, deadline.left_s)
            )
    except OutcomeUnknownError as error:
        raise StoreError(ErrorKind.PARTITION_UNAVAILABLE, str(error)) from error
    except GenerationRefusedError as error:
        raise StoreError(ErrorKind.WRONG_GENERATION, str(error)) from error
    except (StoreRefusedError, NobodyAskedError) as error:
        raise _refusal(error) from error
    except ReplicaBehindError as error:
        raise StoreError(ErrorKind.REPLICA_BEHIND, str(error)) from error
    except RevisionGoneError as error:
        raise RefusedError(ErrorKind.REVISION_GONE, str(error)) from error
    if value is None:
        raise RefusedError(ErrorKind.KEY_NOT_FOUND, f'zone {known_zone.name} has no key "{key}"')
    head = {"zone": known_zone.name, "key": key, "partition": partition.partition}
    return JSONResponse({**head, "value": value.decode(errors="replace"), **answer})


def _refusal(error: StoreRefusedError | NobodyAskedError) -> StoreError:
    """Whatever has no kind of its own passes by itself."""
    kind = _KINDS.get(error.code) if isinstance(error, StoreRefusedError) else None
    return StoreError(kind or ErrorKind.PARTITION_UNAVAILABLE, str(error))


def _read_point(read: ReadFrom, at_revision: int | None, at_time: datetime | None) -> ReadPoint:
    """Raises RefusedError for what does not go together."""
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


def _from_leader(datum: Datum) -> tuple[bytes | None, dict[str, object]]:
    return datum.value, {"revision": datum.revision}


def _from_replica(datum: ReplicaDatum) -> tuple[bytes | None, dict[str, object]]:
    safe_time = datetime.fromtimestamp(datum.safe_time_ms / 1000, UTC) if datum.safe_time_ms else None
    return datum.value, {
        "revision": datum.revision,
        "read_revision": datum.read_revision,
        "safe_time": safe_time.isoformat(timespec="milliseconds") if safe_time else None,
        "replica": datum.client_url,
    }


def _partition(zone: Zone, key: str) -> PartitionId:
    return PartitionId(zone.zone_id, partition_of(key, zone.partitions))
