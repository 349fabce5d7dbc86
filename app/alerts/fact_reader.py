"""The reader of the facts: from the mirror, and from what this server knows of its stores and its relay; and
since when the metastore is silent, by the questions that this server puts to it (``MetastoreHearing``). How far
the mirror is behind, and whether the catalog answers, is measured with each question."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from app.alerts.conditions import InstallationFacts
from app.counts.open_operations import OpenOperations
from app.counts.partition_count import PartitionCount
from app.process.logs import utc_now_ms
from app.views.answer_state import OK, state_of
from app.views.keyspace_views import KeyspaceViews
from app.views.store_servers import servers_up
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.records import EngineRecord, ProcessRecord
from rebalance.core.keyspace.txn import Get, Txn
from rebalance.core.operations.operation import STUCK_MS
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore, MetastoreError
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

SETTLE_S = 3.0
"""Leases end, and store servers leave and come back, only once the metastore answers again: what it says is
taken as so after that long."""
LEASE_S = 4.0
"""Leases are of five seconds and more by default: a silence that was shorter ends none."""


class MetastoreHearing:
    """Times in seconds of one monotonic clock. ``begun_s``: from then on questions were put."""

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s
        self._heard_s: float | None = None
        self._silent_since_s: float | None = None
        self._back_s: float | None = None

    def heard(self, asked_s: float, now_s: float) -> None:
        """A question of ``asked_s`` is answered now."""
        self._heard_s = max(self._heard_s or asked_s, asked_s)
        if self._silent_since_s is None or self._back_s is not None:
            return
        if now_s - self._silent_since_s < LEASE_S:
            self._silent_since_s = None
        else:
            self._back_s = now_s

    def missed(self) -> None:
        """A question is not answered."""
        if self._silent_since_s is None:
            self._silent_since_s = self._heard_s or self._begun_s
        self._back_s = None

    def is_fresh(self, now_s: float, age_s: float) -> bool:
        """True if the metastore has answered a question that is not older than ``age_s``, and does not count as
        silent."""
        is_young = self._heard_s is not None and now_s - self._heard_s <= age_s
        return is_young and self._silent_since_s is None

    def unknown_since_s(self, now_s: float) -> float | None:
        """Time from which it is unknown whether what was seen last still holds; None: it is known to hold."""
        if self._back_s is not None and now_s - self._back_s >= SETTLE_S:
            self._silent_since_s = self._back_s = None
        return self._silent_since_s


ANSWER_S = 2.0
"""A store that takes longer does not answer."""
SEEN_S = 1.0
"""Seconds for which the mirror is awaited, and the newest key of the metastore, and after which an answer is no
longer fresh."""


@dataclass(eq=False)
class FactReader:
    """``snapshot`` reads the catalog. ``divisor`` shortens the time after which a move without progress is
    stuck: for trials."""

    snapshot: Callable[[], Awaitable[object]]
    metastore: Metastore
    mirror: KeyspaceMirror
    count: PartitionCount
    keyspace: Keyspace
    guard: StoreGuard
    relay: OutboxRelay
    divisor: float = 1.0
    measures: Measures = NO_MEASURES

    def __post_init__(self) -> None:
        self._views = KeyspaceViews(self.mirror, self.keyspace)
        self._operations = OpenOperations(self.mirror, self.keyspace)
        self._stuck_early_ms = round(STUCK_MS - STUCK_MS / self.divisor)
        self._current_s = -math.inf
        self._hearing = MetastoreHearing(time.monotonic())

    async def facts(self, answer_s: float = ANSWER_S, seen_s: float = SEEN_S) -> InstallationFacts:
        """Takes up to ``answer_s`` when a store is silent, and ``seen_s`` more when the mirror is behind; the
        event loop stays free."""
        asked_s, answers = asyncio.get_running_loop().time(), list[int]()
        catalog, metastore = await asyncio.gather(
            state_of(self.snapshot(), answer_s), self._heard(answers, answer_s)
        )
        if answers and self._current_s < asked_s:
            await self._compare(answers[0], asked_s, seen_s)
        self.measures.set(Metric.CATALOG_UP, catalog == OK)
        state, count, tally = self.guard.state, self.count, self.count.tally
        is_counted = count.counted_at is not None
        leader = self.mirror.value(self.keyspace.controller_leader)
        engine = read(self.mirror.get(self.keyspace.engine_status), EngineRecord.decode)
        told = engine if isinstance(engine, EngineRecord) and leader is not None else EngineRecord("", "")
        return InstallationFacts(
            catalog=catalog,
            metastore=metastore,
            mirror_age_s=self.mirror_age_s,
            is_settling=self._hearing.unknown_since_s(asyncio.get_running_loop().time()) is not None,
            controller=None if leader is None else leader.decode(errors="replace"),
            spark=told.state,
            spark_message=told.message,
            divergence=state.divergence.reason if state is not None and state.divergence is not None else "",
            metastore_full=state.full if state is not None else "",
            relay_lag_s=self.relay.lag_s(),
            certificates=self._certificates(),
            without_majority=tally.unserved() if is_counted else None,
            replicas_missing=tally.by_zone(lambda facts: facts.is_short) if is_counted else None,
            below_quorum=tally.by_zone(lambda facts: facts.is_below_quorum) if is_counted else None,
            replicas_broken=tally.by_zone(lambda facts: facts.is_broken) if is_counted else None,
            unserved=tally.by_zone(lambda facts: facts.is_unserved) if is_counted else None,
            degraded=tally.by_zone(lambda facts: facts.is_degraded) if is_counted else None,
            absent_nodes=count.missing if is_counted else None,
            full_disks=dict(tally.full) if is_counted else None,
            full_nodes=frozenset(name for name, record in self._processes() if record.disk_full),
            servers_down=tuple(name for name, is_up in servers_up(self._views).items() if not is_up),
            nodes=sum(1 for _ in self.mirror.below(self.keyspace.nodes)),
            stuck_moves=self._stuck_moves(utc_now_ms()),
        )

    @property
    def mirror_age_s(self) -> float:
        """Seconds since the mirror was last known to be complete; ``inf``: it never was."""
        return asyncio.get_running_loop().time() - self._current_s

    async def unknown_since_ms(self) -> int | None:
        """Unix time, in milliseconds, from which it is unknown whether what the mirror shows still holds: the
        metastore was heard last then, or the server was started, and since it was heard again it has not
        settled. None: it has answered within a second."""
        now_s = asyncio.get_running_loop().time()
        if not self._hearing.is_fresh(now_s, SEEN_S):
            await self._heard([], SEEN_S)
        since_s = self._hearing.unknown_since_s(now_s)
        return utc_now_ms() - round(1_000 * (now_s - since_s)) if since_s is not None else None

    async def _heard(self, revisions: list[int], limit_s: float) -> str:
        """``OK`` or what is wrong. Adds the metastore's revision, if it answers."""
        loop = asyncio.get_running_loop()
        asked_s, state = loop.time(), await state_of(self._ask(revisions), limit_s)
        if state == OK:
            self._hearing.heard(asked_s, loop.time())
            behind = max(revisions[-1] - self.mirror.revision, 0)
            self.measures.set(Metric.MIRROR_LAG_REVISIONS, behind)
            if self.mirror.is_loaded and not behind:
                self._current_s = max(asked_s, self._current_s)
        else:
            self._hearing.missed()
        return state

    async def _ask(self, revisions: list[int]) -> None:
        revisions.append((await self.metastore.commit(Txn((), (Get(self.keyspace.epoch),)))).revision)

    async def _compare(self, revision: int, asked_s: float, seen_s: float) -> None:
        """Notes when the mirror has reached what the metastore was at ``asked_s``."""
        if not self.mirror.is_loaded:
            return
        is_current = await self.mirror.wait_until(lambda: self.mirror.revision >= revision, seen_s)
        with suppress(MetastoreError, TimeoutError):
            if not is_current:
                # Somebody else may write to this etcd, which the mirror never hears of.
                async with asyncio.timeout(SEEN_S):
                    newest = await self.metastore.newest(self.mirror.prefix)
                is_current = self.mirror.revision >= newest.mod_revision
        if is_current:
            self._current_s = max(asked_s, self._current_s)

    def _stuck_moves(self, now_ms: int) -> dict[str, float]:
        """Seconds since the last progress of each operation that is stuck."""
        return {
            operation.operation_id: (now_ms - operation.movement.at_ms) / 1_000
            for operation in self._operations.all()
            if operation.is_stuck(now_ms + self._stuck_early_ms)
        }

    def _certificates(self) -> dict[str, tuple[str, float]]:
        now_s = time.time()
        return {
            name: (record.certificate, record.certificate_end_s - now_s)
            for name, record in self._processes()
            if record.certificate
        }

    def _processes(self) -> Iterator[tuple[str, ProcessRecord]]:
        for item in self.mirror.below(self.keyspace.processes):
            record = read(item, ProcessRecord.decode)
            if isinstance(record, ProcessRecord):
                yield item.key.removeprefix(self.keyspace.processes), record
