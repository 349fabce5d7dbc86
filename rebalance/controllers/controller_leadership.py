"""One controller leads, by a lease in the metastore. Leading avoids double work; guards keep writes right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from catalog.core.level import NO_LEVEL
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.self_reports import ProcessRecord
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn, absent, unchanged
from rebalance.ports.metastore import LeaseLostError, Metastore, MetastoreError

log = structlog.get_logger(__name__)

RETRY_S = 0.5


class ControllerLeadership:
    """Campaigns for ``leader/controller``, or another ``key``, as ``name``; while it holds the lease, ``lead``
    runs. Whoever leads with a build below the release level ``in_force`` writes nothing any more, and is
    replaced."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        name: str,
        lease_s: int,
        key: str | None = None,
        in_force: Callable[[], int] = lambda: NO_LEVEL,
    ) -> None:
        self._keyspace = keyspace
        self._in_force = in_force
        self._metastore = metastore
        self._key = key or keyspace.controller_leader
        self._name = name
        self._lease_s = lease_s
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
            log.info("leading", key=self._key, controller=self._name)
            failure: MetastoreError | None = None
            try:
                await self._lead_while_held(lease, lead)
            except MetastoreError as error:
                failure = error
            finally:
                self.lease = None
                await self._give_back(lease)
            if failure is not None:
                log.info("cannot lead", controller=self._name, error=str(failure))
                await asyncio.sleep(RETRY_S)

    async def _campaign(self) -> int:
        while True:
            lease = await self._metastore.grant_lease(self._lease_s)
            won = await self._metastore.commit(
                Txn((absent(self._key),), (Put(self._key, self._name.encode(), lease),))
            )
            if won.succeeded:
                return lease
            await self._metastore.revoke_lease(lease)
            while (leader := await self._metastore.get(self._key)) is not None:
                if not await self._replace(leader):
                    await asyncio.sleep(RETRY_S)

    async def _replace(self, leader: KeyValue) -> bool:
        """Replace a leader below the level in force; True if it was one, and leads no more. One that is not
        registered may be about to be."""
        in_force = self._in_force()
        if in_force == NO_LEVEL:
            return False
        process = await self._metastore.get(self._keyspace.process(leader.value.decode(errors="replace")))
        record = read(process, ProcessRecord.decode)
        if not isinstance(record, ProcessRecord) or record.level >= in_force:
            return False
        guard = unchanged(self._key, leader.mod_revision)
        result = await self._metastore.commit(Txn((guard,), (Delete(self._key),)))
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
        held_until = loop.time() + self._lease_s
        while loop.time() < held_until:
            sent_s = loop.time()
            try:
                await self._metastore.keep_lease(lease, self._lease_s)
                held_until = sent_s + self._lease_s
            except LeaseLostError:
                break
            except MetastoreError as error:
                log.info("lease not renewed", error=str(error))
            await asyncio.sleep(self._lease_s / 4)
        log.warning("no longer leading", key=self._key, controller=self._name)

    async def _give_back(self, lease: int) -> None:
        try:
            await self._metastore.revoke_lease(lease)
        except MetastoreError as error:
            log.info("lease not given back; it ends by itself", error=str(error))
