"""The Python client straight at the members of a real group, beside the server's own data path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.data.zone_router import ZoneRouter
from tests.fixtures.group_hosts import P0, Fixed, Hosts, member_process
from tests.unit.test_client.servers import URL, Network, routing
from zonekeeper_client import (
    ConditionFailedError,
    Found,
    Mode,
    OperationAbandonedError,
    OutcomeUnknownError,
    RefusedByServerError,
    ServersUnavailableError,
    ZoneClient,
)

LIMIT_S = 60.0
MEBIBYTE = 1 << 20


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    opened = Hosts(tmp_path)
    opened.open("a")
    await opened.found(P0, "a")
    yield opened
    await opened.close()


def address(hosts: Hosts) -> str:
    endpoints = hosts.hosts["a"].endpoints(P0)
    assert endpoints is not None
    return endpoints.client_url


def map_of(hosts: Hosts, zone_id: int = P0.zone_id, generation: int = 0) -> httpx.Response:
    return routing(1, address(hosts), zone_id=zone_id, generation=generation)


def client_of(*maps: httpx.Response, limit_s: float = LIMIT_S) -> ZoneClient:
    return ZoneClient([URL], mode=Mode.DIRECT, time_limit_s=limit_s, transport=Network(*maps))


async def test_client_and_server_write_the_same(hosts: Hosts) -> None:
    """Values, revisions, operation ids and abandoned writes of one are those of the other."""
    router = ZoneRouter(Fixed((address(hosts),)), time_limit_s=LIMIT_S)
    async with client_of(map_of(hosts)) as client:
        stored = await client.put("ORDERS", "k", "paid", "op-1")
        assert (await router.get(P0, "k")).value == b"paid"
        assert (await router.put(P0, "k", b"paid", "op-1")).repeated
        assert (await client.put("ORDERS", "k", "paid", "op-1")).repeated
        assert await client.get("ORDERS", "k") == Found("paid", stored.revision, 0)
        await router.put(P0, "k", b"sent", "op-2", terms=WriteTerms(abandons=("op-3",)))
        with pytest.raises(OperationAbandonedError):
            await client.put("ORDERS", "k", "late", "op-3")
        assert (await client.get("ORDERS", "k")) == Found("sent", stored.revision + 1, 0)
    await router.close()


async def test_conditions(hosts: Hosts) -> None:
    async with client_of(map_of(hosts)) as client:
        stored = await client.put("ORDERS", "k", "v", if_absent=True)
        with pytest.raises(ConditionFailedError, match="wanted: no such key"):
            await client.put("ORDERS", "k", "w", if_absent=True)
        with pytest.raises(ConditionFailedError, match=f"is at revision {stored.revision}"):
            await client.delete("ORDERS", "k", if_revision=stored.revision + 7)
        await client.delete("ORDERS", "k", if_revision=stored.revision)
        assert await client.get("ORDERS", "k") is None
        with pytest.raises(RefusedByServerError, match="INVALID_REQUEST"):
            await client.put("ORDERS", "k", "x" * 4 * MEBIBYTE)


async def test_a_put_of_unknown_outcome_is_abandoned_by_the_next_one(hosts: Hosts) -> None:
    """The member stands still for the first; what is in its socket comes late, before the second or never."""
    async with client_of(map_of(hosts)) as client:
        await client.put("ORDERS", "k", "before")
        member = member_process(hosts, "a")
        member.suspend()
        with pytest.raises(OutcomeUnknownError, match=r"after \d attempts"):
            await client.put("ORDERS", "k", "first", "op-1", limit_s=1.0)
        member.resume()
        await client.put("ORDERS", "k", "second")
        assert (await client.get("ORDERS", "k")).value == "second"


async def test_other_groups_and_generations_take_nothing(hosts: Hosts) -> None:
    """A map of another zone at the address, and of a life of the group that was given up."""
    for wrong in (map_of(hosts, zone_id=8), map_of(hosts, generation=5)):
        async with client_of(wrong, limit_s=1.0) as client:
            with pytest.raises(ServersUnavailableError, match=r"last: .*(is b'3/0', not 8/0|WRONG_GENERATION)"):
                await client.put("ORDERS", "k", "v")
