"""A dashboard as Grafana imports it: plain JSON, the same for the same table."""

from __future__ import annotations

import json
from typing import Any

from monitoring.panel_rows import Dashboard, Panel

SCHEMA_VERSION = 39
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
NUMBER_SIZE = (4, 4)
LINES_SIZE = (8, 8)
"""Width and height in Grafana's grid."""


def document(dashboard: Dashboard) -> str:
    """The file's text."""
    body = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["zonekeeper"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["zonekeeper"], "title": "Zonekeeper", "asDropdown": True}],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": _placed(dashboard.panels),
    }
    return json.dumps(body, indent=1) + "\n"


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Place panels in the order of the table, from left to right; another height begins a line of its own."""
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        width, own_height = NUMBER_SIZE if panel.is_number else LINES_SIZE
        if x + width > COLUMNS or (height and own_height != height):
            x, y, height = 0, y + height, 0
        height = own_height
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": own_height}))
        x += width
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + at),
            "expr": query.promql,
            "legendFormat": query.legend,
            "datasource": SOURCE,
        }
        for at, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit.value}, "overrides": []},
        "targets": targets,
    }
