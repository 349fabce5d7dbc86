"""Notices silences of the metastore that were long enough for leases to end though nobody died."""

from __future__ import annotations

import asyncio

import structlog

from rebalance.controllers.clock import Clock
from rebalance.core.keys import Keyspace
from rebalance.core.topology import HoldRule
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

PROBES_PER_LIMIT = 4


class Contact:
    """Asks the metastore again and again. A store that stood still, one that cannot be reached and a process
    that stood still itself look the same from here: nothing seen next is believed at once.

    Nodes renew their leases every third of it: a silence of less than half a lease ends none."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clock: Clock, hold: HoldRule) -> None:
        self._metastore = metastore
        self._key = keyspace.controller_leader
        self._clock = clock
        self._limit_s = hold.lease_ms / 2_000
        self._answered_s: float | None = None
        self._silent_ms: int | None = None

    def silent_ms(self) -> int | None:
        """When the last silence ended (wall clock, milliseconds): now, while it lasts. None: there was none."""
        if self._is_silent():
            return self._clock.now_ms()
        return self._silent_ms

    async def run(self) -> None:
        """Until cancelled; without a grace period there is nothing to notice."""
        if not self._limit_s:
            await asyncio.get_running_loop().create_future()
        while True:
            if self._answered_s is None:
                self._answered_s = asyncio.get_running_loop().time()
            try:
                await self._metastore.get(self._key)
            except MetastoreError as error:
                log.debug("metastore does not answer", error=str(error))
            else:
                self._on_answer()
            await asyncio.sleep(self._limit_s / PROBES_PER_LIMIT)

    def _on_answer(self) -> None:
        if self._is_silent():
            self._silent_ms = self._clock.now_ms()
            log.warning("the metastore was silent: nobody counts as left for a while", limit_s=self._limit_s)
        self._answered_s = asyncio.get_running_loop().time()

    def _is_silent(self) -> bool:
        if self._answered_s is None:
            return False
        return asyncio.get_running_loop().time() - self._answered_s > self._limit_s
