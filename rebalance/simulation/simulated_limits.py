"""Somebody who sets limits of moves while everything else happens, from a random stream of its own."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from rebalance.core.admission import Limits, Pause
from rebalance.core.txn import Put, Txn
from rebalance.ports.metastore import MetastoreUnavailableError
from rebalance.simulation.processes import Environment

GAPS_S = (0.5, 2.0, 6.0)
PAUSE_S_MAX = 12.0
RETRY_S = 0.5


class LimitsSetter:
    """At most ``cluster_moves`` at once, always; other caps and pauses, also of single zones, come and go until
    ``calm``."""

    def __init__(self, seed: int, environment: Environment, cluster_moves: int) -> None:
        self._rng = random.Random(f"{seed}/limits")
        self._environment = environment
        self._limits = Limits(cluster_moves=cluster_moves)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def calm(self) -> None:
        """The cap of the cluster alone stays."""
        self.end()
        await self._set(self._limits)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._set(self._limits)
        while True:
            await asyncio.sleep(self._rng.choice(GAPS_S) * self._rng.uniform(0.2, 2.0))
            await self._set(self._drawn())

    def _drawn(self) -> Limits:
        rng, cap = self._rng, self._limits.cluster_moves or 1
        caps: dict[str, Any] = {
            name: rng.randint(1, cap)
            for name in ("zone_moves", "donor_moves", "receiver_moves", "batch_size")
            if rng.random() < 0.3
        }
        zones = {
            zone: self._pause() for zone in sorted(self._environment.catalog.intents) if rng.random() < 0.2
        }
        pause = self._pause() if rng.random() < 0.3 else None
        return replace(self._limits, **caps, pause=pause, zone_pauses=zones)

    def _pause(self) -> Pause:
        now_ms = round(1_000 * asyncio.get_running_loop().time())
        return Pause("simulation", "", now_ms, now_ms + self._rng.randint(1, round(1_000 * PAUSE_S_MAX)))

    async def _set(self, limits: Limits) -> None:
        self._environment.trace.note("limits", limits.encode().decode())
        key = self._environment.keyspace.limits
        while True:
            try:
                await self._environment.store.commit(Txn((), (Put(key, limits.encode()),)))
            except MetastoreUnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                return
