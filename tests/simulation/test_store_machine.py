"""Store servers whose every step Hypothesis chooses: who hears, what arrives, who dies, what is written."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rebalance.core.partition_maps.topology_version import Trigger
from tests.fixtures.examples import examples
from tests.fixtures.store_scene import ZONE, StoreScene

NAMES = st.sampled_from("abc")
ANY = st.integers(0, 30)
LISTS = st.tuples(*(st.sampled_from(("ab", "ba", "bc", "ca", "cb", "ac", "abc")) for _ in range(2)))


class StoreMachine(RuleBasedStateMachine):
    """Three servers, two partitions. Never two primaries, after each step; in the end one map for all, and
    every acknowledged put on every copy."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = StoreScene("abc", ("ab", "bc"))
        self.puts: dict[int, tuple[int, str]] = {}

    @property
    def unnoticed(self) -> list[str]:
        """Servers of the ring that are dead."""
        alive = {process.incarnation for process in self.scene.alive}
        return [name for name, each in self.scene.metastore.ring.incarnations.items() if each not in alive]

    @rule(name=NAMES)
    def start(self, name: str) -> None:
        if name not in self.scene.metastore.ring.cluster.servers:
            self.scene.announce(name)

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        if self.scene.processes[name].is_alive and len(self.scene.alive) > 1:
            self.scene.kill(name)

    @precondition(lambda self: self.unnoticed)
    @rule()
    def notice(self) -> None:
        self.scene.fail(self.unnoticed[0])

    @rule(name=NAMES, most=st.integers(1, 3))
    def hear(self, name: str, most: int) -> None:
        self.scene.hear(name, most=most)

    @precondition(lambda self: self.scene.network)
    @rule(which=ANY, fate=st.sampled_from(("arrives", "arrives", "arrives", "lost", "twice")))
    def message(self, which: int, fate: str) -> None:
        """The first of some connection."""
        network = self.scene.network
        chosen = network[which % len(network)]
        flight = next(each for each in network if (each.sender, each.to) == (chosen.sender, chosen.to))
        network.remove(flight)
        for _ in range({"arrives": 1, "lost": 0, "twice": 2}[fate]):
            self.scene.arrive(flight)

    @rule(ms=st.sampled_from((20, 150, 600)))
    def time_passes(self, ms: int) -> None:
        self.scene.run(ms)

    @rule(name=NAMES, partition=st.integers(0, 1), key=st.sampled_from("kl"))
    def put(self, name: str, partition: int, key: str) -> None:
        if self.scene.processes[name].is_alive:
            key = f"{key}{len(self.puts)}"
            self.puts[self.scene.put(name, partition, key)] = partition, key

    @rule(name=NAMES, disk_ms=st.sampled_from((0, 30, 900)))
    def slow_disk(self, name: str, disk_ms: int) -> None:
        self.scene.processes[name].disk_ms = (disk_ms, disk_ms)

    @rule(trigger=st.sampled_from((Trigger.AFFINITY_CHANGE, Trigger.DEACTIVATE, Trigger.ACTIVATE)))
    def custom(self, trigger: Trigger) -> None:
        self.scene.custom(trigger)

    @rule(lists=LISTS)
    def targets(self, lists: tuple[str, ...]) -> None:
        self.scene.set_targets(lists)

    def teardown(self) -> None:
        scene = self.scene
        for name in self.unnoticed:
            scene.fail(name)
        for name in "abc":
            if name not in scene.metastore.ring.cluster.servers:
                scene.announce(name)
            scene.processes[name].disk_ms = (0, 0)
        if ZONE not in scene.metastore.ring.cluster.open_zones:
            scene.custom(Trigger.ACTIVATE)
        scene.run(1_000)
        scene.settle()
        lost = {
            number
            for record in scene.metastore.results
            for number, outcome in record.changed.get(ZONE, {}).items()
            if outcome.is_lost
        }
        if lost:
            scene.custom(Trigger.LOSS_RESET)
            scene.settle()
        scene.all_equal()
        for number, (partition, key) in self.puts.items():
            if scene.code(number) == "DONE" and partition not in lost:
                for name in scene.ideal("a", partition):
                    assert key in scene.keys(name, partition)
                    assert scene.effective("a", partition) == scene.ideal("a", partition)


StoreMachine.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreMachine = StoreMachine.TestCase
