"""Composition of what nodes and servers measure besides what their shells count by themselves."""

from __future__ import annotations

from functools import partial

from app.bootstrap.composition import ProcessFrame
from app.bootstrap.server_stores import ServerStores
from app.configuration.settings import Settings
from app.counts.open_operations import OpenOperations
from app.metrics.exposition import Exposition
from app.metrics.gauges import (
    Line,
    LoopLag,
    MirrorAge,
    OperationGauges,
    PartitionGauges,
    ServerGauges,
    certificate_probe,
    connections_probe,
    disk_probe,
    follow_catalog,
    follow_members,
    line_probe,
)
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.hosting.background import Work
from rebalance.hosting.client_connections import ConnectionPlaces
from rebalance.hosting.tls import LoadedCertificate


def measure_node(metrics: Exposition, settings: Settings, host: EtcdGroupHost) -> None:
    """What a node tells besides."""
    metrics.ask(host.measure)
    metrics.ask(disk_probe(settings.data_dir, metrics))


def measure_server(
    frame: ProcessFrame,
    stores: ServerStores,
    connections: ConnectionPlaces,
    certificate: LoadedCertificate | None,
    line: Line,
) -> dict[str, Work]:
    """What a server tells besides; the works must run beside it."""
    metrics, metastore, keyspace, mirror = frame.metrics, frame.metastore, frame.keyspace, stores.mirror
    age = MirrorAge(mirror, metastore, metrics)
    gauges = ServerGauges(metrics, mirror, keyspace, stores.views, stores.guard, stores.relay, age)
    for probe in (
        *gauges.probes(),
        PartitionGauges(stores.count, metrics).probe,
        connections_probe(connections, metrics),
        line_probe(line, metrics),
    ):
        metrics.ask(probe)
    if certificate is not None:
        metrics.ask(certificate_probe("api", certificate, metrics))
    lag = LoopLag(metrics)
    metrics.ask(lag.probe)
    quota = frame.settings.metastore_quota_mb << 20
    return {
        "metrics: event loop": lag.run,
        "metrics: mirror": age.run,
        "metrics: operations": OperationGauges(mirror, OpenOperations(mirror, keyspace), metrics).run,
        "metrics: catalog": partial(follow_catalog, stores.catalog.snapshot, metrics),
        "metrics: metastore": partial(follow_members, metastore, metrics, quota),
    }
