"""Rules for Prometheus, as text, from the table: JSON's strings are YAML's, so that nothing needs to be quoted
twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from app.alerts.alert_rows import ALERT_ROWS, AlertRow

HEADER = "# Made by `python -m monitoring` from app/alerts: change the table, not this file.\n"
WINDOW = re.compile(r"\[(\d+)([smh])\]")
UNIT_S = {"s": 1, "m": 60, "h": 3_600}
WINDOW_LEAST_S = 5


def rules(divisor: float = 1.0) -> str:
    """A file of rules. ``divisor`` shortens every time alike, for trials; thresholds stay."""
    lines = [HEADER + "groups:"]
    for group in dict.fromkeys(row.group for row in ALERT_ROWS):
        lines += [f"- name: zonekeeper-{group.value}", "  rules:"]
        for row in ALERT_ROWS:
            if row.group is group:
                lines += _rule(row, divisor)
    return "\n".join(lines) + "\n"


def _rule(row: AlertRow, divisor: float) -> Iterator[str]:
    yield f"  - alert: {row.name}"
    yield f"    expr: {json.dumps(shortened(row.promql, divisor))}"
    if row.for_s:
        yield f"    for: {round(row.for_s * 1_000 / divisor)}ms" if divisor > 1 else f"    for: {row.for_s}s"
    yield "    labels:"
    yield f"      severity: {json.dumps(row.severity.value)}"
    yield f"      group: {row.group.value}"
    yield "    annotations:"
    yield f"      summary: {json.dumps(row.summary)}"
    if row.label:
        yield f"      description: {json.dumps(f'{row.label} {{{{ $labels.{row.label} }}}}: {{{{ $value }}}}')}"
    yield f"      runbook: {json.dumps(row.page)}"


def shortened(promql: str, divisor: float) -> str:
    """The query with every window divided, but none shorter than a few scrapes need."""
    if divisor <= 1:
        return promql

    def window(match: re.Match[str]) -> str:
        seconds = int(match[1]) * UNIT_S[match[2]] / divisor
        return f"[{max(round(seconds), WINDOW_LEAST_S)}s]"

    return WINDOW.sub(window, promql)
