"""The processes of a simulation: what runs in each, how it is killed, stopped and started again."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from catalog.core.zone import Node, ZoneId, ZoneIntent
from catalog.ports import OutboxRow
from rebalance.controllers.clock import LONGEST_SLEEP_S, Clocks
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.keys import Keyspace
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.node_context import NodeHosts, NodeStart
from rebalance.ports.placement import EngineState, EngineStatus, PlacementRequest, PlacementResult
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.network import FaultRates, SimulatedClient
from simulator.control.simulated_cluster import SimulatedCluster
from simulator.control.simulated_group import SimulatedGroupHost
from simulator.control.simulated_mirror import SimulatedMirrorHost
from simulator.control.trace import Trace
from spark.batch import place_locally

RESTART_S = 2.0
"""The supervisor's limit for a child that ended by itself."""


class SimulatedCatalog:
    """The newest intent of each zone and the outbox; always there: the SQL database's faults are not ours."""

    def __init__(self) -> None:
        self.intents: dict[ZoneId, ZoneIntent] = {}
        self._rows: list[OutboxRow] = []
        self._version = 0

    def execute(self, intent: ZoneIntent) -> None:
        """Store the intent as the next version."""
        self._version += 1
        versioned = ZoneIntent(self._version, intent.zone, intent.dropped)
        self.intents[intent.zone.zone_id] = versioned
        self._rows.append(OutboxRow(self._version, intent.zone.zone_id, versioned.encode()))

    async def unsent(self) -> Sequence[OutboxRow]:
        return tuple(self._rows)

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None:
        self._rows = [row for row in self._rows if row not in rows]


@dataclass(slots=True)
class Environment:
    """Surroundings that the processes of one simulation share. ``rates`` are those of processes that start from
    now on."""

    seed: str
    store: MemoryMetastore
    keyspace: Keyspace
    catalog: SimulatedCatalog
    cluster: SimulatedCluster
    trace: Trace
    directory: Path
    rates: FaultRates
    failing_jobs: float = 0.05
    lease_s: int = 5
    strategy: Strategy = Strategy.QUEUE
    strict_share: float = 1.0
    """Probability, at each start of a node, that its members check membership steps themselves, as etcd does
    with its strict check; otherwise the node does."""


class SimulatedEngine:
    """The placement kernel, inline; it takes a modelled time, and sometimes the job fails."""

    def __init__(self, rng: random.Random, environment: Environment) -> None:
        self._rng = rng
        self._environment = environment

    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        await asyncio.sleep(self._rng.uniform(0.02, 1.5))
        if self._rng.random() < self._environment.failing_jobs:
            raise RuntimeError("the placement job was lost")
        return place_locally(batch)

    def status(self) -> EngineStatus:
        return EngineStatus(EngineState.READY, 0.0, "simulated")

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class SimulatedProcess(ABC):
    """One process with its connection to the metastore; restarted when it ends by itself."""

    def __init__(self, name: str, environment: Environment) -> None:
        self.name = name
        self.environment = environment
        self.client: SimulatedClient | None = None
        self._starts = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.is_gone = False
        """Killed, and nobody starts it again."""
        self._cut_ways: tuple[bool, bool] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def start(self) -> None:
        self._starts += 1
        shared = self.environment
        self.client = SimulatedClient(shared.store, self.random("network"), shared.rates)
        self._cut_off()
        self._task = asyncio.create_task(self.work(self.client), name=f"{self.name}#{self._starts}")
        self._task.add_done_callback(self._ended)

    def random(self, purpose: str) -> random.Random:
        """A random stream of this run of the process."""
        return random.Random(f"{self.environment.seed}/{self.name}/{self._starts}/{purpose}")

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does: from this moment on nothing that it does has an effect."""
        if self._task is not None and self.client is not None:
            task, self._task = self._task, None
            self.on_kill()
            task.cancel()

    async def stop(self) -> None:
        """Stop the process in order, as after Ctrl-C."""
        if self._task is not None:
            task, self._task = self._task, None
            self._stopping = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._stopping = False

    def start_after(self, delay_s: float) -> None:
        """Unless something else has started it by then."""
        asyncio.get_running_loop().call_later(delay_s, self._start_again, self._starts)

    def freeze_for(self, pause_s: float) -> None:
        if self.client is not None:
            self.client.freeze()
            asyncio.get_running_loop().call_later(pause_s, self.client.thaw)

    def cut_for(self, cut_s: float) -> None:
        if self.client is not None:
            self.client.cut()
            asyncio.get_running_loop().call_later(cut_s, self._mend, self.client)

    def _mend(self, client: SimulatedClient) -> None:
        client.heal()
        self._cut_off()

    def kill_for_good(self) -> None:
        self.is_gone = True
        self.kill()

    def cut_for_good(self, *, requests: bool, answers: bool) -> None:
        """Cut the process off from the metastore for good, whatever else happens to it."""
        self._cut_ways = requests, answers
        self._cut_off()

    def _cut_off(self) -> None:
        if self.client is not None and self._cut_ways is not None:
            requests, answers = self._cut_ways
            self.client.cut(requests=requests, answers=answers)

    def heal(self) -> None:
        """Let the process go on and reach the store, with faults at the environment's present rates."""
        if self.client is not None:
            self.client.rates = self.environment.rates
            self.client.heal()
            self.client.thaw()

    @abstractmethod
    async def work(self, client: SimulatedClient) -> None: ...

    def on_kill(self) -> None:
        """End at once what ends with the process."""
        if self.client is not None:
            self.client.kill()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if task is not self._task:
            return
        self._task = None
        self.on_kill()
        self.environment.trace.note("process ended by itself", f"{self.name}: {_cause(error)}")
        self.start_after(RESTART_S)

    def _start_again(self, starts: int) -> None:
        if self._stopping:
            # The old process still holds its directory.
            asyncio.get_running_loop().call_later(RESTART_S, self._start_again, starts)
        elif self._task is None and starts == self._starts and not self.is_gone:
            self.start()


def _cause(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__ if error is not None else "finished"


class LoopClock:
    """Virtual time as a clock for timers: the wall's would make every run another one. It may jump."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def jump(self, ms: int) -> None:
        self._ahead_ms += ms

    def now_ms(self) -> int:
        return round(1_000 * asyncio.get_running_loop().time()) + self._ahead_ms

    async def sleep_until(self, at_ms: int) -> None:
        await asyncio.sleep(min(max(at_ms - self.now_ms(), 0) / 1_000, LONGEST_SLEEP_S))


class ControllerProcess(SimulatedProcess):
    """A controller of the product over the simulated engine, with the outbox relay of a server beside it."""

    _runtime: ControllerRuntime | None = None

    def __init__(self, name: str, environment: Environment) -> None:
        super().__init__(name, environment)
        self.clock = LoopClock()

    @property
    def leads(self) -> bool:
        return self.is_running and self._runtime is not None and self._runtime.is_leader

    async def work(self, client: SimulatedClient) -> None:
        shared = self.environment
        engine = SimulatedEngine(self.random("engine"), shared)
        self._runtime = ControllerRuntime(
            client,
            shared.keyspace,
            engine,
            ControllerRules(self.name, shared.lease_s, strategy=shared.strategy),
            clocks=Clocks(self.clock),
        )
        chance = self.random("relay")
        relay = OutboxRelay(shared.catalog, client, shared.keyspace, chance=chance)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runtime.run())
            tasks.create_task(relay.run())


class NodeProcess(SimulatedProcess):
    """A node's agent over simulated members. Its disk is the cluster's and survives it."""

    def __init__(self, node: Node, environment: Environment) -> None:
        super().__init__(node.name, environment)
        self.node = node
        self._host: SimulatedGroupHost | None = None
        self._starts = 0
        self._flags = random.Random(f"{environment.seed}/{node.name}/flags")

    async def work(self, client: SimulatedClient) -> None:
        shared = self.environment
        strict = self._flags.random() < shared.strict_share
        self._host = SimulatedGroupHost(shared.cluster, self.name, tuning=EtcdTuning(strict_steps=strict))
        directory = shared.directory / self.name
        self._starts += 1
        start = NodeStart(self.node, directory, incarnation=f"{self.name}-{self._starts}")
        mirrors = SimulatedMirrorHost(shared.cluster, self._host.incarnation)
        agent = NodeAgent(start, client, shared.keyspace, NodeHosts(self._host, mirrors, tell=True))
        shared.cluster.tell(self.name, agent.notice)
        await agent.run()

    def on_kill(self) -> None:
        super().on_kill()
        if self._host is not None:
            self._host.kill()
