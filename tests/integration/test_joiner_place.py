"""Who takes the place of a joiner that is given up (M1), with real members."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits
from rebalance.core.keys import PartitionId
from rebalance.core.records import GivenUpRecord
from rebalance.groups.etcd_group import EtcdGroupHost
from tests.integration.test_found_from_learner import kill
from tests.integration.test_node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(7), 0)
JOINER_S = 3


class NeverJoins(EtcdGroupHost):
    """Its members are reserved, and never start."""

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        return


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def test_a_voter_that_died_and_was_removed_does_not_take_the_place(cluster: NodeCluster) -> None:
    """M1: the move would wait for it as it waited for the joiner, and keep the joiner's entry. The group rests
    with the two that live, and both that are missing are recorded."""
    cluster.start("n1", "n2", "n3")
    cluster.start("n4", host_type=NeverJoins)
    await cluster.put(cluster.keyspace.limits, Limits(joiner_s=JOINER_S).encode())
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.registered("n4")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    async with writing(cluster, P0) as writer:
        await kill(cluster, "n3")
        await cluster.write_pending(P0, "n1", "n2", "n4")
        await cluster.until(lambda: cluster.voters(P0) == {"n1", "n2", "n4"})
        await kill(cluster, "n4")
        took_s = await cluster.until(lambda: cluster.settled(P0, "n1", "n2"), 120.0)
    print(f"at rest {took_s:.1f} s after the joiner was killed")
    await writer.check()
    record = await cluster.metastore.get(cluster.keyspace.given_up(P0))
    assert record is not None
    assert GivenUpRecord.decode(record.value).names() == ("n3", "n4")
