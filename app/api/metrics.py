"""What this server measures, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.api.problems import answers
from app.api.services import ServicesOf
from app.contract.metrics import ScrapeTarget
from app.views.scrape_targets import scrape_targets

router = APIRouter(tags=["health"])


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
async def list_targets(services: ServicesOf) -> Response:
    """List the scrape targets of all processes, in the format of Prometheus's HTTP service discovery."""
    services.require_metastore()
    return JSONResponse(scrape_targets(services.mirror, services.views.keyspace))
