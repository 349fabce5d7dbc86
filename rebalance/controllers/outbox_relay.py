"""From the catalog's outbox to the zones' intent keys: step 5 of a statement.

A row may be sent twice or by two relays at once: an intent only ever moves to a higher version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from catalog.core.zone import ZoneIntent
from catalog.ports import OutboxRow
from rebalance.core.keys import Keyspace
from rebalance.core.readable import RecordNotReadableError, readable
from rebalance.core.txn import Put, Txn, unchanged
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

IDLE_POLL_S = 1.0
RETRY_S = 0.5


class AsyncOutbox(Protocol):
    """The catalog's outbox as the relay needs it (the catalog itself is synchronous)."""

    async def unsent(self) -> Sequence[OutboxRow]: ...

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None: ...


class OutboxRelay:
    """``wake`` makes it look at once; without one it looks every ``IDLE_POLL_S``, for other servers' rows.

    ``may_publish``: whether ``run`` may send now; rows wait while it answers no.
    """

    def __init__(
        self,
        outbox: AsyncOutbox,
        metastore: Metastore,
        keyspace: Keyspace,
        may_publish: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_publish = may_publish
        self._outbox = outbox
        self._metastore = metastore
        self._keyspace = keyspace
        self._woken = asyncio.Event()
        self._unreadable = UnreadableLog()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            try:
                if self._may_publish():
                    await self.relay_once()
            except Exception as error:
                # Whatever failed (catalog or metastore away), the rows are still there: try again.
                log.warning("outbox not relayed", error=str(error), kind=type(error).__name__)
                await asyncio.sleep(RETRY_S)
                continue
            await _first(self._woken.wait, IDLE_POLL_S)
            self._woken.clear()

    async def relay_once(self) -> int:
        """Send what is unsent, in order; returns how many rows. Those of a zone whose intent cannot be read
        wait: nobody can tell whether it is older."""
        rows = await self._outbox.unsent()
        sent = 0
        for row in rows:
            try:
                await self._publish(row)
            except RecordNotReadableError as error:
                self._unreadable.waits(error.key, error)
                continue
            self._unreadable.goes_on(self._keyspace.intent(ZoneIntent.decode(row.payload).zone.zone_id))
            await self._outbox.mark_sent([row])
            sent += 1
        return sent

    async def _publish(self, row: OutboxRow) -> None:
        intent = ZoneIntent.decode(row.payload)
        key = self._keyspace.intent(intent.zone.zone_id)
        while True:
            stored = await self._metastore.get(key)
            if stored is not None and readable(stored, ZoneIntent.decode).version >= intent.version:
                return
            guard = unchanged(key, stored.mod_revision if stored else 0)
            if (await self._metastore.commit(Txn((guard,), (Put(key, row.payload),)))).succeeded:
                log.info("intent published", zone=intent.zone.zone_id, version=intent.version)
                return


async def _first(wait: Callable[[], Awaitable[object]], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await wait()
    except TimeoutError:
        pass
