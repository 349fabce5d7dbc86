"""The operations of a simulated cluster: begun on any node, led by a primary, committed on backups, step by
step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rebalance.core.affinity import CopyState
from rebalance.core.loss_policy import Access, why_refused
from rebalance.core.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.simulation.exchange_copies import PartitionKey
from rebalance.exchange.simulation.exchange_node import SimulatedNode


class ExchangeStage(Enum):
    NEW = "NEW"
    LOCKED = "LOCKED"  # it holds its node's topology lock for reading
    WAITING = "WAITING"  # for the topology future, without holding anything
    MAPPED = "MAPPED"  # on a version; a future of its own on the node that began it
    ENLISTED = "ENLISTED"  # the primary has a future of it too; a transaction may stay here
    COMMITTING = "COMMITTING"  # the primary has applied it, commits to backups are on their way
    DONE = "DONE"
    REFUSED = "REFUSED"
    ROLLED_BACK = "ROLLED_BACK"


ENDED = (ExchangeStage.DONE, ExchangeStage.REFUSED, ExchangeStage.ROLLED_BACK)


class SyncMode(Enum):
    """When the node that began an update is told: after all commits, or after the primary's."""

    FULL_SYNC = "FULL_SYNC"
    PRIMARY_SYNC = "PRIMARY_SYNC"


@dataclass(slots=True)
class ExchangeOperation:
    """``near`` began it. ``held_open``: a user holds the transaction and does nothing. ``versions``: every
    version that it was mapped on, the last one counts."""

    number: int
    near: str
    partition: PartitionKey
    access: Access = Access.WRITE
    mode: SyncMode = SyncMode.FULL_SYNC
    held_open: bool = False
    stage: ExchangeStage = ExchangeStage.NEW
    primary: str = ""
    versions: list[TopologyVersion] = field(default_factory=list)
    basis: TopologyVersion | None = None
    """The exchange whose assignments named the primary."""
    update: int = 0
    losses: int = 0
    reason: str = ""
    commits: set[str] = field(default_factory=set)
    """Backups whose commit is on its way."""

    @property
    def version(self) -> TopologyVersion | None:
        return self.versions[-1] if self.versions else None

    def is_open_on(self, node: str, is_server: bool) -> bool:
        """Whether ``node`` has a future of it: as where it began (servers only release those), as the primary,
        or as a backup with a commit on its way (PME-043..045)."""
        if node in self.commits:
            return True
        if self.stage in (ExchangeStage.MAPPED, ExchangeStage.ENLISTED):
            return (is_server and node == self.near) or (
                self.stage is ExchangeStage.ENLISTED and node == self.primary
            )
        if self.stage is ExchangeStage.COMMITTING and self.mode is SyncMode.FULL_SYNC:
            return node in (self.primary, self.near) and is_server
        return False


BEFORE_RELEASE = (Phase.INIT, Phase.TOPOLOGY, Phase.RELEASE)


class Workload:
    """``acknowledged``: by partition the updates that somebody was told of, since the last owner was lost;
    ``losses`` counts how often that was."""

    def __init__(self, nodes: Mapping[str, SimulatedNode]) -> None:
        self.operations: list[ExchangeOperation] = []
        self.acknowledged: dict[PartitionKey, set[int]] = {}
        self.losses: Counter[PartitionKey] = Counter()
        self._nodes = nodes
        self._begun = 0

    @property
    def open(self) -> list[ExchangeOperation]:
        return [each for each in self.operations if each.stage not in ENDED]

    def begin(
        self,
        near: str,
        partition: PartitionKey,
        *,
        access: Access = Access.WRITE,
        mode: SyncMode = SyncMode.FULL_SYNC,
        held_open: bool = False,
    ) -> ExchangeOperation:
        self._begun += 1
        self.operations.append(ExchangeOperation(self._begun, near, partition, access, mode, held_open))
        return self.operations[-1]

    def advance(self, operation: ExchangeOperation) -> bool:
        """The operation's next step; False when it has to wait."""
        match operation.stage:
            case ExchangeStage.NEW:
                return self._lock(operation)
            case ExchangeStage.LOCKED:
                return self._map(operation)
            case ExchangeStage.WAITING if self._nodes[operation.near].can_serve:
                operation.stage = ExchangeStage.NEW
                return True
            case ExchangeStage.MAPPED:
                return self._enlist(operation)
            case ExchangeStage.ENLISTED if not operation.held_open:
                self._apply(operation)
                return True
            case _:
                return False

    def commit(self, operation: ExchangeOperation, backup: str) -> bool:
        """The primary's update arrives at a backup; it waits there for the exchange that it was mapped on.
        After a later one it counts for nothing: the primary has died, and the exchange ended without the
        update."""
        basis = self._nodes[backup].worker.held.basis
        if operation.basis is not None and basis < operation.basis:
            return False
        operation.commits.discard(backup)
        store, key = self._nodes[backup].store, operation.partition
        if basis != operation.basis:
            self._void(operation)
        elif store.state(key) in (CopyState.OWNING, CopyState.MOVING):
            store.put(key, operation.update)
            self._nodes[backup].log.append(key, operation.update)
        self._nodes[backup].note("Commit", operation.version, str(operation.number))
        self._end_if_committed(operation)
        return True

    def time_out(self, name: str) -> list[ExchangeOperation]:
        """The exchange has waited long enough on this node: what is held open there is rolled back
        (PME-051)."""
        node = self._nodes[name]
        rolled_back = []
        for each in self.open:
            if node.waits_for_updates and each.held_open and each.is_open_on(name, not node.is_client):
                each.stage = ExchangeStage.ROLLED_BACK
                each.reason = f"rolled back by {name}: an exchange of the partition map waited for it too long"
                rolled_back.append(each)
        return rolled_back

    def has_open(self, name: str, version: TopologyVersion) -> bool:
        """Whether an update of an earlier version is open on the node."""
        is_server = name in self._nodes and not self._nodes[name].is_client
        return any(
            each.version is not None and each.version < version and each.is_open_on(name, is_server)
            for each in self.operations
        )

    def end_node(self, node: SimulatedNode) -> None:
        """It is gone (and in ``nodes`` no more): its own operations end, those it led are mapped anew, commits
        that are on their way arrive."""
        for key, _ in list(node.store.of_state(CopyState.OWNING)):
            others = (other for other in self._nodes.values() if other.serves(key[0]))
            if not any(other.store.state(key) is CopyState.OWNING for other in others):
                self.losses[key] += 1
                self.acknowledged.pop(key, None)
        for each in self.open:
            each.commits.discard(node.name)
            if each.stage is ExchangeStage.COMMITTING:
                self._end_if_committed(each)
            elif each.near == node.name:
                each.stage, each.reason = ExchangeStage.ROLLED_BACK, f"{node.name} is gone"
            elif each.primary == node.name and each.stage is ExchangeStage.ENLISTED:
                each.stage = ExchangeStage.WAITING

    def _void(self, operation: ExchangeOperation) -> None:
        """Nobody is told of it any more. PRIMARY_SYNC has told already: that is its price when a primary
        dies."""
        primary = self._nodes.get(operation.primary)
        if operation.basis is not None and (primary is None or primary.joined > operation.basis):
            operation.losses = -1
            self.acknowledged.get(operation.partition, set()).discard(operation.update)

    def settle_losses(self) -> None:
        """What was acknowledged in a partition that is lost now is promised no more: whoever resets it may do
        so with a copy that does not have it."""
        for node in self._nodes.values():
            for zone, numbers in node.worker.held.lost.items():
                for key in ((zone, number) for number in numbers):
                    if self.acknowledged.pop(key, None) is not None:
                        self.losses[key] += 1

    def _lock(self, operation: ExchangeOperation) -> bool:
        node, zone = self._nodes[operation.near], operation.partition[0]
        if zone in node.closed or (zone not in node.opened and not node.is_client):
            operation.stage, operation.reason = ExchangeStage.REFUSED, f"zone {zone} is not open"
            return True
        if not node.lock.read(operation.number):
            return False
        node.note("ReadLock", None, str(operation.number))
        operation.stage = ExchangeStage.LOCKED
        return True

    def _map(self, operation: ExchangeOperation) -> bool:
        """Under the read lock: on the version of the topology future if it is done, else wait for it, holding
        nothing (PME-039, PME-040)."""
        node, (zone, number) = self._nodes[operation.near], operation.partition
        held = node.worker.held
        operation.stage = ExchangeStage.WAITING
        if node.can_serve and zone in held.affinities:
            node.note("ReadFuture", held.version, str(operation.number))
            policy = node.worker.cluster.zones[zone].policy
            primary = held.affinities[zone].primary(number)
            refused = why_refused(policy, operation.access, number, held.lost.get(zone, frozenset()))
            if refused or primary is None:
                operation.stage = ExchangeStage.REFUSED
                operation.reason = refused or f"partition {number} of zone {zone} has no owner"
            else:
                operation.versions.append(held.version)
                operation.stage, operation.primary, operation.basis = ExchangeStage.MAPPED, primary, held.basis
        node.lock.end_read(operation.number)
        node.note("ReadUnlock", None, str(operation.number))
        return True

    def _enlist(self, operation: ExchangeOperation) -> bool:
        """The primary takes it if it is still the one of that exchange, and has not released what is older:
        from servers until they have, from clients until it has itself (PME-044)."""
        primary = self._nodes.get(operation.primary)
        near = self._nodes[operation.near]
        if primary is None or not self._leads(primary, operation) or not self._accepts(primary, near):
            operation.stage = ExchangeStage.WAITING
            return True
        operation.stage = ExchangeStage.ENLISTED
        primary.note("Enlist", operation.version, str(operation.number))
        return True

    @staticmethod
    def _leads(primary: SimulatedNode, operation: ExchangeOperation) -> bool:
        held, (zone, number) = primary.worker.held, operation.partition
        if held.basis != operation.basis or zone not in held.affinities:
            return False
        return held.affinities[zone].primary(number) == primary.name

    @staticmethod
    def _accepts(primary: SimulatedNode, near: SimulatedNode) -> bool:
        running = primary.worker.running
        if running is None or running.phase in BEFORE_RELEASE:
            return True
        return running.phase is Phase.LATCH and not near.is_client

    def _apply(self, operation: ExchangeOperation) -> None:
        primary, key = self._nodes[operation.primary], operation.partition
        if operation.access is Access.READ:
            operation.stage = ExchangeStage.DONE
            return
        store, (zone, number) = primary.store, key
        operation.update = store.copies[key].counter + 1
        operation.losses = self.losses[key]
        store.put(key, operation.update)
        primary.log.append(key, operation.update)
        held = primary.worker.held
        states = held.maps[zone].states(number)
        copies = {node for node, state in states.items() if state in (CopyState.OWNING, CopyState.MOVING)}
        targets = copies | set(held.affinities[zone].effective[number])
        there = {node for node in targets if node in self._nodes and self._nodes[node].joined <= held.basis}
        operation.commits = there - {primary.name}
        operation.stage = ExchangeStage.COMMITTING
        if operation.mode is SyncMode.PRIMARY_SYNC:
            self._acknowledge(operation)
        self._end_if_committed(operation)

    def _end_if_committed(self, operation: ExchangeOperation) -> None:
        if not operation.commits and operation.stage is ExchangeStage.COMMITTING:
            operation.stage = ExchangeStage.DONE
            self._acknowledge(operation)

    def _acknowledge(self, operation: ExchangeOperation) -> None:
        if operation.losses == self.losses[operation.partition]:
            self.acknowledged.setdefault(operation.partition, set()).add(operation.update)
