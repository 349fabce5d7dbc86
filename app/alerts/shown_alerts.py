"""Alerts as they are shown, and to whom: those of a zone to users who may see the zone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.alerts.alert_rows import BY_NAME
from app.contract.columns import Facts, body_of
from app.contract.health import AlertBody, SilenceBody
from app.core.alerts import Alert, Silence
from catalog.core.zone import ZoneId
from rebalance.core.operations.operation import parse_operation_id


def alert_body(alert: Alert, silence: Silence | None = None) -> AlertBody:
    """``silence``: what holds it back."""
    return body_of(AlertBody, alert_facts(alert, silence))


def alert_facts(alert: Alert, silence: Silence | None = None) -> Facts:
    row = BY_NAME[alert.name]
    values = {
        "severity": row.severity,
        "group": row.group,
        "starts_at": alert.starts_ms or None,
        "ends_at": alert.ends_ms or None,
        "runbook": row.page,
        "silence": silence_body(silence) if silence is not None else None,
    }
    return Facts(alert, values)


def silence_body(silence: Silence) -> SilenceBody:
    return body_of(SilenceBody, Facts(silence))


def seen_alerts(alerts: Iterable[Alert], zones: Mapping[str, ZoneId] | None) -> list[Alert]:
    """``zones``: those that the caller may see, by name; None: all, also those that are gone."""
    if zones is None:
        return list(alerts)
    ids = frozenset(zones.values())
    return [alert for alert in alerts if is_seen(dict(alert.labels), zones, ids)]


def is_seen(labels: Mapping[str, str], names: Collection[str], ids: Collection[ZoneId]) -> bool:
    """Check that the zone or the operation named by ``labels``, if there is one, is of a zone that the user may
    see. ``names`` and ``ids`` are those of such zones."""
    if "zone" in labels:
        return labels["zone"] in names
    operation = parse_operation_id(labels.get("operation", ""))
    return operation is None or operation[0] in ids
