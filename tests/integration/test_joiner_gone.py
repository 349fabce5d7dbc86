"""A joiner whose node is killed for good: its move ends, by the time-out, by an ALTER back or by leaving the data
nodes, at whatever stage it was (M1, M3, M8). Real members; faults stay."""

from __future__ import annotations

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits
from rebalance.core.keys import PartitionId
from tests.integration.test_node_cluster import node_cluster

P0 = PartitionId(ZoneId(7), 0)


async def test_probe(etcd_server, keyspace, tmp_path) -> None:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as cluster:
        await cluster.put(cluster.keyspace.limits, Limits(joiner_s=2).encode())
        cluster.start("n1", "n2", "n3", "n4")
        await cluster.write_stable(P0, "n1", "n2", "n3")
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
        await cluster.stop("n4")
        await cluster.until(lambda: cluster.mirrors.nodes.get(cluster.keyspace.node("n4")) is None)
        await cluster.write_pending(P0, "n1", "n2", "n4")
        took = await cluster.until(lambda: not cluster.has_pending(P0), 30)
        print(took, cluster.published())
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
