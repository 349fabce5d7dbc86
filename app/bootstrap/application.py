"""The HTTP application: routes over services that ``bootstrap`` has put together."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from app.api import (
    alerts,
    audit,
    health,
    kv,
    log_levels,
    metastore,
    metrics,
    nodes,
    operations,
    plan,
    problems,
    rebalance,
    recovery,
    routing,
    statement_jobs,
    statements,
    tokens,
    trino,
    upgrade,
    verify,
    zones,
)
from app.api.actors import ActorMiddleware
from app.api.addresses import AddressMiddleware
from app.api.bodies import require_json
from app.api.document import documented_api
from app.api.route_guard import authorise, check_routes
from app.api.services import Services
from app.console.mount import Console
from app.edge.policies import CONSOLE as PATH
from app.edge.policies import DOCS
from app.process.build import own_version

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
    data = (kv, verify, routing, rebalance, recovery, operations, audit)
    watched = (metastore, upgrade, health, metrics, alerts, log_levels)
    for module in (statements, statement_jobs, plan, zones, nodes, *data, *watched, tokens, trino):
        app.include_router(module.router)
    if console is not None:
        app.mount(PATH, console)
    check_routes(app)
    return app
