"""Visitors: clients that read and write without pause, and tell the history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from rebalance.stealing.core.steal_cluster import StoreKind
from rebalance.stealing.simulation.history import History, HistoryError, Request, Row
from rebalance.stealing.simulation.steal_client import StealClient
from rebalance.stealing.simulation.steal_errors import NotServedError
from rebalance.stealing.simulation.steal_world import World

THINK_S = 0.01
NEW_CLIENTS = 0.1
"""How often a visitor goes on as a client that has just started: it may have other metadata than the others."""


class Visitor:
    """``keys``: of every store. Goes on until ``stop``."""

    def __init__(
        self, world: World, name: str, history: History, urls: Iterable[int], keys: Iterable[str]
    ) -> None:
        self._urls = sorted(urls)
        self.client = StealClient(world, self._urls)
        self._world = world
        self._name = name
        self._history = history
        self._keys = sorted(keys)
        self._rng = random.Random(f"visitor/{name}/{world.rng.random()}")
        self._stopped = False
        self._written = 0

    def stop(self) -> None:
        self._stopped = True

    async def visit(self) -> None:
        """What is wrong is kept in ``world.broken``."""
        while not self._stopped:
            store = self._rng.choice(self._world.stores)
            row = store.name, self._rng.choice(self._keys)
            began_s = self._world.now_s
            if self._rng.random() < NEW_CLIENTS:
                self.client = StealClient(self._world, self._rng.sample(self._urls, len(self._urls)))
            try:
                if store.kind is StoreKind.READ_ONLY:
                    kind = "static"
                    await self.read_static(row)
                elif self._rng.random() < 0.5:
                    kind = "get"
                    await self.read(row)
                else:
                    kind = "put"
                    await self.write(row)
                self._history.requests.append(Request(kind, began_s, self._world.now_s))
            except NotServedError as error:
                self._history.failed.append(str(error))
            except HistoryError as error:
                self._world.note(-1, "Broken", str(error))
                self._world.broken.append(error)
                return
            await asyncio.sleep(self._rng.uniform(0.0, 2 * THINK_S))

    async def write(self, row: Row) -> None:
        """Raises NotServedError."""
        self._written += 1
        version = await self.client.put(*row, f"{self._name}/{self._written}")
        self._history.written(row, version)

    async def read(self, row: Row) -> None:
        """Raises NotServedError, HistoryError."""
        promised = self._history.acknowledged[row]
        self._history.check_read(row, promised, await self.client.get(*row))

    async def read_static(self, row: Row) -> None:
        """Raises NotServedError, HistoryError: read-only stores never change."""
        found, wanted = await self.client.get_static(*row), self._world.static[row[0]].get(row[1])
        if found != wanted:
            raise HistoryError(f"{row}: {wanted!r} is stored, and a read found {found!r}")
