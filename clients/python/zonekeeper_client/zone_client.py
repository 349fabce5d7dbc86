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
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self, TypedDict, Unpack

import httpx

from zonekeeper_client.direct import DirectPath
from zonekeeper_client.errors import (
    ClientError,
    ConditionFailedError,
    OperationAbandonedError,
    OutcomeUnknownError,
    ReadTimedOutError,
    RefusedByServerError,
    ServersUnavailableError,
)
from zonekeeper_client.local_server import DATA_DIR, local_login
from zonekeeper_client.routing_maps import RoutingMaps
from zonekeeper_client.servers import ServerFailedError, Servers, get_request, write_request
from zonekeeper_client.tls import TlsFiles
from zonekeeper_client.writes import UnsettledWrites, Write, check_key

TIME_LIMIT_S = 15.0
KEY_NOT_FOUND = "KEY_NOT_FOUND"
KEY_EXISTS = "KEY_EXISTS"
REVISION_CHANGED = "REVISION_CHANGED"
OPERATION_ABANDONED = "OPERATION_ABANDONED"


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


class ZoneClient:
    """Belongs to one event loop; use it in an ``async with``, or ``close`` it. ``urls``: servers of one
    installation; the next one is asked when one fails. ``time_limit_s`` is that of each put and get; ``tls`` is
    for members that ask for a certificate; ``token`` and ``authority`` (PEM, of the servers' certificates) are
    for servers where users log in. Without ``urls`` it is the owner of the `zonectl up` of ``data_dir``, and so
    it is at that server's own URL, where no token is given."""

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
        """Raises ValueError; without ``urls`` FileNotFoundError where no `zonectl up` runs; OSError for ``tls``
        that are no certificate."""
        if not token and not authority and (local := local_login(urls, data_dir)) is not None:
            urls, token, authority = [local.url], local.token, local.authority
        self._mode = mode
        self._time_limit_s = time_limit_s
        self._servers = Servers(urls, transport, token=token, authority=authority)
        self._maps = RoutingMaps(self._servers, time_limit_s)
        self._direct = DirectPath(self._maps, tls)
        self._unsettled = UnsettledWrites()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._maps.close()
        await self._direct.close()
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

        ``operation_id``: give one of your own to be able to repeat the put later, for as long as ids are kept.
        Raises ClientError: ConditionFailedError, OutcomeUnknownError, OperationAbandonedError (a later write
        has abandoned this operation id), RefusedByServerError and, when no server could be asked in time or
        nothing was written, ServersUnavailableError; ValueError for a key of other than 1 to 1024 characters,
        and for what is no UTF-8.
        """
        return await self._settled(zone, key, value, operation_id, options)

    async def delete(
        self, zone: str, key: str, operation_id: str | None = None, **options: Unpack[KeyWriteOptions]
    ) -> Stored:
        """Delete a key, with the rules of ``put``; a missing key is no error."""
        return await self._settled(zone, key, None, operation_id, options)

    async def _settled(
        self, zone: str, key: str, value: str | None, operation_id: str | None, options: KeyWriteOptions
    ) -> Stored:
        """Write, and settle the operations that it abandons, unless its outcome is unknown or its caller was
        cancelled."""
        operation = operation_id or uuid.uuid4().hex
        abandons = self._unsettled.of(zone, key, but=operation)
        if_revision, if_absent = options.get("if_revision"), options.get("if_absent", False)
        write = Write(key, value, operation, if_revision, if_absent, abandons)
        limit_s = self._limit_s(options.get("limit_s"))
        write_by = self._write_by_server if self._mode is Mode.ROUTED else self._write_straight
        try:
            stored = await write_by(zone, write, limit_s)
        except (OutcomeUnknownError, asyncio.CancelledError):
            self._unsettled.add(zone, key, operation)
            raise
        except OperationAbandonedError:
            self._unsettled.settle(zone, key, (operation,))
            raise
        self._unsettled.settle(zone, key, (operation, *abandons))
        return stored

    async def _write_straight(self, zone: str, write: Write, limit_s: float) -> Stored:
        deadline = _now() + limit_s
        held = await self._maps.of(zone)
        written = await self._direct.put(held, write, deadline - _now())
        number = held.partition_of(write.key).number
        return Stored(number, write.operation, written.repeated, written.revision)

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
        partition's group that is asked for. ``limit_s`` instead of the client's. Raises ClientError."""
        if at_revision is not None and read is Read.LINEARIZABLE:
            raise ValueError("at_revision is for reads from learners; a linearizable one sees the newest")
        check_key(key)
        limit_s = self._limit_s(limit_s)
        if self._mode is Mode.ROUTED or read is Read.LEARNER:
            return await self._get_by_server(zone, key, read, at_revision, limit_s)
        deadline = _now() + limit_s
        held = await self._maps.of(zone)
        row = await self._direct.get(held, key, deadline - _now())
        if row.value is None:
            return None
        return Found(row.value.decode(errors="replace"), row.revision, held.partition_of(key).number)

    async def _write_by_server(self, zone: str, write: Write, limit_s: float) -> Stored:
        failures: list[ServerFailedError] = []
        try:
            answer = await self._servers.answered(write_request(zone, write), limit_s, failures)
        except ServerFailedError as failed:
            last = f"within {limit_s:g} s; last: {failed}"
            if any(each.may_be_done for each in failures):
                raise OutcomeUnknownError(f"operation {write.operation}: no answer {last}") from failed
            message = f"operation {write.operation}: nothing was written {last}"
            raise ServersUnavailableError(message) from failed
        except RefusedByServerError as refused:
            may_be_done = any(each.may_be_done for each in failures)
            raise _refusal_of_write(refused, write.operation, may_be_done=may_be_done) from refused
        body = answer.body
        return Stored(body["partition"], write.operation, body["repeated"], body.get("revision", 0))

    async def _get_by_server(
        self, zone: str, key: str, read: Read, at_revision: int | None, limit_s: float
    ) -> Found | None:
        options: dict[str, str | int] = {"read": read.value} if read is Read.LEARNER else {}
        if at_revision is not None:
            options["at_revision"] = at_revision
        try:
            body = (await self._servers.answered(get_request(zone, key, options), limit_s)).body
        except ServerFailedError as failed:
            raise ReadTimedOutError(f"no answer within {limit_s:g} s; last: {failed}") from failed
        except RefusedByServerError as refused:
            if refused.problem.name == KEY_NOT_FOUND:
                return None
            raise
        return Found(body["value"], body["revision"], body["partition"])

    def _limit_s(self, given_s: float | None) -> float:
        return self._time_limit_s if given_s is None else given_s


def _refusal_of_write(refused: RefusedByServerError, operation: str, *, may_be_done: bool) -> ClientError:
    """The error that a direct client would raise. ``may_be_done``: an earlier attempt may have been carried
    out, or may yet be, whatever the reason of the last refusal; one that requires a revision which is gone
    never will."""
    name, message = refused.problem.name, f"operation {operation}: {refused}"
    if name == OPERATION_ABANDONED:
        return OperationAbandonedError(message)
    if name == REVISION_CHANGED:
        return ConditionFailedError(message, wants_absence=False)
    if may_be_done:
        return OutcomeUnknownError(message)
    return ConditionFailedError(message, wants_absence=True) if name == KEY_EXISTS else refused


def _now() -> float:
    return asyncio.get_running_loop().time()
