"""Metastore that every process connects to, and the entry by which it describes itself there. Store servers use
this module, too, and are back the sooner the less they import."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app.configuration.settings import Settings
from app.process.build import own_commit, own_version
from catalog.core.codec import FORMAT, LEVELLED
from catalog.core.level import LEVEL
from rebalance.core.keyspace.records import ProcessRecord, ProcessRole
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metric_rows import NO_MEASURES, Measures


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


def entry_of(role: ProcessRole, metrics_url: str) -> ProcessRecord:
    """``metrics_url``: where Prometheus reads what the process measures."""
    return ProcessRecord(
        role.value,
        build=own_version(),
        formats=(FORMAT, LEVELLED),
        metrics=metrics_url,
        commit=own_commit(),
        level=LEVEL,
    )
