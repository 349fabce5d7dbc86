"""The client abandons by itself what it has given up, and says how long it waits."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.unit.test_client.servers import URL, Network, problem
from zonekeeper_client import ConditionFailedError, OperationAbandonedError, OutcomeUnknownError, ZoneClient
from zonekeeper_client.writes import ABANDONED_MAX, UnsettledWrites

LIMIT_S = 0.6
STORED = httpx.Response(200, json={"partition": 5, "operation_id": "x", "repeated": False, "revision": 9})
UNKNOWN = problem(504, "OUTCOME_UNKNOWN")


def abandoned(network: Network) -> list[str]:
    return [request.headers.get("zonekeeper-abandons", "") for request in network.requests]


def answers(**by_operation: httpx.Response) -> Network:
    return Network(lambda request: by_operation[request.headers["idempotency-key"]])


async def test_the_next_write_of_the_key_names_what_was_given_up() -> None:
    """The next write of the same key alone names abandoned operations, be it a put or a delete, and only until
    one is acknowledged."""
    network = answers(a=UNKNOWN, b=UNKNOWN, other=STORED, c=STORED, d=STORED)
    async with ZoneClient([URL], time_limit_s=LIMIT_S, transport=network) as client:
        for operation in ("a", "b"):
            with pytest.raises(OutcomeUnknownError):
                await client.put("ORDERS", "k", operation, operation)
        network.requests.clear()
        await client.put("ORDERS", "other", "v", "other")
        assert (await client.delete("ORDERS", "k", "c")).revision == 9
        await client.put("ORDERS", "k", "v", "d")
    assert abandoned(network) == ["", "a b", ""]
    assert [request.method for request in network.requests] == ["PUT", "DELETE", "PUT"]


async def test_what_is_sent_again_is_not_abandoned() -> None:
    network = Network(UNKNOWN)
    async with ZoneClient([URL], time_limit_s=LIMIT_S, transport=network) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.put("ORDERS", "k", "v", "a")
        network.answers = [STORED]
        await client.put("ORDERS", "k", "v", "a")
        await client.put("ORDERS", "k", "v", "b")
    assert abandoned(network)[-2:] == ["", ""]


async def test_a_put_whose_caller_has_gone_is_abandoned() -> None:
    network = Network(STORED)
    network.gate.clear()
    async with ZoneClient([URL], transport=network) as client:
        putting = asyncio.create_task(client.put("ORDERS", "k", "v", "a"))
        await asyncio.sleep(0)
        while not network.requests:
            await asyncio.sleep(0.01)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        network.gate.set()
        await client.put("ORDERS", "k", "v", "b")
    assert abandoned(network)[-1] == "a"


async def test_refusals_have_their_errors() -> None:
    """An operation that is known not to be written is not abandoned; whether a key was there is not known where
    an attempt before it may have been carried out."""
    network = answers(
        a=problem(409, "KEY_EXISTS"), b=problem(412, "REVISION_CHANGED"), c=problem(409, "OPERATION_ABANDONED")
    )
    async with ZoneClient([URL], transport=network) as client:
        with pytest.raises(ConditionFailedError):
            await client.put("ORDERS", "k", "v", "a", if_absent=True)
        with pytest.raises(ConditionFailedError):
            await client.delete("ORDERS", "k", "b", if_revision=7)
        with pytest.raises(OperationAbandonedError):
            await client.put("ORDERS", "k", "v", "c")
        with pytest.raises(ValueError, match="not both"):
            await client.put("ORDERS", "k", "v", if_absent=True, if_revision=7)
    assert [request.url.query for request in network.requests] == [b"if_absent=true", b"if_revision=7", b""]
    assert abandoned(network) == ["", "", ""]
    for failure, error in ((UNKNOWN, OutcomeUnknownError), (httpx.ConnectError("no"), ConditionFailedError)):
        async with ZoneClient([URL], transport=Network(failure, problem(409, "KEY_EXISTS"))) as client:
            with pytest.raises(error):
                await client.put("ORDERS", "k", "v", if_absent=True)


async def test_a_refusal_does_not_settle_what_an_attempt_before_it_may_have_done() -> None:
    """One server's answer is lost, another server refuses with 403: the next put abandons this one."""
    network = Network(UNKNOWN, problem(403, "FORBIDDEN"), STORED)
    async with ZoneClient([URL], transport=network) as client:
        with pytest.raises(OutcomeUnknownError, match="FORBIDDEN"):
            await client.put("ORDERS", "k", "v", "a")
        await client.put("ORDERS", "k", "v", "b")
    assert abandoned(network) == ["", "", "a"]


async def test_a_request_says_how_long_it_is_waited_for() -> None:
    network = Network(STORED)
    async with ZoneClient([URL], time_limit_s=8.0, transport=network) as client:
        await client.put("ORDERS", "k", "v")
        await client.put("ORDERS", "k", "v", limit_s=2.0)
    whole, short = (float(request.headers["zonekeeper-timeout"]) for request in network.requests)
    assert 7.5 < whole <= 8.0
    assert 1.5 < short <= 2.0


def test_what_is_kept_is_bounded() -> None:
    unsettled = UnsettledWrites()
    for number in range(ABANDONED_MAX + 2):
        unsettled.add("z", "k", str(number))
    kept = unsettled.of("z", "k")
    assert (len(kept), kept[-1]) == (ABANDONED_MAX, str(ABANDONED_MAX + 1))
    unsettled.settle("z", "k", kept)
    assert unsettled.of("z", "k") == ()
