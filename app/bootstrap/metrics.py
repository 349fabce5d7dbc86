"""Composition of what servers measure besides what their shells count by themselves."""

from __future__ import annotations

from functools import partial

from app.bootstrap.composition import ProcessFrame
from app.bootstrap.server_stores import ServerStores
from app.metrics.gauges import (
    Line,
    LoopLag,
    MirrorAge,
    PartitionGauges,
    ServerGauges,
    certificate_probe,
    follow_catalog,
    follow_members,
    follow_operations,
    put_waiting,
)
from rebalance.hosting.background import Work
from rebalance.hosting.client_connections import ConnectionPlaces
from rebalance.hosting.tls import LoadedCertificate


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
    for probe in gauges.probes():
        metrics.ask(probe)
    metrics.ask(PartitionGauges(stores.count, metrics).probe)
    metrics.ask(partial(put_waiting, line, connections, metrics))
    if certificate is not None:
        metrics.ask(certificate_probe("api", certificate, metrics))
    lag = LoopLag(metrics)
    metrics.ask(lag.probe)
    quota = frame.settings.metastore_quota_mb << 20
    return {
        "metrics: event loop": lag.run,
        "metrics: mirror": age.run,
        "metrics: operations": partial(follow_operations, mirror, keyspace, metrics),
        "metrics: catalog": partial(follow_catalog, stores.catalog.snapshot, metrics),
        "metrics: metastore": partial(follow_members, metastore, metrics, quota),
    }
