"""A simulated cluster for tests of partition map exchanges, and what to ask of its trace."""

from __future__ import annotations

from typing import Any

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import TopologyVersion, Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import FullMessage, Lists, SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.simulation.exchange_node import ExchangeTrace, SimulatedNode
from rebalance.exchange.simulation.exchange_rules import ExchangeRules
from rebalance.exchange.simulation.exchange_run import settle
from rebalance.exchange.simulation.exchange_workload import ENDED, ExchangeOperation, ExchangeStage
from rebalance.exchange.simulation.exchange_world import ExchangeWorld, rendezvous_lists

ZONE = ZoneId(1)


class Rig:
    """``lists`` gives ideal lists by the nodes that hold data, as ``{"ab": ("ab", "ba")}``; without it the
    affinity function is the default one. A cluster with a baseline is activated when all are there. Rules are
    checked after every step."""

    def __init__(
        self,
        names: str = "abc",
        *,
        partitions: int = 4,
        copies: int = 2,
        lists: dict[str, tuple[str, ...]] | None = None,
        policy: LossPolicy = LossPolicy.READ_WRITE_SAFE,
        baseline: str | None = None,
        persistent: bool = False,
        active: bool = True,
    ) -> None:
        self.zone = ZoneSpec(ZONE, partitions, copies, policy)
        self._lists = lists
        base = frozenset(baseline) if baseline is not None else None
        affinity = {"affinity": self._affinity} if lists is not None else {}
        active = active and base is None
        self.world = ExchangeWorld([self.zone], baseline=base, persistent=persistent, active=active, **affinity)
        self.rules = ExchangeRules()
        self.world.watchers.append(self.rules)
        for name in names:
            self.join(name)
        if base is not None and not active:
            self.world.custom(Trigger.ACTIVATE)
            self.settle()

    def _affinity(self, zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
        assert self._lists is not None
        found = self._lists.get(
            "".join(nodes), tuple("".join(nodes)[: zone.copies] for _ in range(zone.partitions))
        )
        return tuple(tuple(each) for each in found)

    # To do

    def join(self, name: str) -> None:
        self.world.start(name)
        settle(self.world)

    def crash(self, name: str) -> None:
        self.world.kill(name)
        self.world.detect(name)

    def announce(self, name: str) -> None:
        """All have heard of the joining node; its join is the ring's newest event, and nobody has heard
        that."""
        self.world.start(name)
        for each in list(self.world.nodes):
            if each != name and name not in self.world.nodes:
                self.world.discover(each)
        assert self.world.ring.events[-1].node == name

    def discover(self, *names: str) -> None:
        """They hear all that is on the ring."""
        for name in names or sorted(self.world.nodes):
            while name in self.world.nodes and self.world.discover(name):
                pass

    def exchange(self) -> None:
        """Messages and the ring only: no copy is filled, no update goes on."""
        for _ in range(1_000):
            self.discover()
            if not self.world.network:
                return
            self.world.deliver(0)
        raise AssertionError("messages without end")

    def settle(self) -> None:
        settle(self.world)

    def update(self, near: str, partition: int = 0, **more: Any) -> ExchangeOperation:
        """Begun, and led as far as it goes by itself."""
        operation = self.world.workload.begin(near, (ZONE, partition), **more)
        self.lead(operation)
        return operation

    def lead(self, operation: ExchangeOperation, until: ExchangeStage = ExchangeStage.COMMITTING) -> None:
        while operation.stage not in (until, *ENDED) and self.world.advance(operation):
            pass

    def finish(self, operation: ExchangeOperation) -> None:
        self.lead(operation)
        for backup in sorted(operation.commits):
            assert self.world.commit(operation, backup)

    def rules_off(self) -> None:
        """For faults that no protocol can keep out: a copy that was damaged."""
        self.world.watchers.clear()

    # To ask

    def node(self, name: str) -> SimulatedNode:
        return self.world.nodes[name]

    def version(self, name: str) -> str:
        return str(self.node(name).worker.held.version)

    def phase(self, name: str) -> Phase | None:
        running = self.node(name).worker.running
        return running.phase if running is not None else None

    def effective(self, name: str, partition: int = 0) -> str:
        return "".join(self.node(name).worker.held.affinities[ZONE].effective[partition])

    def ideal(self, name: str, partition: int = 0) -> str:
        return "".join(self.node(name).worker.held.affinities[ZONE].ideal[partition])

    def primaries(self, name: str) -> list[str | None]:
        held = self.node(name).worker.held.affinities[ZONE]
        return [held.primary(number) for number in range(self.zone.partitions)]

    def ideal_of(self, names: str) -> Lists:
        """What the affinity function wants among these nodes."""
        function = self._affinity if self._lists is not None else rendezvous_lists
        return function(self.zone, tuple(names))

    def states(self, name: str, partition: int = 0) -> dict[str, CopyState]:
        """As the node's full map has it."""
        return self.node(name).worker.held.maps[ZONE].states(partition)

    def own(self, name: str, partition: int = 0) -> CopyState | None:
        """As the node itself has it."""
        return self.node(name).store.state((ZONE, partition))

    def traced(self, kind: str, node: str | None = None, version: str | None = None) -> list[ExchangeTrace]:
        return [
            each
            for each in self.world.trace
            if each.kind == kind
            and (node is None or each.node == node)
            and (version is None or str(each.version) == version)
        ]

    def singles(self, version: str | None, sender: str | None = None) -> list[SingleMessage]:
        """Those that were sent for an exchange; ``version`` None: state updates."""
        found = []
        for each in self.world.sent:
            message = each.message
            if not isinstance(message, SingleMessage) or sender not in (None, message.sender):
                continue
            if (str(message.exchange) if message.exchange else None) == version:
                found.append(message)
        return found

    def fulls(self, version: str | None, to: str | None = None) -> list[FullMessage]:
        """By the first exchange that they end."""
        return [
            each.message
            for each in self.world.sent
            if isinstance(each.message, FullMessage)
            and (to is None or each.to == to)
            and (str(each.message.exchange) if each.message.exchange else None) == version
        ]

    def all_equal(self) -> None:
        """All servers hold the same full map of the same version, and the same assignments."""
        held = [each.worker.held for each in self.world.nodes.values() if not each.is_client]
        assert len({each.version for each in held}) == 1
        for each in held[1:]:
            assert each.maps == held[0].maps
            assert each.affinities == held[0].affinities


def version(text: str) -> TopologyVersion:
    return TopologyVersion.parse(text)
