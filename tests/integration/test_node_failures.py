"""A change that does not succeed, with real members and a real server: what operators are shown of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Txn, delete_below
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.frozen_members import IMPATIENT, frozen_member, with_a_member_that_freezes
from tests.fixtures.node_cluster import NodeCluster, node_cluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("two attempts at a copy have to time out")]

PERIOD_S = 0.2
SHOWN_S = 60.0


@pytest.fixture
def server(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> Iterator[ApiServer]:
    """No controller: assignments are written by hand."""
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, etcd_server, keyspace, url) as servers:
        yield servers[0]


@pytest.fixture
async def cluster(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as opened:
        yield opened


async def answered(client: httpx.AsyncClient, method: str, path: str, **arguments: Any) -> Any:
    answer = await client.request(method, path, **arguments)
    answer.raise_for_status()
    return answer.json()


async def rows(client: httpx.AsyncClient, sql: str) -> list[dict[str, Any]]:
    answer = await answered(client, "POST", "/api/v1/statements", json={"sql": sql})
    (result,) = answer["results"]
    names = [column["name"] for column in result["columns"]]
    return [dict(zip(names, row, strict=True)) for row in result["data"]]


async def zone_of(client: httpx.AsyncClient, name: str) -> ZoneId:
    await answered(client, "POST", "/api/v1/statements", json={"sql": f"CREATE ZONE {name} (PARTITIONS 2)"})
    found = await answered(client, "GET", f"/api/v1/zones/{name}")
    return ZoneId(found["zone_id"])


async def shown(client: httpx.AsyncClient, at_least: int = 1) -> list[dict[str, Any]]:
    deadline = time.monotonic() + SHOWN_S
    while len(found := await rows(client, "SELECT * FROM system.failures")) < at_least:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.5)
    return found


@pytest.mark.row("I3-057", "VOL-098")
async def test_failures_are_shown_with_code_and_cause(client: httpx.AsyncClient, cluster: NodeCluster) -> None:
    """I3-057, VOL-098: a joiner that hangs: after two attempts the view, the API and the partition tell its
    code, attempts and cause. A second partition's joiner has no port left: no attempt can begin, and that is
    told, the newest first. Both go with their zone."""
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    cluster.ports("a2", 1)
    cluster.start("a1", "a2", tuning=IMPATIENT, failures_period_s=PERIOD_S)
    zone_id = await zone_of(client, "moves")
    hangs, blocked = PartitionId(zone_id, 0), PartitionId(zone_id, 1)
    for partition in (hangs, blocked):
        await cluster.write_stable(partition, "a1")
        await cluster.until(lambda partition=partition: cluster.settled(partition, "a1"))
    await with_a_member_that_freezes(cluster, "a2")
    await cluster.write_pending(hangs, "a1", "a2")
    async with asyncio.timeout(60):
        member = await frozen_member(cluster, "a2")
    try:
        (first,) = await shown(client)
        assert (first["ZONE_NAME"], first["PARTITION_ID"], first["NODE_NAME"]) == ("MOVES", 0, "a1")
        assert first["FAILURE_CODE"] == "MEMBER_NOT_STARTED"
        assert first["ATTEMPT"] in (2, 4, 8), "the first time, and each time they have doubled"
        assert first["CAUSE"] == "MEMBER_NOT_STARTED: a2"
        configuration = cluster.configuration(hangs)
        assert configuration is not None
        assert first["TERM"] == configuration.term
        await cluster.write_pending(blocked, "a1", "a2")
        both = await shown(client, 2)
        assert sorted((each["FAILED_AT"] for each in both), reverse=True) == [
            each["FAILED_AT"] for each in both
        ]
        other = next(each for each in both if each["PARTITION_ID"] == 1)
        assert (other["FAILURE_CODE"], other["ATTEMPT"]) == ("MEMBER_FAILED", 0)
        assert other["CAUSE"].startswith("MEMBER_FAILED: a2: NO_FREE_PORTS")
        told = (await answered(client, "GET", "/api/v1/zones/moves/partitions/0"))["failures"]
        assert [(each["node"], each["code"], each["cause"]) for each in told] == [
            ("a1", "MEMBER_NOT_STARTED", "MEMBER_NOT_STARTED: a2")
        ]
    finally:
        member.resume()
    zone = cluster.keyspace.zone_partitions(zone_id)
    await cluster.metastore.commit(Txn((), (delete_below(zone),)))
    key = cluster.keyspace.failures_of("a1")
    async with asyncio.timeout(SHOWN_S):
        while await cluster.metastore.get(key) is not None:
            await asyncio.sleep(0.05)
    assert await rows(client, "SELECT * FROM system.failures") == []
