"""``zonectl serve``: the API, the outbox relay and, if asked, the controllers and the file of scrape targets.
The HTTP application is routes over services that ``bootstrap`` has put together."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from app.alerts.readiness_probe import controller_name
from app.api import (
    alerts,
    audit,
    health,
    kv,
    maintenance,
    nodes,
    operations,
    problems,
    rebalance,
    recovery,
    statements,
    tokens,
    trino,
    zones,
)
from app.api.addresses import AddressMiddleware
from app.api.bodies import require_json
from app.api.callers import ActorMiddleware, authorise, check_routes
from app.api.document import documented_api
from app.api.services import Services
from app.bootstrap.catalog_administrators import renew_token
from app.bootstrap.composition import ProcessFrame
from app.bootstrap.protection import certificate_of, trust_of, with_login
from app.bootstrap.scrape_entry import scraped_url, shown_by
from app.bootstrap.server_services import ServerParts, open_services
from app.bootstrap.server_stores import ServerStores, open_stores
from app.bootstrap.stores import entry_of
from app.configuration.settings import Settings
from app.console.mount import Console
from app.edge.headers import CONSOLE as PATH
from app.edge.headers import DOCS
from app.edge.trust import url_of
from app.edge.uvicorn_server import listen, places_of, serve_http
from app.metrics.gauges import (
    LoopLag,
    PartitionGauges,
    ServerGauges,
    certificate_probe,
    follow_members,
    follow_operations,
)
from app.metrics.request_meter import RequestMeter
from app.metrics.scrape_door import ScrapeDoor
from app.process.build import own_version
from app.process.logs import configure
from app.security.token_secrets import ScrapeToken
from app.sql.engine.executor import trim_catalog
from app.views.processes import scrape_targets
from rebalance.controllers.clock import SteadyClock
from rebalance.controllers.ring_events import RingStandby
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.background import Background, Work
from rebalance.hosting.client_connections import ConnectionPlaces, StrangerShare
from rebalance.hosting.tls import LoadedCertificate
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.registered_process import ProcessReport
from rebalance.ports.metric_rows import Metric

DESCRIPTION = """Zone management for partitioned, replicated stores: where data lives, said in SQL.

Errors are `application/problem+json` with `name`, `code`, `sqlState`, `line` and `column`."""


def build_app(services: Services, verified_header: str = "", console: Console | None = None) -> FastAPI:
    """``verified_header``: ``ActorMiddleware``. ``console`` None: no pages are served, the API alone is. Raises
    RuntimeError when a route has no row in the table of privileges."""
    # The documentation's page is in the package: FastAPI's own would be fetched from elsewhere.
    app = documented_api(
        title="Zonekeeper",
        version=own_version() or "not installed",
        description=DESCRIPTION,
        dependencies=[Depends(authorise), Depends(require_json)],
        responses=problems.EVERYWHERE,
        redoc_url=None,
        static_url=f"{DOCS}/files",
    )
    app.state.services = services
    app.add_middleware(ActorMiddleware, verified_header=verified_header)
    app.add_middleware(AddressMiddleware)
    problems.install(app)
    app.include_router(statements.router)
    app.include_router(statements.logged)
    data = (kv, rebalance, recovery, operations, audit)
    for module in (zones, nodes, *data, maintenance, health, alerts, tokens, trino):
        app.include_router(module.router)
    if console is not None:
        app.mount(PATH, console)
    check_routes(app)
    return app


log = structlog.get_logger(__name__)

LOOK_S = 2.0


async def keep_targets_file(path: Path, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
    """Keep the file of scrape targets up to date until cancelled. It is written when it changes; as long as the
    metastore was never read it stays as it was."""
    written = ""
    while True:
        text = json.dumps(scrape_targets(mirror, keyspace), indent=2) + "\n"
        if mirror.is_loaded and text != written:
            draft = path.with_suffix(".draft")
            try:
                draft.write_text(text)
                draft.replace(path)
                written = text
            except OSError as error:
                log.warning("scrape targets not written", path=str(path), error=str(error))
        await asyncio.sleep(LOOK_S)


SANDBOX_WARM_UP_S = 2.0

Started = Callable[[str], None]


async def serve(
    settings: Settings, *, controllers: bool, on_started: Started, unprotected: tuple[str, ...] = ()
) -> None:
    """Serve until cancelled. ``on_started`` gets each of the API's URLs once it is served. ``unprotected``:
    which protections are missing on an address that others reach.

    Raises ValueError for settings that contradict each other, OSError for an address that is taken and
    StoreError for a catalog that cannot be opened, and BelowLevelError; a metastore that is away is waited for.
    """
    configure("server")
    roles = (ProcessRole.SERVER, ProcessRole.CONTROLLER) if controllers else (ProcessRole.SERVER,)
    async with AsyncExitStack() as stack:
        http, https = stack.enter_context(listen(settings.host, settings.port)), None
        if (certificate := certificate_of(settings)) is not None:
            https = stack.enter_context(listen(settings.host, settings.https_port))
        http_port, https_port = http.getsockname()[1], None if https is None else https.getsockname()[1]
        frame = ProcessFrame.open(settings, stack, *roles)
        stores = await open_stores(frame)
        parts = open_services(frame, stores, unprotected)
        console = Console(background=frame.background) if settings.console else None
        app = _application(frame, parts.services, console, https_port)
        trust, served = trust_of(settings, unprotected), asyncio.Event()
        connections = places_of(settings.http_limits, trust)

        def started() -> None:
            # What is loaded by now stays for good. A long text makes the collector run often: going through all
            # of that again each time would hold every request up.
            gc.collect()
            gc.freeze()
            on_started(url_of("http", settings.host, http_port))
            served.set()
            # After the first answer can be given; before somebody waits for a query.
            asyncio.get_running_loop().call_later(SANDBOX_WARM_UP_S, parts.sandbox.warm)

        serve_at = partial(
            serve_http,
            app,
            trust=trust,
            limits=settings.http_limits,
            connections=connections,
            strangers=StrangerShare() if settings.auth else None,
        )
        apis, door = {"API": serve_at(http, started)}, ("http", settings.host, http_port)
        if certificate is not None and https is not None:
            door = ("https", settings.host, https_port)
            apis["API over TLS"] = serve_at(
                https, partial(on_started, url_of(*door)), tls=certificate.server_context
            )
        works = {
            **_works(frame, stores, parts, scraped_url(*door), certificate),
            **_measured(frame, stores, parts, connections, certificate),
            **dict(_chosen_works(frame, stores, parts.services, console)),
        }
        if controllers:
            works["controllers"] = partial(_control, frame, served)
        await within_level(frame.metastore, frame.keyspace, "this server", _run(apis, works, frame.background))


def _application(
    frame: ProcessFrame, services: Services, console: Console | None, https_port: int | None
) -> ASGIApp:
    """Build the application behind each socket: routes and console, behind the login if there is one, and
    measured."""
    settings, metrics = frame.settings, frame.metrics
    app: ASGIApp = build_app(services, settings.identity_header, console)
    if services.sessions is not None:
        app = with_login(app, frame, services.sessions, services.watch, https_port)
        if settings.metrics_token_file is not None:
            app = ScrapeDoor(app, ScrapeToken(settings.metrics_token_file), metrics)
    return RequestMeter(app, metrics)


def _works(
    frame: ProcessFrame,
    stores: ServerStores,
    parts: ServerParts,
    metrics_url: str,
    certificate: LoadedCertificate | None,
) -> dict[str, Work]:
    """Background work of every server, by name."""
    settings, metastore, keyspace, mirror = frame.settings, frame.metastore, frame.keyspace, stores.mirror
    report = ProcessReport(
        metastore,
        keyspace,
        controller_name(),
        entry_of(ProcessRole.SERVER, metrics_url),
        frame.background,
        certificates=shown_by(settings, certificate),
    )
    return {
        "keyspace mirror": mirror.run,
        "store guard": stores.guard.run,
        "outbox relay": stores.relay.run,
        "upgrade": parts.services.upgrades.run,
        "statement log": parts.services.jobs.run,
        "partition count": stores.count.run,
        "serving watch": parts.serving.run,
        "alerts": parts.services.alerts.run,
        "ring standby": RingStandby(metastore, keyspace, mirror, stores.ring, SteadyClock()).run,
        "process": report.run,
        "retention": partial(trim_catalog, stores.catalog, settings.retention),
    }


def _chosen_works(
    frame: ProcessFrame, stores: ServerStores, services: Services, console: Console | None
) -> Iterator[tuple[str, Work]]:
    """Yield the background work that only some servers have, as their settings say."""
    settings = frame.settings
    if settings.metrics_targets is not None:
        yield (
            "scrape targets",
            partial(keep_targets_file, settings.metrics_targets, stores.mirror, frame.keyspace),
        )
    if settings.auth and settings.admin_token_file is not None:
        yield "administrator's token", partial(renew_token, stores.catalog, settings.admin_token_file)
    if console is not None:
        yield "console", partial(console.run, services)
    if services.watch is not None:
        yield "standing watch", services.watch.run


def _measured(
    frame: ProcessFrame,
    stores: ServerStores,
    parts: ServerParts,
    connections: ConnectionPlaces,
    certificate: LoadedCertificate | None,
) -> dict[str, Work]:
    """Register the server's own metrics, and return the work that measures them, by name; it must run beside
    the server."""
    metrics = frame.metrics
    for probe in ServerGauges(metrics, stores.views, parts.facts).probes():
        metrics.ask(probe)
    metrics.ask(PartitionGauges(stores.count, metrics).probe)

    def put_waiting() -> None:
        metrics.set(Metric.STATEMENTS_WAITING, parts.line.waiting)
        metrics.set(Metric.STATEMENTS_RUNNING, parts.line.running)
        metrics.set(Metric.HTTP_CONNECTIONS, connections.open)

    metrics.ask(put_waiting)
    if certificate is not None:
        metrics.ask(certificate_probe("api", certificate, metrics))
    lag = LoopLag(metrics)
    metrics.ask(lag.probe)
    quota = frame.settings.metastore_quota_mb << 20
    return {
        "metrics: event loop": lag.run,
        "metrics: operations": partial(follow_operations, stores.mirror, frame.keyspace, metrics),
        "metrics: metastore": partial(follow_members, frame.metastore, metrics, quota),
    }


async def _run(
    apis: Mapping[str, Coroutine[Any, Any, None]], works: Mapping[str, Work], background: Background
) -> None:
    """Run the APIs and the work beside them. When an API ends with an error, so does the process, to be started
    anew."""
    async with asyncio.TaskGroup() as tasks:
        for name, api in apis.items():
            tasks.create_task(api, name=name)
        for name, work in works.items():
            tasks.create_task(background.keep(name, work), name=name)


async def _control(frame: ProcessFrame, served: asyncio.Event) -> None:
    """The controllers begin when the API is served: Spark's start must not hold the first answer up."""
    await served.wait()
    from app.bootstrap.controllers import open_controllers

    async with AsyncExitStack() as stack:
        await open_controllers(replace(frame, stack=stack)).run()
