"""Composition of what a server's routes need, and of what judges and sends alerts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from app.alerts.alert_watch import AlertWatch
from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import ReadinessProbe, controller_name
from app.alerts.webhook import Webhook
from app.api.services import Services
from app.bootstrap.catalog_administrators import recovery_lines
from app.bootstrap.composition import ProcessFrame
from app.bootstrap.protection import access_of
from app.bootstrap.server_stores import ServerStores
from app.counts.serving_watch import ServingWatch
from app.process.logs import LogLevelKeeper
from app.requests.request_audit import Audit
from app.security.protections import left_open
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from app.security.statement_policy import check_complete
from app.sql.engine.calls import Procedures
from app.sql.engine.operation_reverse import OperationReverse
from app.sql.engine.sql_engine import SqlEngine
from app.sql.engine.statement_jobs import StatementGate, StatementJobs
from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.script_reader import ScriptReader
from app.sql.statements.statement_line import StatementLine
from app.sql.statements.statement_meter import StatementMeter
from app.sql.trino.pages import LowerCaseNames
from app.sql.views.metadata import registry_with_metadata
from app.sql.views.view_registry import SCHEMA
from app.sql.views.view_snapshot import ViewSources
from app.views.mirror_freshness import MirrorFreshness
from app.views.processes import notices
from app.views.routing import RoutingView, ZoneDirectory, ZoneEndpoints
from app.views.store_servers import StoreCopies
from catalog.secret_files import read_secret
from rebalance.controllers.clock import WallClock
from rebalance.controllers.cluster_control import DrainKeeper, LimitsKeeper, NodeRemover
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.store_requests import StoreRequests
from rebalance.controllers.upgrade import UpgradeKeeper
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.group_checks import CopyReader, LinearizableProbe
from rebalance.nodes.partition_view import MirroredEndpoints, Mirrors


@dataclass(frozen=True, slots=True)
class ServerParts:
    """``services``, and what works behind them."""

    services: Services
    facts: FactReader
    serving: ServingWatch
    sandbox: SandboxPool
    line: StatementLine


def open_services(frame: ProcessFrame, stores: ServerStores, unprotected: tuple[str, ...]) -> ServerParts:
    """``unprotected``: which protections are missing on an address that others reach. Raises ValueError for
    settings that contradict each other."""
    settings, metastore, keyspace = frame.settings, frame.metastore, frame.keyspace
    catalog, mirror, ring, views = stores.catalog, stores.mirror, stores.ring, stores.views
    groups = MirroredEndpoints(Mirrors(mirror, mirror, mirror, keyspace))
    endpoints = ZoneEndpoints(mirror, ring, groups, views.is_store)
    router = frame.closing(ZoneRouter(endpoints, tls=settings.tls))
    count = stores.count
    sources = (catalog.snapshot, metastore, mirror, count, keyspace, stores.guard, stores.relay)
    facts = FactReader(*sources, settings.alert_times_divisor, frame.metrics)
    alerts = _open_alerts(frame, facts)
    serving = ServingWatch(facts.unknown_since_ms, router, count.sizes)
    freshness = MirrorFreshness(count.since_ms, serving.silence, lambda: count.changed_at)
    access = access_of(catalog) if settings.auth else None
    sessions = SessionView(access, catalog) if access is not None else None
    watch = StandingWatch(sessions, catalog.snapshot) if sessions is not None else None
    reader, line = ScriptReader(settings.script_limits), StatementLine(settings.line_limits)
    gate = StatementGate(reader, line, StatementMeter(frame.metrics), watch)
    sandbox = frame.closing(
        SandboxPool(QueryLimits(settings.query_timeout_s, settings.query_rows_max), spares=2)
    )
    recovery = PartitionRecovery(metastore, keyspace, frame.closing(LinearizableProbe(settings.tls)))
    requests = StoreRequests(metastore, keyspace, mirror, ring, views.is_store, tls=settings.tls)
    engine = _open_engine(frame, stores, alerts, freshness, sandbox, Procedures(recovery, requests), gate)
    upgrades = UpgradeKeeper(metastore, keyspace, mirror, stores.guard, catalog.raise_level)
    readiness = ReadinessProbe(
        facts,
        lambda: alerts.alerts,
        views,
        frame.background,
        unprotected=unprotected or left_open(has_login=settings.auth),
        recoveries=partial(recovery_lines, catalog),
        upgrade=lambda: notices(upgrades.upgrade),
    )
    control = OperationControl(metastore, keyspace, WallClock())
    services = Services(
        sql=engine,
        snapshot=catalog.snapshot,
        readiness=readiness.report,
        freshness=freshness,
        zones=ZoneDirectory(mirror, keyspace, catalog.snapshot),
        views=views,
        mirror=mirror,
        router=router,
        copies=frame.closing(CopyReader(settings.tls)),
        routing=RoutingView(mirror, keyspace, endpoints, endpoints.basis),
        endpoints=endpoints,
        engine=LowerCaseNames(engine),
        reader=reader,
        jobs=frame.closing(StatementJobs(catalog, gate=gate, position=sandbox.position)),
        stores=stores.guard,
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
        metrics=frame.metrics,
    )
    return ServerParts(services, facts, serving, sandbox, line)


def _open_alerts(frame: ProcessFrame, facts: FactReader) -> AlertWatch:
    """Raises ValueError for a webhook that cannot be used."""
    settings, measures = frame.settings, frame.metrics
    url, divisor, send = settings.alert_webhook_url, settings.alert_times_divisor, None
    if url:
        file = settings.alert_webhook_secret_file
        secret = None if file is None else partial(read_secret, file)
        send = frame.closing(Webhook(url, secret, settings.url or "", measures, divisor)).send
    stores = (facts.metastore, facts.mirror, facts.keyspace, controller_name())
    return AlertWatch(facts.facts, *stores, divisor=divisor, send=send, measures=measures)


def _open_engine(
    frame: ProcessFrame,
    stores: ServerStores,
    alerts: AlertWatch,
    freshness: MirrorFreshness,
    sandbox: SandboxPool,
    procedures: Procedures,
    gate: StatementGate,
) -> SqlEngine:
    ring, settings = stores.ring, frame.settings
    sources = ViewSources(
        stores.mirror,
        frame.keyspace,
        ownership=lambda: ring.shown,
        store_copies=StoreCopies(ring, settings.tls).read,
        alerts=lambda: alerts.alerts,
        freshness=freshness,
    )
    registry = registry_with_metadata()
    check_complete(view.name for view in registry if view.schema == SCHEMA)
    engine = SqlEngine(stores.catalog, sources, sandbox, settings.query_timeout_s, registry, procedures, gate)
    frame.stack.callback(engine.close)
    return engine
