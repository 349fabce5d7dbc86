"""One attempt of a write or a get at one member of a partition's etcd group.

Keys in a group's store: ``g`` its identity, ``f`` its generation, ``d/<key>`` a datum, ``o/<operation id>`` the
mark of a write that was applied or abandoned (under a lease, so marks expire). A write is one transaction:
identity and generation right, mark absent, terms met -> datum and mark, and marks of what it abandons. So it is
repeated at any member, as often as wanted, while the mark lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from zonekeeper_client import etcd_wire as wire
from zonekeeper_client.errors import (
    ConditionFailedError,
    OperationAbandonedError,
    ProblemDocument,
    RefusedByServerError,
)
from zonekeeper_client.etcd_wire import KeyValue, TxnAnswer
from zonekeeper_client.routing_maps import Partition
from zonekeeper_client.tls import ShownCertificate
from zonekeeper_client.writes import AttemptFailedError, Row, Write, Written

IDENTITY_KEY, GENERATION_KEY = b"g", b"f"
DATUM_PREFIX, OPERATION_PREFIX = b"d/", b"o/"
ABANDONED = b"abandoned"
"""Value of the mark of a write that was not applied, and must not be."""
LEASE_TTL_S, LEASE_ROTATION_S = 120, 40.0
"""A lease takes new marks for the shorter time, so a mark lives for at least the difference."""
CLOSE_GRACE_S = 2.5
"""Calls under way may end: a put that is cut off would have to be repeated."""
LEASE_NOT_FOUND, NO_SPACE = "lease not found", "database space exceeded"
TOO_LARGE = ("request is too large", "larger than max")

CHANNEL_OPTIONS = (
    # Against a frozen member; each call's own time limit comes first. No pings while no call is under way: etcd
    # does not permit them without a stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A member that is restarted must be found again at once, not after the default backoff of up to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Also the time limit of one attempt to connect: too short, and a busy member is never reached.
    ("grpc.min_reconnect_backoff_ms", 2_000),
)


@dataclass(slots=True)
class Lease:
    """The one of a group under which new marks are."""

    id: int = 0
    since_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class EtcdMembers:
    """An ``Engine``. ``lists``: says of a URL that a routing map has it."""

    attempt_limits_s = (0.5, 1.0, 2.0)
    """The first attempts are short: most failures are a member that is gone. A repeated put does no harm."""

    def __init__(self, lists: Callable[[str], bool], certificate: ShownCertificate | None) -> None:
        self._lists = lists
        self._certificate = certificate
        self._channels: dict[str, tuple[Any, Any]] = {}
        """Channels by URL, each with the certificate that it shows."""
        self._closing: set[asyncio.Task[None]] = set()
        self._leases: dict[Partition, Lease] = {}

    async def close(self) -> None:
        for url in list(self._channels):
            self._close(url)
        await asyncio.gather(*self._closing)

    async def put(
        self, url: str, partition: Partition, generation: int | None, write: Write, limit_s: float
    ) -> Written:
        deadline, held = _now() + limit_s, self._leases.setdefault(partition, Lease())
        lease = await self._lease(held, url, partition, generation, deadline, is_new=bool(write.abandons))
        datum, mark = DATUM_PREFIX + write.key.encode(), OPERATION_PREFIX + write.operation.encode()
        stored = wire.delete(datum) if write.value is None else wire.put(datum, write.value.encode())
        request = wire.txn(
            [*_guards(partition, generation), wire.absent(mark), *_terms(datum, write)],
            [
                stored,
                wire.put(mark, b"", lease),
                *(wire.put_if_absent(OPERATION_PREFIX + o.encode(), ABANDONED, lease) for o in write.abandons),
            ],
            [wire.get(mark), wire.get(datum, keys_only=True), *_GUARD_READS],
        )
        try:
            answer = await self._txn(url, request, deadline)
        except AttemptFailedError as failed:
            if LEASE_NOT_FOUND in str(failed):
                held.id = 0 if held.id == lease else held.id
                raise AttemptFailedError(str(failed), is_well=True) from failed
            if NO_SPACE not in str(failed):
                raise
            # The very write that reached the quota is applied and answered with an error.
            (applied,) = await self._read(url, partition, generation, [wire.get(mark)], deadline)
            if applied is None or applied.value == ABANDONED:
                raise RefusedByServerError(ProblemDocument(0, "PARTITION_FULL", str(failed))) from failed
            return Written(applied.mod_revision)
        if answer.succeeded:
            return Written(answer.revision)
        applied, now, *identity = answer.found
        _check(partition, generation, identity)
        if applied is not None:
            if applied.value == ABANDONED:
                raise OperationAbandonedError(f"operation {write.operation} was abandoned by a later write")
            return Written(applied.mod_revision, repeated=True)
        if not write.is_conditional:
            raise AttemptFailedError("neither applied nor marked: repeated")
        is_at = f"is at revision {now.mod_revision}" if now is not None else "does not exist"
        wanted = "no such key" if write.if_absent else f"revision {write.if_revision}"
        raise ConditionFailedError(f"the key {is_at}; wanted: {wanted}", wants_absence=write.if_absent)

    async def get(
        self, url: str, partition: Partition, generation: int | None, key: str, limit_s: float
    ) -> Row:
        reads = [wire.get(DATUM_PREFIX + key.encode())]
        (found,) = await self._read(url, partition, generation, reads, _now() + limit_s)
        return Row(None) if found is None else Row(found.value, found.mod_revision)

    async def _read(
        self, url: str, partition: Partition, generation: int | None, reads: list[bytes], deadline: float
    ) -> tuple[KeyValue | None, ...]:
        """Linearizable."""
        request = wire.txn(_guards(partition, generation), reads, _GUARD_READS)
        answer = await self._txn(url, request, deadline)
        if not answer.succeeded:
            _check(partition, generation, list(answer.found))
            raise AttemptFailedError("neither of this group nor of another one: repeated")
        return answer.found

    async def _lease(
        self,
        held: Lease,
        url: str,
        partition: Partition,
        generation: int | None,
        deadline: float,
        *,
        is_new: bool,
    ) -> int:
        """``is_new``: one that ends after all that were given before, so that the mark of an abandoned write
        outlives the lease which that write itself needs."""
        try:
            async with asyncio.timeout_at(deadline):
                await held.lock.acquire()
        except TimeoutError as error:
            raise AttemptFailedError("no lease in time") from error
        try:
            if is_new or not held.id or _now() - held.since_s >= LEASE_ROTATION_S:
                # No leases are left behind in other groups.
                await self._read(url, partition, generation, [wire.get(IDENTITY_KEY)], deadline)
                answer = await self._call(url, wire.LEASE_GRANT, wire.lease_grant(LEASE_TTL_S), deadline)
                held.id, held.since_s = wire.granted_lease(answer), _now()
            return held.id
        finally:
            held.lock.release()

    async def _txn(self, url: str, request: bytes, deadline: float) -> TxnAnswer:
        answer = await self._call(url, wire.TXN, request, deadline)
        try:
            return wire.txn_answer(answer)
        except ValueError as error:
            raise AttemptFailedError(f"no answer of etcd: {error}", may_be_done=True) from error

    async def _call(self, url: str, method: str, request: bytes, deadline: float) -> bytes:
        """Raises AttemptFailedError, also when the channel is closed meanwhile: gRPC tells that as a
        cancellation, which would end a task that nobody has cancelled."""
        call: Awaitable[bytes] = self._channel(url).unary_unary(method)(
            request, timeout=max(deadline - _now(), 0.0)
        )
        try:
            return await call
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise AttemptFailedError("the connection was closed", may_be_done=True) from error
        except grpc.aio.AioRpcError as error:
            message = f"{error.code().name}: {error.details()}"
            if any(text in message for text in TOO_LARGE):
                raise RefusedByServerError(ProblemDocument(0, "INVALID_REQUEST", message)) from error
            raise AttemptFailedError(message, may_be_done=True) from error

    def _channel(self, url: str) -> Any:
        shown = None if self._certificate is None else self._certificate.pem()
        channel, with_shown = self._channels.get(url, (None, None))
        if channel is not None and with_shown is shown:
            return channel
        for other in list(self._channels):
            if other == url or not self._lists(other):
                self._close(other)
        scheme, _, address = url.partition("://")
        if scheme != "https":
            channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        elif shown is None:
            raise AttemptFailedError("it speaks TLS: give the client a certificate (tls=TlsFiles(...))")
        else:
            credentials = grpc.ssl_channel_credentials(*shown)
            channel = grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
        self._channels[url] = channel, shown
        return channel

    def _close(self, url: str) -> None:
        channel, _ = self._channels.pop(url)
        task = asyncio.create_task(channel.close(CLOSE_GRACE_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


_GUARD_READS = [wire.get(IDENTITY_KEY), wire.get(GENERATION_KEY)]
"""Reads for when the guards do not hold; ``_check`` takes their results."""


def _guards(partition: Partition, generation: int | None) -> list[bytes]:
    """Guards that the member is of this group and generation: the address may belong to another one."""
    own = wire.has_value(IDENTITY_KEY, str(partition).encode())
    if generation is None:
        return [own]
    life = wire.has_value(GENERATION_KEY, b"%d" % generation) if generation else wire.absent(GENERATION_KEY)
    return [own, life]


def _terms(datum: bytes, write: Write) -> list[bytes]:
    if write.if_absent:
        return [wire.absent(datum)]
    return [] if write.if_revision is None else [wire.unchanged(datum, write.if_revision)]


def _check(partition: Partition, generation: int | None, found: list[KeyValue | None]) -> None:
    """Raises AttemptFailedError for a member of another group or generation."""
    identity, written = ((b"" if each is None else each.value) for each in found)
    if identity != str(partition).encode():
        raise AttemptFailedError(f"it is {identity!r}, not {partition}")
    answered = written or b"0"
    if generation is None or answered == b"%d" % generation:
        return
    raise AttemptFailedError(
        f"WRONG_GENERATION: it is of generation {answered.decode(errors='replace')} of partition "
        f"{partition}; the routing map names generation {generation}",
        is_map_old=answered.isdigit() and int(answered) > generation,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
