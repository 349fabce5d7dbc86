"""``/api/v1/log-levels``: the log levels of all processes of the installation."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.bodies import Person, Reason, RequestBody, Whole
from app.api.problems import answered, answers
from app.api.services import ServicesOf
from app.contract.columns import Facts, body_of
from app.contract.maintenance import LevelChange, LevelReset, LogLevels
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
from catalog.core.audit import Action

router = APIRouter(prefix="/api/v1/log-levels", tags=["logs"])

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


@router.get("", **answers(LogLevels, 503))
async def list_log_levels(services: ServicesOf) -> Response:
    """List the changed log levels with their ends, and the defaults."""
    changes = await answered(services.log_levels.read())
    body: LogLevels = {
        "defaults": {module: level.value for module, level in DEFAULTS.items()},
        "others": OTHERS.value,
        "changes": [_shown(module, change) for module, change in changes.items()],
    }
    return JSONResponse(body)


@router.put("/{module:segment}", **answers(LevelChange, 400, 404, 503, 504))
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


@router.delete("/{module:segment}", **answers(LevelReset, 400, 404, 503, 504))
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
