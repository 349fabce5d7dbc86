"""The partition map of real groups: from the agents' keys over the coordinator to a client that routes by
it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from app.bootstrap.server import build_app
from app.views.keyspace_views import KeyspaceViews
from app.views.partition_map import MAP_MEDIA_TYPE, published_map
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.partition_map import PartitionMapKeeper
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.topology.node_presence import Topology
from rebalance.kernels.partition_map import OWNING, decode_map
from rebalance.metastore.mirror import KeyspaceMirror
from tests.fixtures.checked_answers import CheckedTransport
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.partial_services import services_with

ZONE = Zone(ZoneId(7), "Z", 2, 2, None, ("default",))


class Found:
    async def find(self, name: str) -> Zone:
        return ZONE


@asynccontextmanager
async def coordinated(cluster: NodeCluster) -> AsyncIterator[KeyspaceMirror]:
    """The keeper of a leading controller; yields a mirror of everything, as a server has one."""
    metastore, keyspace = cluster.metastore, cluster.keyspace
    everything = KeyspaceMirror(metastore, keyspace.prefix)
    intents, nodes = KeyspaceMirror(metastore, keyspace.intents), KeyspaceMirror(metastore, keyspace.nodes)
    mirrors = (everything, intents, nodes)
    tasks = [asyncio.create_task(each.run()) for each in mirrors]
    for each in mirrors:
        await each.loaded()
    keeper = PartitionMapKeeper(metastore, keyspace, "c", intents, nodes, lambda: Topology(version=3), 0.1)
    tasks.append(asyncio.create_task(keeper.run()))
    try:
        yield everything
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def copies(mirror: KeyspaceMirror, keyspace: Keyspace) -> dict[int, dict[str, str]]:
    """Owning nodes by partition, each with ``*`` if it leads and an empty text if not."""
    published = published_map(mirror, keyspace, ZONE.zone_id)
    found: dict[int, dict[str, str]] = {}
    if published is None:
        return found
    full = published.full
    for index, number in enumerate(full.owners_of_copies.tolist()):
        node = int(full.nodes[index])
        if full.states[index] == OWNING:
            found.setdefault(number, {})[full.names[node]] = "*" if full.leaders[number] == node else ""
    return found


@pytest.mark.row("PME-001", "PME-063")
async def test_the_map_of_real_groups(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> None:
    """PME-001, PME-016, PME-063, PME-098: each agent writes its own key, the map has every copy that a group
    has, and names the leader that the group elected. After a move, and after a leader was lost, it says what is
    then."""
    first, second = (PartitionId(ZONE.zone_id, number) for number in (0, 1))
    async with (
        node_cluster(etcd_server.endpoint, keyspace, tmp_path) as cluster,
        coordinated(cluster) as mirror,
    ):
        await cluster.put(keyspace.intent(ZONE.zone_id), ZoneIntent(1, ZONE).encode())
        cluster.start("n1", "n2", "n3", map_period_s=0.1)
        await cluster.write_stable(first, "n1", "n2")
        await cluster.write_stable(second, "n2")

        def shown(expected: dict[int, set[str]]) -> bool:
            found = copies(mirror, keyspace)
            if {number: set(nodes) for number, nodes in found.items()} != expected:
                return False
            leaders = {
                number: [name for name, mark in nodes.items() if mark] for number, nodes in found.items()
            }
            configured = {number: cluster.configuration(PartitionId(ZONE.zone_id, number)) for number in found}
            return all(
                each is not None and leaders[number] == [each.leader] for number, each in configured.items()
            )

        await cluster.until(lambda: shown({0: {"n1", "n2"}, 1: {"n2"}}))
        before = published_map(mirror, keyspace, ZONE.zone_id)
        assert before is not None
        assert str(before.pointer.version).startswith("3.")
        await cluster.write_pending(second, "n3")
        await cluster.until(lambda: cluster.settled(second, "n3"))
        await cluster.until(lambda: shown({0: {"n1", "n2"}, 1: {"n3"}}))
        after = published_map(mirror, keyspace, ZONE.zone_id)
        assert after is not None
        assert after.pointer.version > before.pointer.version
        assert after.pointer.sequence > before.pointer.sequence
        await check_rest(mirror, keyspace)
        await cluster.stop("n3")
        await cluster.until(lambda: "n3" not in copies(mirror, keyspace).get(1, {}))


async def check_rest(mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
    """Check the answers of the API: as JSON, compact, and without content when the client has the map
    already."""
    views = KeyspaceViews(mirror, keyspace)
    services = services_with(zones=Found(), views=views, mirror=mirror)
    transport = CheckedTransport(build_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://zonekeeper") as client:
        answer = await client.get("/api/v1/zones/z/partition-map")
        assert answer.status_code == 200, answer.text
        published = published_map(mirror, keyspace, ZONE.zone_id)
        assert published is not None
        tag = answer.headers["etag"]
        body = answer.json()
        assert tag == f'"{body["version"]}-{body["sequence"]}"'
        assert [each["partition"] for each in body["partitions"]] == [0, 1]
        assert body["partitions"][1]["primary"] == "n3"
        compact = await client.get("/api/v1/zones/z/partition-map", headers={"Accept": MAP_MEDIA_TYPE})
        assert compact.headers["content-type"] == MAP_MEDIA_TYPE
        header, full = decode_map(compact.content)
        assert (header.zone, full.partitions) == (7, 2)
        latest = compact.headers["etag"]
        same = await client.get(
            "/api/v1/zones/z/partition-map", headers={"If-None-Match": f'"0.0-0", {latest}'}
        )
        assert same.status_code in (200, 304)
        if same.headers["etag"] == latest:
            assert same.status_code == 304
            assert not same.content
        other = await client.get("/api/v1/zones/z/partition-map", headers={"If-None-Match": '"0.0-0"'})
        assert other.status_code == 200
