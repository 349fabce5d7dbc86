"""A zone of many partitions, of which some have lost their majority; nothing of it runs."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.txn import Put, Txn
from rebalance.simulation.memory_metastore import MemoryMetastore
from tests.recovery_world import STRONG, RecoveryWorld

NODES = 20
PUTS = 100


async def world_of(partitions: int, lost: int) -> RecoveryWorld:
    """Of the first ``lost`` partitions only one voter lives."""
    store, keyspace = MemoryMetastore(), Keyspace()
    world = RecoveryWorld(store, keyspace)
    await world.start()
    for number in range(NODES):
        await world.join(f"node-{number}")
    await world.publish(replace(STRONG, partitions=partitions))
    puts = []
    for number in range(partitions):
        partition = PartitionId(STRONG.zone_id, number)
        stable = await store.get(keyspace.partition(partition).stable)
        assert stable is not None
        peers = Assignments.decode(stable.value).peers
        voters = (peers[0], "gone-0", "gone-1") if number < lost else peers
        members = {
            node: ConfiguredMember(f"{number}{place}", MemberRole.VOTER, f"http://{node}:{number}")
            for place, node in enumerate(voters)
        }
        record = ConfigurationRecord(1, voters[0], Stage.NONE, members)
        puts.append(Put(keyspace.partition(partition).configuration, record.encode()))
        for node, configured in members.items():
            position = LogPosition(9, 9, True, 9) if number < lost else None
            url = f"http://{node}:1{number}"
            member = MemberRecord(
                MemberState.RUNNING, configured.peer_url, url, started=True, position=position
            )
            puts.append(Put(keyspace.member(partition, node), member.encode()))
    for start in range(0, len(puts), PUTS):
        await store.commit(Txn((), tuple(puts[start : start + PUTS])))
    return world
