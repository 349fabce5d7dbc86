"""An agent on a node with a profile of the engine ``store``: it has members for its other zones only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from catalog.core.zone import STORE_ENGINE, Node, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.node_context import NodeHosts, NodeStart
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
    agent = NodeAgent(NodeStart(NODE, tmp_path), metastore, keyspace, NodeHosts(host))
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


async def test_the_store_server_begins_with_the_first_zone_for_it(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """Or at once, where it has files."""
    (tmp_path / "n2" / "store").mkdir(parents=True)
    begun: dict[str, asyncio.Event] = {name: asyncio.Event() for name in ("n1", "n2")}

    def agent(name: str) -> NodeAgent:
        async def serve() -> None:
            begun[name].set()
            await asyncio.Event().wait()

        host = EtcdGroupHost(tmp_path / name, free_block(4), tuning=QUICK)
        start = NodeStart(replace(NODE, name=name), tmp_path / name)
        return NodeAgent(start, metastore, keyspace, NodeHosts(host, store=serve))

    async def publish(*intents: ZoneIntent) -> None:
        puts = (Put(keyspace.intent(intent.zone.zone_id), intent.encode()) for intent in intents)
        await metastore.commit(Txn((), tuple(puts)))

    agents = [asyncio.create_task(agent(name).run()) for name in begun]
    try:
        await publish(ZoneIntent(1, GROUPED), ZoneIntent(2, STORED, dropped=True))
        async with asyncio.timeout(LIMIT_S):
            await begun["n2"].wait()
            # It follows zones by now, as it has registered and the others are known to it.
            while len((await metastore.range(keyspace.nodes)).items) < len(agents):
                await asyncio.sleep(0.05)
        assert not begun["n1"].is_set()
        await publish(ZoneIntent(3, STORED))
        async with asyncio.timeout(LIMIT_S):
            await begun["n1"].wait()
    finally:
        for task in agents:
            task.cancel()
        await asyncio.gather(*agents, return_exceptions=True)


async def _runs(metastore: EtcdMetastore, member: str) -> bool:
    item = await metastore.get(member)
    return item is not None and MemberRecord.decode(item.value).state is MemberState.RUNNING
