"""Zones under limits whose partitions only move when a test says so, over any metastore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from catalog.core.zone import Node, Origin, Zone, ZoneId, ZoneIntent
from rebalance.controllers.admission import MoveAdmission
from rebalance.controllers.clock import Clock, WallClock
from rebalance.controllers.data_nodes import DataNodesKeeper
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.controllers.partitions import observe
from rebalance.controllers.topology import KnownTopology
from rebalance.controllers.zone import ZoneController
from rebalance.core.admission import Limits
from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Observed, decide_on_configuration_applied
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.txn import Put, Txn
from rebalance.ports.metastore import Metastore, WatchBatch, WatchReset
from spark.placement_engine import LocalPlacementEngine

ZONES = tuple(
    Zone(
        ZoneId(number), f"Z{number}", partitions=6, replicas=1, quorum_size=None, storage_profiles=("default",)
    )
    for number in (1, 2)
)
NODES = tuple(Node(name) for name in ("n1", "n2", "n3"))
DEADLINE_S = 60.0


class Controllers:
    """One process's: the zones, and the admission beside them."""

    def __init__(self, store: Metastore, keyspace: Keyspace, clock: Clock) -> None:
        self.again: set[ZoneId] = set()
        self.operations = OperationKeeper(store, keyspace, clock, lambda: self.admission.limits)
        self.operations.listen(lambda: self.admission.look_again())
        self.admission = MoveAdmission(store, keyspace, clock, rewrite=self._rewrite, first=self._first)
        self.nodes = NODES
        keeper = DataNodesKeeper(store, keyspace, lambda: KnownTopology.of(*self.nodes))
        self.zones = ZoneController(
            store, keyspace, LocalPlacementEngine(), keeper, admission=self.admission, clock=clock
        )

    async def obey(self, limits: Limits) -> None:
        """Until the limits that were written are known here: what decides by older ones is refused."""
        await eventually(lambda: self.admission.limits == limits)

    def leave(self, name: str) -> None:
        """The node matches no zone any more, at once."""
        self.nodes = tuple(replace(node, profiles=()) if node.name == name else node for node in self.nodes)

    def _first(self) -> tuple[ZoneId, str] | None:
        found = self.operations.first()
        return (found.zone_id, found.operation_id) if found is not None else None

    def _rewrite(self, zone_id: ZoneId) -> None:
        self.zones.rewrite(zone_id)
        self.again.add(zone_id)


class World:
    """Zones whose partitions only move when a test says so."""

    def __init__(self, store: Metastore, keyspace: Keyspace) -> None:
        self.store = store
        self.keyspace = keyspace
        self._version = 10

    @asynccontextmanager
    async def controllers(self, clock: Clock | None = None) -> AsyncIterator[Controllers]:
        """Until the block ends, as when the process is killed."""
        made = Controllers(self.store, self.keyspace, clock or WallClock())
        work = (made.admission.follow(), made.admission.run(), made.operations.follow())
        tasks = [asyncio.create_task(each) for each in work]
        await made.admission.loaded()
        await made.operations.loaded()
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def limit(self, limits: Limits) -> None:
        await self.store.commit(Txn((), (Put(self.keyspace.limits, limits.encode()),)))

    async def publish(self, *zones: Zone, origin: Origin | None = None) -> None:
        for zone in zones:
            self._version += 1
            intent = ZoneIntent(self._version, zone, origin=origin)
            await self.store.commit(Txn((), (Put(self.keyspace.intent(zone.zone_id), intent.encode()),)))

    async def observed(self) -> dict[PartitionId, Observed]:
        return observe(self.keyspace, (await self.store.range(self.keyspace.partitions)).items)

    async def moving(self) -> list[PartitionId]:
        return [partition for partition, seen in (await self.observed()).items() if seen.pending is not None]

    async def end_move(self, partition: PartitionId) -> None:
        """As the agent beside the group's leader."""
        seen = (await self.observed())[partition]
        assert seen.pending is not None
        decision = decide_on_configuration_applied(seen, Assignments.decode(seen.pending.value))
        assert decision.transaction is not None
        assert (await self.store.commit(decision.transaction)).succeeded

    async def until(self, condition: Callable[[list[PartitionId]], bool]) -> list[PartitionId]:
        async with asyncio.timeout(DEADLINE_S):
            while not condition(found := await self.moving()):
                await asyncio.sleep(0.01)
        return found

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[list[int]]:
        """How many partitions move, after every revision from the block's begin to its end."""
        seen: list[int] = []
        read = [0]
        task = asyncio.create_task(self._watch(seen, read))
        try:
            await eventually(lambda: bool(seen))
            yield seen
            newest = (await self.store.newest(self.keyspace.partitions)).mod_revision
            await eventually(lambda: read[-1] >= newest)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, seen: list[int], read: list[int]) -> None:
        pending: set[str] = set()
        async for change in self.store.watch(self.keyspace.partitions):
            if isinstance(change, WatchReset):
                pending = {item.key for item in change.snapshot.items if item.key.endswith("/pending")}
                seen.append(len(pending))
                read.append(change.snapshot.revision)
            else:
                for batch in revisions(change):
                    pending = batch(pending)
                    seen.append(len(pending))
                read.append(change.revision)


async def eventually(condition: Callable[[], bool]) -> None:
    """Of what changes in this process."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def revisions(change: WatchBatch) -> list[Callable[[set[str]], set[str]]]:
    """What each revision of a batch does to the set of pending keys."""
    steps = []
    for revision in sorted({event.mod_revision for event in change.events}):
        events = [e for e in change.events if e.mod_revision == revision and e.key.endswith("/pending")]
        put = {event.key for event in events if event.current is not None}
        gone = {event.key for event in events if event.current is None}
        steps.append(lambda before, put=put, gone=gone: (before | put) - gone)
    return steps


def altered(zone: Zone, replicas: int = 3) -> Zone:
    return replace(zone, replicas=replicas)


IDS = [zone.zone_id for zone in ZONES]
