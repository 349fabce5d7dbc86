"""A client that routes by the metadata it got at the start, and gets them anew when a node says they are old.

The same code is the second hop of a server that routes for others (VOL-078, VOL-079).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rebalance.groups.calls.key_hash import partition_of
from simulator.stealing.core.steal_cluster import ClusterMetadata
from simulator.stealing.core.vector_clock import ObsoleteVersionError, Versioned, merged
from simulator.stealing.simulation.steal_errors import InvalidMetadataError, NodeDownError, NotServedError
from simulator.stealing.simulation.steal_metadata import CLUSTER_KEY
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_world import World

T = TypeVar("T")

ATTEMPTS_MAX = 400
PAUSE_S = 0.01


class StealClient:
    """Reads one replica, and writes all of them, the first of the list before the others: a write that somebody
    was acknowledged is on every replica.

    ``urls``: nodes to bootstrap from, asked in turn. ``bootstraps``: how often metadata were read. ``retries``:
    how often a node said that they are old.
    """

    def __init__(self, world: World, urls: Iterable[int]) -> None:
        self.world = world
        self.bootstraps = 0
        self.retries = 0
        self.calls: list[int] = []
        self._urls = list(urls)
        self._cluster: ClusterMetadata | None = None
        self._replication = {store.name: store.replication for store in world.stores}

    async def bootstrap(self) -> None:
        """Raises NodeDownError when no node of the list answers."""
        for _ in self._urls:
            url = self._urls[self.bootstraps % len(self._urls)]
            self.bootstraps += 1
            try:
                text = await self.world.call(url, _read_cluster)
            except NodeDownError:
                continue
            self._cluster = ClusterMetadata.decode(text)
            return
        raise NodeDownError(f"none of the nodes {self._urls} answers")

    async def get(self, store: str, key: str) -> tuple[Versioned, ...]:
        """Every version that no other one has seen; none for a key that was never put. Raises
        NotServedError."""
        return await self._retried(
            store, key, lambda nodes: self._read(nodes, lambda server: server.get(store, key))
        )

    async def get_static(self, store: str, key: str) -> str | None:
        """Get a key of a read-only store. Raises NotServedError."""
        return await self._retried(
            store, key, lambda nodes: self._read(nodes, lambda server: server.get_static(store, key))
        )

    async def put(self, store: str, key: str, value: str) -> Versioned:
        """Put a value, and return it with its clock. Raises NotServedError: it may have been put
        nevertheless."""
        return await self._retried(store, key, lambda nodes: self._write(nodes, store, key, value))

    async def _read(self, nodes: tuple[int, ...], operation: Callable[[Server], Awaitable[T]]) -> T:
        """Read from any replica, or from another one when that is down."""
        order = self.world.rng.sample(nodes, len(nodes))
        for node in order[:-1]:
            try:
                return await self._call(node, operation)
            except NodeDownError:
                continue
        return await self._call(order[-1], operation)

    async def _write(self, nodes: tuple[int, ...], store: str, key: str, value: str) -> Versioned:
        """Write to all replicas. A newer write of another client on a later replica has seen this one on the
        first, which does not undo it."""
        seen = await self._call(nodes[0], lambda server: server.get(store, key))
        version = Versioned(merged(seen).incremented(nodes[0]), value)
        await self._call(nodes[0], lambda server: server.put(store, key, version, nodes))
        for node in nodes[1:]:
            try:
                await self._call(node, lambda server: server.put(store, key, version, nodes))
            except ObsoleteVersionError:
                continue
        return version

    async def _call(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> T:
        self.calls.append(node)
        return await self.world.call(node, operation)

    async def _retried(self, store: str, key: str, attempt: Callable[[tuple[int, ...]], Awaitable[T]]) -> T:
        """VOL-077: old metadata are read anew and the request is sent again. While a state change goes from
        node to node, or a node is down, that may take several times."""
        last: Exception | None = None
        for number in range(ATTEMPTS_MAX):
            try:
                if self._cluster is None or isinstance(last, InvalidMetadataError):
                    await self.bootstrap()
                return await attempt(self._nodes(store, key))
            except (InvalidMetadataError, NodeDownError, ObsoleteVersionError) as error:
                self.retries += 1
                last = error
                if number:
                    await asyncio.sleep(PAUSE_S * self.world.rng.uniform(0.5, 1.5))
        raise NotServedError(f"{store} {key}: not served in {ATTEMPTS_MAX} attempts: {last}")

    def _nodes(self, store: str, key: str) -> tuple[int, ...]:
        if self._cluster is None:
            raise NodeDownError("never bootstrapped")
        partition = partition_of(key, len(self._cluster.owners))
        return self._cluster.replicas(partition, self._replication[store])


class RoutingServer:
    """``enable_routing`` on a node: requests for any key, for clients that know no metadata. Its own keys it
    answers itself, others take one hop more."""

    def __init__(self, world: World, node: int) -> None:
        self.inner = StealClient(world, [node, *(server for server in world.servers if server != node)])

    async def get(self, store: str, key: str) -> tuple[Versioned, ...]:
        return await self.inner.get(store, key)

    async def put(self, store: str, key: str, value: str) -> Versioned:
        return await self.inner.put(store, key, value)


async def _read_cluster(server: Server) -> str:
    return server.metadata.get(CLUSTER_KEY)
