"""What is shown of alerts, and to whom: those of a zone to who may see the zone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.alerts.alert_rows import BY_NAME
from app.contract.alerts import AlertBody, SilenceBody
from catalog.core.zone import ZoneId
from rebalance.core.admission import utc
from rebalance.core.alert_silence import Silence
from rebalance.core.alert_state import Alert
from rebalance.core.operation import parse_operation_id


def alert_body(alert: Alert, silence: Silence | None = None) -> AlertBody:
    """``silence``: what holds it back."""
    row = BY_NAME[alert.name]
    return {
        "name": alert.name,
        "state": alert.state.value,
        "known": alert.is_known,
        "severity": row.severity.value,
        "group": row.group.value,
        "labels": dict(alert.labels),
        "text": alert.text,
        "since": utc(alert.since_ms),
        "starts_at": utc(alert.starts_ms) if alert.starts_ms else None,
        "ends_at": utc(alert.ends_ms) if alert.ends_ms else None,
        "fingerprint": alert.fingerprint,
        "runbook": row.page,
        "silence": silence_body(silence) if silence is not None else None,
    }


def silence_body(silence: Silence) -> SilenceBody:
    return {
        "silence_id": silence.silence_id,
        "alert": silence.name or None,
        "labels": dict(silence.labels),
        "since": utc(silence.since_ms),
        "until": utc(silence.until_ms),
        "by": silence.by,
        "reason": silence.reason,
    }


def seen_alerts(alerts: Iterable[Alert], zones: Mapping[str, ZoneId] | None) -> list[Alert]:
    """``zones``: those that who asks may see, by name; None: all, also those that are gone."""
    if zones is None:
        return list(alerts)
    ids = frozenset(zones.values())
    return [alert for alert in alerts if is_seen(dict(alert.labels), zones, ids)]


def is_seen(labels: Mapping[str, str], names: Collection[str], ids: Collection[ZoneId]) -> bool:
    """Whether what ``labels`` name is shown to somebody who may see these zones."""
    if "zone" in labels:
        return labels["zone"] in names
    operation = parse_operation_id(labels.get("operation", ""))
    return operation is None or operation[0] in ids
