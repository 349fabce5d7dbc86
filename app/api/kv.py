"""Reading and writing data in a zone's partitions, so that a move can be shown to lose nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response
from pydantic import AwareDatetime

from app.api.addresses import Key, ZoneName
from app.api.bodies import JSON_INT_MAX, RequestBody
from app.api.problems import answers
from app.contract.keys import GetResult, PutResult
from app.contract.read_from import ReadFrom
from app.metrics.outcomes import measured_put
from app.services import ServicesOf
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.zone import Zone
from rebalance.core.keys import PartitionId
from rebalance.core.safe_time import ReadPoint
from rebalance.groups.data_client import Datum
from rebalance.groups.key_hash import partition_of
from rebalance.groups.key_text import OPERATION_ID_PATTERN
from rebalance.groups.replica_reads import NOW, ReplicaChoice, ReplicaDatum
from rebalance.ports.groups import (
    GenerationRefusedError,
    GroupFullError,
    OutcomeUnknownError,
    ReplicaBehindError,
    RevisionGoneError,
    ValueRefusedError,
)
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
        description="a put that is sent again with the same id is stored once; default: a new one",
    ),
]


class PutRequest(RequestBody):
    value: str


@router.put("/zones/{zone:segment}/kv/{key:key}", **answers(PutResult, 400, 404, 503, 504, 507))
async def put(
    zone: ZoneName, key: Key, body: PutRequest, services: ServicesOf, operation_id: OperationId = None
) -> Response:
    """Acknowledged means stored by a majority of the partition's voters; in a store zone by every copy that is
    in sync. The server repeats for up to 15 s; a 504 with SQLSTATE 40003 means that the outcome is unknown,
    also because the privilege was revoked meanwhile: send it again with the same id. After a 503 nothing was
    written: 40001, only members of another generation of the group answered; of a store zone 57P04, servers
    with the data are awaited, and 58030, none is left."""
    services.require_metastore()
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    operation = operation_id or uuid.uuid4().hex
    with measured_put(services.metrics):
        try:
            putting = services.router.put(partition, key, body.value.encode(), operation)
            repeated = await services.while_allowed(putting)
        except (OutcomeUnknownError, StatementError) as error:
            raise StoreError(ErrorKind.OUTCOME_UNKNOWN, str(error)) from error
        except GenerationRefusedError as error:
            raise StoreError(ErrorKind.WRONG_GENERATION, str(error)) from error
        except StoreRefusedError as error:
            raise _refusal(error) from error
        except GroupFullError as error:
            raise StoreError(ErrorKind.PARTITION_FULL, str(error)) from error
        except ValueRefusedError as error:
            raise RefusedError(ErrorKind.INVALID_REQUEST, str(error)) from error
    return JSONResponse(
        {
            "zone": known_zone.name,
            "key": key,
            "partition": partition.partition,
            "operation_id": operation,
            "repeated": repeated,
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
    Query(description="with all that was acknowledged before, by the leader's clock; with a zone of time"),
]


@router.get("/zones/{zone:segment}/kv/{key:key}", **answers(GetResult, 400, 404, 410, 503, 504))
async def get(
    zone: ZoneName,
    key: Key,
    services: ServicesOf,
    read: ReadOption = ReadFrom.LEADER,
    at_revision: RevisionOption = None,
    at_time: TimeOption = None,
) -> Response:
    """Linearizable: it sees every put that was acknowledged before it was asked; also from a replica, which
    asks the leader for its revision and waits until it has it. With `at_revision` or `at_time` a replica
    waits only until it has that, for up to 5 s, and nobody else is asked."""
    services.require_metastore()
    known_zone = await services.zone(zone)
    partition = _partition(known_zone, key)
    point = _read_point(read, at_revision, at_time)
    if read is not ReadFrom.LEADER and services.router.is_store(partition):
        message = f"zone {known_zone.name} is kept by store servers, which answer at the primary: read=leader"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    try:
        if read is ReadFrom.LEADER:
            value, answer = _from_leader(await services.router.get(partition, key))
        else:
            choice = ReplicaChoice(read.value)
            value, answer = _from_replica(await services.router.read_at(partition, key, point, choice))
    except OutcomeUnknownError as error:
        raise StoreError(ErrorKind.PARTITION_UNAVAILABLE, str(error)) from error
    except GenerationRefusedError as error:
        raise StoreError(ErrorKind.WRONG_GENERATION, str(error)) from error
    except StoreRefusedError as error:
        raise _refusal(error) from error
    except ReplicaBehindError as error:
        raise StoreError(ErrorKind.REPLICA_BEHIND, str(error)) from error
    except RevisionGoneError as error:
        raise RefusedError(ErrorKind.REVISION_GONE, str(error)) from error
    if value is None:
        raise RefusedError(ErrorKind.KEY_NOT_FOUND, f'zone {known_zone.name} has no key "{key}"')
    head = {"zone": known_zone.name, "key": key, "partition": partition.partition}
    return JSONResponse({**head, "value": value.decode(errors="replace"), **answer})


def _refusal(error: StoreRefusedError) -> StoreError:
    """Whatever has no kind of its own passes by itself."""
    return StoreError(_KINDS.get(error.code, ErrorKind.PARTITION_UNAVAILABLE), str(error))


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
