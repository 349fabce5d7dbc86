"""Changes of states between exchanges, told by what has changed: whatever gets lost, comes twice or late, all
servers hold the last states once the network is well again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    CopyReport,
    CopyState,
    Reception,
    SingleMap,
    with_changes,
)
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_effects import AwaitUpdates, Effect, Prepare, Send, TakeTopology
from rebalance.exchange.core.exchange_messages import FullMessage, Lists, Message, SingleMessage
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.held_maps import HeldMaps
from tests.fixtures.examples import examples

ZONE = ZoneSpec(ZoneId(1), 3, 3)
NAMES = "abc"
STATES = (CopyState.OWNING, CopyState.MOVING)


def lists(zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
    return (tuple(nodes[: zone.copies]),) * zone.partitions


class UpdateWorld:
    """Three servers after an exchange, the first one the coordinator. ``network``: messages on their way."""

    def __init__(self, maps: type[HeldMaps] = HeldMaps) -> None:
        self.maps = maps
        self.cluster = Cluster(zones={ZONE.zone_id: ZONE})
        self.network: list[tuple[str, Message]] = []
        self.workers: dict[str, ExchangeWorker] = {}
        self.copies = {name: dict.fromkeys(range(ZONE.partitions), CopyState.OWNING) for name in NAMES}
        self.sequences = dict.fromkeys(NAMES, 1)
        for name in NAMES:
            self.join(name)

    def join(self, name: str) -> None:
        """An incarnation that was not there before."""
        order = self.cluster.version.major + 1
        self.workers[name] = ExchangeWorker(name, order, self.cluster, lists, maps=self.maps)
        self.append(Trigger.NODE_JOINED, name, order)

    def restart(self, name: str) -> None:
        """Restart a server: its numbers begin anew, and its copies are owned."""
        del self.workers[name]
        self.append(Trigger.NODE_FAILED, name)
        self.copies[name] = dict.fromkeys(range(ZONE.partitions), CopyState.OWNING)
        self.sequences[name] = 1
        self.join(name)

    def append(self, trigger: Trigger, node: str, order: int = 0) -> None:
        """An exchange, which nothing disturbs; older messages are late for it."""
        late, self.network = self.network, []
        event = DiscoveryEvent(self.cluster.version_after(trigger), trigger, node, order)
        self.cluster = self.cluster.after(event)
        for name, worker in self.workers.items():
            self.carry_out(name, worker.discovered(event))
        self.deliver_all()
        self.network = late

    def change(self, name: str, partition: int) -> None:
        before = self.copies[name][partition]
        self.copies[name][partition] = STATES[1 - STATES.index(before)]
        self.sequences[name] += 1
        self.carry_out(name, self.workers[name].state_changed(self.own(name, self.workers[name].held.basis)))

    def own(self, name: str, version: TopologyVersion) -> dict[ZoneId, SingleMap]:
        reports = {number: CopyReport(state) for number, state in self.copies[name].items()}
        return {ZONE.zone_id: SingleMap(ZONE.zone_id, name, version, self.sequences[name], reports)}

    def carry_out(self, name: str, effects: list[Effect]) -> None:
        worker = self.workers[name]
        for effect in effects:
            match effect:
                case Send(to, message) if to in self.workers:
                    self.network.append((to, message))
                case TakeTopology(version):
                    self.carry_out(name, worker.topology_taken(version))
                case AwaitUpdates(version):
                    self.carry_out(name, worker.updates_ended(version))
                case Prepare(version, _):
                    self.carry_out(name, worker.prepared(version, self.own(name, version), {}))
                case _:
                    pass

    def deliver(self, index: int, *, again: bool = False) -> None:
        if not self.network:
            return
        index %= len(self.network)
        to, message = self.network[index] if again else self.network.pop(index)
        self.carry_out(to, self.workers[to].received(message))

    def deliver_all(self) -> None:
        for _ in range(1_000):
            if not self.network:
                return
            self.deliver(0)
        raise AssertionError("messages without end")

    def lose(self, index: int) -> None:
        if self.network:
            self.network.pop(index % len(self.network))

    def tick(self) -> None:
        for name, worker in self.workers.items():
            self.carry_out(name, worker.tick())

    def settled(self) -> None:
        """Three resend periods without a fault: a change, the maps for whoever missed some, and nothing."""
        self.network.clear()
        for _ in range(3):
            self.tick()
            self.deliver_all()

    def check(self) -> None:
        coordinator = self.workers["a"].held.maps[ZONE.zone_id]
        states = {
            name: {number: copy.state for number, copy in copies.items()}
            for name, copies in coordinator.nodes.items()
        }
        assert states == self.copies
        for worker in self.workers.values():
            assert worker.held.maps[ZONE.zone_id] == coordinator

    def whole_maps(self) -> int:
        """Messages under way that have every copy."""
        return sum(
            isinstance(message, FullMessage) and bool(message.maps) and not message.since
            for _, message in self.network
        )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from(NAMES), st.integers(0, ZONE.partitions - 1)),
        st.tuples(st.sampled_from(("deliver", "again", "lose")), st.just(""), st.integers(0, 5)),
        st.tuples(st.just("tick"), st.just(""), st.just(0)),
        st.tuples(st.just("restart"), st.sampled_from(NAMES[1:]), st.just(0)),
    ),
    max_size=40,
)


def play(steps: list[tuple[str, str, int]], maps: type[HeldMaps] = HeldMaps) -> None:
    world = UpdateWorld(maps)
    for deed, name, number in steps:
        match deed:
            case "change":
                world.change(name, number)
            case "deliver" | "again":
                world.deliver(number, again=deed == "again")
            case "lose":
                world.lose(number)
            case "tick":
                world.tick()
            case "restart":
                world.restart(name)
    world.settled()
    world.check()


@settings(max_examples=examples(800), deadline=None)
@given(STEPS)
def test_everybody_has_the_last_states_in_the_end(steps: list[tuple[str, str, int]]) -> None:
    play(steps)


def test_only_changes_are_told_while_nothing_gets_lost() -> None:
    """And at rest only which maps are current."""
    world = UpdateWorld()
    for number in range(10):
        world.change(NAMES[number % 3], number % 2)
        while world.network:
            assert not world.whole_maps()
            assert all(len(_copies(message)) <= 1 for _, message in world.network)
            world.deliver(0)
    world.check()
    world.tick()
    assert [to for to, _ in world.network] == ["b", "c"]
    assert all(not _copies(message) for _, message in world.network)
    world.deliver_all()
    world.check()


def _copies(message: Message) -> list[CopyReport]:
    assert isinstance(message, FullMessage | SingleMessage)
    maps = [full for full in message.maps.values() if not isinstance(full, SingleMap)]
    singles = [single.copies for single in message.maps.values() if isinstance(single, SingleMap)]
    parts = singles + [copies for full in maps for copies in full.nodes.values()]
    return [copy for copies in parts for copy in copies.values()]


# Mutants


class ChangesOnAWrongBase(HeldMaps):
    """Changes are applied to any map, not only to the one that they are of."""

    def with_update(self, message: FullMessage) -> tuple[HeldMaps, bool]:
        maps = dict(self.maps)
        for zone, full in message.maps.items() if message.version == self.basis else ():
            if full.stamp > maps[zone].stamp:
                maps[zone] = with_changes(maps[zone], full) if zone in message.since else full
        return replace(self, maps=maps), False


class NobodyAsksForWhatGotLost(HeldMaps):
    def with_update(self, message: FullMessage) -> tuple[HeldMaps, bool]:
        return super().with_update(message)[0], False


class StampsAreToldNoMore(HeldMaps):
    @property
    def has_updates(self) -> bool:
        return False


class ChangesOfANodeOnAWrongBase(HeldMaps):
    def with_state(self, message: SingleMessage, order: int) -> tuple[HeldMaps, Reception]:
        known = {zone: self.maps[zone].heard.get(message.sender, -1) for zone in message.since}
        return super().with_state(replace(message, since=known), order)


class WhoRepeatsItselfIsToldNothing(StampsAreToldNoMore):
    def with_state(self, message: SingleMessage, order: int) -> tuple[HeldMaps, Reception]:
        held, reception = super().with_state(message, order)
        is_told = reception not in (Reception.REPEATED, Reception.GAP)
        return held, reception if is_told else Reception.STALE


class AnExchangeMakesNoDifference(HeldMaps):
    """Numbers of a server that began anew are compared with those that it had before."""

    def with_state(self, message: SingleMessage, order: int) -> tuple[HeldMaps, Reception]:
        return super().with_state(replace(message, basis=self.basis), order)


MUTANTS = (
    ChangesOnAWrongBase,
    NobodyAsksForWhatGotLost,
    StampsAreToldNoMore,
    ChangesOfANodeOnAWrongBase,
    WhoRepeatsItselfIsToldNothing,
    AnExchangeMakesNoDifference,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_breaks_once_a_rule_is_left_out(mutant: type[HeldMaps]) -> None:
    @settings(max_examples=3_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(STEPS)
    def broken(steps: list[tuple[str, str, int]]) -> None:
        play(steps, mutant)

    with pytest.raises(AssertionError):
        broken()
