"""Data nodes by the controllers against a plain reference that counts seconds."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catalog.core.zone import EVERY_NODE, TIMER_OFF
from rebalance.core.keyspace.keys import Keyspace
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.examples import examples
from tests.fixtures.timer_world import ZONE, TimerWorld

NAMES = st.sampled_from("ABC")
REGIONS = st.sampled_from(["EU", "US"])
TIMERS = st.sampled_from([0, 2, 5, TIMER_OFF])
FILTERS = {EVERY_NODE: {"EU", "US"}, "$[?(@.region == 'EU')]": {"EU"}}


class Reference:
    """No due times, no records: every second, everybody is asked whether the time is over."""

    def __init__(self) -> None:
        self.second = 0
        self.up, self.down = 0, TIMER_OFF
        self.regions, self.chosen_for = FILTERS[EVERY_NODE], FILTERS[EVERY_NODE]
        self.alive: dict[str, tuple[str, int]] = {}
        self.seen: dict[str, tuple[str, int, int]] = {}
        self.left: dict[str, int] = {}
        self.members: set[str] = set()
        self.leads = False
        self.starts = 0

    def look(self) -> None:
        if not self.leads:
            return
        for name in [*self.seen]:
            if name not in self.alive:
                del self.seen[name]
                self.left[name] = self.second
        for name, (region, start) in self.alive.items():
            if name not in self.seen or self.seen[name][1] != start:
                self.seen[name] = (region, start, self.second)
                self.left.pop(name, None)
        self.judge()

    def judge(self) -> None:
        if not self.leads:
            return
        matching = {name for name, (region, _, _) in self.seen.items() if region in self.regions}
        if self.chosen_for != self.regions:
            self.members, self.chosen_for = matching, self.regions
            return
        over = {name for name, at in self.left.items() if self.second - at >= self.down < TIMER_OFF}
        ready = {n for n in matching if self.second - self.seen[n][2] >= self.up < TIMER_OFF}
        self.members = (self.members - over - (self.seen.keys() - matching)) | ready


class Timers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.reference = Reference()

    def teardown(self) -> None:
        self.runner.close()

    @initialize(up=TIMERS, down=TIMERS)
    def begin(self, up: int, down: int) -> None:
        async def prepared() -> TimerWorld:
            world = TimerWorld(MemoryMetastore(), Keyspace())
            await world.start()
            return world

        self.world = self.runner.run(prepared())
        self.reference.leads = True
        self.join("A", "EU")
        self.alter(up, down)
        self.reference.members = {"A"}

    @rule(name=NAMES, region=REGIONS)
    def join(self, name: str, region: str) -> None:
        """Join a node; for one that lives this is a new incarnation."""
        self.runner.run(self.world.join(name, region=region))
        self.reference.starts += 1
        self.reference.alive[name] = (region, self.reference.starts)
        self.reference.look()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.runner.run(self.world.leave(name))
        self.reference.alive.pop(name, None)
        self.reference.look()

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.reference.second += 1
            self.reference.judge()
        self.runner.run(self.world.advance(self.reference.second))

    @rule(up=TIMERS, down=TIMERS)
    def alter(self, up: int, down: int) -> None:
        zone = self.world.intents.get(ZONE.zone_id)
        changed = {"auto_scale_up": up, "auto_scale_down": down}
        if zone is None:
            self.runner.run(self.world.publish(ZONE))
        self.runner.run(self.world.alter(**changed))
        self.reference.up, self.reference.down = up, down
        self.reference.judge()

    @rule(nodes_filter=st.sampled_from(sorted(FILTERS)))
    def filter(self, nodes_filter: str) -> None:
        self.runner.run(self.world.alter(nodes_filter=nodes_filter))
        self.reference.regions = FILTERS[nodes_filter]
        self.reference.judge()

    @precondition(lambda self: self.reference.leads)
    @rule()
    def kill(self) -> None:
        self.world.kill()
        self.reference.leads = False

    @rule()
    def start(self) -> None:
        """Start a controller; a second start is a hand-over."""
        self.runner.run(self.world.start())
        self.reference.leads = True
        self.reference.look()

    @invariant()
    def the_same_data_nodes(self) -> None:
        expected = ",".join(sorted(self.reference.members)) or "-"
        assert self.runner.run(self.world.nodes()) == expected


@pytest.mark.row("IEP-039", "IEP-045", "IEP-052")
class TestTimers(Timers.TestCase):
    """IEP-039, IEP-045, IEP-052: whatever happens in whatever order, with and without a controller."""

    settings = settings(max_examples=examples(100), stateful_step_count=35, deadline=None)
