"""Rows of the view of alerts, as the server that answers judges them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from app.alerts.alert_rows import BY_NAME
from app.sql.view_registry import BOOLEAN, JSON, TIMESTAMP, VARCHAR, Row
from app.sql.view_snapshot import SystemSnapshot

ALERT_COLUMNS = {
    **dict.fromkeys(("ALERT_NAME", "STATE"), VARCHAR),
    "IS_KNOWN": BOOLEAN,
    **dict.fromkeys(("SEVERITY", "ALERT_GROUP"), VARCHAR),
    "LABELS": JSON,
    "DESCRIPTION": VARCHAR,
    **dict.fromkeys(("ACTIVE_SINCE", "STARTS_AT", "ENDS_AT"), TIMESTAMP),
    **dict.fromkeys(("FINGERPRINT", "RUNBOOK"), VARCHAR),
}


def alert_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    for alert in snapshot.alerts:
        row = BY_NAME[alert.name]
        yield (
            *(alert.name, alert.state.value, alert.is_known, row.severity.value, row.group.value),
            *(json.dumps(dict(alert.labels), ensure_ascii=False), alert.text),
            *(alert.since_ms, alert.starts_ms or None, alert.ends_ms or None),
            *(alert.fingerprint, row.page),
        )
