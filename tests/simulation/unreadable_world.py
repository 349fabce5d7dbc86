"""Real controllers, agents and server views over a store in memory and in virtual time, and garbage in keys."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

from app.views.keyspace_views import KeyspaceViews
from app.views.routing import ZoneDirectory
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.store_guard import NewestIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn
from rebalance.core.topology.node_presence import Topology
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.partition_view import MirroredEndpoints, Mirrors
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.processes import NO_FAULTS, ControllerProcess, Environment, NodeProcess, SimulatedCatalog
from simulator.control.scenario import node_number
from simulator.control.simulated_cluster import (
    GroupRates,
    SimulatedCluster,
    SimulatedGroup,
    SimulatedMirror,
    SimulatedReplica,
)
from simulator.control.virtual_time import Trace

NODES = 3
PARTITIONS = 2
BROKEN, OTHER = ZoneId(1), ZoneId(2)
SETTLED_S = 120.0
LOOK_S = 4.0
GARBAGE = (b"x", b'{"v":2}', b"\xff\xfe", b'{"v":1}', b"[]", b"null", b'{"v":1,"peers":[]}', b"")


@dataclass(frozen=True)
class Damage:
    key: str
    value: bytes
    before: KeyValue | None


class Destroyed:
    """A ``GroupObserver`` that remembers what was given up or founded."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_step(self, group: SimulatedGroup, step: str) -> None:
        """A group that is founded, or changed; who leads it is no decision of ours."""
        if not step.startswith("leader"):
            self.calls.append(f"step {group.partition} {step}")

    def on_removal(self, group: SimulatedGroup, before: int, known_up: int, voters: int) -> None: ...

    def on_voter_gone(self, replica: SimulatedReplica) -> None: ...

    def on_destroy(self, replica: SimulatedReplica) -> None:
        self.calls.append(f"destroyed {replica.partition} on {replica.node}")

    def on_mirror_destroy(self, mirror: SimulatedMirror) -> None:
        self.calls.append(f"mirror destroyed {mirror.partition}")

    def of(self, zone_id: ZoneId) -> list[str]:
        return [each for each in self.calls if f" {zone_id}/" in each]

    def of_partition(self, partition: PartitionId) -> list[str]:
        return [each for each in self.calls if str(partition) in each.split()]


class UnreadableWorld:
    """``processes`` are the controller and the nodes; the views are a server's."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store, self.keyspace, self.trace = MemoryMetastore(), Keyspace(), Trace()
        self.catalog, self.destroyed = SimulatedCatalog(), Destroyed()
        rates = GroupRates(lost_call=0.0, late_call=0.0, lost_answer=0.0)
        self.cluster = SimulatedCluster(f"unreadable {seed}", rates, self.destroyed)
        name, shared = f"unreadable {seed}", (self.store, self.keyspace, self.catalog, self.cluster)
        environment = Environment(name, *shared, self.trace, directory, NO_FAULTS, failing_jobs=0.0)
        self.processes = [
            ControllerProcess("controller", environment),
            *(NodeProcess(node_number(number), environment) for number in range(NODES)),
        ]
        self.mirror = KeyspaceMirror(self.store, self.keyspace.prefix)
        self.views = KeyspaceViews(self.mirror, self.keyspace, lambda: 0)
        self.newest = NewestIntent(self.mirror, self.keyspace)
        self.zones = ZoneDirectory(self.mirror, self.keyspace, self._nothing)
        self.endpoints = MirroredEndpoints(Mirrors(self.mirror, self.mirror, self.mirror, self.keyspace))
        self._server: asyncio.Task[None] | None = None
        self._replicas = {BROKEN: 2, OTHER: 1}

    @staticmethod
    async def _nothing() -> CatalogSnapshot:
        return CatalogSnapshot()

    async def start(self) -> None:
        self._server = asyncio.create_task(self.mirror.run())
        for process in self.processes:
            process.start()
        # Data nodes are what they stay: later nothing moves but what is asked for.
        await self.until(lambda: len(self.views.live_records()) == NODES and self._recorded() == NODES)
        for zone_id in (BROKEN, OTHER):
            self.want(zone_id)
        await self.until(lambda: self.is_settled(BROKEN) and self.is_settled(OTHER))

    def _recorded(self) -> int:
        found = self.store.peek(self.keyspace.topology)
        return len(Topology.decode(found.value).seen) if found is not None else 0

    async def stop(self) -> None:
        for process in self.processes:
            await process.stop()
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)

    def want(self, zone_id: ZoneId) -> None:
        name = f"Z{zone_id}"
        zone = Zone(zone_id, name, PARTITIONS, self._replicas[zone_id], None, ("default",))
        self.catalog.execute(ZoneIntent(0, zone))

    def ask(self, zone_id: ZoneId) -> None:
        """Request one replica more, or one less."""
        self._replicas[zone_id] = 3 - self._replicas[zone_id]
        self.want(zone_id)

    async def move_the_other(self) -> None:
        self.ask(OTHER)
        await self.until(lambda: self.is_settled(OTHER))

    def is_settled(self, zone_id: ZoneId) -> bool:
        for number in range(PARTITIONS):
            partition = PartitionId(zone_id, number)
            keys, group = self.keyspace.partition(partition), self.cluster.groups.get(partition)
            stable = self.store.peek(keys.stable)
            if stable is None or self.store.peek(keys.pending) is not None or group is None:
                return False
            peers = Assignments.decode(stable.value).peers
            held = {f"n{each}" for each in range(NODES) if partition in self.cluster.disk(f"n{each}")}
            if len(peers) != self._replicas[zone_id] or held != set(peers) or len(group.voters) != len(peers):
                return False
        return True

    async def until(self, condition: object) -> None:
        assert callable(condition)
        deadline = asyncio.get_running_loop().time() + SETTLED_S
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, self.trace.lines[-3:]
            await asyncio.sleep(0.2)

    async def damage(self, key: str, value: bytes) -> Damage:
        """The lease of the key, if it has one, stays."""
        before = self.store.peek(key)
        await self.store.commit(Txn((), (Put(key, value, before.lease if before is not None else 0),)))
        return Damage(key, value, before)

    async def mend(self, damage: Damage) -> None:
        before = damage.before
        write = Delete(damage.key) if before is None else Put(damage.key, before.value, before.lease)
        await self.store.commit(Txn((), (write,)))

    def decided(self, zone_id: ZoneId) -> dict[str, int]:
        """Keys that decide about the zone's data, with their revisions."""
        keys = self.keyspace
        names = (keys.intent(zone_id), keys.data_nodes(zone_id), keys.target_pointer(zone_id))
        found = {item.key: item.mod_revision for item in self.mirror.below(keys.zone_partitions(zone_id))}
        found |= {name: item.mod_revision for name in names if (item := self.mirror.get(name)) is not None}
        return {name: each for name, each in found.items() if not name.endswith("/configuration")}

    def look(self) -> str:
        """All that a server shows, as text. Raises whatever a view raises."""
        parts: list[object] = [self.views.nodes(), [each.cause for each in self.views.unreadable()]]
        for zone_id in (BROKEN, OTHER):
            zone = replace(self.catalog.intents[zone_id].zone)
            parts += [self.views.zone(zone, CatalogSnapshot(1)), self.views.progress(zone_id, 1, zone)]
            parts.append(self.views.partitions(zone_id, PARTITIONS))
            parts.append([self.endpoints.route(PartitionId(zone_id, each)) for each in range(PARTITIONS)])
        parts.append(self.newest.intent is not None)
        return json.dumps(parts, default=str)

    @property
    def ended(self) -> int:
        """Number of processes that ended by themselves, the server among them."""
        server = self._server is not None and self._server.done()
        return self.trace.events["process ended by itself"] + server

    def keys(self) -> list[str]:
        """One of each kind of key that is read, also of those that are not there now."""
        keys, partition = self.keyspace, PartitionId(BROKEN, 0)
        one = keys.partition(partition)
        operations = [item.key for item in self.mirror.below(keys.zone_operations(BROKEN))][:1]
        return [
            *(keys.intent(BROKEN), keys.data_nodes(BROKEN), keys.data_nodes_history(BROKEN)),
            *(keys.target_pointer(BROKEN), keys.target_before(BROKEN), *operations),
            *(one.stable, one.pending, one.planned, one.lock, one.trigger, one.group, one.configuration),
            *(keys.restart(partition, "n0"), keys.kept(partition, "n0"), keys.member(partition, "n0")),
            *(keys.epoch, keys.topology, keys.limits, keys.admissions, keys.node("n0"), keys.drain("n0")),
            *(f"{keys.intents}abc", f"{keys.intents}99", f"{keys.partitions}1/x/assignments/stable"),
            *(f"{keys.operations}abc", f"{keys.members}{BROKEN}/²/n0", f"{keys.nodes}n9", f"{keys.drains}n9"),
        ]
