"""``/api/v1/upgrade``: two versions side by side, and the end of the older one."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.api.bodies import RequestBody
from app.api.problems import answered, answers
from app.api.services import ServicesOf
from app.contract.maintenance import FinalisedBody, UpgradeBody
from app.views.node_stop import can_stop
from app.views.processes import strays, upgrade_body
from catalog.core.audit import Action

router = APIRouter(prefix="/api/v1/upgrade", tags=["upgrade"])


class UpgradeEnd(RequestBody):
    """The reason; optional unless the server requires reasons."""


@router.get("", **answers(UpgradeBody, 503))
async def upgrade_state(services: ServicesOf) -> Response:
    """Show the running processes and their builds, what to replace next, and whether the level can be
    finalised."""
    services.require_metastore()
    zones = {zone.zone_id: zone.name for zone in (await services.snapshot()).zones}
    silence = await services.freshness.silence()
    views, copy, ownership = services.views, services.mirror.copy(), services.views.ownership
    body = upgrade_body(
        services.upgrades.upgrade,
        lambda node: can_stop(node, views, zones, silence),
        await asyncio.to_thread(lambda: list(strays(copy, views.keyspace, ownership, zones))),
    )
    return JSONResponse(await services.dated(body))


@router.post("/finalise", **answers(FinalisedBody, 400, 409, 415, 503, 504))
async def finalise_upgrade(_body: UpgradeEnd, services: ServicesOf) -> Response:
    """Bring the release level of this server into force. From then on processes of lower levels are refused,
    and there is no way back to their versions."""
    services.require_metastore()
    services.audit.require_reason()
    done = await answered(services.upgrades.finalise())
    in_force = services.upgrades.upgrade.in_force
    if done:
        await services.audit.record(Action.FINALISE_UPGRADE, f"level {in_force}", {})
    return JSONResponse(FinalisedBody(finalised=done, level_in_force=in_force))
