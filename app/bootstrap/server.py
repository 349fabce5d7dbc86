"""``zonectl serve``: the API, the outbox relay and, if asked, the controllers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import ReadinessProbe, controller_name
from app.application import build_app
from app.bootstrap.alerts import open_alerts
from app.bootstrap.catalog_administrators import recovery_lines, renew_token
from app.bootstrap.metrics import exposition_of, measure_server
from app.bootstrap.protection import access_of, certificate_of, trust_of, with_login
from app.bootstrap.scrape_entry import scraped_url, shown_by
from app.bootstrap.self_entry import entry_of
from app.bootstrap.stores import open_metastore
from app.bootstrap.targets_file import keep_targets_file
from app.configuration.settings import Settings
from app.console.mount import Console
from app.counts.partition_count import PartitionCount
from app.counts.serving_watch import ServingWatch
from app.edge.own_address import url_of
from app.edge.uvicorn_server import listen, places_of, serve_http
from app.log_levels import LogLevelFollower, LogLevelKeeper
from app.logs import configure, set_levels
from app.metrics.exposition import Exposition
from app.metrics.request_meter import RequestMeter
from app.metrics.scrape_door import ScrapeDoor
from app.request_audit import Audit
from app.security.passwords import hash_password
from app.security.protections import left_open
from app.security.scrape_token import ScrapeToken
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from app.security.statement_policy import check_complete
from app.services import Services
from app.sql.calls import Procedures
from app.sql.engine import SqlEngine
from app.sql.executor import CatalogExecutor
from app.sql.jobs import StatementJobs
from app.sql.member_counts import MemberCounts
from app.sql.metadata import registry_with_metadata
from app.sql.operation_reverse import OperationReverse
from app.sql.retention import trim_catalog
from app.sql.sandbox_pool import QueryLimits, SandboxPool
from app.sql.script_reader import ScriptReader
from app.sql.statement_line import StatementLine
from app.sql.statement_meter import StatementMeter
from app.sql.trino_names import LowerCaseNames
from app.sql.view_registry import SCHEMA
from app.views.keyspace_views import KeyspaceViews
from app.views.routing_view import RoutingView
from app.views.sight import PartitionSight
from app.views.store_copies import StoreCopies
from app.views.upgrade import notices
from app.views.zone_directory import ZoneDirectory
from app.views.zone_endpoints import ZoneEndpoints
from catalog.core.snapshot import ZoneDefaults
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import SteadyClock, WallClock
from rebalance.controllers.drains import DrainKeeper
from rebalance.controllers.held_zones import HeldZones
from rebalance.controllers.limits import LimitsKeeper
from rebalance.controllers.node_removal import NodeRemover
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.ring_standby import RingStandby
from rebalance.controllers.store_guard import StoreGuard
from rebalance.controllers.store_requests import StoreRequests
from rebalance.controllers.upgrade import UpgradeKeeper
from rebalance.core.keys import Keyspace
from rebalance.core.metric_rows import Metric
from rebalance.core.self_reports import ProcessRole
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.copy_reader import CopyReader
from rebalance.groups.serving_probe import LinearizableProbe
from rebalance.hosting.background import Background, Work
from rebalance.hosting.stranger_share import StrangerShare
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.registered_process import ProcessReport
from rebalance.nodes.endpoints import MirroredEndpoints
from rebalance.nodes.partition_view import Mirrors
from rebalance.ports.metastore import MetastoreHistory

SANDBOX_WARM_UP_S = 2.0

Started = Callable[[str], None]


async def serve(
    settings: Settings, *, controllers: bool, on_started: Started, unprotected: tuple[str, ...] = ()
) -> None:
    """Until cancelled. ``on_started`` gets each of the API's URLs once it is served. ``unprotected``: which
    protections are missing on an address that others reach.

    Raises ValueError for settings that contradict each other, OSError for an address that is taken and
    StoreError for a catalog that cannot be opened, and BelowLevelError; a metastore that is away is waited for.
    """
    configure("server")
    keyspace = Keyspace(settings.metastore_prefix)
    roles = (ProcessRole.SERVER, ProcessRole.CONTROLLER) if controllers else (ProcessRole.SERVER,)
    metrics = exposition_of(*roles)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(settings.host, settings.port))
        certificate = certificate_of(settings)
        secure = (
            stack.enter_context(listen(settings.host, settings.https_port)) if certificate is not None else None
        )
        https_port = None if secure is None else int(secure.getsockname()[1])
        metastore = open_metastore(settings, stack, metrics)
        mirror = KeyspaceMirror(metastore, keyspace.prefix)
        LogLevelFollower(mirror, keyspace, set_levels)
        ring = RingReader(mirror, keyspace)
        count = PartitionCount(mirror, keyspace, ring)
        views = KeyspaceViews(mirror, keyspace, ownership=lambda: ring.shown, since_ms=count.since_ms)
        catalog = CatalogExecutor(
            settings.catalog,
            ZoneDefaults(partitions=settings.default_partitions),
            _member_counts(views),
            hash_password,
            requires_login=settings.auth,
            requires_reason=settings.require_reason,
        )
        background = Background()
        relay = OutboxRelay(catalog, metastore, keyspace, lambda: guard.is_agreed, background, measures=metrics)
        held = HeldZones(mirror, keyspace)
        guard = StoreGuard(
            *(catalog, metastore, mirror, keyspace, relay.relay_once, background),
            held_zone=lambda: held.highest,
        )
        catalog.guard(guard.require_writable, views.may_rebalance, lambda: held.highest)

        def committed() -> None:
            metrics.count(Metric.CATALOG_COMMITS)
            relay.wake()

        await catalog.open(committed)
        stack.push_async_callback(catalog.close)
        groups = MirroredEndpoints(Mirrors(mirror, mirror, mirror, keyspace))
        endpoints = ZoneEndpoints(mirror, ring, groups, views.is_store)
        router = ZoneRouter(endpoints, tls=settings.tls)
        stack.push_async_callback(router.close)
        copies = CopyReader(settings.tls)
        stack.push_async_callback(copies.close)
        sandbox = SandboxPool(QueryLimits(settings.query_timeout_s, settings.query_rows_max), spares=2)
        stack.push_async_callback(sandbox.close)
        probe = LinearizableProbe(settings.tls)
        stack.push_async_callback(probe.close)
        recovery = PartitionRecovery(metastore, keyspace, probe)
        requests = StoreRequests(metastore, keyspace, mirror, ring, views.is_store, tls=settings.tls)
        reader = ScriptReader(settings.script_limits)
        registry = registry_with_metadata()
        check_complete(view.name for view in registry if view.schema == SCHEMA)
        access = access_of(catalog) if settings.auth else None
        sessions = SessionView(access, catalog) if access is not None else None
        watch = StandingWatch(sessions, catalog.snapshot) if sessions is not None else None
        line = StatementLine(settings.line_limits)
        facts = FactReader(
            *(catalog.snapshot, metastore, mirror, count, keyspace, guard, relay),
            divisor=settings.alert_times_divisor,
        )
        serving = ServingWatch(facts.unknown_since_ms, router, count.sizes)
        sight = PartitionSight(count.since_ms, serving.silence, lambda: count.changed_at)
        alerts = open_alerts(settings, facts, metastore, mirror, keyspace, metrics, stack)
        engine = SqlEngine(
            catalog,
            mirror,
            keyspace,
            sandbox,
            settings.query_timeout_s,
            registry,
            Procedures(recovery, requests),
            reader,
            lambda: ring.shown,
            StoreCopies(ring, settings.tls).read,
            line,
            watch,
            StatementMeter(metrics),
            alerts=lambda: alerts.alerts,
            sight=sight,
        )
        stack.callback(engine.close)
        jobs = StatementJobs(catalog, reader=reader, position=sandbox.position, line=line, watch=watch)
        stack.push_async_callback(jobs.close)
        upgrades = UpgradeKeeper(metastore, keyspace, mirror, guard, catalog.raise_level)
        control = OperationControl(metastore, keyspace, WallClock())
        services = Services(
            sql=engine,
            snapshot=catalog.snapshot,
            readiness=ReadinessProbe(
                *(facts.facts, lambda: alerts.alerts, views, mirror, keyspace, guard, background),
                unprotected=unprotected or left_open(has_login=settings.auth),
                recoveries=partial(recovery_lines, catalog),
                upgrade=lambda: notices(upgrades.upgrade),
            ).report,
            sight=sight,
            zones=ZoneDirectory(mirror, keyspace, catalog.snapshot),
            views=views,
            mirror=mirror,
            router=router,
            copies=copies,
            routing=RoutingView(mirror, keyspace, endpoints, endpoints.basis),
            endpoints=endpoints,
            engine=LowerCaseNames(engine),
            reader=reader,
            jobs=jobs,
            stores=guard,
            recovery=recovery,
            store_requests=requests,
            limits=LimitsKeeper(metastore, keyspace, settings.node_lease_s),
            drains=DrainKeeper(metastore, keyspace),
            removals=NodeRemover(metastore, keyspace),
            upgrades=upgrades,
            log_levels=LogLevelKeeper(metastore, keyspace),
            operations=control,
            audit=Audit(catalog, catalog.snapshot),
            alerts=alerts,
            reverse=OperationReverse(catalog, control, mirror, keyspace, views),
            access=access,
            sessions=sessions,
            watch=watch,
            metrics=metrics,
        )
        served = asyncio.Event()

        def started() -> None:
            # What is loaded by now stays for good. A long text makes the collector run often: going through all
            # of that again each time would hold every request up.
            gc.collect()
            gc.freeze()
            on_started(url_of("http", settings.host, listener.getsockname()[1]))
            served.set()
            # After the first answer can be given; before somebody waits for a query.
            asyncio.get_running_loop().call_later(SANDBOX_WARM_UP_S, sandbox.warm)

        console = Console(background=background) if settings.console else None
        trust = trust_of(settings, unprotected)
        app: ASGIApp = build_app(services, settings.identity_header, console)
        if services.sessions is not None:
            app = with_login(app, settings, services.sessions, watch, https_port, stack, metrics)
            if settings.metrics_token_file is not None:
                app = ScrapeDoor(app, ScrapeToken(settings.metrics_token_file), metrics)
        app = RequestMeter(app, metrics)
        connections = places_of(settings.http_limits, trust)
        edge = (trust, settings.http_limits)
        strangers = StrangerShare() if settings.auth else None
        api = serve_http(app, listener, started, *edge, connections=connections, strangers=strangers)
        works: dict[str, Work] = {
            "keyspace mirror": mirror.run,
            "store guard": guard.run,
            "outbox relay": relay.run,
            "upgrade": upgrades.run,
            "statement log": jobs.run,
            "partition count": count.run,
            "serving watch": serving.run,
            "alerts": alerts.run,
            "ring standby": RingStandby(metastore, keyspace, mirror, ring, SteadyClock()).run,
            **measure_server(
                *(metrics, settings, metastore, mirror, keyspace, count, views, guard, relay, background),
                *(connections, certificate, catalog.snapshot, line),
            ),
        }
        scheme, port = ("http", listener.getsockname()[1]) if https_port is None else ("https", https_port)
        entry = entry_of(ProcessRole.SERVER, scraped_url(scheme, settings.host, port))
        identity = (metastore, keyspace, controller_name(), entry, background)
        report = ProcessReport(*identity, certificates=shown_by(settings, certificate))
        works["process"] = report.run
        works["retention"] = partial(trim_catalog, catalog, settings.retention)
        if settings.metrics_targets is not None:
            works["scrape targets"] = partial(keep_targets_file, settings.metrics_targets, mirror, keyspace)
        if settings.auth and settings.admin_token_file is not None:
            works["administrator's token"] = partial(renew_token, catalog, settings.admin_token_file)
        if console is not None:
            works["console"] = partial(console.run, services)
        if watch is not None:
            works["standing watch"] = watch.run
        if controllers:
            works["controllers"] = partial(_control, settings, metastore, background, served, metrics)
        apis = {"API": api}
        if certificate is not None and secure is not None and https_port is not None:
            shown = partial(on_started, url_of("https", settings.host, https_port))
            context = certificate.server_context
            apis["API over TLS"] = serve_http(app, secure, shown, *edge, context, connections, strangers)
        await within_level(metastore, keyspace, "this server", _run(apis, works, background))


async def _run(
    apis: Mapping[str, Coroutine[Any, Any, None]], works: Mapping[str, Work], background: Background
) -> None:
    """When an API itself ends the process does, to be started anew."""
    async with asyncio.TaskGroup() as tasks:
        for name, api in apis.items():
            tasks.create_task(api, name=name)
        for name, work in works.items():
            tasks.create_task(background.keep(name, work), name=name)


async def _control(
    settings: Settings,
    metastore: MetastoreHistory,
    background: Background,
    served: asyncio.Event,
    metrics: Exposition,
) -> None:
    """The controllers begin when the API is served: Spark's start must not hold the first answer up."""
    await served.wait()
    from app.bootstrap.controllers import open_controllers

    async with AsyncExitStack() as stack:
        await open_controllers(settings, metastore, stack, background, metrics).run()


def _member_counts(views: KeyspaceViews) -> MemberCounts:
    def stored_nodes(zone_id: ZoneId) -> tuple[str, ...]:
        data_nodes = views.data_nodes(zone_id)
        return data_nodes.nodes if data_nodes is not None else ()

    return MemberCounts(stored_nodes)
