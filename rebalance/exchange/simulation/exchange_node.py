"""One simulated node: carries out what its exchange worker asks for, and keeps copies between exchanges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.partition_map import SingleMap
from rebalance.core.store_positions import StorePosition
from rebalance.core.topology_version import NO_VERSION, TopologyVersion
from rebalance.exchange.core.exchange_effects import (
    Apply,
    AskSwitch,
    AwaitUpdates,
    CloseZones,
    Effect,
    Entered,
    Finished,
    KeepResult,
    MapsChanged,
    OpenZones,
    Prepare,
    Send,
    TakeTopology,
    Warn,
)
from rebalance.exchange.core.exchange_messages import CopyId, FullMessage, Message
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.late_affinity import surplus_partitions
from rebalance.exchange.simulation.exchange_copies import CopyStore, PartitionKey, WriteAheadLog


class TopologyLock:
    """Nobody blocks: ``False`` means "not yet, ask again". A waiting writer lets no new reader in, so that an
    exchange is not put off for ever (PME-129, PME-130)."""

    def __init__(self) -> None:
        self.readers: set[Hashable] = set()
        self.writer: Hashable | None = None
        self.waiting: Hashable | None = None

    def read(self, who: Hashable) -> bool:
        if self.writer is not None or self.waiting is not None:
            return False
        self.readers.add(who)
        return True

    def end_read(self, who: Hashable) -> None:
        self.readers.discard(who)

    def write(self, who: Hashable) -> bool:
        """Granted when there is no reader and no other writer; until then ``who`` is the one that waits."""
        if self.writer not in (None, who):
            return False
        self.waiting = who
        if self.readers:
            return False
        self.writer, self.waiting = who, None
        return True

    def end_write(self, who: Hashable) -> None:
        if self.writer == who:
            self.writer = None


@dataclass(frozen=True, slots=True)
class ExchangeTrace:
    """One line of a node's trace. ``kind`` is an effect's name or a step of the node's own."""

    node: str
    kind: str
    version: TopologyVersion | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Outside:
    """What a node reaches of the world around it."""

    send: Callable[[str, str, Message], None]
    switch: Callable[[TopologyVersion], None]
    has_open_updates: Callable[[str, TopologyVersion], bool]
    trace: Callable[[ExchangeTrace], None]


class SimulatedNode:
    """``listeners`` are called once for each finished exchange. ``cursor``: how far it has heard the ring.
    ``joined``: the version of its join; a node that comes back under its name is another one."""

    def __init__(
        self,
        name: str,
        is_client: bool,
        worker: ExchangeWorker,
        store: CopyStore,
        log: WriteAheadLog,
        outside: Outside,
    ) -> None:
        self.name = name
        self.is_client = is_client
        self.worker = worker
        self.store = store
        self.log = log
        self.cursor = 0
        self.joined = NO_VERSION
        self.lock = TopologyLock()
        self.listeners: list[Callable[[TopologyVersion], None]] = []
        self.opened: set[ZoneId] = set()
        self.closed: set[ZoneId] = set()
        self.warnings: list[str] = []
        self.sources: Mapping[CopyId, str] = {}
        self.reserved: Mapping[PartitionKey, StorePosition] = {}
        self._outside = outside
        self._taking: TopologyVersion | None = None
        self._awaiting: AwaitUpdates | None = None
        self._frozen = False
        self._avoided: dict[PartitionKey, set[str]] = {}

    @property
    def can_serve(self) -> bool:
        """The topology future is done: operations are mapped on the version that is held. An exchange that has
        not got the write lock yet is not that future."""
        running = self.worker.running
        return running is None or running.phase in (Phase.INIT, Phase.TOPOLOGY)

    def serves(self, zone: ZoneId) -> bool:
        """It has finished an exchange with the zone open: until then its copies are what it found on its
        disk."""
        return zone in self.worker.held.maps

    @property
    def waits_for_updates(self) -> bool:
        return self._awaiting is not None

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """In order; answers that are there at once bring more effects, which come after."""
        queue = deque(effects)
        while queue:
            queue.extend(self._do(queue.popleft()))

    def look_again(self) -> None:
        """Something ended: a reader of the lock, an operation."""
        if self._taking is not None:
            self.carry_out(self._take_topology(self._taking))
        if self._awaiting is not None:
            self.carry_out(self._await_updates(self._awaiting))

    def _do(self, effect: Effect) -> list[Effect]:
        match effect:
            case Send(to, message):
                self._outside.send(self.name, to, message)
            case Entered(version, kind, phase, awaited):
                self.note("Entered", version, f"{kind.value} {phase.value} {','.join(sorted(awaited))}".strip())
            case OpenZones(version, zones):
                self.opened |= {each.zone_id for each in zones}
                self.closed -= {each.zone_id for each in zones}
                self.note("OpenZones", version, ",".join(str(each.zone_id) for each in zones))
            case CloseZones(version, numbers):
                self.closed |= set(numbers)
                self.note("CloseZones", version, ",".join(map(str, numbers)))
            case TakeTopology(version):
                self._taking = version
                return self._take_topology(version)
            case AwaitUpdates():
                self._awaiting = effect
                return self._await_updates(effect)
            case Prepare(version, wanted):
                return self._prepare(version, wanted)
            case Apply():
                self._apply(effect)
            case Finished(version, kind, merged):
                self._frozen = False
                self.note("Finished", version, f"{kind.value} {','.join(map(str, merged))}".strip())
                for listener in self.listeners:
                    listener(version)
            case MapsChanged():
                self._release_history()
                self.note("MapsChanged", self.worker.held.basis)
            case AskSwitch(basis):
                self.note("AskSwitch", basis)
                self._outside.switch(basis)
            case KeepResult():
                raise AssertionError("nothing is kept here")
            case Warn(difference):
                self.warnings.append(difference.describe())
        return []

    def _take_topology(self, version: TopologyVersion) -> list[Effect]:
        if not self.lock.write(version):
            return []
        self._taking = None
        self.note("TopologyFuture", version)
        self.lock.end_write(version)
        return self.worker.topology_taken(version)

    def _await_updates(self, wait: AwaitUpdates) -> list[Effect]:
        if self._outside.has_open_updates(self.name, wait.version):
            return []
        self._awaiting = None
        self.note("UpdatesEnded", wait.version, "commits" if wait.commits else "")
        return self.worker.updates_ended(wait.version)

    def _prepare(self, version: TopologyVersion, wanted: Mapping[ZoneId, frozenset[int]]) -> list[Effect]:
        self._frozen = True
        self.reserved = {key: StorePosition(0, counter) for key, counter in self.log.reserve().items()}
        self.store.drop_evicted()
        for zone, partitions in wanted.items():
            for number in sorted(partitions):
                if self.store.state((zone, number)) in (None, CopyState.RENTING):
                    self.store.create((zone, number))
        zones = self.worker.cluster_at(version).open_zones
        for key in [key for key in self.store.copies if key[0] not in self.worker.cluster_at(version).zones]:
            del self.store.copies[key]
            self.store.index = {row for row in self.store.index if row[:2] != key}
        maps = self.store.single_maps(self.name, version, zones)
        return self.worker.prepared(version, maps, self.reserved)

    def _apply(self, effect: Apply) -> None:
        if self.is_client:
            return
        message = effect.message
        for zone, full in message.maps.items():
            for number, report in full.nodes.get(self.name, {}).items():
                self._apply_copy((zone, number), report.state, report.counter, message)
        self.sources = {copy: each.node for copy, each in message.suppliers.items() if copy.node == self.name}
        self._avoided.clear()
        self._release_history()

    def _apply_copy(self, key: PartitionKey, state: CopyState, counter: int, message: FullMessage) -> None:
        before = self.store.state(key)
        created = state is CopyState.MOVING or (state is CopyState.OWNING and before is CopyState.RENTING)
        if created and before in (None, CopyState.RENTING, CopyState.EVICTED):
            self.store.create(key)
        if state is CopyState.OWNING and before is not CopyState.OWNING:
            self.store.found(key, counter)
        else:
            self.store.set_state(key, state)
        copy = self.store.copies[key]
        if state is CopyState.MOVING:
            if before is CopyState.OWNING:
                copy.complete = copy.counter
            copy.counter = counter
            if CopyId(key[0], key[1], self.name) in message.reload:
                copy.complete, copy.doomed = 0, set(copy.rows)

    def single_maps(self) -> Mapping[ZoneId, SingleMap]:
        return self.store.single_maps(self.name, self.worker.held.basis, self.worker.held.maps)

    def _release_history(self) -> None:
        """Nobody fills a copy any more, as far as is known."""
        maps = self.worker.held.maps.values()
        copies = (each for full in maps for of_node in full.nodes.values() for each in of_node.values())
        if not any(each.state is CopyState.MOVING for each in copies):
            self.log.release()

    # Between exchanges

    def notify(self) -> None:
        """The timer of a state notification is over."""
        if not self.is_client:
            self.carry_out(self.worker.state_changed(self.single_maps()))

    def supplier(self, key: PartitionKey) -> str | None:
        """Whom to ask for a copy: who can replay history, else any owner that was not asked in vain."""
        full = self.worker.held.maps.get(key[0])
        if full is None:
            return None
        owners = full.owners(key[1]) & self.worker.cluster.servers.keys() - {self.name}
        wanted = self.sources.get(CopyId(key[0], key[1], self.name))
        fresh = owners - self._avoided.get(key, set())
        return wanted if wanted in fresh else min(fresh or owners, default=None)

    def avoid(self, key: PartitionKey, supplier: str) -> None:
        self._avoided.setdefault(key, set()).add(supplier)

    def fill(self, key: PartitionKey, supplier: SimulatedNode, batch: int) -> bool:
        """One batch of a demand; False when nothing may change now. The copy owns when it has every row of its
        supplier."""
        copy = self.store.copies[key]
        if self._frozen or copy.state is not CopyState.MOVING:
            return False
        if copy.doomed:
            for row in sorted(copy.doomed)[:batch]:
                self.store.remove(key, row)
            return True
        historical = self.sources.get(CopyId(key[0], key[1], self.name)) == supplier.name
        rows = supplier.store.copies[key].rows
        offered = supplier.log.updates_after(key, copy.complete) if historical else rows
        missing = sorted(offered - copy.rows)[:batch]
        for row in missing:
            self.store.put(key, row)
            self.log.append(key, row)
        kind = "history" if historical else "full"
        self.note("Demand", self.worker.held.basis, f"{key} {supplier.name} {len(missing)} {kind}")
        if not offered - copy.rows:
            self.store.own(key)
            self.note("Owns", self.worker.held.basis, str(key))
        return True

    def rent(self) -> tuple[PartitionKey, ...]:
        """Copies that nobody needs become RENTING; not while an exchange waits or runs, as it may need them.
        Returns those that were owned."""
        if self._frozen or not self.worker.is_idle or self.is_client:
            return ()
        rented = []
        held = self.worker.held
        for zone, full in held.maps.items():
            own = {number: copy.state for (of, number), copy in self.store.copies.items() if of == zone}
            for number in sorted(surplus_partitions(full, held.affinities[zone], self.name, own)):
                state = self.store.state((zone, number))
                self.store.set_state((zone, number), CopyState.RENTING)
                self.note("Rents", held.basis, str((zone, number)))
                if state is CopyState.OWNING:
                    rented.append((zone, number))
        return tuple(rented)

    def checkpoint(self) -> None:
        """With the counters of the copies that are complete."""
        owned = self.store.of_state(CopyState.OWNING)
        self.log.checkpoint({key: copy.counter for key, copy in owned})

    def clear(self) -> bool:
        """Remove one row of a renting copy; the last one makes it EVICTED. False when there is nothing to
        do."""
        if self._frozen:
            return False
        for key, copy in self.store.of_state(CopyState.RENTING):
            if copy.rows:
                self.store.remove(key, min(copy.rows))
            else:
                self.store.set_state(key, CopyState.EVICTED)
                self.note("Evicts", self.worker.held.basis, str(key))
            return True
        return False

    def note(self, kind: str, version: TopologyVersion | None, detail: str = "") -> None:
        self._outside.trace(ExchangeTrace(self.name, kind, version, detail))
