"""``/api/v1/rebalance/limits``: limits of moves, and pauses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, Field, create_model

from app.api.bodies import DAYS_MAX, Person, Reason, RequestBody, whole_between
from app.api.problems import documented
from app.api.services import Services, ServicesOf
from app.process.logs import utc_now_ms
from app.requests.context import current_actor, seen_zones
from app.requests.errors import answered
from app.views.waits import nodes_behind
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.cluster_control import LimitsChangedError
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, WINDOWS_MAX, LimitKind, LimitOption, Window
from rebalance.core.admission.move_admission import Limits, Pause, utc
from rebalance.ports.metastore import MetastoreError

Model = TypeVar("Model", bound=BaseModel)

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api/v1/rebalance", tags=["rebalance"])

WindowText = Annotated[str, Field(max_length=60), AfterValidator(lambda text: str(Window.parse(text)))]
"""Window, in the form in which it is stored."""

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=r'^"?[0-9]{1,18}"?$',
        description="ETag of the limits that were read; if they have changed since, nothing is changed (412)",
    ),
]


class PauseBody(BaseModel):
    by: str
    reason: str
    since: str = Field(description="UTC")
    until: str | None = Field(description="UTC; null: until resumed")


class ZonePauseBody(PauseBody):
    zone: str
    zone_id: int


def limit_field(option: LimitOption) -> Any:
    """The annotation of a model's field for one row of the table."""
    if option.kind is LimitKind.SWITCH:
        return Annotated[bool, Field(description=option.text)]
    if option.kind is LimitKind.WINDOWS:
        text = f"{option.text}; empty: {option.otherwise}"
        return Annotated[list[WindowText], Field(max_length=WINDOWS_MAX, description=text)]
    bounds = f", {option.bounds}" if option.bounds else ""
    text = f"{option.text}; {option.kind.value}{bounds}; null: {option.default or option.otherwise}"
    return Annotated[whole_between(option.lowest, option.highest) | None, Field(description=text)]


def limits_model(name: str, base: type[Model], *, is_change: bool) -> type[Model]:
    """Make a model of ``base`` with a field for each limit: all are required; in a change all are optional."""
    rows: dict[str, Any] = {}
    for option in LIMIT_OPTIONS:
        annotation = limit_field(option)
        if is_change and option.kind is LimitKind.WINDOWS:
            annotation, default = annotation | None, None
        else:
            default = option.unset if is_change else ...
        rows[option.name] = (annotation, default)
    return create_model(name, __base__=base, __module__=__name__, __doc__=base.__doc__, **rows)


class PausesBody(BaseModel):
    """Limits of moves. A move that may not start waits, and shows the cause."""

    ha_reset_waits_for: list[str] = Field(
        description="live nodes that have not confirmed `ha_reset_s` yet: partitions that lose them wait "
        "longer, or for a manual reset"
    )
    pause: PauseBody | None = Field(description="pause of the whole cluster: no move starts")
    zone_pauses: list[ZonePauseBody]


class PauseRequest(RequestBody):
    by: Person = Field(min_length=1, description="name recorded in the audit log and shown with the pause")
    reason: Reason = ""
    for_s: float | None = Field(
        None,
        gt=0,
        le=DAYS_MAX * 86_400,
        description="duration in seconds; null: until resumed",
    )


class PausesChange(RequestBody):
    """Limits that are given are set, null removes one, all others stay. A pause that is given replaces the
    current one. ``by`` and ``reason`` go into the audit log and into the history of the operations
    concerned."""

    by: Person | None = Field(
        None, description="name recorded in the audit log; null: the pause's, or that of the request's header"
    )
    reason: Reason = ""
    pause: PauseRequest | None = None
    zone_pauses: dict[str, PauseRequest | None] = Field(
        default_factory=dict, description="by zone name, as SQL reads it"
    )


LimitsBody = limits_model("LimitsBody", PausesBody, is_change=False)
if TYPE_CHECKING:
    LimitsChange = PausesChange
else:
    LimitsChange = limits_model("LimitsChange", PausesChange, is_change=True)


@router.get("/limits", response_model=LimitsBody, responses=documented(503))
async def get_limits(services: ServicesOf) -> Response:
    """Return the current limits and pauses. Pass the ``ETag`` in ``If-Match``."""
    limits, revision = await answered(services.limits.read())
    return await _shown(limits, revision, services)


@router.patch("/limits", response_model=LimitsBody, responses=documented(400, 404, 412, 503, 504))
async def change_limits(body: LimitsChange, services: ServicesOf, if_match: IfMatch = None) -> Response:
    """Change limits. Moves that start after this answer stay within them; running moves continue."""
    services.audit.require_reason(_said(body)[1])
    services.limits.check_reset_s(getattr(body, "ha_reset_s", None))
    catalog = await services.snapshot()
    living = {zone.zone_id for zone in catalog.zones}
    zones: dict[ZoneId, PauseRequest | None] = {}
    for name, request in body.zone_pauses.items():
        zones[(await services.zone(name)).zone_id] = request
    changed = partial(_changed, body=body, zones=zones, living=living, now_ms=utc_now_ms())
    expected = None if if_match is None else int(if_match.strip('"'))
    try:
        limits, revision = await answered(services.limits.change(changed, expected))
    except LimitsChangedError as error:
        raise RefusedError(ErrorKind.LIMITS_CHANGED, str(error)) from error
    await services.seen(revision)
    await _record(body, zones, services)
    return await _shown(limits, revision, services)


async def _record(body: LimitsChange, zones: Collection[ZoneId], services: Services) -> None:
    """Record the author and the reason, in the audit and with the operations concerned."""
    change = body.model_dump(exclude_unset=True, exclude={"by", "reason"})
    by, reason = _said(body)
    subject = ", ".join(body.zone_pauses) or "cluster"
    await services.audit.record(Action.CHANGE_LIMITS, subject, change, by=by, reason=reason)
    concerned = zones if set(change) == {"zone_pauses"} else None
    try:
        await services.operations.note_limits(concerned, current_actor().named(by).name, reason)
    except MetastoreError as error:
        # The limits hold, and the audit has who and why.
        log.warning("limits not noted with operations", by=by, reason=reason, error=str(error))


def _said(body: LimitsChange) -> tuple[str | None, str]:
    """The author and the reason of the change, else of its first pause."""
    pauses = [pause for pause in (body.pause, *body.zone_pauses.values()) if pause is not None]
    by = body.by or (pauses[0].by if pauses else None)
    return by, body.reason or (pauses[0].reason if pauses else "")


def _changed(
    limits: Limits,
    body: LimitsChange,
    zones: dict[ZoneId, PauseRequest | None],
    living: set[ZoneId],
    now_ms: int,
) -> Limits:
    """The limits with the change. Pauses that are over, and those of zones that are gone, are dropped."""
    names = [option.name for option in LIMIT_OPTIONS if option.name in body.model_fields_set]
    values: dict[str, Any] = {name: getattr(body, name) for name in names}
    if "windows" in values:
        values["windows"] = tuple(Window.parse(text) for text in values["windows"] or ())
    pauses = {
        zone: pause
        for zone, pause in limits.zone_pauses.items()
        if pause.holds(now_ms) and zone in living and zone not in zones
    }
    pauses |= {zone: _pause(request, now_ms) for zone, request in zones.items() if request is not None}
    pause = limits.pause if limits.pause is not None and limits.pause.holds(now_ms) else None
    if "pause" in body.model_fields_set:
        pause = None if body.pause is None else _pause(body.pause, now_ms)
    return replace(limits, **values, pause=pause, zone_pauses=pauses)


def _pause(request: PauseRequest, now_ms: int) -> Pause:
    until_ms = None if request.for_s is None else now_ms + max(1, round(request.for_s * 1_000))
    return Pause(current_actor().named(request.by).name, request.reason, now_ms, until_ms)


async def _shown(limits: Limits, revision: int, services: Services) -> Response:
    now_ms = utc_now_ms()
    catalog = await services.snapshot()
    zones, seen = [], seen_zones(catalog)
    for zone_id, pause in sorted(limits.zone_pauses.items()):
        zone = catalog.zone_with_id(zone_id)
        if zone is not None and pause.holds(now_ms) and (seen is None or zone_id in seen):
            zones.append({"zone": zone.name, "zone_id": zone_id, **_pause_body(pause)})
    whole = limits.pause
    body = {option.name: getattr(limits, option.name) for option in LIMIT_OPTIONS}
    body["windows"] = [str(window) for window in limits.windows]
    body["ha_reset_waits_for"] = nodes_behind(
        services.mirror, services.views.keyspace, limits, services.limits.node_lease_s
    )
    body |= {"pause": _pause_body(whole) if whole and whole.holds(now_ms) else None, "zone_pauses": zones}
    return JSONResponse(body, headers={"ETag": f'"{revision}"'})


def _pause_body(pause: Pause) -> dict[str, str | None]:
    until = None if pause.until_ms is None else utc(pause.until_ms)
    return {"by": pause.by, "reason": pause.reason, "since": utc(pause.since_ms), "until": until}
