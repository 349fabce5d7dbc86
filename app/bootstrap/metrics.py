"""Composition of what a process measures besides what its shells count by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from app.build import own_version
from app.configuration.settings import Settings
from app.counts.open_operations import OpenOperations
from app.counts.partition_count import PartitionCount
from app.metrics.certificates import certificate_probe
from app.metrics.etcd_gauges import follow_members
from app.metrics.exposition import Exposition
from app.metrics.partition_gauges import PartitionGauges
from app.metrics.server_gauges import (
    Line,
    LoopLag,
    MirrorAge,
    OperationGauges,
    ServerGauges,
    background_probe,
    connections_probe,
    disk_probe,
    follow_catalog,
    line_probe,
)
from app.views.keyspace_views import KeyspaceViews
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keys import Keyspace
from rebalance.core.self_reports import ProcessRole
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.hosting.background import Background, Work
from rebalance.hosting.connection_places import ConnectionPlaces
from rebalance.hosting.loaded_certificate import LoadedCertificate
from rebalance.hosting.tls import loaded
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror


def exposition_of(*roles: ProcessRole) -> Exposition:
    """The one registry of a process with these roles."""
    return Exposition(roles, own_version())


def measure_process(metrics: Exposition, settings: Settings, background: Background) -> None:
    """What every process tells."""
    metrics.ask(background_probe(background, metrics))
    if settings.tls is not None:
        metrics.ask(certificate_probe("machine", loaded(settings.tls), metrics))


def measure_node(metrics: Exposition, settings: Settings, host: EtcdGroupHost) -> None:
    """What a node tells besides."""
    metrics.ask(host.measure)
    metrics.ask(disk_probe(settings.data_dir, metrics))


def measure_server(
    metrics: Exposition,
    settings: Settings,
    metastore: EtcdMetastore,
    mirror: KeyspaceMirror,
    keyspace: Keyspace,
    count: PartitionCount,
    views: KeyspaceViews,
    guard: StoreGuard,
    relay: OutboxRelay,
    background: Background,
    connections: ConnectionPlaces,
    certificate: LoadedCertificate | None,
    snapshot: Callable[[], Awaitable[object]],
    line: Line,
) -> dict[str, Work]:
    """What a server tells besides; the works must run beside it."""
    age = MirrorAge(mirror, metastore, metrics)
    gauges = ServerGauges(metrics, mirror, keyspace, views, guard, relay, age)
    measure_process(metrics, settings, background)
    for probe in (
        *gauges.probes(),
        PartitionGauges(count, metrics).probe,
        connections_probe(connections, metrics),
        line_probe(line, metrics),
    ):
        metrics.ask(probe)
    if certificate is not None:
        metrics.ask(certificate_probe("api", certificate, metrics))
    lag = LoopLag(metrics)
    metrics.ask(lag.probe)
    quota = settings.metastore_quota_mb << 20
    return {
        "metrics: event loop": lag.run,
        "metrics: mirror": age.run,
        "metrics: operations": OperationGauges(mirror, OpenOperations(mirror, keyspace), metrics).run,
        "metrics: catalog": partial(follow_catalog, snapshot, metrics),
        "metrics: metastore": partial(follow_members, metastore, metrics, quota),
    }
