"""Routes of an installation as a whole. ``/api/v1/metastore``: the comparison of catalog and metastore, and the
adoption of a state where they differ; ``/api/v1/upgrade``: two versions side by side, and the end of the
older; ``/api/v1/log-levels``: the log levels of all processes.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.bodies import Person, Reason, RequestBody, Whole
from app.api.problems import answers
from app.api.services import LoadedServices, ServicesOf
from app.contract.columns import Facts, body_of
from app.contract.maintenance import (
    AdoptionBody,
    DivergenceName,
    FinalisedBody,
    LevelChange,
    LevelReset,
    LogLevels,
    MetastoreState,
    UpgradeBody,
)
from app.core.log_levels import (
    DEFAULTS,
    FOR_S_DEFAULT,
    FOR_S_MAX,
    MODULE_MAX,
    MODULE_PATTERN,
    OTHERS,
    LineLevel,
    LogLevel,
    checked_module,
)
from app.process.logs import utc_now_ms
from app.requests.context import current_actor
from app.requests.errors import answered
from app.views.node_stop import can_stop
from app.views.processes import strays, upgrade_body
from catalog.core.audit import Action
from rebalance.controllers.store_guard import ShownState, StoreState

metastore = APIRouter(prefix="/api/v1/metastore", tags=["metastore"])
upgrade = APIRouter(prefix="/api/v1/upgrade", tags=["upgrade"])
log_levels = APIRouter(prefix="/api/v1/log-levels", tags=["logs"])


class AdoptionRequest(RequestBody):
    """The state that ``GET /api/v1/metastore`` has shown; if it has changed since, nothing is done (409)."""

    epoch: Whole = Field(ge=1)
    kind: DivergenceName = Field(description="empty: both agreed, and nothing is to be done")
    reason: str = Field(max_length=10_000, description="word for word; ignored while both agree")


@metastore.get("", **answers(MetastoreState, 503))
async def metastore_state(services: ServicesOf) -> Response:
    """Compare catalog and metastore now."""
    state = await answered(services.stores.check())
    return JSONResponse(_stores_shown(state))


@metastore.post("/adopt", **answers(AdoptionBody, 400, 409, 415, 503, 504))
async def adopt_metastore(body: AdoptionRequest, services: LoadedServices) -> Response:
    """Accept the current state of catalog and etcd in a new epoch: every zone is published again, and zones
    that only etcd knows are dropped with their data."""
    services.audit.require_reason()
    shown = ShownState(body.epoch, body.kind, body.reason if body.kind else "")
    done = await answered(services.stores.adopt(shown))
    if done is not None:
        answer = AdoptionBody(
            adopted=True,
            epoch=done.epoch,
            catalog_version=done.catalog_version,
            published=done.published,
            dropped=list(done.dropped),
        )
    else:
        state = services.stores.state
        assert state is not None, "adopting compares the stores"
        answer = AdoptionBody(
            adopted=False, epoch=state.epoch, catalog_version=state.catalog_version, published=0, dropped=[]
        )
    return JSONResponse(answer)


def _stores_shown(state: StoreState) -> MetastoreState:
    divergence = state.divergence
    full = f"etcd has no space left: {state.full}" if state.full else ""
    return MetastoreState(
        state="DIVERGED" if divergence else "FULL" if full else "AGREED",
        kind=divergence.kind.value if divergence else "",
        reason=divergence.reason if divergence else full,
        epoch=state.epoch,
        revision=state.revision,
        cluster_id=state.cluster_id,
        catalog_version=state.catalog_version,
    )


class UpgradeEnd(RequestBody):
    """The reason; optional unless the server requires reasons."""


@upgrade.get("", **answers(UpgradeBody, 503))
async def upgrade_state(services: LoadedServices) -> Response:
    """Show the running processes and their builds, what to replace next, and whether the level can be
    finalised."""
    zones = {zone.zone_id: zone.name for zone in (await services.snapshot()).zones}
    silence = await services.freshness.silence()
    views, copy, ownership = services.views, services.mirror.copy(), services.views.ownership
    body = upgrade_body(
        services.upgrades.upgrade,
        lambda node: can_stop(node, views, zones, silence),
        await asyncio.to_thread(lambda: list(strays(copy, views.keyspace, ownership, zones))),
    )
    return JSONResponse(await services.dated(body))


@upgrade.post("/finalise", **answers(FinalisedBody, 400, 409, 415, 503, 504))
async def finalise_upgrade(_body: UpgradeEnd, services: LoadedServices) -> Response:
    """Bring the release level of this server into force. From then on processes of lower levels are refused,
    and there is no way back to their versions."""
    services.audit.require_reason()
    done = await answered(services.upgrades.finalise())
    in_force = services.upgrades.upgrade.in_force
    if done:
        await services.audit.record(Action.FINALISE_UPGRADE, f"level {in_force}", {})
    return JSONResponse(FinalisedBody(finalised=done, level_in_force=in_force))


Module = Annotated[
    str,
    Path(
        description=f"at most {MODULE_MAX} characters",
        examples=["rebalance.nodes", "app.edge"],
        json_schema_extra={"pattern": MODULE_PATTERN, "maxLength": MODULE_MAX},
    ),
]


class LevelRequest(RequestBody):
    level: Literal["debug", "info", "warning", "error"] = Field(description="lowest level that is written")
    for_s: Annotated[Whole, Field(ge=1, le=FOR_S_MAX)] = Field(FOR_S_DEFAULT, description="duration in seconds")
    by: Person | None = Field(None, description="name recorded in the audit log")
    reason: Reason = ""


@log_levels.get("", **answers(LogLevels, 503))
async def list_log_levels(services: ServicesOf) -> Response:
    """List the changed log levels with their ends, and the defaults."""
    changes = await answered(services.log_levels.read())
    body: LogLevels = {
        "defaults": {module: level.value for module, level in DEFAULTS.items()},
        "others": OTHERS.value,
        "changes": [_shown(module, change) for module, change in changes.items()],
    }
    return JSONResponse(body)


@log_levels.put("/{module:segment}", **answers(LevelChange, 400, 404, 503, 504))
async def change_log_level(module: Module, body: LevelRequest, services: ServicesOf) -> Response:
    """Set the log level of a module and of its submodules in every process of the installation, for a time."""
    services.audit.require_reason(body.reason)
    level = LineLevel(body.level)
    checked_module(module, level)
    now_ms, actor = utc_now_ms(), current_actor().named(body.by)
    change = LogLevel(level, now_ms, now_ms + 1_000 * body.for_s, actor.name, body.reason)
    await answered(services.log_levels.change(module, change))
    details = {"level": level.value, "for_s": body.for_s}
    await services.audit.record(Action.CHANGE_LOG_LEVEL, module, details, by=body.by, reason=body.reason)
    return JSONResponse(_shown(module, change))


@log_levels.delete("/{module:segment}", **answers(LevelReset, 400, 404, 503, 504))
async def reset_log_level(module: Module, services: ServicesOf) -> Response:
    """Reset the log level of a module to its default."""
    services.audit.require_reason()
    checked_module(module)
    changed = await answered(services.log_levels.reset(module))
    if changed:
        await services.audit.record(Action.RESET_LOG_LEVEL, module, {})
    body: LevelReset = {"module": module, "changed": changed}
    return JSONResponse(body)


def _shown(module: str, change: LogLevel) -> LevelChange:
    return body_of(LevelChange, Facts(change, {"module": module}))


router = APIRouter()
for each in (metastore, upgrade, log_levels):
    router.include_router(each)
