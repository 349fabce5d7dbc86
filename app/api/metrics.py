"""What this server measures, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.api.problems import answers
from app.contract.metrics import ScrapeTarget
from app.services import ServicesOf
from app.views.scrape_targets import scrape_targets

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format 0.0.4"}},
)
async def metrics(services: ServicesOf) -> Response:
    """What this server measures: `docs/metrics.md` says how to read it. It is answered without a catalog and
    without a metastore, with what is known."""
    return Response(await services.metrics.scraped(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/api/v1/metrics/targets", **answers(list[ScrapeTarget], 503))
async def list_targets(services: ServicesOf) -> Response:
    """Every process that says where it is scraped, as Prometheus's HTTP service discovery reads it."""
    services.require_metastore()
    return JSONResponse(scrape_targets(services.mirror, services.views.keyspace))
