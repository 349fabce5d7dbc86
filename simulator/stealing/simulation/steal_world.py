"""Simulated servers in virtual time, what lies between them, and what goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rebalance.groups.calls.key_hash import partition_of
from simulator.stealing.core.steal_checks import ServerOptions
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.simulation.steal_errors import InjectedError, NodeDownError
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.unit_job import UnitJob

T = TypeVar("T")

DELAY_S = 0.001
"""The longest way from one machine to another."""
SLOW_ORDERS = 0.3
"""Part of a controller's orders that are late: nodes are in different states meanwhile."""


@dataclass(frozen=True, slots=True)
class StealTrace:
    """One line of the trace; ``node`` is -1 for the controller."""

    at_s: float
    node: int
    kind: str
    detail: str = ""

    def __str__(self) -> str:
        who = "controller" if self.node < 0 else f"node {self.node}"
        return f"{self.at_s:9.4f} s  {who}: {self.kind} {self.detail}".rstrip()


class StealWatcher(Protocol):
    def noted(self, world: World, line: StealTrace) -> None:
        """Raises RuleBrokenError."""


@dataclass(slots=True)
class Fault:
    """Fault at ``what`` on ``node``, the next ``times`` times: an error, or a crash, after which the node is
    back in ``down_s`` (None: it stays down)."""

    node: int
    what: str
    times: int = 1
    crashes: bool = False
    down_s: float | None = None


class World:
    """An ``Around`` for every server. ``static``: what read-only stores hold, by store and key. ``slow_s``: how
    late an order may be."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        stores: Iterable[StoreDefinition],
        *,
        seed: int = 0,
        options: ServerOptions | None = None,
        static: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.stores = tuple(stores)
        self.slow_s = 0.0
        self.rng = random.Random(f"world/{seed}")
        self.static = static or {}
        self.trace: list[StealTrace] = []
        self.watchers: list[StealWatcher] = []
        self.faults: list[Fault] = []
        self.broken: list[Exception] = []
        self.servers: dict[int, Server] = {}
        self._start = cluster
        self._background: set[asyncio.Task[None]] = set()
        for node in cluster.nodes:
            self.add_server(node, options)

    def add_server(self, node: int, options: ServerOptions | None = None) -> Server:
        """One that was not in the first metadata has nothing, and knows the cluster as it was when it was
        made."""
        cluster = next((other.metadata.cluster for other in self.servers.values()), self._start)
        rows = {
            store.name: self._files(node, cluster, store)
            for store in self.stores
            if store.kind is StoreKind.READ_ONLY
        }
        server = Server(node, cluster, self.stores, rows, options or ServerOptions(), self, UnitJob)
        self.servers[node] = server
        return server

    def _files(
        self, node: int, cluster: ClusterMetadata, store: StoreDefinition
    ) -> Mapping[int, Mapping[str, str]]:
        count = len(cluster.owners)
        owned = [
            partition for partition in range(count) if node in cluster.replicas(partition, store.replication)
        ]
        rows = self.static.get(store.name, {})
        return {
            partition: {key: value for key, value in rows.items() if partition_of(key, count) == partition}
            for partition in owned
        }

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, node: int, kind: str, detail: str = "") -> None:
        """Note an event. Errors of watchers are kept, and raised by ``check``: here they would look like the
        server's own."""
        line = StealTrace(self.now_s, node, kind, detail)
        self.trace.append(line)
        for watcher in self.watchers:
            try:
                watcher.noted(self, line)
            except AssertionError as error:
                self.broken.append(error)

    def check(self) -> None:
        """Raises the first rule that was broken."""
        if self.broken:
            raise self.broken[0]

    async def call(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> T:
        """A request there and an answer back. Raises NodeDownError when there is none, whether or not it was
        carried out; else what the operation raises."""
        await asyncio.sleep(self.rng.uniform(0.0, DELAY_S))
        server = self.servers.get(node)
        if server is None or not server.is_up:
            raise NodeDownError(f"node {node} does not answer")
        incarnation = server.incarnation
        result = await operation(server)
        await asyncio.sleep(self.rng.uniform(0.0, DELAY_S))
        if not server.is_up or server.incarnation != incarnation:
            raise NodeDownError(f"node {node} went down before it answered")
        return result

    async def order(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> T:
        """The same for orders of a controller: the server finishes them although the controller is gone, and
        loses them in a crash of its own."""

        async def carry_out(server: Server) -> T:
            task = asyncio.ensure_future(operation(server))
            server.orders.add(task)
            task.add_done_callback(server.ended_order)
            await asyncio.wait({task})
            if task.cancelled():
                raise NodeDownError(f"node {node} went down while it carried out an order")
            return task.result()

        if self.rng.random() < SLOW_ORDERS:
            await asyncio.sleep(self.rng.uniform(0.0, self.slow_s))
        return await self.call(node, carry_out)

    async def point(self, node: int, what: str) -> None:
        for fault in self.faults:
            if fault.node == node and fault.what == what and fault.times:
                fault.times -= 1
                if not fault.crashes:
                    raise InjectedError(f"node {node}: injected error at {what}")
                self.crash(node, fault.down_s)
                await asyncio.sleep(0)

    def crash(self, node: int, down_s: float | None = None) -> None:
        """Crash a node; one that is down already stays as it is."""
        server = self.servers[node]
        if not server.is_up:
            return
        server.crash()
        if down_s is not None:
            self.background(self._restart_later(server, down_s))

    async def _restart_later(self, server: Server, down_s: float) -> None:
        await asyncio.sleep(down_s)
        server.restart()

    def background(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Kept, so that it is not collected while it runs."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
