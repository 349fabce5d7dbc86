"""Write monitoring/rules and the runbook's index from the table of alerts and monitoring/dashboards from that
of panels; with --check, say whether they are as the tables have them (exit code 1: they are not)."""

from __future__ import annotations

from pathlib import Path

from app.alerts.alert_rows import ALERT_ROWS
from monitoring.grafana import document
from monitoring.panel_rows import DASHBOARDS
from monitoring.prometheus_rules import rules

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent


def runbook() -> str:
    """The index of the runbook, in Markdown."""
    rows = [
        f"| [{row.name}]({row.name}.md) | {row.severity.value} | {row.for_s} s | {row.summary} | {row.absent} |"
        for row in ALERT_ROWS
    ]
    return f"""# Runbook
<!-- Made by python -m monitoring from app/alerts; change the tables, not this file. -->

A page an alert: what it means, how to confirm, what to do, how to know that it is over. `<zone>`, `<node>` and
`<operation>` in commands are the alert's labels; other words in brackets come from the command before. `zonectl
alerts` lists what fires.

| Alert | Severity | Holds for | Says | While its series are absent |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


def files() -> dict[Path, str]:
    """Files that the tables make, by path."""
    dashboards = {FOLDER / "dashboards" / f"{each.uid}.json": document(each) for each in DASHBOARDS}
    return {
        **dashboards,
        FOLDER / "rules" / "zonekeeper.yml": rules(),
        ROOT / "docs" / "runbook" / "README.md": runbook(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
