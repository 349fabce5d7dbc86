"""Gauges of a server: cheap ones are read in each scrape, those that need an answer from elsewhere in the
background.

There are those of all partitions and of the nodes that they keep replicas on, of the mirror and the stores, of
operations, of each member of the metastore, and of certificates: of those that a process uses, and of the files
that it would read next.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.alerts.fact_reader import FactReader
from app.counts.open_operations import OpenOperations
from app.counts.partition_count import PartitionCount
from app.counts.zone_tally import number_of, states_of
from app.views.keyspace_views import KeyspaceViews
from app.views.store_servers import servers_up
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import EngineRecord
from rebalance.core.moves.move_status import MoveState
from rebalance.core.moves.partition_state import MoveStage, PartitionFacts
from rebalance.core.operations.operation import OperationState
from rebalance.hosting.background import Background
from rebalance.hosting.tls import LoadedCertificate, ends_of
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import MemberHealth, MetastoreError
from rebalance.ports.metric_rows import OTHER, Measures, Metric
from rebalance.ports.placement import EngineState

NODES_SHOWN_MAX = 200
"""Number of nodes that have a series of their own, those that are down first."""

_MEASURED: tuple[tuple[Callable[[PartitionFacts], bool], Metric | None, Metric | None], ...] = (
    (lambda facts: facts.lacks_majority, Metric.PARTITIONS_WITHOUT_MAJORITY, Metric.ZONE_WITHOUT_MAJORITY),
    (lambda facts: facts.lacks_leader, Metric.PARTITIONS_WITHOUT_LEADER, Metric.ZONE_WITHOUT_LEADER),
    (lambda facts: facts.is_short, Metric.PARTITIONS_REPLICAS_MISSING, Metric.ZONE_REPLICAS_MISSING),
    (lambda facts: facts.is_broken, Metric.PARTITIONS_REPLICAS_BROKEN, Metric.ZONE_REPLICAS_BROKEN),
    (lambda facts: facts.is_degraded, None, Metric.ZONE_DEGRADED),
    (lambda facts: facts.is_lost, Metric.PARTITIONS_LOST, None),
    (lambda facts: facts.is_unreadable, Metric.PARTITIONS_UNREADABLE, None),
    (lambda facts: facts.is_filling, Metric.STORE_FILLING, None),
)
"""States of partitions, with the metric of all of them and that of each zone."""


class PartitionGauges:
    """``probe`` is called in each scrape, and says nothing before the first count is complete."""

    def __init__(self, count: PartitionCount, measures: Measures) -> None:
        self._count = count
        self._measures = measures
        self._said_at: float | None = None

    def probe(self) -> None:
        count, put = self._count, self._measures.set
        if count.counted_at is None:
            return
        if count.changed_at != self._said_at:
            self._said_at = count.changed_at
            put(Metric.COUNT_SECONDS, count.took_s)
            self._put_totals()
            self._put_zones()
            self._put_nodes()
        now = time.monotonic()
        put(Metric.COUNT_AGE_SECONDS, now - count.counted_at)
        ages = count.tally.oldest(now).items()
        self._measures.replace(Metric.MOVE_OLDEST_SECONDS, (((stage.value,), age) for stage, age in ages))

    def _put_totals(self) -> None:
        tally, replace, put = self._count.tally, self._measures.replace, self._measures.set
        counts, moves = tally.counts, Counter[tuple[str, str]]()
        for facts, number in counts.items():
            if facts.stage is not MoveStage.REST or facts.cause is not Cause.NONE:
                moves[facts.stage.value, facts.cause.name] += number
        replace(Metric.MOVES, moves.items())
        states = states_of(counts)
        replace(Metric.PARTITIONS, (((state.value,), states[state]) for state in MoveState))
        for holds, metric, _ in _MEASURED:
            if metric is not None:
                put(metric, number_of(counts, holds))
        put(Metric.ZONES, len(tally.zones))

    def _put_zones(self) -> None:
        """The worst zones by name; all others are ``_other``, so that the sums of all are the totals."""
        tally, replace = self._count.tally, self._measures.replace
        shown = tally.shown()
        zones = [(zone.name, zone.counts, zone.bytes) for zone in shown]
        if len(tally.zones) > len(shown):
            rest = tally.counts.copy()
            for zone in shown:
                rest.subtract(zone.counts)
            zones.append((OTHER, rest, tally.bytes - sum(zone.bytes for zone in shown)))
        by_state = [(name, states_of(counts)) for name, counts, _ in zones]
        series = (((name, state.value), states[state]) for name, states in by_state for state in MoveState)
        replace(Metric.ZONE_PARTITIONS, series)
        for holds, _, metric in _MEASURED:
            if metric is not None:
                replace(metric, [((name,), number_of(counts, holds)) for name, counts, _ in zones])
        replace(Metric.ZONE_BYTES, (((name,), size) for name, _, size in zones))

    def _put_nodes(self) -> None:
        count, replace = self._count, self._measures.replace
        draining = len(count.alive & count.drained)
        down = len((count.tally.named.keys() | count.tally.data_nodes.keys()) - count.alive)
        states = {"alive": len(count.alive) - draining, "draining": draining, "down": down}
        replace(Metric.NODES, (((state,), number) for state, number in states.items()))
        missing, alive = sorted(count.missing), sorted(count.alive)
        nodes = [*((node, 0.0) for node in missing), *((node, 1.0) for node in alive)]
        replace(Metric.NODE_UP, (((node,), up) for node, up in nodes[:NODES_SHOWN_MAX]))


LOOK_S = 2.0
LAG_S = 0.5


@dataclass(eq=False)
class ServerGauges:
    """Gauges of a server, set by ``probes``, which are called in each scrape."""

    measures: Measures
    views: KeyspaceViews
    facts: FactReader

    def probes(self) -> tuple[Callable[[], None], ...]:
        """Each for itself: what cannot be told costs its own gauges only."""
        return self._relayed, self._mirrored, self._agreed, self._led, self._stored

    def _relayed(self) -> None:
        self.measures.set(Metric.RELAY_LAG_SECONDS, self.facts.relay.lag_s())

    def _mirrored(self) -> None:
        put, mirror = self.measures.set, self.facts.mirror
        put(Metric.MIRROR_LOADED, mirror.is_loaded)
        put(Metric.MIRROR_KEYS, len(mirror))
        if (age_s := self.facts.mirror_age_s) < math.inf:
            put(Metric.MIRROR_AGE_SECONDS, age_s)

    def _agreed(self) -> None:
        state = self.facts.guard.state
        if state is not None:
            self.measures.set(Metric.STORES_AGREE, state.is_agreed)
            self.measures.set(Metric.CATALOG_VERSION, state.catalog_version)

    def _led(self) -> None:
        keys, mirror, put = self.facts.keyspace, self.facts.mirror, self.measures.set
        if not mirror.is_loaded:
            return
        put(Metric.CONTROLLER_PRESENT, mirror.get(keys.controller_leader) is not None)
        engine = read(mirror.get(keys.engine_status), EngineRecord.decode)
        if engine is not None and not isinstance(engine, Unreadable):
            put(Metric.SPARK_UP, engine.state == EngineState.READY.value)
        put(Metric.UNREADABLE_KEYS, len(self.views.unreadable()))

    def _stored(self) -> None:
        if self.facts.mirror.is_loaded:
            cluster, result = self.views.ownership.ring.cluster, self.views.ownership.result
            is_running = bool(cluster.zones) and cluster.version > result
            self.measures.set(Metric.STORE_EXCHANGE_RUNNING, is_running)
            servers = servers_up(self.views)
            self.measures.set(Metric.STORE_SERVERS_DOWN, list(servers.values()).count(False))
            shown = sorted(servers.items(), key=lambda item: item[1])[:NODES_SHOWN_MAX]
            self.measures.replace(Metric.NODE_STORE_SERVER_UP, (((node,), up) for node, up in shown))


async def follow_operations(mirror: KeyspaceMirror, keyspace: Keyspace, measures: Measures) -> None:
    """Measure the open operations every ``LOOK_S`` seconds until cancelled."""
    open_operations, put = OpenOperations(mirror, keyspace), measures.set
    await mirror.loaded()
    while True:
        operations, now_s = open_operations.all(), time.time()
        states = Counter(operation.state for operation in operations)
        shown = (((state.value,), states[state]) for state in OperationState if states[state])
        measures.replace(Metric.OPERATIONS, shown)
        tallies = [operation.tally for operation in operations]
        oldest = min((operation.started_ms for operation in operations), default=None)
        put(Metric.OPERATION_OLDEST_SECONDS, max(now_s - oldest / 1_000, 0) if oldest is not None else 0)
        put(Metric.OPERATION_PARTITIONS_LEFT, sum(max(tally.total - tally.done, 0) for tally in tallies))
        put(Metric.OPERATION_BYTES_LEFT, sum(max(tally.bytes_total - tally.bytes_done, 0) for tally in tallies))
        await asyncio.sleep(LOOK_S)


class LoopLag:
    """Delay of the event loop: it is asked to be back after a while, again and again."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._worst_s = 0.0

    def probe(self) -> None:
        """Tells the worst since the last time, and begins anew."""
        self._measures.set(Metric.LOOP_LAG_SECONDS, self._worst_s)
        self._worst_s = 0.0

    async def run(self) -> None:
        """Measure the delay until cancelled."""
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


def put_disk(directory: Path, measures: Measures) -> None:
    """The disk of a node's data directory."""
    usage = shutil.disk_usage(directory)
    measures.set(Metric.NODE_DISK_FREE, usage.free)
    measures.set(Metric.NODE_DISK_SIZE, usage.total)


PERIOD_S = 15.0


async def follow_members(metastore: EtcdMetastore, measures: Measures, quota: int) -> None:
    """Measure the members of the metastore until cancelled. ``quota``: bytes at which a member refuses writes,
    as it was started; 0: not known."""
    while True:
        publish_members(await metastore.statuses(), measures, quota)
        try:
            measures.set(Metric.METASTORE_LEASES, await metastore.leases())
        except MetastoreError:
            measures.replace(Metric.METASTORE_LEASES, ())
        await asyncio.sleep(PERIOD_S)


def publish_members(statuses: tuple[MemberHealth, ...], measures: Measures, quota: int) -> None:
    """Publish the state of each member. Of a member that does not answer, only that is published."""
    up = [status for status in statuses if status.is_up]
    replace = measures.replace
    replace(Metric.ETCD_UP, (((status.name,), status.is_up) for status in statuses))
    replace(Metric.ETCD_HAS_LEADER, (((status.name,), status.has_leader) for status in up))
    replace(Metric.ETCD_IN_USE_BYTES, (((status.name,), status.in_use) for status in up))
    replace(Metric.ETCD_ALLOCATED_BYTES, (((status.name,), status.allocated) for status in up))
    if quota:
        replace(Metric.ETCD_QUOTA_BYTES, (((status.name,), quota) for status in up))
    alarms = {(alarm,): 1.0 for status in up for alarm in status.alarms}
    replace(Metric.ETCD_ALARMS, alarms.items())


def certificate_probe(name: str, certificate: LoadedCertificate, measures: Measures) -> Callable[[], None]:
    """The soonest end, of the certificate or of its authority."""

    def probe() -> None:
        in_force = [end.ends_s for end in certificate.ends()]
        in_files = [ends_s for ends_s in map(ends_of, certificate.files) if ends_s is not None]
        for source, ends in (("loaded", in_force), ("file", in_files)):
            if ends:
                measures.set(Metric.CERTIFICATE_EXPIRY, min(ends), name, source)

    return probe
