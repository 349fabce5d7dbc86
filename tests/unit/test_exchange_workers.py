"""Exchange workers without a server around them: clients of the ring, and baselines, which no store server
has."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_effects import (
    AwaitUpdates,
    Effect,
    Entered,
    OpenZones,
    Prepare,
    Send,
    TakeTopology,
)
from rebalance.exchange.core.exchange_messages import FullMessage, Lists, SingleMessage
from rebalance.exchange.core.exchange_worker import ExchangeWorker

ZONE = ZoneSpec(ZoneId(1), 3, 2)


def lists(zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
    """Each partition's next node is its backup."""
    return tuple(
        (nodes[number % len(nodes)], nodes[(number + 1) % len(nodes)]) for number in range(zone.partitions)
    )


class Workers:
    """Servers a, b, c with a zone, whose copies own. Messages wait in ``network`` until ``run``."""

    def __init__(self, baseline: str = "") -> None:
        self.cluster = Cluster(active=False, zones={ZONE.zone_id: ZONE})
        self.workers: dict[str, ExchangeWorker] = {}
        self.network: deque[tuple[str, Send]] = deque()
        self.sent: list[tuple[str, Send]] = []
        self.effects: dict[str, list[Effect]] = {}
        if baseline:
            self.append(Trigger.BASELINE_SET, baseline=frozenset(baseline))
        for name in "abc":
            self.join(name)
        self.append(Trigger.ACTIVATE)
        self.run()

    def join(self, name: str, is_client: bool = False) -> None:
        order = self.cluster.version.major + 1
        self.workers[name] = ExchangeWorker(name, order, self.cluster, lists)
        self.append(Trigger.NODE_JOINED, name, order=order, is_client=is_client)
        self.run()

    def append(
        self,
        trigger: Trigger,
        node: str = "",
        order: int = 0,
        is_client: bool = False,
        baseline: frozenset[str] | None = None,
    ) -> None:
        """All that live hear of it."""
        version = self.cluster.version_after(trigger)
        event = DiscoveryEvent(version, trigger, node, order, is_client=is_client, baseline=baseline)
        self.cluster = self.cluster.after(event)
        for name, worker in self.workers.items():
            self.carry_out(name, worker.discovered(event))

    def run(self) -> None:
        while self.network:
            _, send = self.network.popleft()
            if send.to in self.workers:
                self.carry_out(send.to, self.workers[send.to].received(send.message))

    def carry_out(self, name: str, effects: Iterable[Effect]) -> None:
        worker = self.workers[name]
        for effect in effects:
            self.effects.setdefault(name, []).append(effect)
            match effect:
                case Send():
                    self.network.append((name, effect))
                    self.sent.append((name, effect))
                case TakeTopology(version):
                    self.carry_out(name, worker.topology_taken(version))
                case AwaitUpdates(version):
                    self.carry_out(name, worker.updates_ended(version))
                case Prepare(version, wanted):
                    maps = {
                        zone: SingleMap(
                            *(zone, name, version, 1),
                            {number: CopyReport(CopyState.OWNING, 5) for number in numbers},
                        )
                        for zone, numbers in wanted.items()
                    }
                    self.carry_out(name, worker.prepared(version, maps, {}))

    def phases(self, name: str, version: TopologyVersion) -> list[str]:
        """Phases of that exchange which the server has entered, each with the exchange's type."""
        entered = [effect for effect in self.effects.get(name, ()) if isinstance(effect, Entered)]
        return [f"{effect.type.value} {effect.phase.value}" for effect in entered if effect.version == version]


@pytest.mark.row("PME-003", "PME-025", "PME-026", "PME-027", "PME-028")
def test_a_client_joins() -> None:
    """PME-003, PME-027: on servers and on other clients the version changes and nothing else. PME-028: on
    the client it is CLIENT: one single message, one full one. PME-026: servers do not wait for it. PME-025:
    each node says the type with every phase, from the first on."""
    world = Workers()
    world.join("k", is_client=True)
    before, sent = world.workers["a"].held, len(world.sent)
    world.join("m", is_client=True)
    version = world.cluster.version
    for name in "abck":
        assert world.phases(name, version) == ["NONE INIT"]
        assert world.workers[name].held.version == version
    assert world.workers["a"].held.maps is before.maps
    assert world.phases("m", version) == ["CLIENT INIT", "CLIENT SENT"]
    messages = [(name, send.to, type(send.message)) for name, send in world.sent[sent:]]
    assert messages == [("m", "a", SingleMessage), ("a", "m", FullMessage)]
    assert world.workers["m"].held.maps == before.maps
    world.append(Trigger.LOG_SWITCH)
    world.run()
    for name, kind in (("a", "ALL"), ("c", "ALL"), ("k", "CLIENT")):
        begun, *later = world.phases(name, world.cluster.version)
        assert begun == f"{kind} INIT"
        assert {text.split()[0] for text in later} == {kind}


@pytest.mark.row("PME-026")
def test_a_client_follows_the_exchanges_of_servers() -> None:
    """PME-026: it asks the coordinator, and gets the full map when that has finished."""
    world = Workers()
    world.join("k", is_client=True)
    sent = len(world.sent)
    world.append(Trigger.LOG_SWITCH)
    version = world.cluster.version
    while world.workers["a"].held.version != version:
        assert not [send for _, send in world.sent[sent:] if send.to == "k"]
        _, send = world.network.popleft()
        world.carry_out(send.to, world.workers[send.to].received(send.message))
    world.run()
    assert world.phases("k", version) == ["CLIENT INIT", "CLIENT SENT"]
    assert [type(send.message) for _, send in world.sent[sent:] if send.to == "k"] == [FullMessage]
    assert world.workers["k"].held.affinities == world.workers["a"].held.affinities


@pytest.mark.row("PME-005")
def test_a_node_of_the_baseline_leaves_in_order() -> None:
    """PME-005: no message, no waiting; the next owner leads at once."""
    world = Workers(baseline="abc")
    assert [world.workers["b"].held.affinities[ZONE.zone_id].primary(number) for number in range(3)] == [
        "a",
        "b",
        "c",
    ]
    del world.workers["c"]
    sent = len(world.sent)
    world.append(Trigger.NODE_LEFT, "c")
    assert not [send for _, send in world.sent[sent:] if isinstance(send.message, SingleMessage)]
    for name in "ab":
        held = world.workers[name].held
        assert held.version == world.cluster.version
        assert world.workers[name].running is None
        assert [held.affinities[ZONE.zone_id].primary(number) for number in range(3)] == ["a", "b", "a"]


@pytest.mark.row("PME-004")
def test_a_node_outside_of_the_baseline_leaves_in_order() -> None:
    """PME-004: an exchange."""
    world = Workers(baseline="ab")
    del world.workers["c"]
    world.append(Trigger.NODE_LEFT, "c")
    world.run()
    singles = [send.message for _, send in world.sent if isinstance(send.message, SingleMessage)]
    assert singles[-1].exchange == world.cluster.version
    assert singles[-1].sender == "b"


@pytest.mark.row("PME-029")
def test_zones_are_opened_before_their_lists_are_used() -> None:
    """PME-029: at activation, on each server."""
    world = Workers()
    for name in "abc":
        kinds = [type(effect) for effect in world.effects[name]]
        opened = kinds.index(OpenZones)
        assert kinds.index(TakeTopology, opened) > opened
        prepared = [effect for effect in world.effects[name] if isinstance(effect, Prepare) and effect.wanted]
        assert world.effects[name].index(prepared[0]) > opened
