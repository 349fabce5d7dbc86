"""Relay from the catalog's outbox to the zones' intent keys: step 5 of a statement.

A row may be sent twice or by two relays at once: an intent only ever moves to a higher version.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from catalog.core.errors import StoreError
from catalog.core.zone import ZoneId, ZoneIntent
from catalog.ports import OutboxRow
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, TxnResult, as_read
from rebalance.hosting.background import Background
from rebalance.metastore.guarded_update import read_together, update_key
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

log = structlog.get_logger(__name__)

IDLE_POLL_S = 1.0
GATHER_S = 0.02
WAVE_MAX = 64
"""Rows of one request."""
RETRY = Backoff(0.5, 5.0)
EXPECTED = (MetastoreError, StoreError)


class AsyncOutbox(Protocol):
    """The catalog's outbox as the relay needs it (the catalog itself is synchronous)."""

    async def unsent(self) -> Sequence[OutboxRow]: ...

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None: ...


@dataclass(eq=False)
class OutboxRelay:
    """``wake`` makes it look at once; without one it looks every ``IDLE_POLL_S``, for other servers' rows.

    ``may_publish``: whether ``run`` may send now; rows wait while it answers no. ``background`` counts what
    nothing expected; pauses are drawn from ``chance``.
    """

    outbox: AsyncOutbox
    metastore: Metastore
    keyspace: Keyspace
    may_publish: Callable[[], bool] = lambda: True
    background: Background = field(default_factory=lambda: Background(restarts=False))
    chance: random.Random = field(default_factory=random.Random)
    """Spreads retries; a simulation gives its own, so that a seed is one run."""
    measures: Measures = NO_MEASURES

    def __post_init__(self) -> None:
        self._late_since: float | None = None
        self._woken = asyncio.Event()
        self._unreadable = UnreadableLog()

    def wake(self) -> None:
        self._woken.set()

    def lag_s(self) -> float:
        """Return how long, in seconds, there have been rows that could not be sent; 0: there are none, as far
        as is known."""
        return 0.0 if self._late_since is None else asyncio.get_running_loop().time() - self._late_since

    async def run(self) -> None:
        retry = RETRY
        while True:
            try:
                if self.may_publish() and await self.relay_once():
                    # Under load more rows go along with the next requests.
                    await asyncio.sleep(GATHER_S)
            except Exception as error:
                # Whatever failed (catalog or metastore away), the rows are still there: try again.
                retry = retry.failed()
                self.measures.count(Metric.RELAY_FAILURES)
                self._note_failure(error)
                await asyncio.sleep(retry.delay_s(self.chance.random()))
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
            self.background.defect("the outbox relay", error)

    async def relay_once(self) -> int:
        """Send what is unsent, in order; returns how many rows. Those of a zone whose intent cannot be read
        wait: nobody can tell whether it is older."""
        rows = await self.outbox.unsent()
        if rows and self._late_since is None:
            self._late_since = asyncio.get_running_loop().time()
        sent = 0
        for wave in _waves(rows):
            published = await self._publish(wave)
            if published:
                await self.outbox.mark_sent(published)
            sent += len(published)
            self.measures.count(Metric.RELAY_ROWS, by=len(published))
        if sent == len(rows):
            self._late_since = None
        return sent

    async def _publish(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """One row a zone, with two requests for all: the rows whose zone is at their version or a later one."""
        keys = [self.keyspace.intent(row.zone_id) for row in rows]
        stored, _ = await read_together(self.metastore, *keys)
        published: list[OutboxRow] = []
        newer: list[tuple[OutboxRow, Txn]] = []
        for key, row, value in zip(keys, rows, stored, strict=True):
            try:
                is_newer = _is_newer(row, value)
            except RecordNotReadableError as error:
                self._unreadable.waits(error.key, error)
                continue
            self._unreadable.goes_on(key)
            published.append(row)
            if is_newer:
                newer.append((row, Txn((as_read(key, value),), (Put(key, row.payload),))))
        if newer:
            results = (await self.metastore.commit(Txn((), tuple(txn for _, txn in newer)))).responses
            for (row, _), result in zip(newer, results, strict=True):
                if isinstance(result, TxnResult) and result.succeeded:
                    log.info("intent published", zone=row.zone_id, version=row.version)
                elif not await self._publish_again(row):
                    published.remove(row)
        return published

    async def _publish_again(self, row: OutboxRow) -> bool:
        """Publish again after another write of the zone's intent in between. False: it cannot be read."""

        def payload(stored: KeyValue | None) -> bytes | None:
            return row.payload if _is_newer(row, stored) else None

        try:
            await update_key(self.metastore, self.keyspace.intent(row.zone_id), payload)
        except RecordNotReadableError as error:
            self._unreadable.waits(error.key, error)
            return False
        return True


def _is_newer(row: OutboxRow, stored: KeyValue | None) -> bool:
    """Raises RecordNotReadableError: nobody can tell."""
    known = readable(stored, ZoneIntent.decode)
    return known is None or known.version < row.version


def _waves(rows: Sequence[OutboxRow]) -> Iterator[list[OutboxRow]]:
    """The rows in parts that hold each zone once: those of one zone stay in their order."""
    left = list(rows)
    while left:
        first: dict[ZoneId, OutboxRow] = {}
        for row in left:
            first.setdefault(row.zone_id, row)
        wave = list(first.values())[:WAVE_MAX]
        left = [row for row in left if row not in wave]
        yield wave
