"""Members that a group removed, or that are cut off, give no answer: no client reads an old value from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import psutil
import pytest

from app.views.routing import RoutingView
from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError
from rebalance.groups.calls.group_guard import WrongGroupError
from rebalance.nodes.partition_view import MirroredEndpoints
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.node_processes import members_below
from zonekeeper_client.direct import DirectPath
from zonekeeper_client.routing_maps import Partition, RoutingMaps
from zonekeeper_client.servers import Servers
from zonekeeper_client.writes import Write

P0 = PartitionId(ZoneId(7), 0)
ZONE = Zone(ZoneId(7), "Z", 1, 3, None, ("default",))
REFUSED = (CallFailedError, WrongGroupError)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def member(cluster: NodeCluster, name: str) -> psutil.Process:
    (found,) = members_below(cluster.directory / name)
    return found


def client_url(cluster: NodeCluster, name: str) -> str:
    record = cluster.record(P0, name)
    assert record is not None
    return record.client_url


async def put_from_now_on(cluster: NodeCluster, value: bytes) -> None:
    await cluster.router.put(P0, "k", value, f"op-{value.decode()}")


async def ask_often(url: str, seen: list[bytes | None], refused: list[Exception]) -> None:
    """One member alone, again and again, until it is cancelled."""
    connections = Connections()
    client = PartitionClient(P0, connections)
    try:
        while True:
            try:
                seen.append((await client.get(url, b"k", 1.0)).value)
            except REFUSED as error:
                refused.append(error)
            await asyncio.sleep(0.02)
    finally:
        await connections.close()


async def test_a_member_that_is_removed_while_it_is_frozen(cluster: NodeCluster) -> None:
    """Remove a frozen follower and write the key anew. Thawed, it has the old value and does not know of its
    removal: its clients get errors, never the old value; and it goes."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await put_from_now_on(cluster, b"old")
    leader = getattr(cluster.configuration(P0), "leader", "")
    frozen = next(name for name in ("n1", "n2", "n3") if name != leader)
    stays = tuple(name for name in ("n1", "n2", "n3") if name != frozen)
    url, process = client_url(cluster, frozen), member(cluster, frozen)
    process.suspend()
    # Its node says that it is alive as long as the process runs, so a dead member is not waited for.
    await cluster.write_pending(P0, *stays)
    await cluster.until(lambda: cluster.voters(P0) == set(stays))
    await put_from_now_on(cluster, b"new")
    seen: list[bytes | None] = []
    refused: list[Exception] = []
    asking = asyncio.create_task(ask_often(url, seen, refused))
    process.resume()
    await cluster.until(lambda: len(refused) > 20 and not members_below(cluster.directory / frozen))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert seen == []
    await cluster.until(lambda: cluster.settled(P0, *stays))


async def test_a_leader_that_was_frozen_while_another_was_elected(cluster: NodeCluster) -> None:
    """Thawed, it takes itself for the leader until it hears of the later term: it confirms no read before."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await put_from_now_on(cluster, b"old")
    leader = getattr(cluster.configuration(P0), "leader", "")
    url, process = client_url(cluster, leader), member(cluster, leader)
    process.suspend()
    await put_from_now_on(cluster, b"new")
    seen: list[bytes | None] = []
    refused: list[Exception] = []
    asking = asyncio.create_task(ask_often(url, seen, refused))
    await asyncio.sleep(0.5)
    process.resume()
    # It is a follower then, and answers like one.
    await cluster.until(lambda: len(seen) > 20)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert set(seen) == {b"new"}


async def test_a_member_that_is_cut_off_from_the_majority(cluster: NodeCluster) -> None:
    """The two others stand still: alone, a voter confirms nothing, whatever it holds."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await put_from_now_on(cluster, b"old")
    others = [member(cluster, name) for name in ("n2", "n3")]
    for process in others:
        process.suspend()
    seen: list[bytes | None] = []
    refused: list[Exception] = []
    asking = asyncio.create_task(ask_often(client_url(cluster, "n1"), seen, refused))
    try:
        await cluster.until(lambda: len(refused) > 3)
        assert seen == []
    finally:
        for process in others:
            process.resume()
    await cluster.until(lambda: len(seen) > 3)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert set(seen) == {b"old"}


class RoutingOf(httpx.AsyncBaseTransport):
    """The server's side of the routing map, without a server; counts what it is asked."""

    def __init__(self, cluster: NodeCluster) -> None:
        source = MirroredEndpoints(cluster.mirrors)
        self._view = RoutingView(cluster.mirrors.partitions, cluster.keyspace, source)
        self.asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        found = self._view.document(ZONE)
        return httpx.Response(200, json=found.body, headers={"etag": found.digest})


async def test_a_client_with_an_old_map_finds_the_group_again(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every member of the map has left when it is used again: what they answer sends the client back to a
    server, and its puts go on; while nothing fails it asks no server. No attempt fails for being slow, nor
    because leadership goes to the preferred primary just then."""
    monkeypatch.setattr("zonekeeper_client.etcd_members.EtcdMembers.attempt_limits_s", (30.0,))
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    transport = RoutingOf(cluster)
    servers = Servers(["http://server"], transport)
    maps = RoutingMaps(servers, 15.0)
    direct, partition = DirectPath(maps, None), Partition(*P0)
    held = await maps.of("Z")
    for number in range(20):
        await direct.put(held, Write("k", str(number), f"before-{number}"), 60.0)
    assert transport.asked == 1
    await cluster.write_pending(P0, "n3", "n4")
    await cluster.until(lambda: cluster.settled(P0, "n3", "n4"))
    assert transport.asked == 1
    old = set(maps.route(partition).voters)
    assert not (await direct.put(held, Write("k", "after", "after"), 60.0)).repeated
    assert not old & set(maps.route(partition).voters)
    assert (await direct.get(held, "k", 60.0)).value == b"after"
    assert (await cluster.router.get(P0, "k")).value == b"after"
    await maps.close()
    await direct.close()
    await servers.close()
