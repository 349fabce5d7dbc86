"""The snapshot that a query sees: one catalog version and one metastore revision, neither of which changes any
more.

Made in the event loop, read in a worker thread. Both numbers are shown (``SYSTEM.SNAPSHOT``), because the two
stores are read one after the other: the keyspace is never older than what the catalog's version had published
when it was read, and may already know a later one. Rows of views are made in threads of their own, so that a
zone of 65,000 partitions delays no other request (``ViewThreads``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from app.contract.columns import Facts
from app.core.alerts import Alert
from app.sql.statements.statement_line import QueryEntry
from app.views.keyspace_views import KeyspaceViews, PlacedZone
from app.views.mirror_freshness import MIRROR_ALONE, MetastoreSilence, MirrorFreshness
from app.views.store_servers import ServerCopies
from app.views.view_bodies import ZoneSizes, zone_facts
from catalog.core.audit import AuditRecord
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.snapshot import CatalogSnapshot, data_nodes_of
from catalog.core.zone import Node, Zone, ZoneId
from catalog.filters.json_path import JSON_PATH
from catalog.ports import VersionRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.records import ConfigurationRecord, NodeRecord
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.topology.node_presence import Topology, living, observe
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from rebalance.store.core.ownership import StoreOwnership


class ReadCancelledError(Exception):
    """The query was given up while its views were built."""


@dataclass(frozen=True)
class SystemSnapshot:
    """``events`` is the catalog's history up to its version, ``audit`` who changed what, the newest first; each
    is empty when no view needs it. ``queries`` are those of this server."""

    catalog: CatalogSnapshot
    keys: KeyspaceCopy
    keyspace: Keyspace
    taken_at_ms: int
    events: tuple[VersionRecord, ...] = ()
    audit: tuple[AuditRecord, ...] = ()
    queries: tuple[QueryEntry, ...] = ()
    given_up: threading.Event = field(default_factory=threading.Event)
    ownership: StoreOwnership | None = None
    """Ownership of store zones, where it was read already."""
    alerts: tuple[Alert, ...] = ()
    """Alerts as this server judges them."""
    store_copies: tuple[ServerCopies, ...] = ()
    """Copies that each store server reports; empty when no view needs them."""
    seen: frozenset[ZoneId] | None = None
    """The zones that the caller may see; None: all, those that are gone as well."""
    silence: MetastoreSilence | None = None
    """Silence of the metastore; None: partitions are as the keyspace says."""
    since_ms: Callable[[PartitionId], int | None] = lambda _: None
    """See ``MirrorFreshness``."""
    sees_system: bool = True
    """True if the caller may know who has drained a node, and why."""

    def checkpoint(self) -> None:
        """Called in loops: a thread cannot be stopped from outside. Raises ReadCancelledError."""
        if self.given_up.is_set():
            raise ReadCancelledError

    @cached_property
    def views(self) -> KeyspaceViews:
        known = self.ownership
        return KeyspaceViews(
            self.keys,
            self.keyspace,
            lambda: self.taken_at_ms,
            ownership=None if known is None else lambda: known,
        ).seen_by(self.seen)

    @cached_property
    def live(self) -> dict[str, NodeRecord]:
        return self.views.live_records()

    @cached_property
    def alive(self) -> frozenset[str]:
        return frozenset(self.live)

    @cached_property
    def topology(self) -> tuple[Node, ...]:
        """Living nodes that are not leaving."""
        return tuple(record.node for name, record in sorted(self.live.items()) if name not in self.drains)

    @cached_property
    def drains(self) -> dict[str, Drain]:
        return self.views.drains()

    @cached_property
    def presence(self) -> Topology:
        """Living nodes with their times, and those that left: the record, and what is not recorded yet."""
        topology = read(self.keys.get(self.keyspace.topology), Topology.decode)
        recorded = topology if isinstance(topology, Topology) else Topology()
        live, _ = living(self.keys.below(self.keyspace.nodes), self.keyspace.nodes, recorded)
        return observe(recorded, live, self.taken_at_ms, drained=self.drains)

    def sizes(self, zone: Zone) -> ZoneSizes:
        """An explicit quorum is the catalog's; a derived one is the metastore's, which only ever grows."""
        stored = self.views.data_nodes(zone.zone_id)
        nodes = stored.nodes if stored is not None else data_nodes_of(zone, self.topology, JSON_PATH)
        derived = stored.quorum if stored is not None else default_quorum(zone.replicas, len(nodes))
        quorum = derived if zone.quorum_size is None else zone.quorum_size
        return ZoneSizes(
            nodes,
            quorum,
            effective_replicas(zone.replicas, len(nodes)),
            consensus_size(quorum, zone.replicas, len(nodes)),
        )

    def zone_facts(self, zone: Zone) -> Facts:
        state = self.views.zone_state(zone.zone_id)
        return zone_facts(zone, self.sizes(zone), self.catalog, state, self.catalog.version)

    def placed(self, zone: Zone) -> PlacedZone | None:
        """The newest target, if it covers the zone as the catalog has it."""
        placed = self.views.placed(zone.zone_id)
        return placed if placed is not None and placed.pointer.partitions == zone.partitions else None

    def partitions(self, zone: Zone) -> Iterator[tuple[int, PartitionView]]:
        placed = self.placed(zone)
        for number in range(zone.partitions):
            self.checkpoint()
            view, _ = self.views.view(PartitionId(zone.zone_id, number), placed)
            yield number, view

    def partition_bytes(self, zone: Zone) -> npt.NDArray[np.int64]:
        """Bytes that a copy of each partition takes on disk, as its leader's node last said: int64 [P], 0: not
        known."""
        sizes = np.zeros(zone.partitions, dtype=np.int64)
        for number in range(zone.partitions):
            self.checkpoint()
            item = self.keys.get(self.keyspace.partition(PartitionId(zone.zone_id, number)).configuration)
            configuration = read(item, ConfigurationRecord.decode)
            if isinstance(configuration, ConfigurationRecord):
                sizes[number] = configuration.size_bytes
        return sizes


async def _no_copies() -> tuple[ServerCopies, ...]:
    """Return no copies: there are no store servers to be asked."""
    return ()


@dataclass(frozen=True, slots=True)
class ViewSources:
    """``ownership``: of store zones as of the mirror, where it was read already. ``store_copies`` asks the
    store servers. ``alerts``: as this server judges them."""

    mirror: KeyspaceMirror
    keyspace: Keyspace
    ownership: Callable[[], StoreOwnership] | None = None
    store_copies: Callable[[], Awaitable[tuple[ServerCopies, ...]]] = _no_copies
    alerts: Callable[[], Sequence[Alert]] = tuple
    freshness: MirrorFreshness = MIRROR_ALONE

    async def snapshot(self, catalog: CatalogSnapshot, queries: tuple[QueryEntry, ...]) -> SystemSnapshot:
        """The keyspace as it is now."""
        ownership = self.ownership() if self.ownership is not None else None
        return SystemSnapshot(
            catalog,
            self.mirror.copy(),
            self.keyspace,
            taken_at_ms=time.time_ns() // 1_000_000,
            queries=queries,
            ownership=ownership,
            alerts=tuple(self.alerts()),
            silence=await self.freshness.silence(),
            since_ms=self.freshness.since_ms,
        )


T = TypeVar("T")

THREADS = 4
"""Number of threads: one more than queries run at once, so that a caller who only wants a list need not wait
for them."""


class ViewThreads:
    """``close`` ends them."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="views")

    async def run(self, snapshot: SystemSnapshot, work: Callable[[], T]) -> T:
        """``work`` on the snapshot. Raises RefusedError (QUERY_TIMEOUT). When given up, the thread stops at its
        next checkpoint."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._threads, work)
        except TimeoutError as error:
            message = f"reading the views took longer than {self._timeout_s:g} s"
            raise RefusedError(ErrorKind.QUERY_TIMEOUT, message) from error
        finally:
            snapshot.given_up.set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
