"""Liveness and readiness of this server, and its metrics for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.alerts.readiness_judge import of_zones
from app.api.problems import answers
from app.api.services import LoadedServices, Services, ServicesOf
from app.contract.health import Health, Readiness
from app.contract.maintenance import ScrapeTarget
from app.requests.context import current_caller
from app.security.access_view import AccessView
from app.views.processes import scrape_targets
from catalog.core.authorisation import ALL_ZONES, NO_GRANTS, SYSTEM, Privilege, zone_object

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Health)
async def livez() -> Response:
    """Check that the process responds."""
    return JSONResponse({"status": "ok"})


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Alias of `/livez`."""
    return await livez()


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(services: ServicesOf) -> Response:
    """Check whether the server accepts statements; `degraded` names the parts that are not in order. Statements
    are also accepted without a leading controller, without Spark and while the metastore does not respond; they
    take effect later. Where login is required, other callers get only `ready` and `state`.
    """
    report = await services.readiness()
    if services.access is not None:
        report = await _seen(report, services, services.access)
    return JSONResponse(report, status_code=200 if report["ready"] else 503)


async def _seen(report: dict[str, Any], services: Services, access: AccessView) -> dict[str, Any]:
    """The part of the report that the caller may see."""
    caller = current_caller()
    grants = await access.grants() if caller is not None else NO_GRANTS
    if caller is None or not caller.may(grants, Privilege.SEE, SYSTEM):
        return {"ready": report["ready"], "state": "ready" if report["ready"] else "not ready"}
    if caller.may(grants, Privilege.SEE, ALL_ZONES):
        return report
    zones = (await services.snapshot()).zones if report["catalog"] == "ok" else ()
    seen = [zone for zone in zones if caller.may(grants, Privilege.SEE, zone_object(zone.zone_id))]
    return of_zones(report, seen)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format 0.0.4"}},
)
async def metrics(services: ServicesOf) -> Response:
    """Return the metrics of this server, described in `docs/metrics.md`. It answers without catalog and
    metastore, too."""
    return Response(await services.metrics.scraped(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/api/v1/metrics/targets", **answers(list[ScrapeTarget], 503))
async def list_targets(services: LoadedServices) -> Response:
    """List the scrape targets of all processes, in the format of Prometheus's HTTP service discovery."""
    return JSONResponse(scrape_targets(services.mirror, services.views.keyspace))
