"""Writes of keys over REST: what a request asks for reaches the data path, and ends with its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.bootstrap.server import build_app
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.groups.calls.data_client import AppliedWrite
from rebalance.ports.groups import (
    ConditionFailedError,
    NobodyAskedError,
    OperationAbandonedError,
    OutcomeUnknownError,
)
from tests.fixtures.partial_services import services_with
from tests.fixtures.served_app import served

PATH = "/api/v1/zones/ORDERS/kv/o-17"


@dataclass
class RecordedRouter:
    """``error``: raised for each write. ``gate``: none ends before it is set. ``cancelled``: it was."""

    error: Exception | None = None
    writes: list[tuple[str, bytes | None, float, WriteTerms]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(
        self, _: Any, key: str, value: bytes | None, operation: str, *, limit_s: float, terms: WriteTerms
    ) -> AppliedWrite:
        self.writes.append((operation, value, limit_s, terms))
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.error is not None:
            raise self.error
        return AppliedWrite(12)


class OneZone:
    async def find(self, _: str) -> Any:
        return SimpleNamespace(name="ORDERS", zone_id=ZoneId(1), partitions=4)


class SilentWatch:
    """The catalog does not say what callers may do."""

    async def during(self, work: Coroutine[Any, Any, Any], _: str) -> Any:
        work.close()
        raise StoreError(ErrorKind.GRANTS_UNAVAILABLE, "the catalog does not answer")


@pytest.fixture
def router() -> RecordedRouter:
    return RecordedRouter()


@pytest.fixture
async def http(router: RecordedRouter) -> AsyncIterator[httpx.AsyncClient]:
    services = services_with(router=router, zones=OneZone(), mirror=SimpleNamespace(is_loaded=True))
    async with served(build_app(services)) as client:
        yield client


async def test_terms_and_time_reach_the_data_path(http: httpx.AsyncClient, router: RecordedRouter) -> None:
    router.gate.set()
    plain = await http.put(PATH, json={"value": "v"})
    assert (plain.status_code, plain.json()["revision"]) == (200, 12)
    headers = {"Idempotency-Key": "c", "Zonekeeper-Abandons": "a b a", "Zonekeeper-Timeout": "2.5"}
    assert (await http.delete(PATH, params={"if_revision": 9}, headers=headers)).status_code == 200
    (_, value, own_s, terms), (operation, nothing, limit_s, named) = router.writes
    assert (value, terms, operation, nothing) == (b"v", ANY, "c", None)
    assert named == WriteTerms(if_revision=9, abandons=("a", "b"))
    assert 14 < own_s <= 15
    assert 2 < limit_s <= 2.5


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?if_revision=1&if_absent=true", {}),
        ("?if_revision=0", {}),
        ("", {"Zonekeeper-Abandons": "a  b"}),
        ("", {"Zonekeeper-Abandons": " ".join("abcdefghijklmnopq")}),
        ("", {"Zonekeeper-Abandons": "a", "Idempotency-Key": "a"}),
        ("", {"Zonekeeper-Timeout": "0"}),
        ("", {"Zonekeeper-Timeout": "61"}),
        ("", {"Zonekeeper-Timeout": "nan"}),
        ("", {"Zonekeeper-Timeout": "soon"}),
    ],
)
async def test_what_does_not_make_sense_is_refused(
    http: httpx.AsyncClient, router: RecordedRouter, query: str, headers: dict[str, str]
) -> None:
    answer = await http.put(PATH + query, json={"value": "v"}, headers=headers)
    assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST"), answer.text
    assert router.writes == []


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (ConditionFailedError("it is there", wants_absence=True), 409, "KEY_EXISTS"),
        (ConditionFailedError("it is at 8", wants_absence=False), 412, "REVISION_CHANGED"),
        (OperationAbandonedError("given up"), 409, "OPERATION_ABANDONED"),
        (OutcomeUnknownError("no answer"), 504, "OUTCOME_UNKNOWN"),
        (NobodyAskedError("no server could be reached in time"), 503, "PARTITION_UNAVAILABLE"),
    ],
)
async def test_refusals_have_codes_of_their_own(
    http: httpx.AsyncClient, router: RecordedRouter, error: Exception, status: int, name: str
) -> None:
    router.error = error
    router.gate.set()
    answer = await http.put(PATH, json={"value": "v"})
    assert (answer.status_code, answer.json()["name"]) == (status, name)


async def test_a_write_that_was_not_begun_is_not_in_doubt(router: RecordedRouter) -> None:
    services = services_with(
        router=router, zones=OneZone(), mirror=SimpleNamespace(is_loaded=True), watch=SilentWatch()
    )
    async with served(build_app(services)) as http:
        answer = await http.put(PATH, json={"value": "v"})
    assert (answer.status_code, answer.json()["name"]) == (503, "GRANTS_UNAVAILABLE")
    assert router.writes == []


async def test_a_write_ends_when_its_caller_has_gone(http: httpx.AsyncClient, router: RecordedRouter) -> None:
    """The connection is closed while the data path is still at work; others go on."""
    asking = asyncio.create_task(http.put(PATH, json={"value": "v"}))
    await asyncio.wait_for(router.begun.wait(), 30)
    assert not router.cancelled.is_set()
    asking.cancel()
    await asyncio.wait_for(router.cancelled.wait(), 30)
    router.gate.set()
    assert (await http.put(PATH, json={"value": "v"})).status_code == 200
