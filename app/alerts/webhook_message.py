"""Messages to the webhook, in the format of Alertmanager's webhook, version 4, and their signature.

Alerts of one group are one message: a node that is lost with 64 partitions of as many zones is told once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.alerts.alert_rows import BY_NAME, AlertGroup, Severity
from app.core.alert_state import Alert, AlertState

TIME_HEADER = "Zonekeeper-Timestamp"
SIGNATURE_HEADER = "Zonekeeper-Signature"
ALERTS_MAX = 100
"""Of one message; how many are left out is said."""
HEARTBEAT = AlertGroup.MONITORING.value
NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """``mark``: another one when the group has changed. ``is_firing`` False: all of it is resolved."""

    group: str
    mark: frozenset[tuple[str, str, int]]
    is_firing: bool
    document: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        return json.dumps(self.document, ensure_ascii=False, separators=(",", ":")).encode()


def messages(alerts: Iterable[Alert], url: str) -> list[WebhookMessage]:
    """One for each group that has alerts which fire or were resolved lately. ``url``: where the console is."""
    groups: dict[str, list[Alert]] = {}
    for alert in alerts:
        if alert.state is not AlertState.PENDING:
            groups.setdefault(BY_NAME[alert.name].group.value, []).append(alert)
    return [_message(group, together, url) for group, together in groups.items()]


def heartbeat(now_ms: int, url: str) -> WebhookMessage:
    """Whoever gets messages should miss it."""
    labels = {"alertname": "Watchdog", "severity": Severity.NONE.value, "group": HEARTBEAT}
    beat = {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "Zonekeeper can send alerts.", "runbook": "docs/runbook/Watchdog.md"},
        "startsAt": rfc3339(now_ms),
        "endsAt": NEVER,
        "generatorURL": url,
        "fingerprint": hashlib.sha256(b"Watchdog").hexdigest()[:16],
    }
    document = _document(HEARTBEAT, "firing", [beat], url, 0)
    return WebhookMessage(HEARTBEAT, frozenset(), True, document)


def _message(group: str, alerts: list[Alert], url: str) -> WebhookMessage:
    is_firing = any(not alert.is_over for alert in alerts)
    told = [_alert(alert, url) for alert in alerts[:ALERTS_MAX]]
    status = "firing" if is_firing else "resolved"
    mark = frozenset((alert.fingerprint, alert.state.value, alert.starts_ms) for alert in alerts)
    return WebhookMessage(group, mark, is_firing, _document(group, status, told, url, len(alerts) - len(told)))


def _document(group: str, status: str, alerts: list[dict[str, Any]], url: str, left_out: int) -> dict[str, Any]:
    return {
        "version": "4",
        "groupKey": f'{{}}:{{group="{group}"}}',
        "truncatedAlerts": left_out,
        "status": status,
        "receiver": "webhook",
        "groupLabels": {"group": group},
        "commonLabels": _common(alerts, "labels"),
        "commonAnnotations": _common(alerts, "annotations"),
        "externalURL": url,
        "alerts": alerts,
    }


def _alert(alert: Alert, url: str) -> dict[str, Any]:
    row = BY_NAME[alert.name]
    own = {"alertname": alert.name, "severity": row.severity.value, "group": row.group.value}
    return {
        "status": alert.state.value,
        "labels": {**own, **dict(alert.labels)},
        "annotations": {"summary": row.summary, "description": alert.text, "runbook": row.page},
        "startsAt": rfc3339(alert.starts_ms),
        "endsAt": rfc3339(alert.ends_ms) if alert.ends_ms else NEVER,
        "generatorURL": url,
        "fingerprint": alert.fingerprint,
    }


def _common(alerts: list[dict[str, Any]], field: str) -> dict[str, str]:
    first, *others = (alert[field] for alert in alerts)
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in others)}


def rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Over the time stamp, a full stop, and the body, so that an old message cannot be sent as a new one."""
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
