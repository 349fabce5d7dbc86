"""A whole run of store servers that follows from a seed: clients, faults, moves, then rest, and the rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.store_inputs import CopiesAsked, LeaveAsked, RoomChanged
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import CopiesRequest
from simulator.store.store_clients import ClientLoad, SimulatedClients
from simulator.store.store_world import StoreRuleBrokenError, StoreWorld, check_disk, serving

ZONE = ZoneId(1)
REST_MS = 120_000
LIMITS = StoreLimits(batch_bytes=16, bulk_bytes=48, log_keep=12, log_reserved=60)
"""Batches of some rows and short logs, so that copies are filled in many steps, by history and by snapshot."""
SHORT_ID_KEEP_MS = 8_000
HASTY_MS = 300
DRIFT = 1.05
"""More than any clock goes ahead of time."""


@dataclass(frozen=True, slots=True)
class StoreShape:
    """Shape of a seed's run. ``partitions``: those of each zone. ``faults_ms``: the time with faults.
    ``moves_only``: targets change and disks are slow, and nothing fails. ``id_keep_ms``: where it is short,
    clients give a write up after half of it. ``refills``: copies are asked to be filled anew, too. ``hasty``:
    clients give up after less than an exchange takes, and abandon the write."""

    servers: int = 4
    partitions: int = 3
    copies: int = 2
    clients: int = 4
    keys: int = 3
    faults_ms: int = 30_000
    fault_every_ms: tuple[int, int] = (300, 4_000)
    deletes: bool = False
    moves_only: bool = False
    zones: int = 1
    id_keep_ms: int = LIMITS.id_keep_ms
    refills: bool = False
    hasty: bool = False

    @classmethod
    def of(cls, seed: int) -> StoreShape:
        rng = random.Random(f"shape/{seed}")
        return cls(
            servers=rng.choice((3, 4, 4, 5)),
            partitions=rng.choice((1, 2, 3)),
            copies=rng.choice((2, 2, 3)),
            clients=rng.choice((2, 4, 6)),
            keys=rng.choice((1, 3, 6, 16)),
            deletes=rng.random() < 0.4,
            moves_only=rng.random() < 0.15,
            zones=rng.choice((1, 1, 2, 3)),
            id_keep_ms=rng.choice((LIMITS.id_keep_ms, SHORT_ID_KEEP_MS)),
        )


class StoreRun:
    """``world`` and ``clients`` are there to look at afterwards."""

    def __init__(self, seed: int, shape: StoreShape | None = None, world: StoreWorld | None = None) -> None:
        self.seed = seed
        self.shape = shape or StoreShape.of(seed)
        self.world = world or StoreWorld(seed, replace(LIMITS, id_keep_ms=self.shape.id_keep_ms))
        self.zones = tuple(ZoneId(number) for number in range(1, self.shape.zones + 1))
        self.names = [f"n{number}" for number in range(1, self.shape.servers + 1)]
        self._rng = random.Random(f"run/{seed}")
        load = ClientLoad(
            self.shape.clients,
            self.shape.partitions,
            self.shape.keys,
            self.shape.deletes,
            self.shape.zones,
            patience_ms=HASTY_MS if self.shape.hasty else self.shape.id_keep_ms // 2,
            abandon=self.shape.hasty,
        )
        self.clients = SimulatedClients(self.world, self.names, load)
        self._faulty_until = 0

    def run(self) -> None:
        """Raises StoreRuleBrokenError."""
        self.begin()
        self._faulty_until = self.world.time.now + self.shape.faults_ms
        self._next_fault()
        self.world.time.run_until(self._faulty_until)
        self.rest()
        self.check()

    def begin(self) -> None:
        """All servers join and the zone is open."""
        world = self.world
        for name in self.names:
            world.start(name)
        world.time.run_until(2_500)
        self.set_targets(Trigger.ZONE_START)
        world.time.run_until(4_000)

    def set_targets(self, trigger: Trigger = Trigger.TARGET_SET) -> None:
        """Set the targets of all zones when they start, else of one."""
        zones = self.zones
        if trigger is not Trigger.ZONE_START and len(zones) > 1:
            zones = (self._rng.choice(zones),)
        lists = {zone: self._lists() for zone in zones}
        revision = self.world.metastore.set_targets(lists)
        shape = self.shape
        specs = tuple(ZoneSpec(zone, shape.partitions, shape.copies, targets=revision) for zone in zones)
        self.world.metastore.custom(trigger, specs)
        self.world.note(f"{trigger.value} {lists}")

    def _lists(self) -> Lists:
        return tuple(
            tuple(self._rng.sample(self.names, self.shape.copies)) for _ in range(self.shape.partitions)
        )

    # Faults

    def _next_fault(self) -> None:
        world = self.world
        if world.time.now >= self._faulty_until:
            return
        fault = self._rng.choice(self._faults())
        fault()
        world.time.after(self._rng.randint(*self.shape.fault_every_ms), self._next_fault)

    def _faults(self) -> list[Callable[[], None]]:
        if self.shape.moves_only:
            return [self.set_targets, self._slow_disk, self._slow_disk]
        return [
            self._kill,
            self._kill,
            self._kill_all,
            self._leave,
            self._pause,
            self._pause,
            self._pause,
            self._cut,
            self._cut,
            self._cut_from_metastore,
            self._pause_metastore,
            self.set_targets,
            self.set_targets,
            self.set_targets,
            self.world.heal,
            self._jump,
            self._slow_disk,
            self._slow_disk,
            self._fill_disk,
            self._deactivate,
            self._refuse_results,
            *([self._refill] * 4 if self.shape.refills else []),
        ]

    def _kill(self) -> None:
        alive = self.world.alive
        if alive:
            name = self._rng.choice(alive).name
            self.world.kill(name)
            self._reap(name)
            self._start_later(name)

    def _kill_all(self) -> None:
        if self._rng.random() < 0.3:
            for item in self.world.alive:
                self.world.kill(item.name)
                self._reap(item.name)
                self._start_later(item.name)

    def _reap(self, name: str) -> None:
        """Have a server's agent report that it ended, unless the agent went with it: it is failed while its
        messages are still on their way."""
        key = (name, self.world.processes[name].incarnation)
        if self._rng.random() < 0.5:
            heartbeats = self.world.metastore.heartbeats

            def report() -> None:
                heartbeats.pop(key, None)

            self.world.time.after(self._rng.randint(1, 60), report)

    def _start_later(self, name: str) -> None:
        process = self.world.processes[name]
        delay = self._rng.choice((100, 500, 3_000, 9_000))

        def start() -> None:
            if self.world.processes[name] is process:
                self.world.start(name)

        self.world.time.after(delay, start)

    def _leave(self) -> None:
        """Ask a server to leave in order: it drains first, and takes no new requests. It is killed if that
        takes too long."""
        alive = [item for item in self.world.alive if not item.is_paused]
        if not alive:
            return
        process = self._rng.choice(alive)
        self.world.note(f"{process.name} is asked to leave")
        process.give(LeaveAsked())

        def end() -> None:
            if process.is_alive:
                self.world.kill(process.name)
                self._start_later(process.name)

        self.world.time.after(6_000, end)

    def _pause(self) -> None:
        alive = [item for item in self.world.alive if not item.is_paused]
        if alive:
            process = self._rng.choice(alive)
            self.world.note(f"{process.name} is paused")
            process.pause()
            self.world.time.after(self._rng.choice((50, 900, 3_000, 8_000, 12_000)), process.resume)

    def _cut(self) -> None:
        one, other = self._rng.sample(self.names, 2)
        if self._rng.random() < 0.3:
            for name in self.names:
                if name != one:
                    self.world.cut(one, name)
        else:
            self.world.cut(one, other)
        self.world.time.after(self._rng.choice((500, 3_000, 9_000)), self.world.heal)

    def _cut_from_metastore(self) -> None:
        name = self._rng.choice(self.names)
        self.world.cut_from_metastore.add(name)
        self.world.note(f"{name} is cut from the metastore")
        self.world.time.after(self._rng.choice((500, 3_000, 9_000)), self.world.heal)

    def _pause_metastore(self) -> None:
        self.world.metastore_pauses = True
        self.world.note("the metastore pauses")
        self.world.time.after(self._rng.choice((500, 3_000, 7_000)), self.world.heal)

    def _jump(self) -> None:
        self.world.clocks[self._rng.choice(self.names)].ahead_ms += self._rng.choice((700, 3_000, 20_000))

    def _slow_disk(self) -> None:
        alive = self.world.alive
        if alive:
            self._rng.choice(alive).disk_ms = (1, self._rng.choice((2, 50, 700)))

    def _fill_disk(self) -> None:
        """Fill a disk for a while; the server hears of it a little before."""
        alive = [each for each in self.world.alive if not each.is_paused]
        if not alive:
            return
        process = self._rng.choice(alive)
        self.world.note(f"{process.name} has no room")
        process.give(RoomChanged(has_room=False))
        self.world.time.after(20, lambda: process.fill(self._rng.choice((0.2, 0.9))))
        self.world.time.after(self._rng.choice((500, 3_000, 9_000)), process.empty)

    def _deactivate(self) -> None:
        metastore = self.world.metastore
        if metastore.ring.cluster.active:
            metastore.custom(Trigger.DEACTIVATE)
            self.world.time.after(self._rng.choice((500, 3_000, 9_000)), self._activate)

    def _activate(self) -> None:
        metastore = self.world.metastore
        if not metastore.ring.cluster.active:
            metastore.custom(Trigger.ACTIVATE)

    def _refill(self) -> None:
        alive = self.world.alive
        if alive:
            process, partition = self._rng.choice(alive), self._rng.choice(self._partitions)
            self.world.note(f"{partition} of {process.name} is to be filled anew")
            process.give(CopiesAsked(0, CopiesRequest(0, (partition,))))

    def _refuse_results(self) -> None:
        """Refuse results, and nothing else, so that servers come and go and no exchange ends."""
        metastore = self.world.metastore
        self.world.note("results are not taken")
        metastore.takes_results = False
        self.world.time.after(self._rng.choice((3_000, 12_000)), metastore.take_results)

    @property
    def _partitions(self) -> list[PartitionKey]:
        return [(zone, number) for zone in self.zones for number in range(self.shape.partitions)]

    def _nodes(self, partition: PartitionKey) -> tuple[str, ...]:
        """That shall hold it."""
        zone, number = partition
        return self.world.metastore.targets[max(self.world.metastore.targets)][zone][number]

    # Rest

    def rest(self) -> None:
        """Faults end; everything runs until all copies are where they should be and every client knows."""
        world = self.world
        self._faulty_until = world.time.now
        world.heal()
        self._activate()
        self.set_targets()
        end = world.time.now + REST_MS
        while self.clients.goes_on or not self.clients.is_idle or self.unrest():
            if world.time.now >= end:
                raise StoreRuleBrokenError(f"no rest after {REST_MS} ms: {self.unrest()}")
            for name in self.names:
                process = world.processes[name]
                process.disk_ms = (1, 20)
                process.empty()
                if process.is_alive and process.is_paused:
                    process.resume()
                elif not process.is_alive and world.time.now > self._faulty_until + 10_000:
                    world.start(name)
            world.time.run_until(world.time.now + 1_000)
            self._reset_unused()
            if world.time.now > self._faulty_until + 12_000:
                self.clients.goes_on = False
        for partition in self._partitions:
            for key in range(self.shape.keys):
                client = 1_000 * partition[0] + 100 * partition[1] + key
                self.clients.begin(client, partition, f"k{key}".encode(), None)
        while not self.clients.is_idle:
            if world.time.now >= end:
                raise StoreRuleBrokenError(f"reads are not answered: {self.unrest()}")
            world.time.run_until(world.time.now + 500)

    def _reset_unused(self) -> None:
        """An operator resets a zone whose owners went before they had opened it: their copies are as new as
        those on a new disk. Every other loss ends by itself once all are back, as no disk is lost here."""
        metastore, cluster = self.world.metastore, self.world.metastore.ring.cluster
        if len(cluster.servers) < len(self.names) or cluster.version != metastore.result_state.version:
            return
        used = {operation.partition for operation in self.clients.history.acknowledged}
        for zone in self.zones:
            outcomes = metastore.result_state.outcomes.get(zone, ())
            lost = {(zone, number) for number, outcome in enumerate(outcomes) if outcome.is_lost}
            if lost and not lost & used:
                metastore.custom(Trigger.LOSS_RESET, (cluster.zones[zone],))
                return

    def unrest(self) -> str:
        """Thing that is not as it should be; empty at rest."""
        world = self.world
        for partition in self._partitions:
            nodes = self._nodes(partition)
            for name in nodes:
                process = world.processes[name]
                copy = process.server.shared.copies.get(partition)
                if not process.is_alive or copy is None or copy.state is not CopyState.OWNING:
                    return f"copy of {partition} on {name} is {copy.state if copy is not None else None}"
            if partition not in serving(world.processes[nodes[0]]):
                return f"{nodes[0]} does not serve {partition}"
        for process in world.alive:
            worker = process.server.worker
            if worker is None or not worker.is_idle:
                return f"{process.name} is in {worker.running if worker is not None else 'no ring'}"
            for key, copy in process.server.shared.copies.items():
                if process.name not in self._nodes(key) and copy.state is not CopyState.EVICTED:
                    return f"{process.name} has {key} {copy.state}"
        return ""

    def check(self) -> None:
        """Check the answers of clients and the stored data, at rest."""
        self.clients.history.check()
        for name in sorted(self.world.disks):
            check_disk(name, self.world.disks[name])
        for partition in self._partitions:
            self._check_copies(partition, self._nodes(partition))

    def _check_copies(self, partition: PartitionKey, nodes: tuple[str, ...]) -> None:
        """Check that copies are equal, but for ids that may expire: each copy drops those when it cuts its
        log."""
        stored = [self.world.disks[name].partitions[partition] for name in nodes]
        rows = [{key: row for key, row in item.rows.items() if row.value is not None} for item in stored]
        last_ms = max((entry.time_ms for item in stored for entry in item.ids.values()), default=0)
        kept_ms = last_ms - self.shape.id_keep_ms
        ids = [{entry.write for entry in item.ids.values() if entry.time_ms >= kept_ms} for item in stored]
        if any(item != rows[0] for item in rows[1:]) or any(item != ids[0] for item in ids[1:]):
            raise StoreRuleBrokenError(f"copies of {partition} on {nodes} differ: {rows} {ids}")
        for disk in stored:
            writes = [record.write for record in disk.log.values()]
            twice = {item for item in writes if writes.count(item) > 1}
            if twice:
                raise StoreRuleBrokenError(f"writes {sorted(twice)} are in the log of {partition} twice")
            times = [disk.log[position].time_ms for position in sorted(disk.log)]
            if times != sorted(times):
                raise StoreRuleBrokenError(f"the time of {partition} goes back: {times}")
        recent_ms = self.world.time.now - self.shape.id_keep_ms / DRIFT
        for operation in self.clients.history.acknowledged:
            is_recent = operation.invoked_ms >= recent_ms
            if operation.partition == partition and is_recent and operation.write not in ids[0]:
                raise StoreRuleBrokenError(f"{operation} was acknowledged and is not on {nodes}")
