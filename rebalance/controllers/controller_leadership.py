"""Leadership of one controller, by a lease in the metastore, and its contact with the metastore meanwhile.

Leading avoids double work; guards keep writes right. ``Contact`` notices silences of the metastore that were
long enough for leases to end though no node died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from catalog.core.level import NO_LEVEL
from rebalance.controllers.clock import Clocks
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.records import ProcessRecord
from rebalance.core.keyspace.txn import Delete, Get, KeyValue, Put, Txn, absent, unchanged
from rebalance.core.recovery.loss_clock import Hearing
from rebalance.core.topology.node_presence import HoldRule
from rebalance.ports.metastore import LeaseLostError, Metastore, MetastoreError

log = structlog.get_logger(__name__)

RETRY_S = 0.5


@dataclass(eq=False)
class ControllerLeadership:
    """Campaigns for ``leader/controller``, or another ``key``, as ``name``; while it holds the lease, ``lead``
    runs. Whoever leads with a build below the release level ``in_force`` writes nothing any more, and is
    replaced."""

    metastore: Metastore
    keyspace: Keyspace
    name: str
    lease_s: int
    key: str | None = None
    in_force: Callable[[], int] = lambda: NO_LEVEL

    def __post_init__(self) -> None:
        self._key = self.key or self.keyspace.controller_leader
        self.lease: int | None = None

    @property
    def is_leader(self) -> bool:
        return self.lease is not None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled; gives the lease back on the way out, so that a successor need not wait for
        it."""
        while True:
            try:
                lease = await self._campaign()
            except MetastoreError as error:
                log.info("cannot campaign", error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            self.lease = lease
            log.info("leading", key=self._key, controller=self.name)
            failure: MetastoreError | None = None
            try:
                await self._lead_while_held(lease, lead)
            except MetastoreError as error:
                failure = error
            finally:
                self.lease = None
                await self._give_back(lease)
            if failure is not None:
                log.info("cannot lead", controller=self.name, error=str(failure))
                await asyncio.sleep(RETRY_S)

    async def _campaign(self) -> int:
        while True:
            lease = await self.metastore.grant_lease(self.lease_s)
            won = await self.metastore.commit(
                Txn((absent(self._key),), (Put(self._key, self.name.encode(), lease),))
            )
            if won.succeeded:
                return lease
            await self.metastore.revoke_lease(lease)
            while (leader := await self.metastore.get(self._key)) is not None:
                if not await self._replace(leader):
                    await asyncio.sleep(RETRY_S)

    async def _replace(self, leader: KeyValue) -> bool:
        """Replace a leader below the level in force; True if it was one, and leads no more. One that is not
        registered may be about to be."""
        in_force = self.in_force()
        if in_force == NO_LEVEL:
            return False
        process = await self.metastore.get(self.keyspace.process(leader.value.decode(errors="replace")))
        record = read(process, ProcessRecord.decode)
        if not isinstance(record, ProcessRecord) or record.level >= in_force:
            return False
        guard = unchanged(self._key, leader.mod_revision)
        result = await self.metastore.commit(Txn((guard,), (Delete(self._key),)))
        if result.succeeded:
            log.warning("a leader below the release level is replaced", leader=leader.value, level=in_force)
        return result.succeeded

    async def _lead_while_held(self, lease: int, lead: Callable[[], Awaitable[None]]) -> None:
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.ensure_future(self._keep(lease))
        try:
            await asyncio.wait((leading, keeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, keeping):
                task.cancel()
            results = await asyncio.gather(leading, keeping, return_exceptions=True)
        broken = results[0]
        if isinstance(broken, Exception):
            raise broken

    async def _keep(self, lease: int) -> None:
        """Returns when the lease is lost, or cannot be renewed for its whole length."""
        loop = asyncio.get_running_loop()
        held_until = loop.time() + self.lease_s
        while loop.time() < held_until:
            sent_s = loop.time()
            try:
                await self.metastore.keep_lease(lease, self.lease_s)
                held_until = sent_s + self.lease_s
            except LeaseLostError:
                break
            except MetastoreError as error:
                log.info("lease not renewed", error=str(error))
            await asyncio.sleep(self.lease_s / 4)
        log.warning("no longer leading", key=self._key, controller=self.name)

    async def _give_back(self, lease: int) -> None:
        try:
            await self.metastore.revoke_lease(lease)
        except MetastoreError as error:
            log.info("lease not given back; it ends by itself", error=str(error))


PROBES_PER_LIMIT = 4


class Contact:
    """Asks the metastore again and again. A store that stood still, one that cannot be reached and a process
    that stood still itself look the same from here: nothing seen next is believed at once.

    Nodes renew their leases every third of it: a silence of less than half a lease ends none."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clocks: Clocks, hold: HoldRule) -> None:
        self._metastore = metastore
        self._key = keyspace.controller_leader
        self._clocks = clocks
        self._hearing = Hearing(hold.lease_ms // 2)
        self._silent_ms: int | None = None

    def silent_ms(self) -> int | None:
        """Return when the last silence ended (wall clock, milliseconds): now, while it lasts. None: there was
        none."""
        if self._hearing.is_silent(self._clocks.steady.now_ms()):
            return self._clocks.wall.now_ms()
        return self._silent_ms

    def heard_since_ms(self) -> int | None:
        """Return since when the metastore has answered without a break and under one leader (``steady``); None:
        it does not answer now. 0 without a grace period, where nothing is noticed."""
        if not self._hearing.limit_ms:
            return 0
        return self._hearing.unbroken_since_ms(self._clocks.steady.now_ms())

    async def run(self) -> None:
        """Run until cancelled; without a grace period there is nothing to notice."""
        if not self._hearing.limit_ms:
            await asyncio.get_running_loop().create_future()
        while True:
            self._hearing = self._hearing.called(self._clocks.steady.now_ms())
            try:
                result = await self._metastore.commit(Txn((), (Get(self._key),)))
            except MetastoreError as error:
                log.debug("metastore does not answer", error=str(error))
            else:
                self._on_answer(result.term)
            await asyncio.sleep(self._hearing.limit_ms / 1_000 / PROBES_PER_LIMIT)

    def _on_answer(self, term: int) -> None:
        now_ms = self._clocks.steady.now_ms()
        if self._hearing.is_silent(now_ms):
            self._silent_ms = self._clocks.wall.now_ms()
            limit_s = self._hearing.limit_ms / 1_000
            log.warning("the metastore was silent: nobody counts as left for a while", limit_s=limit_s)
        self._hearing = self._hearing.answered(now_ms, term)
