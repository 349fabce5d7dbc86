"""Gauges of a server: what is cheap to ask for is asked in each scrape, what needs an answer from elsewhere in
the background."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from app.counts.open_operations import OpenOperations
from app.metrics.partition_gauges import NODES_SHOWN_MAX
from app.views.keyspace_views import KeyspaceViews
from app.views.store_servers import servers_up
from catalog.core.errors import StoreError
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.self_reports import EngineRecord
from rebalance.core.operations.operation import OperationState
from rebalance.hosting.background import Background
from rebalance.hosting.connection_places import ConnectionPlaces
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.measures import Measures
from rebalance.ports.metastore import MetastoreCondition, MetastoreError
from rebalance.ports.metric_rows import Metric
from rebalance.ports.placement import EngineState

LOOK_S = 2.0
CATALOG_S = 5.0
LAG_S = 0.5


class Line(Protocol):
    """In which statements wait for their turn."""

    @property
    def waiting(self) -> int: ...

    @property
    def running(self) -> int: ...


class MirrorAge:
    """How far the mirror is behind the metastore. It was complete when the metastore was at a revision that it
    has reached since."""

    def __init__(self, mirror: KeyspaceMirror, metastore: MetastoreCondition, measures: Measures) -> None:
        self._mirror = mirror
        self._metastore = metastore
        self._measures = measures
        self._complete_at: float | None = None
        self._ahead: tuple[int, float] | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since the mirror was last known to be complete; None: it never was."""
        self._look()
        return None if self._complete_at is None else time.monotonic() - self._complete_at

    async def run(self, period_s: float = LOOK_S) -> None:
        """Until cancelled."""
        while True:
            asked_at = time.monotonic()
            try:
                revision = (await self._metastore.condition()).revision
            except MetastoreError:
                self._measures.set(Metric.METASTORE_UP, 0)
            else:
                self._measures.set(Metric.METASTORE_UP, 1)
                self._look()
                if self._ahead is None:
                    self._ahead = revision, asked_at
                lag = max(revision - self._mirror.revision, 0)
                self._measures.set(Metric.MIRROR_LAG_REVISIONS, lag)
            await asyncio.sleep(period_s)

    def _look(self) -> None:
        """A revision that was not reached yet stays the next one to reach: a mirror that follows slowly is as
        old as that, however many come after it."""
        if self._ahead is not None and self._mirror.is_loaded and self._mirror.revision >= self._ahead[0]:
            self._complete_at, self._ahead = self._ahead[1], None


class ServerGauges:
    """``probe`` is called in each scrape."""

    def __init__(
        self,
        measures: Measures,
        mirror: KeyspaceMirror,
        keyspace: Keyspace,
        views: KeyspaceViews,
        guard: StoreGuard,
        relay: OutboxRelay,
        age: MirrorAge,
    ) -> None:
        self._measures = measures
        self._mirror = mirror
        self._keyspace = keyspace
        self._views = views
        self._guard = guard
        self._relay = relay
        self._age = age

    def probes(self) -> tuple[Callable[[], None], ...]:
        """Each for itself: what cannot be told costs its own gauges only."""
        return self._relayed, self._mirrored, self._agreed, self._led, self._stored

    def _relayed(self) -> None:
        self._measures.set(Metric.RELAY_LAG_SECONDS, self._relay.lag_s())

    def _mirrored(self) -> None:
        put = self._measures.set
        put(Metric.MIRROR_LOADED, self._mirror.is_loaded)
        put(Metric.MIRROR_KEYS, len(self._mirror))
        if (age_s := self._age.age_s) is not None:
            put(Metric.MIRROR_AGE_SECONDS, age_s)

    def _agreed(self) -> None:
        state = self._guard.state
        if state is not None:
            self._measures.set(Metric.STORES_AGREE, state.is_agreed)
            self._measures.set(Metric.CATALOG_VERSION, state.catalog_version)

    def _led(self) -> None:
        if not self._mirror.is_loaded:
            return
        keys, put = self._keyspace, self._measures.set
        put(Metric.CONTROLLER_PRESENT, self._mirror.get(keys.controller_leader) is not None)
        engine = read(self._mirror.get(keys.engine_status), EngineRecord.decode)
        if engine is not None and not isinstance(engine, Unreadable):
            put(Metric.SPARK_UP, engine.state == EngineState.READY.value)
        put(Metric.UNREADABLE_KEYS, len(self._views.unreadable()))

    def _stored(self) -> None:
        if self._mirror.is_loaded:
            cluster, result = self._views.ownership.ring.cluster, self._views.ownership.result
            is_running = bool(cluster.zones) and cluster.version > result
            self._measures.set(Metric.STORE_EXCHANGE_RUNNING, is_running)
            servers = servers_up(self._views)
            self._measures.set(Metric.STORE_SERVERS_DOWN, list(servers.values()).count(False))
            shown = sorted(servers.items(), key=lambda item: item[1])[:NODES_SHOWN_MAX]
            self._measures.replace(Metric.NODE_STORE_SERVER_UP, (((node,), up) for node, up in shown))


class OperationGauges:
    def __init__(self, mirror: KeyspaceMirror, operations: OpenOperations, measures: Measures) -> None:
        self._mirror = mirror
        self._operations = operations
        self._measures = measures

    async def run(self) -> None:
        """Until cancelled."""
        await self._mirror.loaded()
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        operations = self._operations.all()
        put, now_s = self._measures.set, time.time()
        states = Counter(operation.state for operation in operations)
        self._measures.replace(
            Metric.OPERATIONS, (((state.value,), states[state]) for state in OperationState if states[state])
        )
        tallies = [operation.tally for operation in operations]
        oldest = min((operation.started_ms for operation in operations), default=None)
        put(Metric.OPERATION_OLDEST_SECONDS, max(now_s - oldest / 1_000, 0) if oldest is not None else 0)
        put(Metric.OPERATION_PARTITIONS_LEFT, sum(max(tally.total - tally.done, 0) for tally in tallies))
        put(Metric.OPERATION_BYTES_LEFT, sum(max(tally.bytes_total - tally.bytes_done, 0) for tally in tallies))


async def follow_catalog(snapshot: Callable[[], Awaitable[object]], measures: Measures) -> None:
    """Until cancelled. ``snapshot`` reads the catalog."""
    while True:
        try:
            async with asyncio.timeout(LOOK_S):
                await snapshot()
        except (TimeoutError, StoreError):
            measures.set(Metric.CATALOG_UP, 0)
        else:
            measures.set(Metric.CATALOG_UP, 1)
        await asyncio.sleep(CATALOG_S)


class LoopLag:
    """How late the event loop comes: it is asked to be back after a while, again and again."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._worst_s = 0.0

    def probe(self) -> None:
        """Tells the worst since the last time, and begins anew."""
        self._measures.set(Metric.LOOP_LAG_SECONDS, self._worst_s)
        self._worst_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_S
            await asyncio.sleep(LAG_S)
            self._worst_s = max(self._worst_s, loop.time() - due)


def background_probe(background: Background, measures: Measures) -> Callable[[], None]:
    """The background tasks of any process. ``defects`` is a counter that the background keeps itself."""
    counted = 0

    def probe() -> None:
        nonlocal counted
        measures.set(Metric.TASKS, background.tasks)
        measures.set(Metric.TASKS_FAILING, len(background.troubles()))
        measures.count(Metric.DEFECTS, by=background.defects - counted)
        counted = background.defects

    return probe


def line_probe(line: Line, measures: Measures) -> Callable[[], None]:
    """Statements that wait, and that run."""

    def probe() -> None:
        measures.set(Metric.STATEMENTS_WAITING, line.waiting)
        measures.set(Metric.STATEMENTS_RUNNING, line.running)

    return probe


def disk_probe(directory: Path, measures: Measures) -> Callable[[], None]:
    """The disk of a node's data directory."""

    def probe() -> None:
        usage = shutil.disk_usage(directory)
        measures.set(Metric.NODE_DISK_FREE, usage.free)
        measures.set(Metric.NODE_DISK_SIZE, usage.total)

    return probe


def connections_probe(connections: ConnectionPlaces, measures: Measures) -> Callable[[], None]:
    return lambda: measures.set(Metric.HTTP_CONNECTIONS, connections.open)
