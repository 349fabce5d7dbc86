"""Puts and gets that outlive moves: each attempt goes to one member, and any error sends it to the next one.

A put returns success, or ``OutcomeUnknownError`` (40003) when its time is over: never an error that a move, a
lost leader or a stopped member caused within that time (I3-059, decision 13). Where no attempt can have been
applied, because members of another generation of the group refused all of them, it is
``GenerationRefusedError`` (40001); where there was none, ``NobodyAskedError`` (58000).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.groups.calls.data_client import Connections, Datum, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind
from rebalance.groups.calls.group_guard import WrongGenerationError, WrongGroupError
from rebalance.groups.calls.replica_reads import ReplicaChoice, ReplicaDatum, ReplicaReader
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import (
    ConditionFailedError,
    EndpointSource,
    GenerationRefusedError,
    GroupFullError,
    NobodyAskedError,
    OutcomeUnknownError,
    ValueRefusedError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

TIME_LIMIT_S = 15.0
READ_AT_LIMIT_S = 5.0
ATTEMPT_LIMITS_S = (0.5, 1.0, 2.0)
"""The first attempts are short: most failures are a member that is gone. A repeated put does no harm."""
RETRY = Backoff(0.02, 0.25, jitter=0.5)
AVOIDED_S = 1.0
"""A member that failed is asked last for this long."""


@dataclass(frozen=True, slots=True)
class RoutedPut:
    """``repeated``: an earlier attempt, or an earlier call with this operation id, had applied it already.
    ``revision``: of the group, at which it was applied."""

    attempts: int
    repeated: bool
    elapsed_s: float
    revision: int


class Router:
    """One per process and event loop. ``close`` it at the end."""

    def __init__(
        self, source: EndpointSource, *, time_limit_s: float = TIME_LIMIT_S, tls: TlsFiles | None = None
    ) -> None:
        self._source = source
        self._time_limit_s = time_limit_s
        self._connections = Connections(tls)
        self._replicas = ReplicaReader(source, self.revision, tls)
        self._clients: dict[PartitionId, PartitionClient] = {}
        self._failed_at: dict[str, float] = {}
        self._random = random.Random()

    async def put(
        self,
        partition: PartitionId,
        key: str,
        value: bytes | None,
        operation_id: str,
        *,
        limit_s: float | None = None,
        terms: WriteTerms = ANY,
    ) -> RoutedPut:
        """Store ``value``, or delete the key where it is None; applied exactly once for one ``operation_id``.
        ``limit_s`` instead of the router's.

        Raises OutcomeUnknownError, GenerationRefusedError or NobodyAskedError after the time limit,
        ValueRefusedError for a value that is too large, ConditionFailedError, OperationAbandonedError, and
        ValueError for an operation id that is empty or abandons itself.
        """
        terms.check_operation(operation_id)
        client, raw, started = self._client(partition), key.encode(), time.monotonic()
        written, attempts = await self._repeated(
            partition,
            limit_s,
            lambda url, call_s, generation: client.put(
                url, raw, value, operation_id, call_s, generation, terms
            ),
            lambda url, call_s, generation: client.abandon(url, operation_id, call_s, generation),
        )
        return RoutedPut(attempts, written.repeated, time.monotonic() - started, written.revision)

    async def get(self, partition: PartitionId, key: str, *, limit_s: float | None = None) -> Datum:
        """Linearizable. Raises OutcomeUnknownError, GenerationRefusedError or NobodyAskedError after the time
        limit."""
        client, raw = self._client(partition), key.encode()
        datum, _ = await self._repeated(
            partition, limit_s, lambda url, call_s, generation: client.get(url, raw, call_s, generation)
        )
        return datum

    async def revision(self, partition: PartitionId, limit_s: float | None = None) -> int:
        """The group's revision as of now, linearizably. Raises as ``get``."""
        client = self._client(partition)
        revision, _ = await self._repeated(partition, limit_s, client.revision)
        return revision

    async def read_at(
        self,
        partition: PartitionId,
        key: str,
        point: ReadPoint,
        choice: ReplicaChoice,
        time_limit_s: float = READ_AT_LIMIT_S,
    ) -> ReplicaDatum:
        """Read ``key`` from a replica that has ``point``; from ``NOW``, the linearizable answer. Raises as
        ``ReplicaReader.read``."""
        return await self._replicas.read(partition, key, point, choice, time_limit_s)

    async def close(self) -> None:
        await self._replicas.close()
        await self._connections.close()

    def _client(self, partition: PartitionId) -> PartitionClient:
        client = self._clients.get(partition)
        if client is None:
            client = self._clients[partition] = PartitionClient(partition, self._connections)
        return client

    async def _repeated(
        self,
        partition: PartitionId,
        whole_s: float | None,
        attempt: Callable[[str, float, int | None], Awaitable[T]],
        abandon: Callable[[str, float, int | None], Awaitable[T | None]] | None = None,
    ) -> tuple[T, int]:
        """``attempt``: of a client URL, a time limit in seconds and the generation that the route names.
        ``abandon``: the same of what sees to it that no earlier attempt is carried out, or says which one was.
        """
        whole_s = self._time_limit_s if whole_s is None else whole_s
        deadline = time.monotonic() + whole_s
        retry = RETRY
        attempts, reason = 0, ""
        refused: WrongGenerationError | None = None
        may_be_applied = False
        while (remaining_s := deadline - time.monotonic()) > 0:
            route = self._source.route(partition)
            self._connections.use(partition, route.voters)
            if not route.voters:
                await self._source.wait_for_change(partition, route, min(remaining_s, 1.0))
                continue
            url = self._choose(route.voters)
            limit_s = min(ATTEMPT_LIMITS_S[min(attempts, len(ATTEMPT_LIMITS_S) - 1)], remaining_s)
            attempts += 1
            try:
                return await attempt(url, limit_s, route.generation), attempts
            except WrongGenerationError as failed:
                reason, refused = f"{url}: {failed}", failed
                self._note_failure(partition, url, attempts, failed)
            except (CallFailedError, WrongGroupError) as failed:
                reason, refused = f"{url}: {failed}", None
                may_be_applied |= isinstance(failed, CallFailedError)
                self._note_failure(partition, url, attempts, failed)
            except ConditionFailedError as failed:
                if failed.wants_absence and may_be_applied and abandon is not None:
                    # An attempt that is late would be applied once somebody has deleted the key. A revision
                    # never comes again.
                    try:
                        applied = await abandon(url, max(deadline - time.monotonic(), 0), route.generation)
                    except (CallFailedError, WrongGroupError, WrongGenerationError):
                        unknown = f"partition {partition}: {failed}, after {reason}"
                        raise OutcomeUnknownError(unknown) from failed
                    if applied is not None:
                        return applied, attempts
                raise
            # Another member is asked at once, unless the route is known to be old; when all have failed, a
            # pause lets an election end.
            if attempts >= len(route.voters) or (refused is not None and refused.is_map_old):
                retry = retry.failed()
                pause_s = min(retry.delay_s(self._random.random()), max(deadline - time.monotonic(), 0))
                await self._source.wait_for_change(partition, route, pause_s)
        if not attempts:
            why = "" if self._source.route(partition).voters else ": no member of the group is known"
            raise NobodyAskedError(f"partition {partition}: no member could be reached in time{why}")
        message = f"no answer within {whole_s:.3g} s after {attempts} attempts; last: {reason}"
        if refused is not None and not may_be_applied:
            raise GenerationRefusedError(
                f"partition {partition}: {message}", refused.expected, refused.answered
            )
        raise OutcomeUnknownError(f"partition {partition}: {message}")

    def _choose(self, urls: tuple[str, ...]) -> str:
        """The preferred member that did not fail a moment ago; else the one whose failure is oldest."""
        now = time.monotonic()
        for url in urls:
            if now - self._failed_at.get(url, float("-inf")) > AVOIDED_S:
                return url
        return min(urls, key=lambda url: self._failed_at[url])

    def _note_failure(
        self, partition: PartitionId, url: str, attempts: int, failed: CallFailedError | WrongGroupError
    ) -> None:
        if isinstance(failed, CallFailedError) and failed.kind is FailureKind.TOO_LARGE:
            raise ValueRefusedError(str(failed)) from failed
        if isinstance(failed, CallFailedError) and failed.kind is FailureKind.NO_SPACE:
            raise GroupFullError(f"partition {partition}: {failed}") from failed
        if isinstance(failed, CallFailedError) and failed.kind is FailureKind.LEASE_NOT_FOUND:
            return  # the member is fine: the same one with a new lease
        self._source.doubt(partition)
        if not (isinstance(failed, WrongGenerationError) and failed.is_map_old):
            # Else the member is fine: the same one with a new route.
            self._failed_at[url] = time.monotonic()
        log.debug("attempt %d of partition %s failed at %s: %s", attempts, partition, url, failed)
