"""A whole rebalancing that follows from a seed: clients, faults, a controller that may die, and the rules."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from simulator.control.virtual_time import run_virtually
from simulator.stealing.core.steal_checks import RebalanceOptions, ServerOptions, check_target
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.simulation.controller import Controller, Result, StealOutcome
from simulator.stealing.simulation.steal_rules import StealRuleBrokenError, StealRules, check_rest
from simulator.stealing.simulation.steal_workload import History, Visitor
from simulator.stealing.simulation.steal_world import Fault, World

KEYS = tuple(f"key-{number}" for number in range(24))
STORES = (
    StoreDefinition("carts", 2),
    StoreDefinition("users", 1),
    StoreDefinition("static", 2, StoreKind.READ_ONLY),
)
KINDS = (STORES, STORES[:2], STORES[2:], STORES[:1], (STORES[0], STORES[2]))
POINTS = ("change REBALANCE", "change CLUSTER", "change SWAP", "undo CLUSTER", "commit")
DOWN_MAX_S = 0.4


@dataclass(frozen=True, slots=True)
class StealShape:
    """Shape of a run, drawn from the seed: the cluster, its target, and the options."""

    current: ClusterMetadata
    target: ClusterMetadata
    stores: tuple[StoreDefinition, ...]
    options: RebalanceOptions
    server: ServerOptions

    @classmethod
    def of(cls, seed: int) -> StealShape:
        rng = random.Random(f"shape/{seed}")
        stores = KINDS[seed % len(KINDS)]
        partitions = rng.randint(4, 8)
        options = RebalanceOptions(rng.randint(1, 3), rng.randint(1, 3), delete=rng.random() < 0.3)
        server = ServerOptions(
            max_attempts=rng.randint(1, 3),
            max_parallel_stores=rng.randint(1, 3),
            optimization=rng.random() < 0.7,
            copy_rate=rng.choice((60.0, 200.0, 1_000.0)),
        )
        while True:
            current = ClusterMetadata((0, 1, 2), tuple(rng.randrange(3) for _ in range(partitions)))
            new = (0, 1, 2, 3)[: rng.choice((3, 4, 4))]
            moved = {number: rng.choice(new) for number in range(partitions) if rng.random() < 0.5}
            target = current.with_nodes(new).with_owners(moved)
            if target.owners != current.owners and not check_target(
                current, target, stores, options.batch_size
            ):
                return cls(current, target, stores, options, server)


class StealRun:
    """``world``, ``history`` and ``results`` are there to look at afterwards."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.shape = StealShape.of(seed)
        self.history = History()
        self.results: list[Result] = []
        self._rng = random.Random(f"run/{seed}")
        self._faults = faults
        self._crash: asyncio.Task[None] | None = None
        self._keys = KEYS[: self._rng.choice((3, 8, 24))]
        static = {key: f"static {key}" for key in self._keys}
        self.world = World(
            self.shape.current,
            self.shape.stores,
            seed=seed,
            options=self.shape.server,
            static={store.name: static for store in self.shape.stores},
        )
        self.world.slow_s = self._rng.choice((0.0, 0.05, 0.5))
        for node in set(self.shape.target.nodes) - set(self.shape.current.nodes):
            self.world.add_server(node, self.shape.server)

    def run(self) -> None:
        """Raises RuleBrokenError, HistoryError."""
        run_virtually(self._main())

    async def _main(self) -> None:
        urls = self.shape.current.nodes
        visitors = [Visitor(self.world, f"v{number}", self.history, urls, self._keys) for number in range(3)]
        for store in self.shape.stores:
            for key in self._keys if store.kind is StoreKind.READ_WRITE else ():
                await visitors[0].write((store.name, key))
        visits = [asyncio.create_task(visitor.visit()) for visitor in visitors]
        if self._faults:
            self._draw_faults()
        cluster = await self._rebalance_with_faults()
        self._end_faults()
        await self._settle(cluster)
        if cluster != self.shape.target:
            again = self._controller("again")
            self.results.append(await again.rebalance(self.shape.target))
            if self.results[-1].outcome is not StealOutcome.COMPLETED:
                raise StealRuleBrokenError(f"without faults: {self.results[-1]}")
        for visitor in visitors:
            visitor.stop()
        await asyncio.gather(*visits)
        await self._settle(self.shape.target)
        if self.history.failed:
            raise StealRuleBrokenError(f"requests failed: {self.history.failed}")

    def _controller(self, run: str) -> Controller:
        controller = Controller(self.world, run, self.shape.options)
        for watcher in self.world.watchers:
            if isinstance(watcher, StealRules):
                watcher.watch(controller)
        if not self.world.watchers:
            self.world.watchers.append(StealRules(controller))
        return controller

    async def _settle(self, cluster: ClusterMetadata) -> None:
        """Wait until nothing is on its way any more and every node is there, and check the rest."""
        await asyncio.sleep(DOWN_MAX_S + 0.1)
        self.world.check()
        check_rest(self.world, cluster, self.history)

    async def _rebalance_with_faults(self) -> ClusterMetadata:
        """The metadata that must hold now."""
        task = asyncio.create_task(self._controller("first").rebalance(self.shape.target))
        if self._faults and self._rng.random() < 0.3:
            await asyncio.wait({task}, timeout=self._rng.uniform(0.0, 1.2))
            if not task.done():
                self.world.note(-1, "Died")
                task.cancel()
                await asyncio.wait({task})
                return await self._recover()
        result = await task
        self.results.append(result)
        if result.outcome is StealOutcome.INCOMPLETE:
            return await self._recover()
        return self.shape.target if result.outcome is StealOutcome.COMPLETED else _held(result)

    async def _recover(self) -> ClusterMetadata:
        """Recover as often as it takes until every node is there; returns the metadata on which the nodes
        agree."""
        while True:
            await asyncio.sleep(DOWN_MAX_S / 2)
            result = await self._controller("recovery").recover()
            self.results.append(result)
            if result.outcome is StealOutcome.COMPLETED:
                return self.world.servers[0].metadata.cluster

    def _draw_faults(self) -> None:
        rng = self._rng
        points = (*POINTS, *(f"copy {store.name}" for store in self.shape.stores))
        for _ in range(rng.choice((0, 1, 1, 2))):
            node, what = rng.choice(sorted(self.world.servers)), rng.choice(points)
            down_s = rng.uniform(0.05, DOWN_MAX_S)
            self.world.faults.append(Fault(node, what, rng.randint(1, 4), rng.random() < 0.5, down_s))
        if rng.random() < 0.3:
            self._crash = self.world.background(self._crash_later(rng.choice(sorted(self.world.servers))))

    def _end_faults(self) -> None:
        self.world.faults.clear()
        if self._crash is not None:
            self._crash.cancel()

    async def _crash_later(self, node: int) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, 1.5))
        self.world.crash(node, self._rng.uniform(0.05, DOWN_MAX_S))


def _held(result: Result) -> ClusterMetadata:
    """Metadata after a run that failed: that of its batches that were committed."""
    return result.transitions[result.batches - 1] if result.batches else result.start
