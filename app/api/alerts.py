"""``/api/v1/alerts``: alerts that are pending, fire or have ended; and silences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.alerts.shown_alerts import alert_body, is_seen, seen_alerts, silence_body
from app.alerts.silences import check_silenced
from app.api.bodies import Person, Reason, RequestBody, Whole
from app.api.problems import answers
from app.api.services import LoadedServices, Services, ServicesOf
from app.contract.health import (
    AlertBody,
    Alerts,
    AlertStateName,
    SilenceBegun,
    SilenceBody,
    SilenceEnded,
    SilenceList,
)
from app.core.alerts import FOR_S_MAX, AlertState, Labels, Silence, silence_of
from app.process.logs import utc_now_ms
from app.requests.context import current_actor, current_caller
from app.requests.errors import answered
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.names import NAME_CHARS_MAX
from catalog.core.visible import VISIBLE_PATTERN
from catalog.core.zone import ZoneId
from rebalance.controllers.operation_control import checked_id, not_found
from rebalance.core.admission.move_admission import utc

router = APIRouter(prefix="/api/v1/alerts", tags=["health"])

LabelName = Literal["node", "operation", "zone"]
LabelValue = Annotated[
    str, Field(min_length=1, max_length=NAME_CHARS_MAX, json_schema_extra={"pattern": VISIBLE_PATTERN})
]
SilenceId = Annotated[
    str,
    Path(description="id in the list of silences", pattern="^[0-9a-f]{16}$", examples=["5a3c0c62d6f1b8e4"]),
]


class SilenceRequest(RequestBody):
    alert: str | None = Field(
        None, max_length=NAME_CHARS_MAX, description="name of the alerts; null: any", examples=["NodeDown"]
    )
    labels: dict[LabelName, LabelValue] = Field(
        {},
        description="labels that the alerts must have; zones are named as in SQL",
        examples=[{"node": "n3"}],
    )
    for_s: Annotated[Whole, Field(ge=1, le=FOR_S_MAX)] = Field(description="duration in seconds")
    by: Person | None = Field(None, description="name recorded in the audit log")
    reason: Reason = ""


@router.get("", **answers(Alerts))
async def list_alerts(
    services: ServicesOf,
    state: Annotated[
        AlertStateName | None,
        Query(description="only alerts in this state; `resolved`: the last 100 that ended, newest first"),
    ] = None,
) -> Response:
    """List the alerts as this server judges them, and those resolved within 15 minutes. It answers without
    catalog and metastore, too. Alerts about a zone are shown only to users who may see it."""
    judged_ms = services.alerts.judged_ms
    judged_at = utc(judged_ms) if judged_ms else None
    alerts = await shown_alerts(services, None if state is None else AlertState(state))
    return JSONResponse({"judged_at": judged_at, "alerts": alerts})


async def shown_alerts(services: Services, state: AlertState | None = None) -> list[AlertBody]:
    """Alerts that the caller may see; ``state``: only those in it, and for RESOLVED the last that ended."""
    alerts = services.alerts.ended if state is AlertState.RESOLVED else services.alerts.alerts
    seen, silences = seen_alerts(alerts, await _zones(services)), services.alerts.silences.now()
    return [
        alert_body(alert, silence_of(alert, silences))
        for alert in seen
        if state is None or alert.state is state
    ]


@router.get("/silences", **answers(SilenceList, 503))
async def list_silences(services: LoadedServices) -> Response:
    """List the silences in force, with their ends and reasons. A silence of a zone's alerts is shown only to
    users who may see the zone."""
    return JSONResponse({"silences": await shown_silences(services)})


async def shown_silences(services: Services) -> list[SilenceBody]:
    """Silences in force that the caller may see."""
    zones = await _zones(services)
    silences = (silence for silence in services.alerts.silences.now() if _is_shown(silence.labels, zones))
    return [silence_body(silence) for silence in silences]


@router.post("/silences", status_code=201, **answers(SilenceBegun, 400, 404, 409, 503, 504))
async def silence_alerts(body: SilenceRequest, services: LoadedServices) -> Response:
    """Silence alerts for a time: they are listed as silenced, and are not sent. A silence of the same alerts
    gets a new end. A reason is required. Alerts of Prometheus's rules are silenced in its Alertmanager."""
    given = {str(label): value for label, value in body.labels.items()}
    check_silenced(body.alert, given)
    labels = await _labels(given, services)
    now_ms, actor = utc_now_ms(), current_actor().named(body.by)
    reason = body.reason.strip() or actor.reason.strip()
    if not reason:
        raise RefusedError(ErrorKind.REASON_REQUIRED, "a silence needs a reason")
    until_ms = now_ms + 1_000 * body.for_s
    asked = Silence(body.alert or "", labels, now_ms, until_ms, actor.name, reason)
    silence = await answered(services.alerts.silences.begin(asked))
    details = {"silence_id": silence.silence_id, "for_s": body.for_s}
    await services.audit.record(Action.SILENCE_ALERTS, silence.subject, details, by=body.by, reason=reason)
    going_on = (alert for alert in services.alerts.alerts if not alert.is_over and silence.covers(alert))
    held_back = seen_alerts(going_on, await _zones(services))
    begun: SilenceBegun = {**silence_body(silence), "alerts": len(held_back)}
    return JSONResponse(begun, 201)


@router.delete("/silences/{silence_id:segment}", **answers(SilenceEnded, 400, 404, 409, 503, 504))
async def end_silence(silence_id: SilenceId, services: LoadedServices) -> Response:
    """End a silence early. Alerts that still fire are sent again."""
    services.audit.require_reason()
    zones = await _zones(services)
    ended = await answered(
        services.alerts.silences.end(silence_id, lambda silence: _is_shown(silence.labels, zones))
    )
    if ended is not None:
        details = {"silence_id": silence_id}
        await services.audit.record(Action.UNSILENCE_ALERTS, ended.subject, details)
    body: SilenceEnded = {"silence_id": silence_id, "changed": ended is not None}
    return JSONResponse(body)


async def _labels(labels: Mapping[str, str], services: Services) -> Labels:
    """Labels in the form in which alerts have them. Raises RefusedError (ZONE_NOT_FOUND, OPERATION_NOT_FOUND,
    INVALID_REQUEST)."""
    named = {**labels}
    if "zone" in named:
        named["zone"] = (await services.zone(named["zone"])).name
    if "operation" in named:
        operation = checked_id(named["operation"])
        if not _is_shown((("operation", operation),), await _zones(services)):
            raise not_found(operation)
    return tuple(sorted(named.items()))


def _is_shown(labels: Labels, zones: Mapping[str, ZoneId] | None) -> bool:
    return zones is None or is_seen(dict(labels), zones, frozenset(zones.values()))


async def _zones(services: Services) -> dict[str, ZoneId] | None:
    """Zones that the caller may see, by name; None: all. While the catalog is away none, unless the server
    requires no login."""
    if current_caller() is None:
        return None
    try:
        seen = await services.seen_zones()
        zones = (await services.snapshot()).zones
    except StoreError:
        return {}
    return None if seen is None else {zone.name: zone.zone_id for zone in zones if zone.zone_id in seen}
