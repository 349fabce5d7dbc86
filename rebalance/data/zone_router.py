"""Puts and gets by partition that outlive moves, whatever keeps its copies: each attempt goes to one member or
server, and any error sends it to the next one.

A write keeps its operation id over all attempts, so it is applied once. It returns success, or
``OutcomeUnknownError`` (40003) when its time is over: never an error that a move, a lost leader or a stopped
member caused within that time (I3-059, decision 13). Where there was no attempt in a group, it is
``NobodyAskedError`` (58000).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import structlog

from catalog.core.zone import STORE_ENGINE
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.data.attempts import AttemptFailedError, DataRequest
from rebalance.data.group_attempts import GroupAttempts
from rebalance.data.store_attempts import StoreAttempts, StoreCopyReads
from rebalance.groups.calls.data_client import AppliedWrite, Datum
from rebalance.groups.calls.replica_reads import ReplicaChoice, ReplicaDatum, ReplicaReader
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import EndpointSource, OutcomeUnknownError, Route

log = structlog.get_logger(__name__)

T = TypeVar("T")

TIME_LIMIT_S = 15.0
READ_AT_LIMIT_S = 5.0
RETRY = Backoff(0.02, 0.25, jitter=0.5)
AVOIDED_S = 1.0
"""A member that failed is asked last for this long."""


class ZoneRouter:
    """One per process and event loop; ``close`` it. ``source`` says of each route which engine it is of;
    ``tls``: for members and servers that ask for a certificate."""

    def __init__(
        self, source: EndpointSource, *, time_limit_s: float = TIME_LIMIT_S, tls: TlsFiles | None = None
    ) -> None:
        self._source = source
        self._time_limit_s = time_limit_s
        self._groups = GroupAttempts(tls)
        self._stores = StoreAttempts(tls)
        self._replicas = ReplicaReader(source, self.revision, tls)
        self._failed_at: dict[str, float] = {}
        self._random = random.Random()

    async def close(self) -> None:
        await self._replicas.close()
        await self._groups.close()
        await self._stores.close()

    async def put(
        self,
        partition: PartitionId,
        key: str,
        value: bytes | None,
        operation_id: str,
        *,
        limit_s: float | None = None,
        terms: WriteTerms = ANY,
    ) -> AppliedWrite:
        """Store ``value``, or delete the key where it is None; applied exactly once for one ``operation_id``.
        The revision in a store zone counts the partition's writes. ``limit_s`` instead of the router's.

        Raises OutcomeUnknownError, GenerationRefusedError, StoreRefusedError or NobodyAskedError after the time
        limit, ValueRefusedError for a value that is too large, GroupFullError, ConditionFailedError,
        OperationAbandonedError, and ValueError for an operation id that is empty or abandons itself.
        """
        terms.check_operation(operation_id)
        raw = key.encode()
        written, attempts = await self._repeated(
            partition,
            limit_s,
            lambda engine, request: engine.put(request, raw, value, operation_id, terms),
        )
        return replace(written, attempts=attempts)

    async def get(self, partition: PartitionId, key: str, *, limit_s: float | None = None) -> Datum:
        """Linearizable. The revision in a store zone counts the partition's writes. Raises OutcomeUnknownError,
        GenerationRefusedError, StoreRefusedError or NobodyAskedError after the time limit."""
        raw = key.encode()
        datum, _ = await self._repeated(partition, limit_s, lambda engine, request: engine.get(request, raw))
        return datum

    async def revision(self, partition: PartitionId, limit_s: float | None = None) -> int:
        """The group's revision as of now, linearizably. Raises as ``get``."""
        revision, _ = await self._repeated(
            partition, limit_s, lambda _, request: self._groups.revision(request)
        )
        return revision

    async def read_at(
        self,
        partition: PartitionId,
        key: str,
        point: ReadPoint,
        choice: ReplicaChoice,
        limit_s: float = READ_AT_LIMIT_S,
    ) -> ReplicaDatum:
        """Read ``key`` from a replica that has ``point``, of a partition that is a group; from ``NOW``, the
        linearizable answer. Raises as ``ReplicaReader.read``."""
        return await self._replicas.read(partition, key, point, choice, limit_s)

    def is_store(self, partition: PartitionId) -> bool:
        """True if store servers keep the partition, as far as is known."""
        return self._source.route(partition).engine == STORE_ENGINE

    def copy_reads(self, partition: PartitionId) -> StoreCopyReads:
        """Reads of single copies, of a store zone."""
        return StoreCopyReads(self._stores, partition)

    async def _repeated(
        self,
        partition: PartitionId,
        limit_s: float | None,
        attempt: Callable[[GroupAttempts | StoreAttempts, DataRequest], Awaitable[T]],
    ) -> tuple[T, int]:
        """The answer, and the number of attempts that it took."""
        whole_s = self._time_limit_s if limit_s is None else limit_s
        request = DataRequest(partition, time.monotonic() + whole_s, self._source.route(partition))
        retry, asked = RETRY, set[str]()
        while (left_s := request.left_s) > 0:
            if (route := self._source.route(partition)) != request.route:
                request.route = route
                asked.clear()
            if not route.voters:
                await self._source.wait_for_change(partition, route, min(left_s, 1.0))
                continue
            engine = self._engine(route)
            request.url = self._next(request, asked)
            request.limit_s = min(engine.limits_s[min(request.attempts, len(engine.limits_s) - 1)], left_s)
            request.attempts += 1
            try:
                return await attempt(engine, request), request.attempts
            except AttemptFailedError as failed:
                request.failure = failure = failed
            log.debug("attempt failed", partition=str(partition), url=request.url, error=str(failure))
            self._source.doubt(partition)
            asked.add(request.url)
            if not failure.is_well:
                self._failed_at[request.url] = time.monotonic()
            # Another one is asked at once, unless the route is known to be old; when all have failed, a pause
            # lets an election or an exchange end.
            if failure.is_route_old or asked.issuperset(route.voters):
                retry = retry.failed()
                pause_s = min(retry.delay_s(self._random.random()), request.left_s)
                await self._source.wait_for_change(partition, route, pause_s)
                asked.clear()
        if request.failure is None:
            raise self._engine(request.route).unasked(request)
        message = f"partition {partition}: no answer within {whole_s:.3g} s after {request.attempts} attempts"
        message = f"{message}; last: {request.failure}"
        if request.failure.refusal is not None and not request.may_be_done:
            raise request.failure.refusal(message)
        raise OutcomeUnknownError(message)

    def _engine(self, route: Route) -> GroupAttempts | StoreAttempts:
        return self._stores if route.engine == STORE_ENGINE else self._groups

    def _next(self, request: DataRequest, asked: set[str]) -> str:
        """The one that leads, of those that were not asked; else the preferred one that did not fail a moment
        ago; else the one whose failure is oldest."""
        left = [url for url in request.route.voters if url not in asked]
        if request.failure is not None and request.failure.leader in left:
            return request.failure.leader
        avoided_since = time.monotonic() - AVOIDED_S
        return min(left, key=lambda url: max(self._failed_at.get(url, -math.inf), avoided_since))
