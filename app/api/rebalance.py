"""``/api/v1/rebalance/limits``: how many partitions may move at once, and pauses."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, Field

from app.actor import current_actor
from app.api.bodies import Person, Reason, RequestBody, Whole
from app.api.metastore_calls import answered
from app.api.problems import documented
from app.services import Services, ServicesOf
from app.views.reset_waits import nodes_behind
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.limits import LimitsChangedError
from rebalance.core.admission import CAPS, COPY_RULES, RATES, RESET_RULES, Limits, Pause, utc
from rebalance.core.windows import WINDOWS_MAX, Window
from rebalance.ports.metastore import MetastoreError

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api/v1/rebalance", tags=["rebalance"])

DAYS_MAX = 366
SWITCHES = ("one_operation", "rebalancing", "keep_copies")
SETTINGS = (*CAPS, *SWITCHES, "operation_s", *COPY_RULES, *RATES, *RESET_RULES)
SEEN_S = 2.0
"""An answer waits so long for the server to see what was written."""

Cap = Annotated[Whole | None, Field(ge=1, le=2_147_483_647, description="null: any number")]


ResetTime = Annotated[
    Whole | None,
    Field(le=2_147_483_647, description="from nodes' leases and 4 s on; null: 10, or that where it is more"),
]


def _window(text: str) -> str:
    """As it is stored. Raises ValueError."""
    return str(Window.parse(text))


WindowText = Annotated[str, Field(max_length=60), AfterValidator(_window)]

Rate = Annotated[Whole | None, Field(ge=1, le=1 << 50, description="null: any rate")]

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=r'^"?[0-9]{1,18}"?$',
        description="the ETag of the limits that were read: when they were changed since, nothing is (412)",
    ),
]


class PauseBody(BaseModel):
    by: str
    reason: str
    since: str = Field(description="UTC")
    until: str | None = Field(description="UTC; null: until somebody resumes")


class ZonePauseBody(PauseBody):
    zone: str
    zone_id: int


class LimitsBody(BaseModel):
    """Moves that may run at once. What would begin beyond that waits, and says what for."""

    cluster_moves: Cap = Field(description="partitions that move at once, in the whole cluster")
    zone_moves: Cap = Field(description="in each zone")
    donor_moves: Cap = Field(description="away from each node")
    receiver_moves: Cap = Field(description="onto each node")
    batch_size: Cap = Field(description="a zone's moves begin so many at a time, the next when none is left")
    one_operation: bool = Field(description="moves of one operation begin at a time, the next one's wait")
    operation_s: Cap = Field(description="seconds that an operation may take, then it has FAILED")
    rebalancing: bool = Field(description="false: what would move data is refused; what moves goes on")
    keep_copies: bool = Field(
        description="nodes keep the copies of members that leave, until their operation is finalised"
    )
    copy_attempts: Cap = Field(
        description="attempts at a copy that may fail before its partition is told as failed; null: 3"
    )
    copy_s: Cap = Field(description="seconds that a copy may take, then the attempt has failed; null: ten days")
    joiner_s: Cap = Field(
        description="seconds that a node may be gone which is to get a copy, then its move goes on without it; "
        "null: 60"
    )
    ha_reset_s: ResetTime = Field(
        description="seconds that a partition of a HIGH_AVAILABILITY zone must have lost its majority before "
        "it is founded anew; null: 10"
    )
    ha_reset_waits_for: list[str] = Field(
        description="living nodes that have not published yet that they keep to `ha_reset_s`: partitions that "
        "lose them wait longer, or for a reset by hand"
    )
    cluster_bytes_s: Rate = Field(description="bytes a second of copies that begin, in the whole cluster")
    node_bytes_s: Rate = Field(description="the same, onto and away from each node")
    windows: list[str] = Field(
        description="moves begin while one is open, UTC: 22:00-04:00, Sat,Sun 00:00-24:00; empty: always"
    )
    pause: PauseBody | None = Field(description="of the whole cluster: no move begins")
    zone_pauses: list[ZonePauseBody]


class PauseRequest(RequestBody):
    by: Person = Field(min_length=1, description="who pauses, to be asked")
    reason: Reason = ""
    for_s: float | None = Field(
        None, gt=0, le=DAYS_MAX * 86_400, description="ends by itself after so many seconds; null: never"
    )


class LimitsChange(RequestBody):
    """What is named is set, null takes it away, the rest stays. A pause that is named begins anew. ``by`` and
    ``reason`` go into the audit and into the history of the operations that it concerns."""

    by: Person | None = Field(
        None, description="who asks, where no proxy says; null: the pause's, or the header's"
    )
    reason: Reason = ""

    cluster_moves: Cap = None
    zone_moves: Cap = None
    donor_moves: Cap = None
    receiver_moves: Cap = None
    batch_size: Cap = None
    one_operation: bool = False
    operation_s: Cap = None
    rebalancing: bool = True
    keep_copies: bool = False
    copy_attempts: Cap = None
    copy_s: Cap = None
    joiner_s: Cap = None
    ha_reset_s: ResetTime = None
    cluster_bytes_s: Rate = None
    node_bytes_s: Rate = None
    windows: list[WindowText] | None = Field(None, max_length=WINDOWS_MAX)
    pause: PauseRequest | None = None
    zone_pauses: dict[str, PauseRequest | None] = Field(
        default_factory=dict, description="by zone name, exactly or as SQL reads it unquoted"
    )


@router.get("/limits", response_model=LimitsBody, responses=documented(503))
async def get_limits(services: ServicesOf) -> Response:
    """The limits now; pauses that have ended are left out. ``ETag`` is for ``If-Match``."""
    limits, revision = await answered(services.limits.read())
    return await _shown(limits, revision, services)


@router.patch("/limits", response_model=LimitsBody, responses=documented(400, 404, 412, 503, 504))
async def change_limits(body: LimitsChange, services: ServicesOf, if_match: IfMatch = None) -> Response:
    """Change some of the limits, while moves run. From this answer on no move begins against them; what moves
    goes on."""
    services.limits.check_reset_s(body.ha_reset_s)
    zones = {(await services.zones.find(name)).zone_id: pause for name, pause in body.zone_pauses.items()}
    living = {zone.zone_id for zone in (await services.snapshot()).zones}
    now_ms = time.time_ns() // 1_000_000

    def changed(limits: Limits) -> Limits:
        return _changed(limits, body, zones, living, now_ms)

    expected = None if if_match is None else int(if_match.strip('"'))
    try:
        limits, revision = await answered(services.limits.change(changed, expected))
    except LimitsChangedError as error:
        raise RefusedError(ErrorKind.LIMITS_CHANGED, str(error)) from error
    await services.mirror.wait_until(lambda: services.mirror.revision >= revision, SEEN_S)
    await _record(body, zones, services)
    return await _shown(limits, revision, services)


async def _record(body: LimitsChange, zones: Collection[ZoneId], services: Services) -> None:
    """Who and why, in the audit and with the operations that it concerns."""
    asked = body.model_dump(exclude_unset=True, exclude={"by", "reason"})
    pauses = [each for each in (body.pause, *body.zone_pauses.values()) if each is not None]
    by = body.by or (pauses[0].by if pauses else None)
    reason = body.reason or (pauses[0].reason if pauses else "")
    subject = ", ".join(body.zone_pauses) or "cluster"
    await services.audit.record(Action.CHANGE_LIMITS, subject, asked, by=by, reason=reason)
    concerned = zones if set(asked) == {"zone_pauses"} else None
    try:
        await services.operations.note_limits(concerned, current_actor().named(by).name, reason)
    except MetastoreError as error:
        # The limits hold, and the audit has who and why.
        log.warning("limits not noted with operations", by=by, reason=reason, error=str(error))


def _changed(
    limits: Limits,
    body: LimitsChange,
    zones: dict[ZoneId, PauseRequest | None],
    living: set[ZoneId],
    now_ms: int,
) -> Limits:
    """Pauses that are over, and those of zones that are gone, are left out of what is stored."""
    caps: dict[str, Any] = {name: getattr(body, name) for name in SETTINGS if name in body.model_fields_set}
    if "windows" in body.model_fields_set:
        caps["windows"] = tuple(Window.parse(text) for text in body.windows or ())
    pauses = {
        zone: pause
        for zone, pause in limits.zone_pauses.items()
        if pause.holds(now_ms) and zone in living and zone not in zones
    }
    pauses |= {zone: _pause(asked, now_ms) for zone, asked in zones.items() if asked is not None}
    pause = limits.pause if limits.pause is not None and limits.pause.holds(now_ms) else None
    if "pause" in body.model_fields_set:
        pause = None if body.pause is None else _pause(body.pause, now_ms)
    return replace(limits, **caps, pause=pause, zone_pauses=pauses)


def _pause(asked: PauseRequest, now_ms: int) -> Pause:
    until_ms = None if asked.for_s is None else now_ms + max(1, round(asked.for_s * 1_000))
    return Pause(asked.by, asked.reason, now_ms, until_ms)


async def _shown(limits: Limits, revision: int, services: Services) -> Response:
    now_ms = time.time_ns() // 1_000_000
    catalog = await services.snapshot()
    zones = []
    for zone_id, pause in sorted(limits.zone_pauses.items()):
        zone = catalog.zone_with_id(zone_id)
        if zone is not None and pause.holds(now_ms):
            zones.append({"zone": zone.name, "zone_id": zone_id, **_told(pause)})
    whole = limits.pause
    body = {name: getattr(limits, name) for name in SETTINGS}
    body["windows"] = [str(window) for window in limits.windows]
    body["ha_reset_waits_for"] = nodes_behind(
        services.mirror, services.views.keyspace, limits, services.limits.node_lease_s
    )
    body |= {"pause": _told(whole) if whole and whole.holds(now_ms) else None, "zone_pauses": zones}
    return JSONResponse(body, headers={"ETag": f'"{revision}"'})


def _told(pause: Pause) -> dict[str, str | None]:
    until = None if pause.until_ms is None else utc(pause.until_ms)
    return {"by": pause.by, "reason": pause.reason, "since": utc(pause.since_ms), "until": until}
