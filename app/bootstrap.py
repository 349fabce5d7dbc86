"""The composition root: the only place that names concrete adapters."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from app.endpoint_source import MirrorEndpoints
from app.http_server import listen, serve_http
from app.logs import configure
from app.readiness import Readiness
from app.server import build_app
from app.services import Services
from app.settings import Settings
from app.sql.executor import CatalogExecutor
from app.sql.member_counts import MemberCounts
from app.views import KeyspaceViews
from app.zone_directory import ZoneDirectory
from catalog.core.snapshot import ZoneDefaults
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.runtime import ControllerRuntime, live_nodes
from rebalance.core.keys import Keyspace
from rebalance.groups.router import Router
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror

Started = Callable[[str], None]


async def serve(settings: Settings, *, controllers: bool, on_started: Started) -> None:
    """The API, the outbox relay and (if asked) the controllers, until cancelled.

    ``on_started`` gets the API's URL once it is served. Raises OSError for an address that is taken and
    StoreError for a catalog that cannot be opened; a metastore that is away is waited for.
    """
    configure("server")
    keyspace = Keyspace(settings.metastore_prefix)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(settings.host, settings.port))
        url = f"http://{settings.host}:{listener.getsockname()[1]}"
        metastore = await _metastore(settings, stack)
        mirror = KeyspaceMirror(metastore, keyspace.prefix)
        views = KeyspaceViews(mirror, keyspace)
        catalog = CatalogExecutor(settings.catalog, _defaults(settings), _member_counts(views))
        relay = OutboxRelay(catalog, metastore, keyspace)
        await catalog.open(relay.wake)
        stack.push_async_callback(catalog.close)
        router = Router(MirrorEndpoints(mirror, keyspace))
        stack.push_async_callback(router.close)
        services = Services(
            run_statements=lambda sql: catalog.run(sql, live_nodes(mirror, keyspace)),
            snapshot=catalog.snapshot,
            readiness=Readiness(catalog.snapshot, metastore, mirror, keyspace).report,
            zones=ZoneDirectory(mirror, keyspace, catalog.snapshot),
            views=views,
            mirror=mirror,
            router=router,
        )
        work: list[Callable[[], Awaitable[Any]]] = [mirror.run, relay.run]
        if controllers:
            work.append((await _controllers(settings, metastore, keyspace, stack)).run)
        work.append(lambda: serve_http(build_app(services), listener, lambda: on_started(url)))
        await _run_together(work)


async def control(settings: Settings) -> None:
    """The controllers and the outbox relay alone, until cancelled. Several may run: one leads."""
    configure("controller")
    keyspace = Keyspace(settings.metastore_prefix)
    async with AsyncExitStack() as stack:
        metastore = await _metastore(settings, stack)
        runtime = await _controllers(settings, metastore, keyspace, stack)
        await _run_together([runtime.run])


async def run_node(settings: Settings) -> None:
    """One data node, until cancelled. Raises ValueError for settings that name no node or no ports."""
    from app.node_settings import member_ports, node_of
    from rebalance.groups.etcd_group import EtcdGroupHost
    from rebalance.nodes.agent import NodeAgent

    node = node_of(settings)
    configure(node.name)
    async with AsyncExitStack() as stack:
        metastore = await _metastore(settings, stack)
        host = EtcdGroupHost(
            settings.data_dir,
            member_ports(settings),
            host=settings.node_host,
            member_limit=settings.node_member_limit,
        )
        keyspace = Keyspace(settings.metastore_prefix)
        agent = NodeAgent(node, metastore, keyspace, host, settings.data_dir, lease_ttl_s=settings.node_lease_s)
        await agent.run()


async def _metastore(settings: Settings, stack: AsyncExitStack) -> EtcdMetastore:
    endpoints = [each.strip() for each in settings.metastore.split(",") if each.strip()]
    metastore = EtcdMetastore(endpoints, settings.metastore_timeout_s)
    stack.push_async_callback(metastore.close)
    return metastore


async def _controllers(
    settings: Settings, metastore: EtcdMetastore, keyspace: Keyspace, stack: AsyncExitStack
) -> ControllerRuntime:
    from spark.engine import SparkPlacementEngine
    from spark.supervisor import DriverConfig

    config = DriverConfig(settings.spark_master, settings.data_dir / "spark")
    engine = SparkPlacementEngine(config, settings.spark_wait_s)
    stack.push_async_callback(engine.close)
    name = f"{platform.node()}/{os.getpid()}"
    return ControllerRuntime(metastore, keyspace, engine, name, settings.controller_lease_s)


def _defaults(settings: Settings) -> ZoneDefaults:
    return ZoneDefaults(partitions=settings.default_partitions)


def _member_counts(views: KeyspaceViews) -> MemberCounts:
    def stored_nodes(zone_id: Any) -> tuple[str, ...]:
        found = views.data_nodes(zone_id)
        return found.nodes if found is not None else ()

    return MemberCounts(stored_nodes)


async def _run_together(work: list[Callable[[], Awaitable[Any]]]) -> None:
    """All of it until cancelled; when one part breaks the process ends, to be started anew."""
    async with asyncio.TaskGroup() as tasks:
        for each in work:
            tasks.create_task(_run(each))


async def _run(work: Callable[[], Awaitable[Any]]) -> None:
    await work()
