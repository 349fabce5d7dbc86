"""All nodes, the ring and the network in one place. Each method is one step; ``check`` runs after each.

The ring is one order of events for all nodes, which each node hears of in its own time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeVar

from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Cluster, DiscoveryEvent, TopologyVersion, Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists, Message
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.late_affinity import AffinityFunction
from rebalance.exchange.simulation.exchange_copies import CopyStore, PartitionKey, WriteAheadLog
from rebalance.exchange.simulation.exchange_node import ExchangeTrace, Outside, SimulatedNode
from rebalance.exchange.simulation.exchange_workload import ExchangeOperation, Workload
from rebalance.kernels.rendezvous import place

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Joining:
    """A node that the others are told of. Its join becomes an event when all of them know it (PME-002)."""

    name: str
    is_client: bool
    zones: tuple[ZoneSpec, ...]
    seen: set[str] = field(default_factory=set)


class Ring:
    """``events`` in order; ``cluster`` is what they make. Reliable: an event may be heard late, never lost."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.events: list[DiscoveryEvent] = []
        self.joining: list[Joining] = []
        self._orders = 0

    def announce(self, name: str, is_client: bool, zones: tuple[ZoneSpec, ...]) -> None:
        self.joining.append(Joining(name, is_client, zones))

    def see(self, node: str) -> bool:
        """``node`` hears of the next joining node that it does not know; False when it knows all."""
        for each in self.joining:
            if node not in each.seen:
                each.seen.add(node)
                return True
        return False

    def visible(self, alive: frozenset[str]) -> Joining | None:
        """The first joining node if every living node knows it: it is removed, its event is due."""
        if self.joining and alive <= self.joining[0].seen:
            return self.joining.pop(0)
        return None

    def join(self, joining: Joining) -> DiscoveryEvent:
        self._orders += 1
        return self.append(
            Trigger.NODE_JOINED,
            node=joining.name,
            order=self._orders,
            is_client=joining.is_client,
            zones=joining.zones,
        )

    def append(
        self,
        trigger: Trigger,
        *,
        node: str = "",
        order: int = 0,
        is_client: bool = False,
        zones: tuple[ZoneSpec, ...] = (),
        baseline: frozenset[str] | None = None,
        basis: TopologyVersion | None = None,
    ) -> DiscoveryEvent:
        version = self.cluster.version_after(trigger)
        event = DiscoveryEvent(version, trigger, node, order, is_client, zones, baseline, basis)
        self.cluster = self.cluster.after(event)
        self.events.append(event)
        return event


@dataclass(frozen=True, slots=True)
class Envelope:
    sender: str
    to: str
    message: Message


@lru_cache(maxsize=4096)
def rendezvous_lists(zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
    """The affinity function by default (PME-077)."""
    matrix = place(nodes, range(zone.partitions), zone.copies)
    return tuple(tuple(nodes[index] for index in row) for row in matrix)


class ExchangeWatcher(Protocol):
    def stepped(self, world: ExchangeWorld) -> None: ...

    def rented(self, world: ExchangeWorld, node: str, key: PartitionKey) -> None: ...


class ExchangeWorld:
    """``persistent``: copies survive their server. ``watchers`` see the world after each step, and each copy
    that begins to rent when it does."""

    def __init__(
        self,
        zones: Iterable[ZoneSpec],
        *,
        baseline: frozenset[str] | None = None,
        persistent: bool = False,
        affinity: AffinityFunction = rendezvous_lists,
        active: bool = True,
    ) -> None:
        known = {each.zone_id: each for each in zones}
        self._first_zones = tuple(known.values())
        self.ring = Ring(Cluster(baseline=baseline, active=active))
        self.nodes: dict[str, SimulatedNode] = {}
        self.network: list[Envelope] = []
        self.sent: list[Envelope] = []
        self.trace: list[ExchangeTrace] = []
        self.workload = Workload(self.nodes)
        self.undetected: dict[str, bool] = {}
        self.watchers: list[ExchangeWatcher] = []
        self._persistent = persistent
        self._affinity = affinity
        self._disks: dict[str, tuple[CopyStore, WriteAheadLog]] = {}
        self._cannot_calculate: set[str] = set()

    # Members

    def start(
        self, name: str, *, client: bool = False, zones: tuple[ZoneSpec, ...] = (), can_calculate: bool = True
    ) -> None:
        """The node is announced; its join is an event once all living nodes know of it."""
        if not self.ring.events:
            zones = (*self._first_zones, *zones)
        if not can_calculate:
            self._cannot_calculate.add(name)
        self.ring.announce(name, client, zones)
        self._join_if_visible()
        self._stepped()

    def _join_if_visible(self) -> None:
        joining = self.ring.visible(frozenset(self.nodes))
        if joining is None or joining.name in self.ring.cluster.servers:
            # Its former self was not found dead yet: it tries again.
            if joining is not None:
                self.ring.joining.append(Joining(joining.name, joining.is_client, joining.zones))
            return
        before, cursor = self.ring.cluster, len(self.ring.events)
        event = self.ring.join(joining)
        store, log = self._disks.pop(joining.name, (CopyStore(), WriteAheadLog()))
        worker = ExchangeWorker(
            joining.name, event.order, before, self._affinity, joining.name not in self._cannot_calculate
        )
        outside = Outside(self._send, self._switch, self.workload.has_open, self.trace.append)
        node = SimulatedNode(joining.name, joining.is_client, worker, store, log, outside)
        node.cursor = cursor
        node.joined = event.version
        self.nodes[joining.name] = node

    def stop(self, name: str) -> None:
        """In order: the ring knows at once."""
        self._end(name)
        self.ring.append(Trigger.NODE_LEFT, node=name, is_client=name in self.ring.cluster.clients)
        self._stepped()

    def kill(self, name: str) -> None:
        """Nobody knows until ``detect``."""
        self.undetected[name] = self.nodes[name].is_client
        self._end(name)
        self._stepped()

    def detect(self, name: str) -> None:
        self.ring.append(Trigger.NODE_FAILED, node=name, is_client=self.undetected.pop(name))
        self._stepped()

    def _end(self, name: str) -> None:
        node = self.nodes.pop(name)
        if self._persistent and not node.is_client:
            self._disks[name] = node.store, node.log
        self.workload.end_node(node)
        self._join_if_visible()

    def custom(
        self, trigger: Trigger, zones: tuple[ZoneSpec, ...] = (), baseline: frozenset[str] | None = None
    ) -> None:
        self.ring.append(trigger, zones=zones, baseline=baseline)
        self._stepped()

    def _switch(self, basis: TopologyVersion) -> None:
        self.ring.append(Trigger.AFFINITY_CHANGE, basis=basis)

    def discover(self, name: str) -> bool:
        """The node hears of one more thing on the ring; False when it has heard all."""
        node = self.nodes[name]
        if self.ring.see(name):
            self._join_if_visible()
        elif node.cursor < len(self.ring.events):
            event = self.ring.events[node.cursor]
            node.cursor += 1
            self.trace.append(ExchangeTrace(name, "Discovered", event.version, event.trigger.value))
            node.carry_out(node.worker.discovered(event))
        else:
            return False
        return self._after(True)

    # Network

    def _send(self, sender: str, to: str, message: Message) -> None:
        self.network.append(Envelope(sender, to, message))
        self.sent.append(self.network[-1])

    def deliver(self, index: int = 0) -> Envelope:
        envelope = self.network.pop(index)
        node = self.nodes.get(envelope.to)
        if node is not None:
            node.carry_out(node.worker.received(envelope.message))
        return self._after(envelope)

    def drop(self, index: int) -> None:
        self.network.pop(index)

    def repeat(self, index: int) -> None:
        self.network.append(self.network[index])

    def tick(self, name: str) -> None:
        self.nodes[name].carry_out(self.nodes[name].worker.tick())
        self._stepped()

    # Copies

    def notify(self, name: str) -> None:
        self.nodes[name].notify()
        self._stepped()

    def fill(self, name: str, batch: int = 1) -> bool:
        """One batch for each copy of the node that is being filled and has somebody to ask."""
        node, did = self.nodes[name], False
        for key, _ in list(node.store.of_state(CopyState.MOVING)):
            if node.worker.running is not None and node.worker.running.phase in (Phase.SENT, Phase.COLLECT):
                break
            supplier = node.supplier(key)
            if supplier is None:
                continue
            other = self.nodes.get(supplier)
            if other is None or not other.serves(key[0]) or other.store.state(key) is not CopyState.OWNING:
                node.avoid(key, supplier)
            else:
                did |= node.fill(key, other, batch)
        return self._after(did)

    def rent(self, name: str) -> bool:
        rented = self.nodes[name].rent()
        for key in rented:
            for watcher in self.watchers:
                watcher.rented(self, name, key)
        return self._after(bool(rented))

    def clear(self, name: str) -> bool:
        return self._after(self.nodes[name].clear())

    def checkpoint(self, name: str) -> None:
        self.nodes[name].checkpoint()

    def truncate(self, name: str) -> None:
        """As much of the log as may go: what is older than the last checkpoint."""
        log = self.nodes[name].log
        if log.checkpoints:
            log.truncate(log.checkpoints[-1].position)

    # Operations

    def advance(self, operation: ExchangeOperation) -> bool:
        return self._after(self.workload.advance(operation))

    def commit(self, operation: ExchangeOperation, backup: str) -> bool:
        return self._after(self.workload.commit(operation, backup))

    def time_out(self, name: str) -> list[ExchangeOperation]:
        return self._after(self.workload.time_out(name))

    def _after(self, result: T) -> T:
        """``result`` of a step that was just taken."""
        self._stepped()
        return result

    def _stepped(self) -> None:
        for node in list(self.nodes.values()):
            node.look_again()
        self.workload.settle_losses()
        for watcher in self.watchers:
            watcher.stepped(self)
