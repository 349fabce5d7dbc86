"""One simulation from its seed to its end: events and faults, then calm, then everything must be as wanted."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import structlog

from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from simulator.control.bulk import BulkPlane
from simulator.control.invariants import Auditor, InvariantBrokenError, not_joined, not_over, unfinished
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.moves import LimitsSetter, MovesAuditor, OperationAuditor
from simulator.control.planes import AgentPlane, DataPlane
from simulator.control.processes import (
    NO_FAULTS,
    ControllerProcess,
    Environment,
    FaultRates,
    LoopClock,
    SimulatedCatalog,
)
from simulator.control.scenario import Scenario, node_number
from simulator.control.simulated_cluster import GroupRates, SimulatedCluster
from simulator.control.staying import BOUND_S, Shortfall, StayingAuditor, StayingFaults, put_for_ever
from simulator.control.virtual_time import Trace, run_virtually

STRATEGIES = tuple(strategy.value for strategy in Strategy)
AGENT_PARTITIONS_MAX = 1_000
"""Up to here each node is a real agent; above, nodes and groups are arrays."""
CONTROLLERS = 2
ZONE_PARTITIONS_MAX = 62_500
"""About: a larger simulation has more zones."""
CONVERGE_S = 900.0
LONG_DELAY_S = 0.1
MOVE_S = 120.0
"""Time before the end of a run within which a move that began may still be under way."""
QUIET_S = 20.0
"""Time without faults and events in which nothing may be written. The same time passes before: a lease may end
late, its node registers anew, and then its groups hand their leadership back to it."""
EVENT_GAPS_S = (0.0, 0.05, 0.5, 1.0, 3.0, 8.0)
"""Between two events: bursts and pauses, times 0.2 to 2."""
STRICT_SHARES = (1.0, 0.0, 0.5)
"""All nodes leave the check to etcd, none does, or each start of a node decides."""
REASONS_SHOWN = 3
LOOK_S, LOOK_RARELY_S = 1.0, 5.0
LOOKS_CLOSELY_S = 90.0
"""Time after the last event in which each second is checked for rest."""
WHOLE_PARTITIONS_MAX, WHOLE_RARELY_STEPS = 10_000, 50_000
"""Partitions above which everything is checked less often, since that takes seconds."""
GARBAGE = 100_000
"""New objects before the garbage collector looks through them."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """``bulk`` None: nodes and groups are arrays from ``AGENT_PARTITIONS_MAX`` partitions on. With
    ``cluster_moves`` at most so many partitions move at once, and other limits come and go."""

    seed: int
    nodes: int = 5
    partitions: int = 8
    events: int = 12
    strategy: str = "queue"
    bulk: bool | None = None
    cluster_moves: int | None = None
    staying: tuple[str, ...] | None = None
    """Kinds of ``StayingFaults``, () for all; then nothing is ever healed."""
    strict_share: float | None = None
    """Share of nodes whose members check membership steps themselves; None: by the seed, one of
    ``STRICT_SHARES``."""

    @property
    def is_bulk(self) -> bool:
        return self.partitions > AGENT_PARTITIONS_MAX if self.bulk is None else self.bulk


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Report of a run. ``moves_begun`` is counted with ``cluster_moves`` only. ``virtual_s`` is the
    simulation's time; ``elapsed_s`` and ``memory_mb`` (the most that the process ever used) are real,
    everything else is the same in each run of the seed."""

    simulation: Simulation
    digest: str
    steps: int
    switches: int
    operations_done: int
    moves_begun: int
    revision: int
    virtual_s: float
    events: dict[str, int]
    lines: list[tuple[float, str]] = field(repr=False)
    broken: InvariantBrokenError | None
    elapsed_s: float
    memory_mb: float
    whole_checks: int = 0
    held: dict[str, str] = field(default_factory=dict)
    """Partitions that could not come to rest under faults that stay, each with what holds it up, and its
    cause."""
    rested_s: dict[str, float] = field(default_factory=dict)
    """Time after the last event until each other zone or partition came to rest under faults that stay; 0 when
    it rested by then."""
    awaited: dict[str, str] = field(default_factory=dict)
    """Last thing that each of them lacked before it rested."""


def simulate(simulation: Simulation) -> SimulationReport:
    """Run it to its end or to the first broken invariant. Raises ValueError for what cannot be simulated."""
    if simulation.nodes < 3 or simulation.partitions < 1 or simulation.events < 0:
        raise ValueError("a simulation needs at least 3 nodes, 1 partition and no negative number of events")
    if simulation.cluster_moves is not None and simulation.cluster_moves < 1:
        raise ValueError(f"cluster_moves is at least 1, not {simulation.cluster_moves}")
    if simulation.staying is not None and simulation.is_bulk:
        raise ValueError("faults stay with real agents only")
    if simulation.strategy not in STRATEGIES:
        raise ValueError(f"strategy {simulation.strategy!r} is not one of {', '.join(STRATEGIES)}")
    if simulation.is_bulk and simulation.strategy != Strategy.QUEUE.value:
        raise ValueError(f"above {AGENT_PARTITIONS_MAX} partitions only the strategy queue is simulated")
    started = time.perf_counter()
    with (
        silent_logs(),
        rare_collections(),
        tempfile.TemporaryDirectory(prefix="zonekeeper-simulation-") as directory,
    ):
        world, broken, virtual_s = run_virtually(_run(simulation, Path(directory)))
    environment, auditor = world.environment, world.auditor
    return SimulationReport(
        simulation,
        environment.trace.digest,
        environment.trace.steps,
        auditor.switches,
        world.operations.done,
        world.moves.begun if world.moves is not None else 0,
        environment.store.revision,
        virtual_s,
        dict(sorted(environment.trace.events.items())),
        environment.trace.lines,
        broken,
        time.perf_counter() - started,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        auditor.whole_checks,
        world.held,
        world.rested_s,
        world.awaited,
    )


async def _run(simulation: Simulation, directory: Path) -> tuple[_World, InvariantBrokenError | None, float]:
    world = _World(simulation, directory)
    life = asyncio.create_task(world.live())
    puts = asyncio.create_task(put_for_ever(world.environment)) if simulation.staying is not None else None
    try:
        await asyncio.wait((life, world.auditor.broken), return_when=asyncio.FIRST_COMPLETED)
    finally:
        virtual_s = asyncio.get_running_loop().time()
        life.cancel()
        if puts is not None:
            puts.cancel()
        results = await asyncio.gather(life, return_exceptions=True)
        if not world.environment.store.is_paused:
            world.auditor.check_everything()
        world.end()
    if isinstance(results[0], Exception):
        raise results[0]
    broken = world.auditor.broken.result() if world.auditor.broken.done() else None
    return world, broken, virtual_s


class _World:
    def __init__(self, simulation: Simulation, directory: Path) -> None:
        self._simulation = simulation
        self._rng = random.Random(f"{simulation.seed}/scenario")
        seed, store, keyspace, trace = str(simulation.seed), MemoryMetastore(), Keyspace(), Trace()
        self.auditor = Auditor(store, keyspace, trace)
        if simulation.partitions > WHOLE_PARTITIONS_MAX:
            self.auditor.whole_steps = WHOLE_RARELY_STEPS
        self.auditor.groups = lambda: self.environment.cluster.groups.values()
        drawn = STRICT_SHARES[min(int(self._rng.random() * len(STRICT_SHARES)), len(STRICT_SHARES) - 1)]
        share = drawn if simulation.strict_share is None else simulation.strict_share
        cluster = SimulatedCluster(seed, GroupRates(), self.auditor)
        self.environment = Environment(
            seed,
            store,
            keyspace,
            catalog=SimulatedCatalog(),
            cluster=cluster,
            trace=trace,
            directory=directory,
            rates=self._fault_rates(),
            strategy=Strategy(simulation.strategy),
            strict_share=share,
        )
        self._controllers = [
            ControllerProcess(f"controller-{number}", self.environment) for number in range(CONTROLLERS)
        ]
        cap = simulation.cluster_moves
        self._limits = None if cap is None else LimitsSetter(simulation.seed, self.environment, cap)
        nodes = [node_number(number) for number in range(simulation.nodes)]
        self.plane: DataPlane = (BulkPlane if simulation.is_bulk else AgentPlane)(self.environment, nodes)
        self.auditor.configurations = self.plane
        self.operations = OperationAuditor(store, keyspace, self.auditor, causes=not simulation.is_bulk)
        self._staying: StayingFaults | None = None
        if simulation.staying is not None:
            self._staying = StayingFaults(
                simulation.seed, self.environment, self._controllers, self.plane, simulation.staying
            )
        self.held: dict[str, str] = {}
        self.rested_s: dict[str, float] = {}
        self.awaited: dict[str, str] = {}
        self.moves: MovesAuditor | None = None
        if cap is not None:
            self.moves = MovesAuditor(store, keyspace, self.auditor.fail, LoopClock().now_ms)

    def _fault_rates(self) -> FaultRates:
        """Some seeds have a calm network and only what the events bring, some a bad one; with long delays many
        things happen between a read and the write that follows it."""
        severity = self._rng.choice((0.0, 0.3, 1.0, 3.0))
        delay_s = self._rng.choice((0.002, 0.02, 0.15, 0.4))
        kinds = ("held_write", "lost_request", "lost_reply", "late_request", "watch_reset", "slow")
        rates = {kind: getattr(FaultRates(), kind) * severity for kind in kinds}
        if delay_s >= LONG_DELAY_S:
            rates["slow"] = 0.0
        return FaultRates(delay_s=delay_s, **rates)

    async def live(self) -> None:
        simulation, rng = self._simulation, self._rng
        scenario = Scenario(rng, self.environment, self._controllers, self.plane, simulation.nodes)
        for controller in self._controllers:
            controller.start()
        if self._limits is not None:
            self._limits.start()
        zones = max(rng.choice((1, 1, 2, 3)), simulation.partitions // ZONE_PARTITIONS_MAX)
        scenario.create_zones(simulation.partitions, min(zones, simulation.partitions))
        await asyncio.sleep(rng.uniform(0.0, 15.0))
        for number in range(simulation.events):
            await asyncio.sleep(rng.choice(EVENT_GAPS_S) * rng.uniform(0.2, 2.0))
            await scenario.happen()
            if self._staying is not None and number in (simulation.events // 3, 2 * simulation.events // 3):
                await self._staying.happen()
        if self._staying is not None:
            await self._stay(self._staying)
            return
        await asyncio.sleep(rng.uniform(0.0, 20.0))
        if self._limits is not None:
            await self._limits.calm()
        await self._calm()
        await self._converge()
        await self._rest()

    async def _stay(self, faults: StayingFaults) -> None:
        """Run on with nothing healed: moves end, or name a cause."""
        audit = StayingAuditor(self.environment, self.auditor, self.operations, faults)
        loop = asyncio.get_running_loop()
        begun_s = settled_s = loop.time()
        missing_since: dict[str, float] = {}
        while True:
            spent_s = loop.time() - begun_s
            await asyncio.sleep(LOOK_S if spent_s < LOOKS_CLOSELY_S else LOOK_RARELY_S)
            if self.environment.store.is_paused:
                continue
            missing = list(audit.unsettled())
            self._note_unrest(missing, audit.held, loop.time() - begun_s)
            missing_since = {
                shortfall.subject: missing_since.get(shortfall.subject, loop.time()) for shortfall in missing
            }
            if missing or audit.held:
                settled_s = loop.time()
            # What is held up may be on its way, too; and what rests may have been on its way to the next move.
            if loop.time() <= (begun_s + BOUND_S if missing or audit.held else settled_s + QUIET_S):
                continue
            # A timer that ends as late may have begun a move just now.
            if loop.time() > max(missing_since.values(), default=0.0) + MOVE_S:
                break
        self.held = {str(partition): cause for partition, cause in audit.held.items()}
        for name in (*self.held, *(shortfall.subject for shortfall in missing)):
            self.rested_s.pop(name, None)
            self.awaited.pop(name, None)
        for shortfall in (*islice(missing, REASONS_SHOWN), *islice(audit.lost(), REASONS_SHOWN)):
            self.auditor.fail(shortfall.invariant, shortfall.detail)
        await asyncio.sleep(0)

    def _note_unrest(self, missing: list[Shortfall], held: dict[PartitionId, str], spent_s: float) -> None:
        for partition in self.environment.cluster.groups:
            if not self.environment.catalog.intents[partition.zone_id].dropped:
                self.rested_s.setdefault(str(partition), 0.0)
        lacking = {shortfall.subject: shortfall.detail for shortfall in missing}
        lacking.update({str(partition): cause for partition, cause in held.items()})
        for subject, lack in lacking.items():
            self.rested_s[subject], self.awaited[subject] = spent_s, lack

    async def _calm(self) -> None:
        self.environment.trace.note("faults stop", "")
        self.environment.rates = NO_FAULTS
        self.environment.failing_jobs = 0.0
        cluster = self.environment.cluster
        cluster.rates = replace(cluster.rates, lost_call=0.0, late_call=0.0, lost_answer=0.0)
        self.environment.store.resume()
        for controller in self._controllers:
            controller.heal()
            if not controller.is_running:
                controller.start()
        self.plane.heal()

    async def _converge(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONVERGE_S
        while True:
            await asyncio.sleep(1.0)
            missing = self._unfinished()
            if not missing:
                return
            if loop.time() > deadline:
                self.auditor.fail("the last target is reached when events stop", "; ".join(missing))
                await asyncio.sleep(0)
                return

    def _unfinished(self) -> list[str]:
        environment = self.environment
        shortfalls = unfinished(
            environment.store,
            environment.keyspace,
            self.auditor,
            self.plane,
            environment.catalog.intents.values(),
            self.plane.living(),
        )
        missing = list(islice(shortfalls, REASONS_SHOWN))
        if not missing:
            joining = not_joined(environment.store, environment.keyspace, self.plane.names)
            missing = list(islice(joining, REASONS_SHOWN))
        if not missing and not self._simulation.is_bulk:
            # Arrays publish no configurations, so nobody can tell there that a group has changed.
            missing = list(islice(not_over(environment.store, environment.keyspace), REASONS_SHOWN))
        return missing or [text for text in (self.plane.left_over(),) if text]

    async def _rest(self) -> None:
        """Records and published configurations follow; then nothing may happen at all."""
        await asyncio.sleep(QUIET_S)
        settled_s = asyncio.get_running_loop().time()
        await asyncio.sleep(QUIET_S)
        missing = self._unfinished()
        if missing:
            self.auditor.fail("what was reached stays", "; ".join(missing))
        if self.auditor.last_work_s > settled_s:
            self.auditor.fail(
                "no work is left when nothing is requested",
                f"a key was written at {self.auditor.last_work_s:.3f} s",
            )

    def end(self) -> None:
        if self._limits is not None:
            self._limits.end()
        self.plane.end()
        for process in (*self._controllers, *self.plane.processes):
            process.kill()


@contextmanager
def rare_collections() -> Iterator[None]:
    """A simulation makes many objects that live for a while and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def silent_logs() -> Iterator[None]:
    """The product's log lines of thousands of virtual processes help nobody."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
