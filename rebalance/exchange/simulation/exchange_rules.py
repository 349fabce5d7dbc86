"""What must hold after each step of a simulated cluster. The first broken rule ends the run."""

from __future__ import annotations

from collections import defaultdict

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.held_maps import NOT_AGREED, HeldMaps
from rebalance.exchange.simulation.exchange_copies import PartitionKey
from rebalance.exchange.simulation.exchange_node import SimulatedNode
from rebalance.exchange.simulation.exchange_world import ExchangeWorld

MAY_LEAD = (Phase.INIT, Phase.TOPOLOGY, Phase.RELEASE, Phase.LATCH)
"""Until the latch is open a node still leads updates that were mapped on the version before."""


class RuleBrokenError(AssertionError):
    """Names the rule, and what was found."""


class ExchangeRules:
    """A ``Watcher``. Remembers how far each node was."""

    def __init__(self) -> None:
        self.steps = 0
        self._seen: dict[str, tuple[int, HeldMaps]] = {}

    def stepped(self, world: ExchangeWorld) -> None:
        self.steps += 1
        self._one_primary(world)
        self._nothing_is_lost(world)
        for node in world.nodes.values():
            seen = self._seen.get(node.name)
            if seen is not None and seen[0] == node.worker.order and seen[1] is node.worker.held:
                continue
            self._forward_only(node)
            self._held_maps(world, node)
            self._seen[node.name] = node.worker.order, node.worker.held

    def rented(self, world: ExchangeWorld, node: str, key: PartitionKey) -> None:
        """No copy goes that is needed: every node that shall have one owns it. One that has not heard of the
        exchange which says so will: its states stay as they were until then."""
        worker = world.nodes[node].worker
        ideal = worker.held.affinities[key[0]].ideal[key[1]]
        known = ((each, world.nodes.get(each)) for each in ideal)
        missing = [
            name
            for name, each in known
            if each is not None
            and each.worker.held.basis >= worker.held.basis
            and each.worker.order == worker.cluster.servers.get(name)
            and each.store.state(key) is not CopyState.OWNING
        ]
        if missing or not ideal:
            raise RuleBrokenError(f"{node} gave up its copy of {key}, which {missing or 'nobody'} has not yet")

    def _one_primary(self, world: ExchangeWorld) -> None:
        """Never two nodes that would lead updates of one partition (PME-128)."""
        leading: dict[PartitionKey, list[str]] = defaultdict(list)
        for node in world.nodes.values():
            running = node.worker.running
            if node.is_client or (running is not None and running.phase not in MAY_LEAD):
                continue
            for zone, affinity in node.worker.held.affinities.items():
                for number, real in enumerate(affinity.effective):
                    if real and real[0] == node.name:
                        leading[zone, number].append(node.name)
        for key, names in leading.items():
            if len(names) > 1:
                raise RuleBrokenError(f"two primaries of {key}: {', '.join(sorted(names))}")

    def _nothing_is_lost(self, world: ExchangeWorld) -> None:
        """Every owner has every acknowledged update, or its commit is on its way (PME-123)."""
        on_the_way: dict[tuple[str, PartitionKey], set[int]] = defaultdict(set)
        for operation in world.workload.open:
            for backup in operation.commits:
                on_the_way[backup, operation.partition].add(operation.update)
        for key, updates in world.workload.acknowledged.items():
            for node in world.nodes.values():
                copy = node.store.copies.get(key)
                if copy is None or copy.state is not CopyState.OWNING or not node.serves(key[0]):
                    continue
                missing = updates - copy.rows - on_the_way.get((node.name, key), set())
                if missing:
                    raise RuleBrokenError(f"{node.name} owns {key} without the updates {sorted(missing)}")

    def _forward_only(self, node: SimulatedNode) -> None:
        """Versions of a node never go back, maps of one exchange neither."""
        order, before = self._seen.get(node.name, (0, HeldMaps()))
        held = node.worker.held
        if order != node.worker.order:
            return
        if held.version < before.version or held.basis < before.basis:
            raise RuleBrokenError(f"{node.name} went back from {before.version} to {held.version}")
        for zone, full in held.maps.items() if held.basis == before.basis else ():
            if full.stamp < before.maps[zone].stamp:
                raise RuleBrokenError(f"{node.name} went back to {full.stamp} of {held.basis}")

    def _held_maps(self, world: ExchangeWorld, node: SimulatedNode) -> None:
        """All that live have the same assignments after an exchange, and the same map under the same stamp."""
        held = node.worker.held
        for zone, full in held.maps.items():
            for other in world.nodes.values():
                theirs = other.worker.held
                if other.is_client != node.is_client or theirs.basis != held.basis or zone not in theirs.maps:
                    continue
                if theirs.affinities[zone].effective != held.affinities[zone].effective:
                    raise RuleBrokenError(
                        f"{node.name} and {other.name} have other assignments for {held.basis}"
                    )
                same = full.stamp == theirs.maps[zone].stamp and full.stamp.sequence != NOT_AGREED
                if same and full.nodes != theirs.maps[zone].nodes:
                    raise RuleBrokenError(f"{node.name} and {other.name} have other maps for {held.basis}")
            self._states(node.name, held, zone)

    def _states(self, name: str, held: HeldMaps, zone: ZoneId) -> None:
        """The primary owns its copy (PME-079), owners have one counter, and what is lost has no owner."""
        full, lost = held.maps[zone], held.lost.get(zone, frozenset())
        for number, real in enumerate(held.affinities[zone].effective):
            owners = full.owners(number)
            if real and real[0] not in owners:
                raise RuleBrokenError(f"{name}: primary {real[0]} of {(zone, number)} does not own its copy")
            if not real and owners and number not in lost:
                raise RuleBrokenError(f"{name}: {(zone, number)} has owners {sorted(owners)} and no primary")
            if number in lost and owners:
                raise RuleBrokenError(f"{name}: {(zone, number)} is lost and {sorted(owners)} own it")
            reports = full.reports(number)
            if full.stamp.sequence == 0 and len({reports[node].counter for node in owners}) > 1:
                raise RuleBrokenError(f"{name}: owners of {(zone, number)} differ in {held.basis}: {reports}")
