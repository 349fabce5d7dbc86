"""Copies of members that have left: kept while the limits say so, deleted last, never started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.guarded_write import encode_trigger
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import KeptRecord
from rebalance.core.keyspace.txn import Txn, delete_below
from rebalance.core.operations.operation import Operation, OperationKind
from rebalance.ports.groups import MemberLife
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(7), 0)
EVENT = 1834


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        await running.put(keyspace.limits, Limits(keep_copies=True).encode())
        await running.put(keyspace.partition(P0).trigger, encode_trigger(EVENT))
        running.start("n1", "n2", "n3")
        await running.write_stable(P0, "n1", "n2")
        await running.until(lambda: running.settled(P0, "n1", "n2"))
        yield running


def kept(cluster: NodeCluster, name: str) -> KeptRecord | None:
    value = cluster.mirrors.partitions.value(cluster.keyspace.kept(P0, name))
    return KeptRecord.decode(value) if value is not None else None


def is_kept(cluster: NodeCluster, name: str) -> bool:
    """Written down as kept, with data, and no member any more."""
    return (
        kept(cluster, name) is not None
        and cluster.record(P0, name) is None
        and wal(cluster, name).is_dir()
        and P0 in cluster.nodes[name].host.partitions()
    )


def wal(cluster: NodeCluster, name: str) -> Path:
    return cluster.directory / name / "members" / "7-0" / "data" / "member" / "wal"


async def is_stopped(cluster: NodeCluster, name: str) -> bool:
    status = await cluster.nodes[name].host.status(P0)
    return status is not None and status.life is MemberLife.STOPPED


async def moved(cluster: NodeCluster, *peers: str) -> None:
    await cluster.write_pending(P0, *peers)
    wanted = frozenset(peers)
    await cluster.until(lambda: cluster.stable(P0) == wanted and cluster.voters(P0) == wanted)
    await cluster.until(lambda: not cluster.has_pending(P0))


@pytest.mark.row("VOL-093", "VOL-094")
async def test_a_copy_is_kept_until_it_is_finalised(cluster: NodeCluster) -> None:
    """VOL-093, VOL-094: keep the copy of a node that loses its replica and stops the member, over a restart of
    the node; writes go on. The copy is deleted when the operation is over and has been finalised, not
    before."""
    control = OperationControl(cluster.metastore, cluster.keyspace, WallClock())
    operation = Operation(OperationKind.ALTER_ZONE, P0.zone_id, "Z", EVENT, 3, 0)
    key, name = cluster.keyspace.operation(operation.operation_id), operation.operation_id
    await cluster.put(key, operation.encode())
    async with writing(cluster, P0) as writer:
        await moved(cluster, "n1", "n3")
        await cluster.until(lambda: is_kept(cluster, "n2"))
    await writer.check()
    record = kept(cluster, "n2")
    assert record is not None
    assert (record.event, record.discard) == (EVENT, False)
    await cluster.stop("n2")
    node = cluster.keyspace.node("n2")
    await cluster.until(lambda: cluster.mirrors.nodes.get(node) is None)
    cluster.start("n2")
    await cluster.until(lambda: cluster.mirrors.nodes.get(node) is not None)
    await cluster.until(lambda: is_kept(cluster, "n2"))
    # One that starts while the metastore is slow to answer may have started its member, and stops it again.
    async with asyncio.timeout(60):
        while not await is_stopped(cluster, "n2"):
            await asyncio.sleep(0.05)
    with pytest.raises(RefusedError, match="once it is over") as refused:
        await control.finalise(name)
    assert refused.value.kind is ErrorKind.OPERATION_STATE_ILLEGAL
    assert is_kept(cluster, "n2")
    await cluster.put(key, operation.closed(1).encode())
    assert await control.finalise(name) == 1
    await cluster.until(lambda: cluster.settled(P0, "n1", "n3") and kept(cluster, "n2") is None)
    assert not wal(cluster, "n2").exists()
    assert await control.finalise(name) == 0


@pytest.mark.row("VOL-093")
async def test_a_partition_that_comes_back_begins_afresh(cluster: NodeCluster) -> None:
    """VOL-093: the kept copy is destroyed first; the new member has another address, and what was written
    meanwhile. Once copies are not kept any more the next one goes at once, and the kept one stays."""
    before = cluster.record(P0, "n2")
    await moved(cluster, "n1", "n3")
    await cluster.until(lambda: is_kept(cluster, "n2"))
    await cluster.router.put(P0, "k", b"later", "id-1")
    await moved(cluster, "n1", "n2")
    await cluster.until(lambda: is_kept(cluster, "n3") and kept(cluster, "n2") is None)
    await cluster.until(lambda: cluster.record(P0, "n2") is not None)
    after = cluster.record(P0, "n2")
    assert before is not None
    assert after is not None
    assert after.peer_url != before.peer_url
    assert (await cluster.router.get(P0, "k")).value == b"later"
    await cluster.put(cluster.keyspace.limits, Limits().encode())
    await moved(cluster, "n1")
    await cluster.until(lambda: P0 not in cluster.nodes["n2"].host.partitions())
    assert kept(cluster, "n2") is None
    assert is_kept(cluster, "n3")


@pytest.mark.row("VOL-094")
async def test_a_drop_deletes_what_was_kept(cluster: NodeCluster) -> None:
    """VOL-094: the controller removes all keys of the zone's partitions, and nodes all that they hold."""
    await moved(cluster, "n1", "n3")
    await cluster.until(lambda: is_kept(cluster, "n2"))
    dropped = delete_below(cluster.keyspace.zone_partitions(P0.zone_id))
    await cluster.metastore.commit(Txn((), (dropped,)))
    await cluster.until(lambda: not any(P0 in node.host.partitions() for node in cluster.nodes.values()))
    assert not wal(cluster, "n2").exists()
