"""Notices silences of the metastore that were long enough for leases to end though nobody died."""

from __future__ import annotations

import asyncio

import structlog

from rebalance.controllers.clock import Clocks
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Get, Txn
from rebalance.core.recovery.loss_clock import Hearing
from rebalance.core.topology.node_presence import HoldRule
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

PROBES_PER_LIMIT = 4


class Contact:
    """Asks the metastore again and again. A store that stood still, one that cannot be reached and a process
    that stood still itself look the same from here: nothing seen next is believed at once.

    Nodes renew their leases every third of it: a silence of less than half a lease ends none."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clocks: Clocks, hold: HoldRule) -> None:
        self._metastore = metastore
        self._key = keyspace.controller_leader
        self._clocks, self._steady = clocks, clocks.steady
        self._hearing = Hearing(hold.lease_ms // 2)
        self._silent_ms: int | None = None

    def silent_ms(self) -> int | None:
        """Return when the last silence ended (wall clock, milliseconds): now, while it lasts. None: there was
        none."""
        if self._hearing.is_silent(self._steady.now_ms()):
            return self._clocks.wall.now_ms()
        return self._silent_ms

    def heard_since_ms(self) -> int | None:
        """Return since when the metastore has answered without a break and under one leader (``steady``); None:
        it does not answer now. 0 without a grace period, where nothing is noticed."""
        if not self._hearing.limit_ms:
            return 0
        return self._hearing.unbroken_since_ms(self._steady.now_ms())

    async def run(self) -> None:
        """Run until cancelled; without a grace period there is nothing to notice."""
        if not self._hearing.limit_ms:
            await asyncio.get_running_loop().create_future()
        while True:
            self._hearing = self._hearing.called(self._steady.now_ms())
            try:
                result = await self._metastore.commit(Txn((), (Get(self._key),)))
            except MetastoreError as error:
                log.debug("metastore does not answer", error=str(error))
            else:
                self._on_answer(result.term)
            await asyncio.sleep(self._hearing.limit_ms / 1_000 / PROBES_PER_LIMIT)

    def _on_answer(self, term: int) -> None:
        now_ms = self._steady.now_ms()
        if self._hearing.is_silent(now_ms):
            self._silent_ms = self._clocks.wall.now_ms()
            limit_s = self._hearing.limit_ms / 1_000
            log.warning("the metastore was silent: nobody counts as left for a while", limit_s=limit_s)
        self._hearing = self._hearing.answered(now_ms, term)
