"""``/api/v1/alerts``: what fires, and what is about to."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.actor import current_caller
from app.alerts.shown_alerts import alert_body, seen_alerts
from app.api.problems import answers
from app.contract.alerts import AlertBody, Alerts
from app.services import Services, ServicesOf
from catalog.core.errors import StoreError
from catalog.core.zone import ZoneId
from rebalance.core.admission import utc
from rebalance.core.alert_state import AlertState

router = APIRouter(prefix="/api/v1/alerts", tags=["health"])


@router.get("", **answers(Alerts))
async def list_alerts(services: ServicesOf) -> Response:
    """Alerts as this server judges them, and those that were resolved within 15 minutes. It answers without
    catalog and metastore, too. Alerts about a zone are shown to who may see it."""
    judged_ms = services.alerts.judged_ms
    judged_at = utc(judged_ms) if judged_ms else None
    return JSONResponse({"judged_at": judged_at, "alerts": await shown_alerts(services)})


async def shown_alerts(services: Services, state: AlertState | None = None) -> list[AlertBody]:
    """Of those that who asks may see; ``state``: only these, and of RESOLVED the last that ended."""
    alerts = services.alerts.ended if state is AlertState.RESOLVED else services.alerts.alerts
    seen = seen_alerts(alerts, await _zones(services))
    return [alert_body(alert) for alert in seen if state is None or alert.state is state]


async def _zones(services: Services) -> dict[str, ZoneId] | None:
    """Those that who asks may see, by name. While the catalog is away: none, unless nobody has to log in."""
    if current_caller() is None:
        return None
    try:
        seen = await services.seen_zones()
        zones = (await services.snapshot()).zones
    except StoreError:
        return {}
    return None if seen is None else {zone.name: zone.zone_id for zone in zones if zone.zone_id in seen}
