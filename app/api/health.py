"""Liveness and readiness."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.actor import current_caller
from app.contract.health import Health, Readiness
from app.services import Services, ServicesOf
from catalog.core.principals import SYSTEM, Privilege

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(services: ServicesOf) -> Response:
    """Whether statements can be taken, with a field for each part; `degraded` names what is not in order.

    Statements are also taken without a leading controller, without Spark and while the metastore is silent;
    what they ask for is done later. Where users log in, nobody else is told more than `ready` and `state`.
    """
    report = await services.readiness()
    if services.access is not None and not await _may_see(services):
        report = {"ready": report["ready"], "state": "ready" if report["ready"] else "not ready"}
    return JSONResponse(report, status_code=200 if report["ready"] else 503)


async def _may_see(services: Services) -> bool:
    caller = current_caller()
    if caller is None or services.access is None:
        return False
    return caller.may(await services.access.grants(), Privilege.SEE, SYSTEM)
