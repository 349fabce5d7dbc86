"""Simulated servers for tests that look into a rebalancing: a small cluster, snapshots, waiting for a step."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rebalance.groups.calls.key_hash import partition_of
from simulator.control.virtual_time import run_virtually
from simulator.stealing.core.steal_checks import RebalanceOptions, ServerOptions, ServerState
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.simulation.controller import Controller, Result
from simulator.stealing.simulation.steal_client import StealClient
from simulator.stealing.simulation.steal_rules import StealRules
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_world import Fault, StealTrace, World

USERS = StoreDefinition("users", 1)
CARTS = StoreDefinition("carts", 1)
STATIC = StoreDefinition("static", 1, StoreKind.READ_ONLY)
BOTH = (USERS, STATIC)
KEYS = tuple(f"k{number}" for number in range(40))
START = ClusterMetadata.of({0: (0, 3), 1: (1, 4), 2: (2, 5)})
"""Three nodes, six partitions."""
GROWN = ClusterMetadata.of({0: (0, 3), 1: (4,), 2: (2,), 3: (1, 5)})
"""Metadata with node 3, which steals 1 from node 1 and 5 from node 2."""


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test in virtual time."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        run_virtually(test(*args, **kwargs))

    return run


def keys_of(partition: int, count: int = 6) -> list[str]:
    return [key for key in KEYS if partition_of(key, count) == partition]


@dataclass(frozen=True, slots=True)
class NodeState:
    cluster: ClusterMetadata
    state: ServerState
    steal_info: tuple[StealUnit, ...]
    static_version: int | None


@dataclass(slots=True)
class Snapshots:
    """A ``Watcher``: the state of every node at each line of the trace."""

    taken: list[tuple[StealTrace, Mapping[int, NodeState]]] = field(default_factory=list)

    def noted(self, world: World, line: StealTrace) -> None:
        self.taken.append((line, {node: state_of(each) for node, each in world.servers.items()}))

    def at(self, kind: str, detail: str = "") -> Mapping[int, NodeState]:
        """States of the nodes at the first line of that kind."""
        return next(nodes for line, nodes in self.taken if line.kind == kind and detail in line.detail)

    def lines(self, *kinds: str) -> list[str]:
        return [f"{line.kind} {line.detail}".strip() for line, _ in self.taken if line.kind in kinds]


def state_of(server: Server) -> NodeState:
    known = server.metadata
    static = next(iter(server.read_only.values()), None)
    return NodeState(known.cluster, known.state, known.steal_info, None if static is None else static.current)


class Rig:
    """A cluster with keys in it. ``target``: nodes of it that are not in ``start`` are there, and empty."""

    def __init__(
        self,
        stores: tuple[StoreDefinition, ...] = BOTH,
        *,
        start: ClusterMetadata = START,
        target: ClusterMetadata = GROWN,
        options: RebalanceOptions | None = None,
        **server: Any,
    ) -> None:
        static = {key: f"static {key}" for key in KEYS}
        self.options = ServerOptions(**server)
        self.target = target
        self.world = World(start, stores, options=self.options, static={each.name: static for each in stores})
        for node in set(target.nodes) - set(start.nodes):
            self.world.add_server(node, self.options)
        self.controller = Controller(self.world, "run", options or RebalanceOptions(batch_size=9))
        self.rules = StealRules(self.controller)
        self.seen = Snapshots()
        self.world.watchers += [self.rules, self.seen]
        self.client = StealClient(self.world, start.nodes)
        self._runs = 0

    @classmethod
    async def loaded(cls, *args: Any, **kwargs: Any) -> Rig:
        """Every key of every read-write store has the value ``first``."""
        rig = cls(*args, **kwargs)
        for store in rig.world.stores:
            for key in KEYS if store.kind is StoreKind.READ_WRITE else ():
                await rig.client.put(store.name, key, "first")
        return rig

    def server(self, node: int) -> Server:
        return self.world.servers[node]

    def fail(self, node: int, what: str, times: int = 1) -> None:
        self.world.faults.append(Fault(node, what, times))

    def crash_at(self, node: int, what: str, down_s: float | None) -> None:
        self.world.faults.append(Fault(node, what, crashes=True, down_s=down_s))

    def set_option(self, node: int, **changed: Any) -> None:
        server = self.server(node)
        server.options = replace(server.options, **changed)

    async def rebalance(self) -> Result:
        """Each time as a run with a name of its own."""
        if self._runs:
            self.controller = Controller(self.world, f"run {self._runs}", self.controller.options)
            self.rules.watch(self.controller)
        self._runs += 1
        result = await self.controller.rebalance(self.target)
        self.world.check()
        return result

    def begin(self) -> asyncio.Task[Result]:
        return asyncio.create_task(self.rebalance())

    async def until(self, kind: str, detail: str = "") -> None:
        """Wait until the trace has such a line."""
        while not any(line.kind == kind and detail in line.detail for line in self.world.trace):
            await asyncio.sleep(0.001)

    async def values(self, node: int, store: str, key: str) -> list[str]:
        return sorted(each.value for each in await self.server(node).get(store, key))
