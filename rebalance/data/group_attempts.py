"""Single attempts at the members of a partition's group.

Where no attempt can have been applied, because members of another generation of the group refused all of them,
the request ends with ``GenerationRefusedError`` (40001).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.data.attempts import AttemptFailedError, DataRequest
from rebalance.groups.calls.data_client import AppliedWrite, Connections, Datum, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind
from rebalance.groups.calls.group_guard import WrongGenerationError, WrongGroupError
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import (
    ConditionFailedError,
    GenerationRefusedError,
    GroupError,
    GroupFullError,
    NobodyAskedError,
    OutcomeUnknownError,
    ValueRefusedError,
)

ATTEMPT_LIMITS_S = (0.5, 1.0, 2.0)
"""The first attempts are short: most failures are a member that is gone. A repeated put does no harm."""


class GroupAttempts:
    """Each raises AttemptFailedError."""

    limits_s = ATTEMPT_LIMITS_S

    def __init__(self, tls: TlsFiles | None) -> None:
        self._connections = Connections(tls)
        self._clients: dict[PartitionId, PartitionClient] = {}

    async def put(
        self, request: DataRequest, key: bytes, value: bytes | None, operation_id: str, terms: WriteTerms
    ) -> AppliedWrite:
        """Raises ValueRefusedError, GroupFullError, ConditionFailedError, OperationAbandonedError and
        OutcomeUnknownError besides."""
        client, url, generation = self._client(request), request.url, request.route.generation
        try:
            with _told(request):
                return await client.put(url, key, value, operation_id, request.limit_s, generation, terms)
        except ConditionFailedError as failed:
            if failed.wants_absence and request.may_be_done:
                # An attempt that is late would be applied once somebody has deleted the key. A revision never
                # comes again.
                try:
                    applied = await client.abandon(url, operation_id, request.left_s, generation)
                except (CallFailedError, WrongGroupError):
                    unknown = f"partition {request.partition}: {failed}, after {request.failure}"
                    raise OutcomeUnknownError(unknown) from failed
                if applied is not None:
                    return applied
            raise

    async def get(self, request: DataRequest, key: bytes) -> Datum:
        with _told(request):
            return await self._client(request).get(request.url, key, request.limit_s, request.route.generation)

    async def revision(self, request: DataRequest) -> int:
        with _told(request):
            return await self._client(request).revision(request.url, request.limit_s, request.route.generation)

    def unasked(self, request: DataRequest) -> GroupError:
        why = "" if request.route.voters else ": no member of the group is known"
        return NobodyAskedError(f"partition {request.partition}: no member could be reached in time{why}")

    async def close(self) -> None:
        await self._connections.close()

    def _client(self, request: DataRequest) -> PartitionClient:
        self._connections.use(request.partition, request.route.voters)
        client = self._clients.get(request.partition)
        if client is None:
            client = self._clients[request.partition] = PartitionClient(request.partition, self._connections)
        return client


@contextmanager
def _told(request: DataRequest) -> Iterator[None]:
    try:
        yield
    except WrongGenerationError as failed:
        refusal = partial(GenerationRefusedError, expected=failed.expected, answered=failed.answered)
        raise AttemptFailedError(
            f"{request.url}: {failed}", refusal, is_well=failed.is_map_old, is_route_old=failed.is_map_old
        ) from failed
    except WrongGroupError as failed:
        raise AttemptFailedError(f"{request.url}: {failed}") from failed
    except CallFailedError as failed:
        if failed.kind is FailureKind.TOO_LARGE:
            raise ValueRefusedError(str(failed)) from failed
        if failed.kind is FailureKind.NO_SPACE:
            raise GroupFullError(f"partition {request.partition}: {failed}") from failed
        request.may_be_done = True
        # Any member grants another lease.
        is_well = failed.kind is FailureKind.LEASE_NOT_FOUND
        raise AttemptFailedError(f"{request.url}: {failed}", is_well=is_well) from failed
