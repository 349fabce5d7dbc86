"""Puts and gets through servers: repeated while that may help, under one operation id."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.fixtures.api_stub import ApiStub, serve
from tests.unit.test_client.servers import URL, Network, problem
from zonekeeper_client import (
    BlockingZoneClient,
    Found,
    IncompatibleServerError,
    Mode,
    OutcomeUnknownError,
    Read,
    ReadTimedOutError,
    RefusedByServerError,
    ServersUnavailableError,
    Stored,
    ZoneClient,
)
from zonekeeper_client.servers import ServerFailedError, Servers, get_request
from zonekeeper_client.version import VERSION

STORED = httpx.Response(200, json={"partition": 5, "operation_id": "op-1", "repeated": True})
FOUND = httpx.Response(200, json={"partition": 5, "value": "paid", "revision": 9})
PATH = "/api/v1/zones/ORDERS/kv/o-17"


def routed(network: Network, limit_s: float = 3.0) -> ZoneClient:
    return ZoneClient([URL], mode=Mode.ROUTED, time_limit_s=limit_s, transport=network)


async def test_a_put_is_repeated_under_its_operation_id() -> None:
    """A broken connection, a server that is not ready and one that does not know the outcome: the same id each
    time, also when the caller gave none."""
    network = Network(httpx.ReadError("reset"), problem(503, "METASTORE_UNAVAILABLE"),
                      problem(504, "OUTCOME_UNKNOWN"), STORED)  # fmt: skip
    async with routed(network) as client:
        assert await client.put("ORDERS", "o-17", "paid", "op-1") == Stored(5, "op-1", True)
        made = await client.put("ORDERS", "o-17", "paid")
    assert [request.url.path for request in network.requests] == [PATH] * 5
    ids = [request.headers["idempotency-key"] for request in network.requests]
    assert ids == ["op-1"] * 4 + [made.operation_id]
    assert made.operation_id != "op-1"


async def test_what_ends_a_put() -> None:
    """Unknown after the time limit, unless no attempt can have been carried out; refused at once: a refusal is
    not repeated."""
    async with routed(Network(problem(504, "OUTCOME_UNKNOWN")), 0.6) as client:
        with pytest.raises(
            OutcomeUnknownError, match=r"operation op-1: no answer within 0.6 s.*OUTCOME_UNKNOWN"
        ):
            await client.put("ORDERS", "o-17", "paid", "op-1")
    async with routed(Network(httpx.ConnectError("no"), problem(503, "PARTITION_UNAVAILABLE")), 0.6) as client:
        with pytest.raises(ServersUnavailableError, match=r"op-1: nothing was written within 0.6 s.*PARTITION"):
            await client.put("ORDERS", "o-17", "paid", "op-1")
    network = Network(problem(400, "INVALID_REQUEST"))
    async with routed(network) as client:
        with pytest.raises(RefusedByServerError, match="INVALID_REQUEST"):
            await client.put("ORDERS", "o-17", "paid")
    assert len(network.requests) == 1


async def test_gets() -> None:
    """A key that is not there is no error; a time limit of a read is not an unknown outcome."""
    async with routed(Network(httpx.ConnectError("refused"), FOUND, problem(404, "KEY_NOT_FOUND"))) as client:
        assert await client.get("ORDERS", "o-17") == Found("paid", 9, 5)
        assert await client.get("ORDERS", "o-18") is None
    async with routed(Network(httpx.ConnectError("refused")), 0.6) as client:
        with pytest.raises(ReadTimedOutError, match="ConnectError"):
            await client.get("ORDERS", "o-17")


@pytest.mark.row("IEP-008")
@pytest.mark.parametrize("mode", list(Mode))
async def test_reads_from_learners_go_through_a_server(mode: Mode) -> None:
    """IEP-008: the client's side of it: the kind of read and its revision are sent in both modes."""
    network = Network(FOUND)
    async with ZoneClient([URL], mode=mode, transport=network) as client:
        await client.get("ORDERS", "o-17", read=Read.LEARNER, at_revision=9)
        with pytest.raises(ValueError, match="at_revision is for reads from learners"):
            await client.get("ORDERS", "o-17", at_revision=9)
    assert [str(request.url.query, "ascii") for request in network.requests] == ["read=learner&at_revision=9"]


async def test_a_direct_client_without_a_map_sends_nothing() -> None:
    """The outcome is not unknown, as no group was asked."""
    refusing = Network(httpx.ConnectError("refused"))
    async with ZoneClient([URL], mode=Mode.DIRECT, time_limit_s=0.2, transport=refusing) as client:
        with pytest.raises(ServersUnavailableError):
            await client.put("ORDERS", "o-17", "paid")


async def test_servers_take_turns() -> None:
    """The one that failed is left for the next one, once, however many calls failed at it."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(503) if request.url.host == "one" else FOUND

    network = Network(answer)
    servers = Servers([URL, "http://two:1", "http://three:1/"], network)
    network.gate.clear()
    calls = [asyncio.create_task(servers.ask(get_request("ORDERS", "o-17", {}), 1.0)) for _ in range(5)]
    await asyncio.sleep(0.01)
    network.gate.set()
    assert all(
        isinstance(each, ServerFailedError) for each in await asyncio.gather(*calls, return_exceptions=True)
    )
    await servers.ask(get_request("ORDERS", "o-17", {}), 1.0)
    assert asked == ["one"] * 5 + ["two"]
    with pytest.raises(ValueError, match="at least one server"):
        Servers([])


def test_the_blocking_client() -> None:
    """The same calls without an event loop, against a real HTTP server."""
    stub = ApiStub()
    stub.answers[f"PUT {PATH}"] = (200, STORED.json())
    stub.answers[f"GET {PATH}"] = (200, FOUND.json())
    server = serve(stub)
    try:
        with BlockingZoneClient([stub.url], mode=Mode.ROUTED) as client:
            assert client.put("ORDERS", "o-17", "paid", "op-1").repeated
            assert client.get("ORDERS", "o-17") == Found("paid", 9, 5)
            assert client.get("ORDERS", "o-17", read=Read.LINEARIZABLE) == Found("paid", 9, 5)
    finally:
        server.shutdown()
        server.server_close()


MAJOR, MINOR = map(int, VERSION.split(".")[:2])
NEAR = (VERSION, f"{MAJOR}.{MINOR - 1}.9", f"{MAJOR}.{MINOR + 1}.0", "", "not installed")
FAR = (f"{MAJOR}.{MINOR - 2}.0", f"{MAJOR}.{MINOR + 2}.0-rc1", f"{MAJOR}.{MINOR}0.1", f"{MAJOR + 1}.{MINOR}.0")


@pytest.mark.parametrize(("theirs", "is_near"), [*((v, True) for v in NEAR), *((v, False) for v in FAR)])
async def test_versions_may_be_one_minor_apart(theirs: str, is_near: bool) -> None:
    """One number for client and server; a server that names none is of a release before it did."""
    network = Network(httpx.Response(200, json=FOUND.json(), headers={"Zonekeeper-Version": theirs}))
    async with routed(network) as client:
        if is_near:
            assert await client.get("ORDERS", "o-17") == Found("paid", 9, 5)
        else:
            both = rf"http://one:1 is a Zonekeeper {theirs}, and this client is of version {VERSION}"
            with pytest.raises(IncompatibleServerError, match=both):
                await client.get("ORDERS", "o-17")
    assert len(network.requests) == 1
    assert network.requests[0].headers["user-agent"] == f"zonekeeper-client/{VERSION}"


async def test_a_server_that_is_too_far_away_is_named_before_what_it_refuses() -> None:
    answer = httpx.Response(404, json={"name": "NOT_FOUND"}, headers={"Zonekeeper-Version": FAR[0]})
    async with routed(Network(answer)) as client:
        with pytest.raises(IncompatibleServerError, match=f"install zonekeeper-client {FAR[0][:-2]}"):
            await client.put("ORDERS", "o-17", "paid")
