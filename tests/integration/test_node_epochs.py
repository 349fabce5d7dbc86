"""Nodes while catalog and metastore do not agree, and after the metastore was adopted: real members."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.txn import Delete, Put, Txn
from tests.fixtures.node_cluster import NodeCluster, node_cluster

P0, P1 = PartitionId(ZoneId(7), 0), PartitionId(ZoneId(7), 1)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def test_nothing_moves_while_the_stores_do_not_agree(cluster: NodeCluster) -> None:
    """Move nothing while the stores do not agree; changes requested meanwhile are carried out afterwards."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.halt("the catalog went back")
    await cluster.write_pending(P0, "n2")
    await cluster.write_stable(P1, "n1")
    with pytest.raises(AssertionError, match="not within"):
        await cluster.until(lambda: cluster.record(P0, "n2") is not None or bool(cluster.configuration(P1)), 4)
    assert cluster.voters(P0) == {"n1"}
    await cluster.put(cluster.keyspace.epoch, EpochRecord(1).encode())
    await cluster.until(lambda: cluster.settled(P0, "n2"))
    await cluster.until(lambda: cluster.settled(P1, "n1"))


@pytest.mark.row("I3-049")
async def test_an_adopted_metastore_that_forgot_the_group(cluster: NodeCluster) -> None:
    """I3-049: stable and configuration are those of an older backup, in which another node served. The member
    that has the data keeps it, publishes its group, and the group moves to where stable says, with its data."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    keys = cluster.keyspace.partition(P0)
    backup = cluster.mirrors.partitions.value(keys.configuration)
    assert backup is not None
    await cluster.write_pending(P0, "n2")
    await cluster.until(lambda: cluster.settled(P0, "n2"))
    await cluster.router.put(P0, "key", b"written after the backup", "op")

    await cluster.halt("etcd went back")
    stable = Put(keys.stable, Assignments(("n1",)).encode())
    adopted = Put(cluster.keyspace.epoch, EpochRecord(2).encode())
    lost = Delete(cluster.keyspace.member(P0, "n2"))
    zone = Zone(P0.zone_id, "Z", 1, 1, None, ("default",))
    published = Put(cluster.keyspace.intent(P0.zone_id), ZoneIntent(1, zone).encode())
    await cluster.metastore.commit(Txn((), (stable, Put(keys.configuration, backup), lost, published)))
    await cluster.metastore.commit(Txn((), (adopted,)))
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    assert (await cluster.router.get(P0, "key")).value == b"written after the backup"
