"""Visitors: clients that read and write without pause, and tell the history.

A read must see every write of its key that was acknowledged before the read began: the version itself, or one
that has seen it. Source: VOL-005, VOL-007.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.stealing.core.steal_cluster import StoreKind
from simulator.stealing.core.vector_clock import VectorClock, Versioned
from simulator.stealing.simulation.steal_client import StealClient
from simulator.stealing.simulation.steal_errors import NotServedError
from simulator.stealing.simulation.steal_world import World

Row = tuple[str, str]
"""A store, and a key in it."""


class HistoryError(AssertionError):
    """Names the key, and what a client should have been answered."""


@dataclass(frozen=True, slots=True)
class StealRequest:
    """Times in virtual seconds."""

    kind: str
    began_s: float
    ended_s: float

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.began_s


@dataclass(slots=True)
class History:
    """``acknowledged``: by key the writes that a client saw acknowledged, without those that later ones have
    seen. ``failed``: requests that were given up."""

    acknowledged: defaultdict[Row, tuple[Versioned, ...]] = field(default_factory=lambda: defaultdict(tuple))
    requests: list[StealRequest] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def written(self, row: Row, version: Versioned) -> None:
        others = (older for older in self.acknowledged[row] if not version.clock.covers(older.clock))
        self.acknowledged[row] = (*others, version)

    def check_read(self, row: Row, promised: Iterable[Versioned], versions: Iterable[Versioned]) -> None:
        """``promised``: acknowledged when the read began. Raises HistoryError."""
        clocks = {version.clock: version.value for version in versions}
        for version in promised:
            if not any(clock.covers(version.clock) for clock in clocks):
                raise HistoryError(
                    f"{row}: {version.value!r} of {version.clock.counts} was acknowledged, and a read found "
                    f"{_counts(clocks)}"
                )
            if clocks.get(version.clock, version.value) != version.value:
                raise HistoryError(
                    f"{row}: {version.clock.counts} is {version.value!r} and {clocks[version.clock]!r}"
                )

    def latencies_s(self, from_s: float, to_s: float) -> list[float]:
        """Latencies of requests that ended in that time, ascending."""
        return sorted(request.latency_s for request in self.requests if from_s <= request.ended_s < to_s)


def _counts(clocks: Iterable[VectorClock]) -> str:
    return ", ".join(str(clock.counts) for clock in clocks) or "nothing"


THINK_S = 0.01
NEW_CLIENTS = 0.1
"""Probability that a visitor goes on as a client that has just started, perhaps with other metadata."""


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
        """Send requests until stopped; broken rules are kept in ``world.broken``."""
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
                self._history.requests.append(StealRequest(kind, began_s, self._world.now_s))
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
        value, stored = await self.client.get_static(*row), self._world.static[row[0]].get(row[1])
        if value != stored:
            raise HistoryError(f"{row}: {stored!r} is stored, and a read found {value!r}")
