"""The processes of a simulation: what runs in each, how it is killed, stopped and started again.

Between a process and the metastore lie delays, lost requests and replies, late requests, and cuts. Each client
draws from a random stream of its own, so that what happens to one process does not depend on how often another
one asked.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from catalog.core.zone import Node, ZoneId, ZoneIntent
from catalog.ports import OutboxRow
from rebalance.controllers.clock import LONGEST_SLEEP_S, Clocks
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import KeyValue, Txn, TxnResult
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.node_context import NodeHosts, NodeStart
from rebalance.ports.metastore import (
    KeyEvent,
    MetastoreError,
    MetastoreUnavailableError,
    Newest,
    Snapshot,
    WatchBatch,
    WatchReset,
)
from rebalance.ports.placement import EngineState, EngineStatus, PlacementRequest, PlacementResult
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.simulated_cluster import SimulatedCluster
from simulator.control.simulated_group import SimulatedGroupHost, SimulatedMirrorHost
from simulator.control.virtual_time import Trace
from spark.batch import place_locally

T = TypeVar("T")

TIMEOUT_S = 2.0
"""Seconds after which a client gives a request up. It may still arrive, up to ``LATE_S`` later."""
LATE_S = 6.0
HELD_S = 1.8


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per request (the last one: per delivery of a watch), and the mean one-way delay."""

    delay_s: float = 0.002
    slow: float = 0.01
    """The delay is a hundred times as long: requests overtake each other."""
    held_write: float = 0.1
    """A guarded write arrives up to ``HELD_S`` after what was read for it: others write in between."""
    lost_request: float = 0.002
    lost_reply: float = 0.004
    late_request: float = 0.002
    """The client gives up, the request is carried out afterwards."""
    watch_reset: float = 0.005
    """The watch loses its place and begins with a snapshot again: events come twice."""


NO_FAULTS = FaultRates(
    slow=0.0, held_write=0.0, lost_request=0.0, lost_reply=0.0, late_request=0.0, watch_reset=0.0
)


class SimulatedClient:
    """A ``Metastore``: one process's connection to the store. ``rates`` may be changed while it is in use."""

    def __init__(self, store: MemoryMetastore, rng: random.Random, rates: FaultRates) -> None:
        self._store = store
        self._rng = rng
        self.rates = rates
        self._dead = False
        self._cut_out = False
        self._cut_in = False
        self._running = asyncio.Event()
        self._running.set()

    def kill(self) -> None:
        """The process is gone: nothing it still does reaches anybody."""
        self._dead = True

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through, or nothing in one direction."""
        self._cut_out, self._cut_in = self._cut_out or requests, self._cut_in or answers

    def heal(self) -> None:
        self._cut_out = self._cut_in = False

    def freeze(self) -> None:
        """The process stands still between two instructions: it goes on with what it knew."""
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    async def get(self, key: str) -> KeyValue | None:
        return await self._call(lambda: self._store.get_now(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._store.range_now(prefix))

    async def newest(self, prefix: str) -> Newest:
        return await self._call(lambda: self._store.newest_now(prefix))

    async def commit(self, txn: Txn) -> TxnResult:
        guarded = bool(txn.compares) or any(isinstance(operation, Txn) for operation in txn.success)
        if guarded and self._rng.random() < self.rates.held_write:
            await asyncio.sleep(self._rng.uniform(0.1, HELD_S))
        return await self._call(lambda: self._store.commit_now(txn))

    async def grant_lease(self, ttl_s: int) -> int:
        return await self._call(lambda: self._store.grant_lease_now(ttl_s))

    async def keep_lease(self, lease: int, within_s: float) -> None:
        await self._call(lambda: self._store.keep_lease_now(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._call(lambda: self._store.revoke_lease_now(lease))

    async def close(self) -> None:
        self._dead = True

    async def watch(self, prefix: str) -> AsyncIterator[WatchReset | WatchBatch]:
        """Yield changes in order and without a gap, as the port promises; late, several revisions at once, or
        begun anew."""
        waiting: list[tuple[int, tuple[KeyEvent, ...]]] = []
        arrived = asyncio.Event()

        def on_revision(revision: int, events: tuple[KeyEvent, ...]) -> None:
            waiting.append((revision, events))
            arrived.set()

        forget = self._store.observe(on_revision, prefix)
        reset = True
        try:
            while True:
                if not reset:
                    await arrived.wait()
                await self._pass()
                while self._cut_in or (reset and self._cut_out) or self._store.is_paused:
                    await asyncio.sleep(0.5)
                if self._dead:
                    raise asyncio.CancelledError
                batches, waiting[:] = tuple(waiting), ()
                arrived.clear()
                if reset or self._rng.random() < self.rates.watch_reset:
                    reset = False
                    yield WatchReset(self._store.range_now(prefix))
                elif len(batches) == 1:
                    yield WatchBatch(*batches[0])
                elif batches:
                    yield WatchBatch(batches[-1][0], tuple(event for _, events in batches for event in events))
        finally:
            forget()

    async def _call(self, operation: Callable[[], T]) -> T:
        if self._dead:
            raise MetastoreUnavailableError("the process is gone")
        await self._pass()
        if self._cut_out or self._store.is_paused:
            await self._give_up()
        fate, rates = self._rng.random(), self.rates
        if fate < rates.lost_request:
            await self._give_up()
        fate -= rates.lost_request
        if 0 <= fate < rates.late_request:
            late_s = TIMEOUT_S + self._rng.uniform(0.0, LATE_S)
            asyncio.get_running_loop().call_later(late_s, self._carry_out_late, operation)
            await self._give_up()
        fate -= rates.late_request
        result = operation()
        if 0 <= fate < rates.lost_reply:
            await self._give_up()
        await self._pass()
        if self._cut_in:
            await self._give_up()
        return result

    async def _pass(self) -> None:
        delay_s = self._rng.expovariate(1.0 / self.rates.delay_s)
        if self._rng.random() < self.rates.slow:
            delay_s *= 100.0
        await asyncio.sleep(delay_s)
        if not self._running.is_set():
            await self._running.wait()
        if self._dead:
            raise MetastoreUnavailableError("the process is gone")

    async def _give_up(self) -> None:
        await asyncio.sleep(TIMEOUT_S)
        raise MetastoreUnavailableError("no answer in time", outcome_unknown=True)

    def _carry_out_late(self, operation: Callable[[], object]) -> None:
        """Sent before the process died or was cut off, so neither matters any more."""
        try:
            operation()
        except MetastoreError:
            return  # a lease that ended meanwhile, a store that is paused


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
        self.is_stopping = False
        self._task: asyncio.Task[None] | None = None
        self.is_gone = False
        """Killed, and nobody starts it again."""
        self._cut_ways: tuple[bool, bool] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

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
            self.is_stopping = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.is_stopping = False

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
        if self.is_stopping:
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
