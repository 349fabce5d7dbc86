"""An agent on a node with a profile of the engine ``store``: it has members for its other zones only."""

from __future__ import annotations

import asyncio
from pathlib import Path

from catalog.core.zone import STORE_ENGINE, Node, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import MemberRecord, MemberState
from rebalance.core.txn import Put, Txn
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from tests.fixtures.node_cluster import QUICK
from tests.fixtures.ports import free_block

LIMIT_S = 60.0
STORED = Zone(ZoneId(1), "BIG", 4, 1, None, ("bulk",))
GROUPED = Zone(ZoneId(2), "SMALL", 1, 1, None, ("default",))
NODE = Node("n1", profiles=("default", "bulk"), engines=(("bulk", STORE_ENGINE),))


async def test_partitions_of_the_store_get_no_members(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    stable = Assignments(("n1",)).encode()
    partitions = [PartitionId(STORED.zone_id, number) for number in range(STORED.partitions)]
    host = EtcdGroupHost(tmp_path, free_block(20), tuning=QUICK)
    agent = NodeAgent(NODE, metastore, keyspace, host, tmp_path)
    running = asyncio.create_task(agent.run())
    try:
        # Assigned before its zone is known: the agent waits for that.
        await metastore.commit(Txn((), tuple(Put(keyspace.partition(p).stable, stable) for p in partitions)))
        await metastore.commit(Txn((), (Put(keyspace.intent(STORED.zone_id), ZoneIntent(1, STORED).encode()),)))
        grouped = PartitionId(GROUPED.zone_id, 0)
        await metastore.commit(
            Txn(
                (),
                (
                    Put(keyspace.intent(GROUPED.zone_id), ZoneIntent(2, GROUPED).encode()),
                    Put(keyspace.partition(grouped).stable, stable),
                ),
            )
        )
        async with asyncio.timeout(LIMIT_S):
            while not await _runs(metastore, keyspace.member(grouped, "n1")):
                await asyncio.sleep(0.05)
        assert host.partitions() == {grouped}
        assert not (await metastore.range(keyspace.zone_members(STORED.zone_id))).items
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _runs(metastore: EtcdMetastore, member: str) -> bool:
    item = await metastore.get(member)
    return item is not None and MemberRecord.decode(item.value).state is MemberState.RUNNING
