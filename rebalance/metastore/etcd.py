"""The metastore on etcd v3, over asyncio gRPC with aetcd's generated stubs.

aetcd's own client has no time-outs, no paged or at-revision reads, no revision of a transaction and one
endpoint; so this adapter speaks through its stubs. Every call has a time limit. Reads rotate through the
endpoints until the limit; a transaction is sent once, and a lost answer is reported as outcome unknown.
What is small (one key, a lease) shares its time among the endpoints, so that a member which accepts and never
answers does not cost a lease.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from aetcd import rpc

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.txn import OPERATIONS_MAX, KeyValue, Txn, TxnResult, operation_count
from rebalance.hosting.background import cancellation_kept
from rebalance.hosting.tls import TlsFiles
from rebalance.hosting.tls_channel import TlsChannel
from rebalance.metastore import etcd_messages
from rebalance.ports.metastore import (
    Condition,
    HistoryGoneError,
    LeaseLostError,
    MemberHealth,
    MetastoreError,
    MetastoreUnavailableError,
    Newest,
    Snapshot,
    WatchBatch,
    WatchReset,
)
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

log = structlog.get_logger(__name__)

PAGE_KEYS = 20_000
"""etcd 3.4 walks the whole rest of a range for each page: few pages. One of them must fit into a message."""
KEYS_PER_SLICE = 2_000
"""Translated without a pause for the event loop."""
RECONNECT_DELAY_S = 0.1
RECONNECT = Backoff(RECONNECT_DELAY_S, 1.0)
PING_S = 10.0
STATUS_S = 2.0
FAILED = "failed"
"""The outcome of a request that was not answered, or by an error."""
ALARMS = ("NOSPACE", "CORRUPT")
REQUIRE_LEADER = (("hasleader", "true"),)
"""A member that has known of no leader for some elections ends such a stream; else it would stay silent for as
long as the member is cut off from the others, while these go on without it."""
RETRYABLE = frozenset(
    (
        rpc.StatusCode.UNAVAILABLE,
        rpc.StatusCode.DEADLINE_EXCEEDED,
        rpc.StatusCode.CANCELLED,
        rpc.StatusCode.UNKNOWN,
    )
)
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    # A frozen server goes unnoticed without pings, and for 69 s without this limit (measured).
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    # A watch sends nothing, and may be alone on its connection when other calls have gone on to another member.
    # After two pings gRPC would ping there no more, and a dead connection stay open for ever.
    ("grpc.http2.max_pings_without_data", 0),
    # etcd takes pings without a call amiss, and gRPC then doubles the time between all of them.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the time that one attempt to connect gets: less gives up on a busy server.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


@dataclass(slots=True)
class _Ended:
    outcome: str = FAILED


class EtcdMetastore:
    """``endpoints`` are ``host:port``; ``timeout_s`` limits each call; with ``tls`` both sides show a
    certificate. ``ping_s``: a member that says nothing to an open watch for so long is pinged; etcd refuses
    pings within less than 5 s unless it is set otherwise. Call ``close`` at the end."""

    def __init__(
        self,
        endpoints: Sequence[str],
        timeout_s: float = 5.0,
        *,
        tls: TlsFiles | None = None,
        ping_s: float = PING_S,
        measures: Measures = NO_MEASURES,
    ) -> None:
        if not endpoints:
            raise ValueError("at least one etcd endpoint is needed")
        self._endpoints = tuple(endpoints)
        self._timeout_s = timeout_s
        self._tls = tls
        self._options = (*CHANNEL_OPTIONS, ("grpc.keepalive_time_ms", round(1_000 * ping_s)))
        self._channels: dict[str, Any] = {}
        self._current = 0
        self._random = random.Random()
        self._measures = measures

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._read(rpc.RangeRequest(key=key.encode()), small=True)
        return etcd_messages.key_value(reply.kvs[0]) if reply.kvs else None

    async def range(self, prefix: str) -> Snapshot:
        return await self.range_at(prefix, 0)

    async def range_at(self, prefix: str, revision: int) -> Snapshot:
        start, end = prefix.encode(), etcd_messages.range_end(prefix)
        items: list[KeyValue] = []
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=PAGE_KEYS, revision=revision)
            reply = await self._read(request)
            revision = revision or reply.header.revision
            for first in range(0, len(reply.kvs), KEYS_PER_SLICE):
                items.extend(map(etcd_messages.key_value, reply.kvs[first : first + KEYS_PER_SLICE]))
                await asyncio.sleep(0)
            if not reply.more:
                return Snapshot(revision, tuple(items))
            start = reply.kvs[-1].key + b"\0"

    async def newest(self, prefix: str) -> Newest:
        request = rpc.RangeRequest(
            key=prefix.encode(),
            range_end=etcd_messages.range_end(prefix),
            sort_target=rpc.RangeRequest.MOD,
            sort_order=rpc.RangeRequest.DESCEND,
            limit=1,
            keys_only=True,
        )
        reply = await self._read(request)
        return Newest(reply.count, reply.kvs[0].mod_revision if reply.kvs else 0)

    async def commit(self, txn: Txn) -> TxnResult:
        count = operation_count(txn)
        if count > OPERATIONS_MAX:
            raise ValueError(f"a transaction of {count} operations: {OPERATIONS_MAX} is the most")
        request = etcd_messages.txn_request(txn)
        endpoint, channel = self._connection()
        with self._measured("txn") as ended:
            try:
                with cancellation_kept():
                    reply = await rpc.KVStub(channel).Txn(request, timeout=self._timeout_s)
            except rpc.AioRpcError as error:
                raise self._failed(error, endpoint, outcome_unknown=True) from error
            ended.outcome = "ok" if reply.succeeded else "conflict"
        return etcd_messages.txn_result(txn, reply)

    async def watch(self, prefix: str) -> AsyncIterator[WatchReset | WatchBatch]:
        reconnect = RECONNECT
        revision = 0
        while True:
            try:
                if revision == 0 or await self._history_went_back(prefix, revision):
                    snapshot = await self.range(prefix)
                    revision = snapshot.revision
                    yield WatchReset(snapshot)
                with cancellation_kept():
                    async for batch in self._watch_from(prefix, revision + 1):
                        reconnect = reconnect.fresh()
                        if batch is None:
                            revision = 0  # compacted: the gap can only be closed by a new snapshot
                            break
                        revision = batch.revision
                        yield batch
            except (MetastoreError, rpc.AioRpcError) as error:
                log.info("watch interrupted", prefix=prefix, revision=revision, error=_describe(error))
                reconnect = reconnect.failed()
                await asyncio.sleep(reconnect.delay_s(self._random.random()))

    async def grant_lease(self, ttl_s: int) -> int:
        reply = await self._asked("Lease", "LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl_s))
        return int(reply.ID)

    async def keep_lease(self, lease: int, within_s: float) -> None:
        async def requests() -> AsyncIterator[Any]:
            yield rpc.LeaseKeepAliveRequest(ID=lease)

        async def renew(channel: Any, limit: float) -> Any:
            call = rpc.LeaseStub(channel).LeaseKeepAlive(requests(), timeout=limit)
            async for reply in call:
                call.cancel()
                return reply
            return None

        with self._measured("lease") as ended:
            reply = await self._retried(renew, small=True, within_s=within_s)
            ended.outcome = "ok"
        if reply is None or reply.TTL <= 0:
            raise LeaseLostError(f"lease {lease:x} has expired")

    async def revoke_lease(self, lease: int) -> None:
        request = rpc.LeaseRevokeRequest(ID=lease)
        endpoint, channel = self._connection()
        try:
            with cancellation_kept():
                await rpc.LeaseStub(channel).LeaseRevoke(request, timeout=self._timeout_s)
        except rpc.AioRpcError as error:
            if error.code() != rpc.StatusCode.NOT_FOUND:
                raise self._failed(error, endpoint) from error

    async def condition(self) -> Condition:
        """Return the condition as the member that answers knows it; alarms are the same on all members."""
        reply = await self._asked("Maintenance", "Status", rpc.StatusRequest(), small=False)
        full = [error for error in reply.errors if "NOSPACE" in error]
        return Condition(f"{reply.header.cluster_id:x}", "; ".join(full), reply.header.revision)

    async def statuses(self) -> tuple[MemberHealth, ...]:
        """Return the health of each member that this process was told of, all asked at once and once each. It
        never raises."""
        return tuple(await asyncio.gather(*map(self._status_of, self._endpoints)))

    async def leases(self) -> int:
        """Count the leases. Raises MetastoreError."""
        return len((await self._asked("Lease", "LeaseLeases", rpc.LeaseLeasesRequest())).leases)

    async def _status_of(self, endpoint: str) -> MemberHealth:
        request = rpc.StatusRequest()
        try:
            with cancellation_kept():
                reply = await rpc.MaintenanceStub(self._channel(endpoint)).Status(request, timeout=STATUS_S)
        except rpc.AioRpcError:
            return MemberHealth(endpoint, is_up=False)
        alarms = tuple(word for word in ALARMS if any(word in error for error in reply.errors))
        return MemberHealth(
            endpoint, True, bool(reply.leader), reply.dbSizeInUse or reply.dbSize, reply.dbSize, alarms
        )

    async def voters(self) -> tuple[tuple[str, ...], ...]:
        """The client URLs that each voting member advertises; none of one that has never started."""
        reply = await self._asked("Cluster", "MemberList", rpc.MemberListRequest(linearizable=True))
        return tuple(tuple(member.clientURLs) for member in reply.members if not member.isLearner)

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def _read(self, request: Any, *, small: bool = False) -> Any:
        with self._measured("range") as ended:
            reply = await self._asked("KV", "Range", request, small=small)
            ended.outcome = "ok"
        return reply

    async def _asked(self, service: str, method: str, request: Any, *, small: bool = True) -> Any:
        def ask(channel: Any, limit: float) -> Any:
            return getattr(getattr(rpc, f"{service}Stub")(channel), method)(request, timeout=limit)

        return await self._retried(ask, small=small)

    @contextmanager
    def _measured(self, operation: str) -> Iterator[_Ended]:
        """One call, with its repetitions."""
        begun, ended = time.perf_counter(), _Ended()
        try:
            yield ended
        finally:
            self._measures.observe(Metric.METASTORE_SECONDS, time.perf_counter() - begun, operation)
            self._measures.count(Metric.METASTORE_REQUESTS, operation, ended.outcome)
            self._measures.set(Metric.METASTORE_UP, ended.outcome != FAILED)

    async def _retried(
        self, call: Callable[[Any, float], Awaitable[Any]], *, small: bool = False, within_s: float = math.inf
    ) -> Any:
        """Repeat a call that may be repeated: rotates through the endpoints until the time limit, or
        ``within_s``.

        A large one may need all of its time at one endpoint; a small one leaves some for each of the others.
        """
        deadline = asyncio.get_running_loop().time() + min(self._timeout_s, within_s)
        shares = len(self._endpoints) if small else 1
        while True:
            remaining = deadline - asyncio.get_running_loop().time()
            endpoint, channel = self._connection()
            try:
                with cancellation_kept():
                    return await call(channel, max(remaining / shares, 0.05))
            except rpc.AioRpcError as error:
                failure = self._failed(error, endpoint)
                out_of_time = asyncio.get_running_loop().time() + RECONNECT_DELAY_S >= deadline
                if error.code() not in RETRYABLE or out_of_time:
                    raise failure from error
            shares = max(shares - 1, 1)
            await asyncio.sleep(RECONNECT_DELAY_S)

    async def _history_went_back(self, prefix: str, revision: int) -> bool:
        """A store restored from an older backup: a watch from a future revision would stay silent for ever."""
        reply = await self._read(rpc.RangeRequest(key=prefix.encode(), count_only=True))
        return bool(reply.header.revision < revision)

    async def _watch_from(self, prefix: str, start: int) -> AsyncIterator[WatchBatch | None]:
        """Batches from ``start`` on; None when that revision is compacted. Raises when the stream breaks."""
        closing = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield etcd_messages.watch_request(prefix, start)
            # The stream lives as long as the request side does.
            await closing.wait()

        endpoint, channel = self._connection()
        call = rpc.WatchStub(channel).Watch(requests(), metadata=REQUIRE_LEADER)
        try:
            async for reply in call:
                if reply.compact_revision:
                    yield None
                    return
                if reply.canceled:
                    raise MetastoreUnavailableError(f"watch cancelled: {reply.cancel_reason}")
                if reply.events:
                    yield etcd_messages.watch_batch(reply)
            raise MetastoreUnavailableError("watch stream ended")
        except (MetastoreError, rpc.AioRpcError):
            self._leave(endpoint)
            raise
        finally:
            closing.set()
            call.cancel()

    def _connection(self) -> tuple[str, Any]:
        endpoint = self._endpoints[self._current]
        return endpoint, self._channel(endpoint)

    def _channel(self, endpoint: str) -> Any:
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._open(endpoint)
        return channel

    def _open(self, endpoint: str) -> Any:
        if self._tls is None:
            return rpc.insecure_channel(endpoint, options=self._options)
        return TlsChannel(endpoint, self._tls, self._options)

    def _leave(self, endpoint: str) -> None:
        """Go on to the next endpoint, unless another call that failed there has done so: together they would go
        round."""
        if self._endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    def _failed(self, error: Any, endpoint: str, *, outcome_unknown: bool = False) -> MetastoreError:
        if error.code() in RETRYABLE:
            self._leave(endpoint)
        if error.code() == rpc.StatusCode.NOT_FOUND and "lease" in (error.details() or ""):
            return LeaseLostError(error.details())
        if error.code() == rpc.StatusCode.OUT_OF_RANGE and "compacted" in (error.details() or ""):
            return HistoryGoneError(error.details())
        if error.code() in RETRYABLE or error.code() == rpc.StatusCode.RESOURCE_EXHAUSTED:
            return MetastoreUnavailableError(_describe(error), outcome_unknown=outcome_unknown)
        return MetastoreError(_describe(error))


def _describe(error: Exception) -> str:
    if isinstance(error, rpc.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
