"""Liveness and readiness."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.contract.health import Health, Readiness
from app.services import ServicesOf

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(services: ServicesOf) -> Response:
    """Whether statements can be taken, with a field for each part; `degraded` names what is not in order.

    Statements are also taken without a leading controller, without Spark and while the metastore is silent;
    what they ask for is done later.
    """
    report = await services.readiness()
    return JSONResponse(report, status_code=200 if report["ready"] else 503)
