"""Puts and gets of a zone's keys, through any server or straight to the members of the key's group.

    async with ZoneClient() as client:
        await client.put("ORDERS", "customer-17", "paid")
        found = await client.get("ORDERS", "customer-17")

A put is repeated until its time is over, and always under one operation id: it is applied once, or, when the
outcome stays unknown, at most once. The client's next put or delete of the key abandons it then: once that one
is acknowledged, the earlier one does not take its place. Gets are linearizable in both modes: a member that was
removed or cut off answers nothing, because only a majority of the group's present voters can confirm a read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self, TypedDict, TypeVar, Unpack

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from app.client import requests
from app.client.errors import ReadTimedOutError, RefusedByServerError, ServersUnavailableError
from app.client.local_server import DATA_DIR, local_login
from app.client.problem import JsonObject, json_object
from app.client.requests import Request
from app.client.routing_maps import RoutingMaps
from app.client.servers import ServerFailedError, Servers
from app.client.unsettled import UnsettledWrites
from app.client.zone_router import ZoneRouter
from rebalance.core.write_terms import WriteTerms
from rebalance.groups.key_text import check_key, check_operation_id, check_text
from rebalance.groups.router import TIME_LIMIT_S
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import GenerationRefusedError, OutcomeUnknownError
from rebalance.ports.write_refusals import ConditionFailedError, NobodyAskedError, OperationAbandonedError
from rebalance.store.shell.store_client import StoreRefusedError

KEY_NOT_FOUND = "KEY_NOT_FOUND"
KEY_EXISTS = "KEY_EXISTS"
REVISION_CHANGED = "REVISION_CHANGED"
OPERATION_ABANDONED = "OPERATION_ABANDONED"
RETRY_S, RETRY_MAX_S = 0.02, 0.5
T = TypeVar("T")


class Mode(Enum):
    """ROUTED: two hops, the server knows where. DIRECT: one hop, the routing map says where; for machines,
    whose certificates members accept."""

    DIRECT = "DIRECT"
    ROUTED = "ROUTED"


class Read(Enum):
    """LEARNER asks a copy that is no voter, for what it is sure to hold: cheaper, and as old as the revision
    that is asked for. It goes through a server in both modes, with ``read=learner`` and ``at_revision``."""

    LINEARIZABLE = "linearizable"
    LEARNER = "learner"


@dataclass(frozen=True, slots=True)
class Stored:
    """``repeated``: an earlier call with this operation id had done it already. ``revision``: of the
    partition's group, at which it was done; 0: the server is of an earlier build."""

    partition: int
    operation_id: str
    repeated: bool
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """``revision`` is that of the partition's group; it orders the values of one partition."""

    value: str
    revision: int
    partition: int


class KeyWriteOptions(TypedDict, total=False):
    """``if_revision``: only if the key was written last at this revision; ``if_absent``: only if there is no
    such key. ``limit_s`` instead of the client's."""

    if_revision: int | None
    if_absent: bool
    limit_s: float | None


@dataclass(frozen=True, slots=True)
class _Write:
    """``value`` None deletes the key."""

    zone: str
    key: str
    value: str | None
    operation: str
    terms: WriteTerms
    limit_s: float


class ZoneClient:
    """Belongs to one event loop; use it in an ``async with``, or ``close`` it. ``urls``: servers of one
    installation; the next one is asked when one fails. ``time_limit_s`` is that of each put and get; ``tls`` is
    for members of groups that ask for a certificate. ``token`` and ``authority`` (PEM) are for servers to which
    users log in, by https URLs. Without ``urls`` it goes to the `zonectl up` of ``data_dir``, as its owner; so
    it does by that server's own URL, where no token is given."""

    def __init__(
        self,
        urls: Sequence[str] = (),
        *,
        mode: Mode = Mode.ROUTED,
        time_limit_s: float = TIME_LIMIT_S,
        tls: TlsFiles | None = None,
        token: str = "",
        authority: str = "",
        data_dir: Path = DATA_DIR,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises ValueError; without ``urls`` FileNotFoundError where no `zonectl up` runs."""
        if not token and not authority and (local := local_login(urls, data_dir)) is not None:
            urls, token, authority = [local.url], local.token, local.authority
        self._mode = mode
        self._time_limit_s = time_limit_s
        self._servers = Servers(urls, transport, token=token, authority=authority)
        self._maps = RoutingMaps(self._servers, time_limit_s)
        self._router = ZoneRouter(self._maps, time_limit_s=time_limit_s, tls=tls)
        self._unsettled = UnsettledWrites()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._maps.close()
        await self._router.close()
        await self._servers.close()

    async def put(
        self,
        zone: str,
        key: str,
        value: str,
        operation_id: str | None = None,
        **options: Unpack[KeyWriteOptions],
    ) -> Stored:
        """Acknowledged means stored by a majority of the partition's voters; in a store zone by every copy that
        is in sync. It abandons earlier puts and deletes of the key by this client whose outcome is unknown.

        ``operation_id``: give one of your own to be able to repeat the put later; for how long that is safe is
        said in ``rebalance/tech-notes/etcd-group.md``. Raises ConditionFailedError, OutcomeUnknownError,
        ValueRefusedError, OperationAbandonedError (a later write has abandoned this operation id) and
        ClientError; GenerationRefusedError when nothing was written, because all members that answered are of
        another generation of the group than the routing map names, StoreRefusedError when the servers of a
        store zone refused it, and ServersUnavailableError or NobodyAskedError when nobody could be asked in
        time; ValueError for a key of other than 1 to 1024 characters, and for what is no UTF-8.
        """
        check_text("value", value)
        return await self._settled(self._write_of(zone, key, value, operation_id, options))

    async def delete(
        self, zone: str, key: str, operation_id: str | None = None, **options: Unpack[KeyWriteOptions]
    ) -> Stored:
        """As ``put``; a key that does not exist stays so."""
        return await self._settled(self._write_of(zone, key, None, operation_id, options))

    def _write_of(
        self, zone: str, key: str, value: str | None, operation_id: str | None, options: KeyWriteOptions
    ) -> _Write:
        check_key(key)
        operation = operation_id or uuid.uuid4().hex
        check_operation_id(operation)
        abandons = self._unsettled.of(zone, key, but=operation)
        terms = WriteTerms(options.get("if_revision"), options.get("if_absent", False), abandons)
        limit_s = options.get("limit_s")
        limit_s = self._time_limit_s if limit_s is None else limit_s
        return _Write(zone, key, value, operation, terms, limit_s)

    async def _settled(self, write: _Write) -> Stored:
        """What it abandons is settled with it; with an unknown outcome, or a caller that left, it is not."""
        write_by = self._write_by_server if self._mode is Mode.ROUTED else self._write_straight
        try:
            stored = await write_by(write)
        except (OutcomeUnknownError, asyncio.CancelledError):
            self._unsettled.add(write.zone, write.key, write.operation)
            raise
        except OperationAbandonedError:
            self._unsettled.settle(write.zone, write.key, (write.operation,))
            raise
        self._unsettled.settle(write.zone, write.key, (write.operation, *write.terms.abandons))
        return stored

    async def _write_straight(self, write: _Write) -> Stored:
        deadline = _now() + write.limit_s
        held = await self._maps.of(write.zone)
        partition = held.partition_of(write.key)
        value = None if write.value is None else write.value.encode()
        limit_s = deadline - _now()
        written = await self._router.put(
            partition, write.key, value, write.operation, limit_s=limit_s, terms=write.terms
        )
        return Stored(partition.partition, write.operation, written.repeated, written.revision)

    async def get(
        self,
        zone: str,
        key: str,
        *,
        read: Read = Read.LINEARIZABLE,
        at_revision: int | None = None,
        limit_s: float | None = None,
    ) -> Found | None:
        """None for a key that was never put. ``at_revision``, for reads from learners: the revision of the
        partition's group that is asked for. ``limit_s`` instead of the client's. Raises
        ClientError, and StoreRefusedError for a partition that is lost."""
        if at_revision is not None and read is Read.LINEARIZABLE:
            raise ValueError("at_revision is for reads from learners; a linearizable one sees the newest")
        check_key(key)
        limit_s = self._time_limit_s if limit_s is None else limit_s
        if self._mode is Mode.ROUTED or read is Read.LEARNER:
            return await self._get_by_server(zone, key, read, at_revision, limit_s)
        deadline = _now() + limit_s
        held = await self._maps.of(zone)
        partition = held.partition_of(key)
        try:
            datum = await self._router.get(partition, key, limit_s=deadline - _now())
        except (OutcomeUnknownError, GenerationRefusedError, NobodyAskedError, StoreRefusedError) as error:
            if isinstance(error, StoreRefusedError) and error.is_final:
                raise
            raise ReadTimedOutError(str(error)) from error
        if datum.value is None:
            return None
        return Found(datum.value.decode(errors="replace"), datum.revision, partition.partition)

    async def _write_by_server(self, write: _Write) -> Stored:
        zone, key, operation = write.zone, write.key, write.operation
        if write.value is None:
            request = requests.delete(zone, key, operation, write.terms)
        else:
            request = requests.put(zone, key, write.value, operation, write.terms)
        failures: list[ServerFailedError] = []
        try:
            body = await self._answer_of(request, write.limit_s, failures)
        except ServerFailedError as failed:
            last = f"within {write.limit_s:g} s; last: {failed}"
            if _may_be_done(failures):
                raise OutcomeUnknownError(f"operation {operation}: no answer {last}") from failed
            raise ServersUnavailableError(f"operation {operation}: nothing was written {last}") from failed
        except RefusedByServerError as refused:
            raise _refusal_of_write(refused, operation, may_be_done=_may_be_done(failures)) from refused
        return Stored(body["partition"], operation, body["repeated"], body.get("revision", 0))

    async def _get_by_server(
        self, zone: str, key: str, read: Read, at_revision: int | None, limit_s: float
    ) -> Found | None:
        options: dict[str, str | int] = {"read": read.value} if read is Read.LEARNER else {}
        if at_revision is not None:
            options["at_revision"] = at_revision
        try:
            body = await self._answer_of(requests.get(zone, key, options), limit_s)
        except ServerFailedError as failed:
            raise ReadTimedOutError(f"no answer within {limit_s:g} s; last: {failed}") from failed
        except RefusedByServerError as refused:
            if refused.problem.name == KEY_NOT_FOUND:
                return None
            raise
        return Found(body["value"], body["revision"], body["partition"])

    async def _answer_of(
        self, request: Request[T], limit_s: float, failures: list[ServerFailedError] | None = None
    ) -> T:
        """Repeated until the time is over. ``failures``: gets those of attempts. Raises RefusedByServerError,
        or the last ServerFailedError."""
        deadline = _now() + limit_s
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(ServerFailedError),
            wait=wait_random_exponential(multiplier=RETRY_S, max=RETRY_MAX_S),
            stop=stop_after_delay(limit_s - RETRY_MAX_S),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                try:
                    body = _object(request, await self._servers.ask(request, max(deadline - _now(), RETRY_S)))
                except ServerFailedError as failed:
                    if failures is not None:
                        failures.append(failed)
                    raise
        return request.decode(body)


def _may_be_done(failures: Iterable[ServerFailedError]) -> bool:
    return any(failed.may_be_done for failed in failures)


def _refusal_of_write(refused: RefusedByServerError, operation: str, *, may_be_done: bool) -> Exception:
    """As a direct client is told. ``may_be_done``: an attempt before it may have been carried out, or is yet to
    be, whatever the last one was refused for; one that wants a revision which is gone never will."""
    name, message = refused.problem.name, f"operation {operation}: {refused}"
    if name == OPERATION_ABANDONED:
        return OperationAbandonedError(message)
    if name == REVISION_CHANGED:
        return ConditionFailedError(message, wants_absence=False)
    if may_be_done:
        return OutcomeUnknownError(message)
    return ConditionFailedError(message, wants_absence=True) if name == KEY_EXISTS else refused


def _object(request: Request[T], response: httpx.Response) -> JsonObject:
    body = json_object(response)
    if body is None:
        line = f"{request.method} {request.path}: HTTP {response.status_code}"
        raise ServerFailedError(f"{line} without a JSON object")
    return body


def _now() -> float:
    return asyncio.get_running_loop().time()
