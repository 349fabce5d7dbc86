"""From the catalog's outbox to the zones' intent keys: step 5 of a statement.

A row may be sent twice or by two relays at once: an intent only ever moves to a higher version.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from catalog.core.errors import StoreError
from catalog.core.zone import ZoneIntent
from catalog.ports import OutboxRow
from rebalance.core.backoff import Backoff
from rebalance.core.keys import Keyspace
from rebalance.core.readable import RecordNotReadableError, readable
from rebalance.core.txn import KeyValue
from rebalance.hosting.background import Background
from rebalance.metastore.guarded_update import update_key
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

IDLE_POLL_S = 1.0
RETRY = Backoff(0.5, 5.0)
EXPECTED = (MetastoreError, StoreError)


class AsyncOutbox(Protocol):
    """The catalog's outbox as the relay needs it (the catalog itself is synchronous)."""

    async def unsent(self) -> Sequence[OutboxRow]: ...

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None: ...


class OutboxRelay:
    """``wake`` makes it look at once; without one it looks every ``IDLE_POLL_S``, for other servers' rows.

    ``may_publish``: whether ``run`` may send now; rows wait while it answers no. ``background`` counts what
    nothing expected; pauses are drawn from ``chance``.
    """

    def __init__(
        self,
        outbox: AsyncOutbox,
        metastore: Metastore,
        keyspace: Keyspace,
        may_publish: Callable[[], bool] = lambda: True,
        background: Background | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """``chance`` spreads retries; a simulation gives its own, so that a seed is one run."""
        self._background = background or Background(restarts=False)
        self._random = chance or random.Random()
        self._late_since: float | None = None
        self._may_publish = may_publish
        self._outbox = outbox
        self._metastore = metastore
        self._keyspace = keyspace
        self._woken = asyncio.Event()
        self._unreadable = UnreadableLog()

    def wake(self) -> None:
        self._woken.set()

    def lag_s(self) -> float:
        """For how long there have been rows that could not be sent; 0: there are none, as far as is known."""
        return 0.0 if self._late_since is None else asyncio.get_running_loop().time() - self._late_since

    async def run(self) -> None:
        retry = RETRY
        while True:
            try:
                if self._may_publish():
                    await self.relay_once()
            except Exception as error:
                # Whatever failed (catalog or metastore away), the rows are still there: try again.
                retry = retry.failed()
                self._note_failure(error)
                await asyncio.sleep(retry.delay_s(self._random.random()))
                continue
            retry = retry.fresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_POLL_S):
                    await self._woken.wait()
            self._woken.clear()

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, EXPECTED):
            log.warning("outbox not relayed", error=str(error), kind=type(error).__name__)
        else:
            self._background.defect("the outbox relay", error)

    async def relay_once(self) -> int:
        """Send what is unsent, in order; returns how many rows. Those of a zone whose intent cannot be read
        wait: nobody can tell whether it is older."""
        rows = await self._outbox.unsent()
        if rows and self._late_since is None:
            self._late_since = asyncio.get_running_loop().time()
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
        if sent == len(rows):
            self._late_since = None
        return sent

    async def _publish(self, row: OutboxRow) -> None:
        intent = ZoneIntent.decode(row.payload)
        key = self._keyspace.intent(intent.zone.zone_id)

        def newer(stored: KeyValue | None) -> bytes | None:
            known = readable(stored, ZoneIntent.decode)
            return row.payload if known is None or known.version < intent.version else None

        if await update_key(self._metastore, key, newer):
            log.info("intent published", zone=intent.zone.zone_id, version=intent.version)
