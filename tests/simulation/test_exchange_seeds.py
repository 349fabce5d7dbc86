"""Partition map exchanges under faults: seeds that are drawn, and steps that are searched for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.running_exchange import RunningExchange
from rebalance.exchange.simulation.exchange_rules import ExchangeRules, RuleBrokenError
from rebalance.exchange.simulation.exchange_run import ExchangeRun, ExchangeShape, NoRestError, settle
from rebalance.exchange.simulation.exchange_workload import SyncMode, Workload
from rebalance.exchange.simulation.exchange_world import ExchangeWorld
from tests.fixtures.examples import examples

POLICIES = tuple(LossPolicy)


def shape(seed: int) -> ExchangeShape:
    """Policies, copies, disks and baselines in turn; every fifth run without lost messages."""
    return ExchangeShape(
        copies=1 + seed % 3,
        policy=POLICIES[seed % 5],
        persistent=seed % 2 == 0,
        baseline=seed % 3 == 0,
        faults=seed % 5 != 0,
    )


SHAPES = 30
"""Seeds until ``shape`` repeats itself."""

REUSED_NAME = 16_354
"""A server counts down at one that failed, and whoever has its name by then gets the message."""


def checked(world: ExchangeWorld) -> None:
    """At rest: all servers hold one map, and what is not lost is where it should be."""
    servers = [node for node in world.nodes.values() if not node.is_client]
    held = [node.worker.held for node in servers]
    for each in held[1:]:
        assert each.version == held[0].version
        assert each.maps == held[0].maps
        assert each.affinities == held[0].affinities
    for zone, full in held[0].maps.items() if held else ():
        for number, ideal in enumerate(held[0].affinities[zone].ideal):
            if number in held[0].lost.get(zone, ()):
                continue
            owners = full.owners(number)
            assert not owners or not ideal or owners == set(ideal)
            assert {
                node.name for node in servers if node.store.state((zone, number)) is CopyState.OWNING
            } == owners


@pytest.mark.row("PME-001", "PME-123", "PME-128", shows="model")
@pytest.mark.parametrize("seed", [*range(SHAPES), REUSED_NAME])
def test_seeds(seed: int) -> None:
    """PME-001, PME-123, PME-128: messages lost, repeated and overtaken, servers and coordinators killed: never
    two primaries, no acknowledged update lost while an owner lives, one map for all in the end."""
    checked(ExchangeRun(seed, shape(seed)).run())


@pytest.mark.row("PME-128", shows="model")
@pytest.mark.soak
def test_many_seeds() -> None:
    """PME-128."""
    for seed in range(20_000):
        checked(ExchangeRun(seed, shape(seed)).run())


def test_a_seed_happens_again() -> None:
    one, other = (ExchangeRun(7, shape(7)).run() for _ in range(2))
    assert one.trace == other.trace
    assert one.trace != ExchangeRun(8, shape(7)).run().trace


def first_broken(seeds: int) -> None:
    for seed in range(seeds):
        ExchangeRun(seed, shape(seed)).run()


def _no_latch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for anybody's updates."""
    monkeypatch.setattr(Workload, "has_open", lambda self, name, version: False)


def _names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes back under its name is taken for the one that went."""
    monkeypatch.setattr(
        RunningExchange,
        "counters_of_latch",
        lambda self, cluster: frozenset(self.before.servers.keys() & cluster.servers.keys()),
    )


@pytest.mark.parametrize("mutant", [_no_latch, _names_only], ids=["no latch", "names only"])
def test_a_broken_protocol_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules see what they are there for: each of these is found within a few seeds."""
    mutant(monkeypatch)
    with pytest.raises((RuleBrokenError, NoRestError)):
        first_broken(120)


NAMES = st.sampled_from("abc")
ANY = st.integers(0, 30)


class ExchangeMachine(RuleBasedStateMachine):
    """Three servers, two partitions: Hypothesis chooses every step. Rules of the protocol are checked after
    each."""

    def __init__(self) -> None:
        super().__init__()
        self.zone = ZoneSpec(ZoneId(1), 2, 2)
        self.world: ExchangeWorld | None = None

    @initialize(persistent=st.booleans(), policy=st.sampled_from(LossPolicy))
    def begin(self, persistent: bool, policy: LossPolicy) -> None:
        self.zone = ZoneSpec(ZoneId(1), 2, 2, policy)
        self.world = ExchangeWorld([self.zone], persistent=persistent)
        self.world.watchers.append(ExchangeRules())
        for name in "ab":
            self.world.start(name)
            settle(self.world)

    @property
    def there(self) -> ExchangeWorld:
        assert self.world is not None
        return self.world

    @rule(name=NAMES)
    def start(self, name: str) -> None:
        known = {*self.there.nodes, *self.there.undetected, *(each.name for each in self.there.ring.joining)}
        if name not in known:
            self.there.start(name)

    @rule(name=NAMES, kills=st.booleans())
    def end(self, name: str, kills: bool) -> None:
        if name in self.there.nodes and len(self.there.nodes) > 1:
            (self.there.kill if kills else self.there.stop)(name)

    @precondition(lambda self: self.world is not None and self.world.undetected)
    @rule()
    def detect(self) -> None:
        self.there.detect(min(self.there.undetected))

    @rule(name=NAMES)
    def hear(self, name: str) -> None:
        if name in self.there.nodes:
            self.there.discover(name)

    @precondition(lambda self: self.world is not None and self.world.network)
    @rule(which=ANY, fate=st.sampled_from(("deliver", "deliver", "deliver", "drop", "repeat")))
    def message(self, which: int, fate: str) -> None:
        index = which % len(self.there.network)
        {"deliver": self.there.deliver, "drop": self.there.drop, "repeat": self.there.repeat}[fate](index)

    @rule(name=NAMES, step=st.sampled_from(("tick", "notify", "fill", "rent", "clear")))
    def go_on(self, name: str, step: str) -> None:
        if name in self.there.nodes:
            getattr(self.there, step)(name)

    @rule(name=NAMES, partition=st.integers(0, 1), mode=st.sampled_from(SyncMode))
    def update(self, name: str, partition: int, mode: SyncMode) -> None:
        if name in self.there.nodes and len(self.there.workload.open) < 3:
            self.there.workload.begin(name, (ZoneId(1), partition), mode=mode)

    @precondition(lambda self: self.world is not None and self.world.workload.open)
    @rule(which=ANY, steps=st.integers(1, 4))
    def lead(self, which: int, steps: int) -> None:
        operation = self.there.workload.open[which % len(self.there.workload.open)]
        for _ in range(steps):
            if operation.near in self.there.nodes and not self.there.advance(operation) and operation.commits:
                self.there.commit(operation, min(operation.commits))

    @rule(trigger=st.sampled_from((Trigger.SNAPSHOT_CREATE, Trigger.LOSS_RESET)))
    def custom(self, trigger: Trigger) -> None:
        self.there.custom(trigger, (self.zone,))

    def teardown(self) -> None:
        if self.world is None:
            return
        for name in sorted(self.world.undetected):
            self.world.detect(name)
        settle(self.world)
        for name in sorted(self.world.nodes):
            self.world.tick(name)
        settle(self.world)
        checked(self.world)


ExchangeMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestExchangeMachine = ExchangeMachine.TestCase
