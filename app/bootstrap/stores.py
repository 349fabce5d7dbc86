"""What every process connects to."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app.configuration.settings import Settings
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.measures import NO_MEASURES, Measures


def open_metastore(
    settings: Settings, stack: AsyncExitStack, measures: Measures = NO_MEASURES
) -> EtcdMetastore:
    """Connects when it is first asked; closed with ``stack``."""
    endpoints = [url.strip() for url in settings.metastore.split(",") if url.strip()]
    metastore = EtcdMetastore(
        endpoints,
        settings.metastore_timeout_s,
        tls=settings.tls if settings.metastore_tls else None,
        measures=measures,
    )
    stack.push_async_callback(metastore.close)
    return metastore
