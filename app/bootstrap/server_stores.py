"""Composition of a server's catalog and metastore."""

from __future__ import annotations

from dataclasses import dataclass

from app.bootstrap.composition import ProcessFrame
from app.counts.partition_count import PartitionCount
from app.process.logs import LogLevelFollower, set_levels
from app.security.passwords import hash_password
from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.member_counts import MemberCounts
from app.views.keyspace_views import KeyspaceViews
from catalog.core.snapshot import ZoneDefaults
from catalog.core.zone import ZoneId
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.store_guard import HeldZones, StoreGuard
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metric_rows import Metric


@dataclass(frozen=True, slots=True)
class ServerStores:
    """Stores of a server. ``relay`` brings the commits of ``catalog`` to the metastore, ``guard`` checks that
    the two belong together; ``ring``, ``count`` and ``views`` read ``mirror``."""

    catalog: CatalogExecutor
    mirror: KeyspaceMirror
    ring: RingReader
    count: PartitionCount
    views: KeyspaceViews
    relay: OutboxRelay
    guard: StoreGuard


async def open_stores(frame: ProcessFrame) -> ServerStores:
    """Raises StoreError for a catalog that cannot be opened; a metastore that is away is waited for."""
    settings, metastore, keyspace = frame.settings, frame.metastore, frame.keyspace
    mirror = KeyspaceMirror(metastore, keyspace.prefix)
    LogLevelFollower(mirror, keyspace, set_levels)
    ring = RingReader(mirror, keyspace)
    count = PartitionCount(mirror, keyspace, ring)
    views = KeyspaceViews(mirror, keyspace, ownership=lambda: ring.shown, since_ms=count.since_ms)
    catalog = CatalogExecutor(
        settings.catalog,
        ZoneDefaults(partitions=settings.default_partitions),
        member_counts(views),
        hash_password,
        requires_login=settings.auth,
        requires_reason=settings.require_reason,
    )
    relay = OutboxRelay(
        catalog, metastore, keyspace, lambda: guard.is_agreed, frame.background, measures=frame.metrics
    )
    held = HeldZones(mirror, keyspace)
    guard = StoreGuard(
        catalog,
        metastore,
        mirror,
        keyspace,
        relay.relay_once,
        frame.background,
        held_zone=lambda: held.highest,
    )
    catalog.guard(guard.require_writable, views.may_rebalance, lambda: held.highest)

    def committed() -> None:
        frame.metrics.count(Metric.CATALOG_COMMITS)
        relay.wake()

    await catalog.open(committed)
    return ServerStores(frame.closing(catalog), mirror, ring, count, views, relay, guard)


def member_counts(views: KeyspaceViews) -> MemberCounts:
    def stored_nodes(zone_id: ZoneId) -> tuple[str, ...]:
        data_nodes = views.data_nodes(zone_id)
        return data_nodes.nodes if data_nodes is not None else ()

    return MemberCounts(stored_nodes)
