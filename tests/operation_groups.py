"""Operations over any metastore: nodes live, and groups do what a test says."""

from __future__ import annotations

from catalog.core.zone import Origin
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.operation import Operation
from rebalance.core.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    NodeRecord,
    Stage,
)
from rebalance.core.txn import Put, Txn
from rebalance.ports.metastore import Metastore
from tests.admission_world import IDS, NODES, ZONES, Controllers, World, altered

ZONE, ZONE_ID = ZONES[0], IDS[0]
SIZE = 1_000


class OperationsWorld(World):
    """Nodes live, and groups are what stable says once ``found`` was called."""

    def __init__(self, store: Metastore, keyspace: Keyspace) -> None:
        super().__init__(store, keyspace)
        self.control = OperationControl(store, keyspace, WallClock())

    async def put(self, key: str, value: bytes) -> None:
        await self.store.commit(Txn((), (Put(key, value),)))

    async def found(self) -> None:
        """Every group has committed what is stable; its members run."""
        puts: list[Put] = []
        for partition, seen in (await self.observed()).items():
            assert seen.stable is not None
            stable = Assignments.decode(seen.stable.value)
            voters = {node: ConfiguredMember(node, MemberRole.VOTER, "p") for node in stable.peers}
            record = ConfigurationRecord(1, stable.primary, Stage.NONE, voters, size_bytes=SIZE)
            puts.append(Put(self.keyspace.partition(partition).configuration, record.encode()))
            for node in stable.peers:
                member = MemberRecord(MemberState.RUNNING, "p", "c", started=True)
                puts.append(Put(self.keyspace.member(partition, node), member.encode()))
        await self.store.commit(Txn((), tuple(puts)))

    async def remove_voters_of_before(self, partition: PartitionId) -> None:
        """The group that moves has done all but the switch."""
        seen = (await self.observed())[partition]
        assert seen.stable is not None
        assert seen.pending is not None
        stable, pending = Assignments.decode(seen.stable.value), Assignments.decode(seen.pending.value)
        names = [node for node in pending.peers if node not in stable.peers]
        voters = {node: ConfiguredMember(node, MemberRole.VOTER, "p") for node in names}
        record = ConfigurationRecord(2, names[0], Stage.JOINT, voters, size_bytes=SIZE)
        await self.put(self.keyspace.partition(partition).configuration, record.encode())

    async def operations(self, zone: int = ZONE_ID) -> list[Operation]:
        items = (await self.store.range(f"{self.keyspace.operations}{zone}-")).items
        return sorted((Operation.decode(item.value) for item in items), key=lambda each: each.event_revision)

    async def newest(self, zone: int = ZONE_ID) -> Operation:
        return (await self.operations(zone))[-1]

    async def look(self, controllers: Controllers, zone: int = ZONE_ID) -> Operation:
        """One look of the keeper at the newest operation of the zone."""
        newest = await self.newest(zone)
        item = await self.store.get(self.keyspace.operation(newest.operation_id))
        assert item is not None
        return await controllers.operations.look(item)

    async def begin(
        self, controllers: Controllers, replicas: int = 3, origin: Origin | None = None
    ) -> Operation:
        await self.publish(altered(ZONE, replicas), origin=origin)
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
        return await self.newest()

    async def end_moves(self) -> None:
        while moving := await self.moving():
            for partition in moving:
                await self.end_move(partition)
        await self.found()


async def operations_world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    """Its zones are placed; ``found`` is for whoever needs the groups."""
    made = OperationsWorld(store, keyspace)
    for node in NODES:
        await made.put(keyspace.node(node.name), NodeRecord(node, "i", 1).encode())
    await made.publish(*ZONES)
    async with made.controllers() as controllers:
        assert await controllers.zones.reconcile(IDS) == {}
    return made
