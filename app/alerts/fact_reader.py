"""Puts the facts together: the mirror, and what this server knows of its stores, its relay and its
certificate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from cryptography import x509

from app.alerts.facts import InstallationFacts
from app.alerts.stuck_moves import StuckMoves
from app.counts.open_operations import OpenOperations
from app.counts.partition_count import PartitionCount
from app.views.answer_state import state_of
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keys import Keyspace
from rebalance.core.readable import read
from rebalance.core.self_reports import EngineRecord, ProcessRecord
from rebalance.core.txn import Get, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

ANSWER_S = 2.0
"""A store that takes longer does not answer."""
SEEN_S = 1.0


class FactReader:
    """``snapshot`` reads the catalog. ``certificate``: the file that the API shows; None: there is none.
    ``divisor`` shortens the time after which a move without progress is stuck: for trials."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[object]],
        metastore: Metastore,
        mirror: KeyspaceMirror,
        count: PartitionCount,
        keyspace: Keyspace,
        guard: StoreGuard,
        relay: OutboxRelay,
        certificate: Path | None = None,
        divisor: float = 1.0,
    ) -> None:
        self._snapshot = snapshot
        self._metastore = metastore
        self._mirror = mirror
        self._count = count
        self._keyspace = keyspace
        self._guard = guard
        self._relay = relay
        self._certificate = certificate
        self._stuck_moves = StuckMoves(OpenOperations(mirror, keyspace), divisor)
        self._current_s: float | None = None

    async def facts(self) -> InstallationFacts:
        """Takes up to some seconds when a store is silent; the event loop stays free."""
        catalog, metastore = await asyncio.gather(
            state_of(self._snapshot(), ANSWER_S), state_of(self._compare(), ANSWER_S)
        )
        state, count, tally = self._guard.state, self._count, self._count.tally
        is_counted = count.counted_at is not None
        leader = self._mirror.value(self._keyspace.controller_leader)
        engine = read(self._mirror.get(self._keyspace.engine_status), EngineRecord.decode)
        told = engine if isinstance(engine, EngineRecord) and leader is not None else EngineRecord("", "")
        return InstallationFacts(
            catalog=catalog,
            metastore=metastore,
            mirror_age_s=self._age_s(),
            controller=None if leader is None else leader.decode(errors="replace"),
            spark=told.state,
            spark_message=told.message,
            divergence=state.divergence.reason if state is not None and state.divergence is not None else "",
            metastore_full=state.full if state is not None else "",
            relay_lag_s=self._relay.lag_s(),
            certificate_s=await asyncio.to_thread(_valid_s, self._certificate),
            without_majority=tally.unserved() if is_counted else None,
            replicas_missing=tally.names(tally.short) if is_counted else None,
            replicas_broken=tally.names(tally.broken) if is_counted else None,
            absent_nodes={node: tally.replicas[node] for node in count.missing} if is_counted else None,
            full_disks=dict(tally.full) if is_counted else None,
            full_nodes=self._full_nodes(),
            stuck_moves=self._stuck_moves.still_s(time.time_ns() // 1_000_000),
        )

    async def _compare(self) -> None:
        """Asks the metastore for its revision, and notes when the mirror has reached it."""
        asked_s = asyncio.get_running_loop().time()
        answer = await self._metastore.commit(Txn((), (Get(self._keyspace.epoch),)))
        if not self._mirror.is_loaded:
            return
        is_current = await self._mirror.wait_until(lambda: self._mirror.revision >= answer.revision, SEEN_S)
        if not is_current:
            # Somebody else may write to this etcd, which the mirror never hears of.
            newest = await self._metastore.newest(self._mirror.prefix)
            is_current = self._mirror.revision >= newest.mod_revision
        if is_current:
            self._current_s = asked_s

    def _age_s(self) -> float:
        if self._current_s is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self._current_s

    def _full_nodes(self) -> frozenset[str]:
        processes = self._keyspace.processes
        records = {item.key: read(item, ProcessRecord.decode) for item in self._mirror.below(processes)}
        return frozenset(
            key.removeprefix(processes)
            for key, record in records.items()
            if isinstance(record, ProcessRecord) and record.disk_full
        )


def _valid_s(certificate: Path | None) -> float | None:
    """None: there is none, or it cannot be read now."""
    if certificate is None:
        return None
    try:
        parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return None
    return parsed.not_valid_after_utc.timestamp() - time.time()
