"""Requests straight to store servers and members: attempts go on until one is carried out, or time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest
from rebalance.store.shell.store_client import server_url
from tests.fixtures.scripted_store import Request, Script, scripted_store
from tests.unit.test_client.servers import URL, Network, routing
from zonekeeper_client import (
    ClientError,
    ConditionFailedError,
    Found,
    Mode,
    OperationAbandonedError,
    OutcomeUnknownError,
    ReadTimedOutError,
    RefusedByServerError,
    ServersUnavailableError,
    Stored,
    ZoneClient,
)

DONE = StoreAnswer(0, AnswerCode.DONE, value=b"paid", position=StorePosition(1, 5))
MOVED = StoreAnswer(0, AnswerCode.NOT_PRIMARY)
SHORT_S = 0.4


def in_turn(*answers: StoreAnswer | None) -> Script:
    """The last one for good; None: the connection is lost after the request came."""
    left = list(answers)

    def script(request: Request) -> StoreAnswer | None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return None if answer is None else replace(answer, request=request.request)

    return script


def stored_at(*urls: str, version: int = 1) -> httpx.Response:
    answer = routing(version, *urls)
    return httpx.Response(200, json=answer.json() | {"engine": "store"}, headers=answer.headers)


@asynccontextmanager
async def direct(network: Network | Sequence[str], limit_s: float = 20.0) -> AsyncIterator[ZoneClient]:
    """Client in direct mode, over a network or over the store servers at these URLs."""
    if not isinstance(network, Network):
        network = Network(stored_at(*network))
    async with ZoneClient([URL], mode=Mode.DIRECT, time_limit_s=limit_s, transport=network) as client:
        yield client


async def test_a_write_is_repeated_under_its_id_when_its_answer_was_lost() -> None:
    unknown = StoreAnswer(0, AnswerCode.UNKNOWN)
    async with (
        scripted_store(in_turn(None, unknown, replace(DONE, repeated=True))) as store,
        direct([store.url]) as client,
    ):
        assert await client.put("ORDERS", "k", "paid", "op-1") == Stored(0, "op-1", True, 5)
    writes = [request.write for request in store.requests if isinstance(request, WriteRequest)]
    assert writes == ["op-1"] * 3
    assert all(isinstance(request, WriteRequest) and request.left_ms for request in store.requests)


async def test_who_cannot_do_it_is_followed_by_who_can() -> None:
    """The server that is named goes before the others; at one address there is no server."""
    async with (
        scripted_store(in_turn(replace(MOVED, primary="n3")), "n1") as first,
        scripted_store(in_turn(MOVED), "n2") as second,
        scripted_store(in_turn(DONE), "n3") as third,
    ):
        gone = server_url("127.0.0.1", 1, "n0", "x")
        async with direct([gone, first.url, second.url, third.url]) as client:
            assert await client.get("ORDERS", "k") == Found("paid", 5, 0)
            assert (len(first.requests), len(second.requests), len(third.requests)) == (1, 0, 1)


async def test_a_map_that_is_fetched_anew_says_where_to_go_on() -> None:
    async with scripted_store(in_turn(MOVED), "n1") as old, scripted_store(in_turn(DONE), "n2") as new:
        network = Network(stored_at(old.url), stored_at(new.url, version=2))
        async with direct(network) as client:
            assert (await client.put("ORDERS", "k", "paid")).revision == 5
    assert len(new.requests) == 1


async def test_another_incarnation_is_not_asked() -> None:
    async with scripted_store(in_turn(DONE)) as store, direct([f"{store.url}-before"], SHORT_S) as client:
        with pytest.raises(ReadTimedOutError, match="another incarnation"):
            await client.get("ORDERS", "k")
    assert store.requests == []


async def test_nothing_written_and_not_known_are_told_apart() -> None:
    cases: list[tuple[StoreAnswer | None, type[ClientError]]] = [
        (MOVED, ServersUnavailableError),
        (None, OutcomeUnknownError),
        (StoreAnswer(0, AnswerCode.UNKNOWN), OutcomeUnknownError),
        (StoreAnswer(0, AnswerCode.LOST, detail="both disks"), RefusedByServerError),
    ]
    for answer, error in cases:
        async with scripted_store(in_turn(answer)) as store, direct([store.url], SHORT_S) as client:
            with pytest.raises(error):
                await client.put("ORDERS", "k", "v")
    async with direct([], SHORT_S) as client:
        with pytest.raises(ServersUnavailableError, match="nobody was asked in time: no member of it is known"):
            await client.put("ORDERS", "k", "v")


async def test_a_refusal_after_an_attempt_that_may_have_been_carried_out() -> None:
    lost = StoreAnswer(0, AnswerCode.LOST)
    async with scripted_store(in_turn(None, lost)) as store, direct([store.url]) as client:
        with pytest.raises(OutcomeUnknownError, match="PARTITION_LOST"):
            await client.put("ORDERS", "k", "v")


@pytest.mark.parametrize(
    ("options", "position"),
    [({"if_absent": True}, (0, 0)), ({"if_revision": 5}, (1, 5)), ({"if_revision": 4}, (0, 4))],
)
async def test_conditions(options: dict[str, int], position: tuple[int, int]) -> None:
    """The row must be where it was read, at the wanted revision; a conflict is its refusal."""

    def script(request: Request) -> StoreAnswer:
        answer = DONE if isinstance(request, ReadRequest) else StoreAnswer(0, AnswerCode.CONFLICT)
        return replace(answer, request=request.request)

    async with scripted_store(script) as store, direct([store.url]) as client:
        with pytest.raises(ConditionFailedError) as refused:
            await client.put("ORDERS", "k", "v", **options)
        assert refused.value.wants_absence is ("if_absent" in options)
        write = store.requests[-1]
        assert isinstance(write, WriteRequest)
        assert [read.position for read in write.reads] == [position]


async def test_a_write_that_was_abandoned() -> None:
    answer = StoreAnswer(0, AnswerCode.CONFLICT, abandoned=True)
    async with scripted_store(in_turn(answer)) as store, direct([store.url]) as client:
        with pytest.raises(OperationAbandonedError):
            await client.delete("ORDERS", "k")


async def test_requests_that_share_a_connection_get_each_its_own_answer() -> None:
    held: list[int] = []

    def script(request: Request) -> StoreAnswer:
        held.append(request.request)
        assert isinstance(request, ReadRequest)
        return replace(DONE, request=request.request, value=request.key)

    async with scripted_store(script) as store, direct([store.url]) as client:
        found = await asyncio.gather(*(client.get("ORDERS", f"k{number}") for number in range(50)))
        assert [each and each.value for each in found] == [f"k{number}" for number in range(50)]
        assert len(store.connections) == 1
    assert len(set(held)) == 50


async def test_groups_without_a_certificate() -> None:
    """The error says what the client lacks."""
    network = Network(routing(1, "https://127.0.0.1:1"))
    async with direct(network, SHORT_S) as client:
        with pytest.raises(ReadTimedOutError, match=r"speaks TLS: give the client a certificate"):
            await client.get("ORDERS", "k")
