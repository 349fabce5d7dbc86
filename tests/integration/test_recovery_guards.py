"""Guards against a wrong reset, with real members: a group that answers, a node that is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, decide_on_forced_move
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.groups.calls.group_checks import LinearizableProbe
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.node_processes import members_below
from tests.fixtures.survivors import P0, founded, kill

ANSWER_S = 20.0
"""The probe's time limit here: machines are slow."""
SILENCE_S = 2.0


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def client_urls(cluster: NodeCluster, *names: str) -> dict[str, str]:
    records = {name: cluster.record(P0, name) for name in names}
    return {name: record.client_url for name, record in records.items() if record is not None}


@pytest.mark.row("R1")
async def test_a_group_answers_as_long_as_it_has_a_majority(cluster: NodeCluster) -> None:
    """R1: any of its members proves it, also with one that is gone and one that stands still; a minority
    proves nothing, and is given up after the time limit. What serves another partition proves nothing of
    this one."""
    names = ("n1", "n2", "n3")
    await founded(cluster, *names)
    urls = client_urls(cluster, *names)
    patient, hasty = LinearizableProbe(timeout_s=ANSWER_S), LinearizableProbe(timeout_s=SILENCE_S)
    try:
        assert await patient.serving(P0, urls) in names
        assert await patient.serving(P0, {**urls, "x": "http://127.0.0.1:9"}) in names
        assert await hasty.serving(PartitionId(ZoneId(7), 5), urls) == ""
        assert await patient.serving(P0, {}) == ""
        # Its leader stands still: the others elect another one, and serve.
        leader, *others = sorted(names, key=lambda name: name != cluster.leader(P0))
        (frozen,) = members_below(cluster.directory / leader)
        frozen.suspend()
        assert await patient.serving(P0, urls) in others
        # A node without a lease is no dead member: a group of one that is left serves nothing.
        await kill(cluster, others[0])
        began = asyncio.get_running_loop().time()
        assert await hasty.serving(P0, urls) == ""
        took_s = asyncio.get_running_loop().time() - began
        print(f"a group without a majority: no answer after {took_s:.2f} s")
        assert took_s < ANSWER_S
        frozen.resume()
        assert await patient.serving(P0, urls) in (leader, others[1])
    finally:
        await patient.close()
        await hasty.close()


@pytest.mark.row("R6")
async def test_a_group_is_not_founded_empty_while_a_node_is_back(cluster: NodeCluster) -> None:
    """R6: n1 had the only copy and was not there when an empty beginning was asked for. It is back before the
    group is written: nothing is founded until it has gone again."""
    await founded(cluster, "n1")
    await kill(cluster, "n1")
    back = cluster.keyspace.node("n1")
    record = NodeRecord(Node("n1"), "back")
    await cluster.metastore.commit(Txn((), (Put(back, record.encode()),)))
    cluster.start("n2")
    keys = cluster.keyspace.partition(P0)
    read = [await cluster.metastore.get(key) for key in (keys.stable, keys.pending, keys.planned, keys.trigger)]
    observed = Observed(keys, *read)
    event = max(item.mod_revision for item in read if item) + 1
    target = Assignments(("n2",), absent=("n1",))
    decision = decide_on_forced_move(observed, target, event, empty=True)
    assert decision.transaction is not None
    with capture_logs() as logs:
        assert (await cluster.metastore.commit(decision.transaction)).succeeded
        await cluster.until(lambda: any(each["event"] == "group not founded empty" for each in logs))
    configuration = cluster.configuration(P0)
    assert configuration is not None
    assert configuration.generation == 0
    await cluster.metastore.commit(Txn((), (Delete(back),)))
    await cluster.until(lambda: cluster.stable(P0) == {"n2"} and cluster.voters(P0) == {"n2"})
