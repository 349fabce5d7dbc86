"""The frame in which servers, controllers and nodes are composed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from app.bootstrap.stores import open_metastore
from app.configuration.settings import Settings
from app.metrics.exposition import Exposition
from app.metrics.gauges import background_probe, certificate_probe
from app.process.build import own_version
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.background import Background, Work, kept
from rebalance.hosting.tls import loaded
from rebalance.metastore.etcd import EtcdMetastore


class Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


@dataclass(frozen=True, slots=True)
class ProcessFrame:
    """``stack`` closes at the end of the process what was opened in it."""

    settings: Settings
    metastore: EtcdMetastore
    keyspace: Keyspace
    metrics: Exposition
    background: Background
    stack: AsyncExitStack

    @classmethod
    def open(cls, settings: Settings, stack: AsyncExitStack, *roles: ProcessRole) -> ProcessFrame:
        """Connects to the metastore when it is first asked."""
        metrics, background = Exposition(roles, own_version()), Background()
        metrics.ask(background_probe(background, metrics))
        if settings.tls is not None:
            metrics.ask(certificate_probe("machine", loaded(settings.tls), metrics))
        metastore = open_metastore(settings, stack, metrics)
        return cls(settings, metastore, Keyspace(settings.metastore_prefix), metrics, background, stack)

    def closing(self, opened: C) -> C:
        """``opened``, which is closed when the process ends."""
        self.stack.push_async_callback(opened.close)
        return opened

    async def keep(self, name: str, work: Work) -> None:
        """Runs ``work`` until the process ends."""
        await self.stack.enter_async_context(kept(self.background, name, work))
