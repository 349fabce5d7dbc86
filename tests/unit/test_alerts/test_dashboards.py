"""The dashboards that ship, and the examples beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.alerts.alert_rows import ALERT_ROWS
from monitoring.grafana import COLUMNS
from monitoring.panel_rows import DASHBOARDS, Dashboard
from rebalance.ports.metric_rows import Metric, MetricType, Scope
from tests.fixtures.dashboard_queries import dashboard_queries
from tests.fixtures.promtool import METRICS, Promtool

FOLDER = Path(__file__).parents[3] / "monitoring"
ROWS = {metric.row.name: metric.row for metric in Metric}
QUERIES = [
    pytest.param(query.promql, id=f"{dashboard.uid}: {panel.title}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.mark.parametrize("promql", QUERIES)
def test_a_query_asks_for_metrics_and_labels_of_the_table(promql: str) -> None:
    names = set(re.findall(r"\bzonekeeper_\w+", promql))
    assert names
    assert names <= METRICS, names - METRICS
    labels = {label for name in names for label in labels_of(name)} | {"le", "instance"}
    named = {label.strip() for text in re.findall(r"by \(([^)]*)\)", promql) for label in text.split(",")}
    assert named <= labels
    assert set(re.findall(r"(\w+)[!=~]+\"", promql)) <= labels


def labels_of(name: str) -> tuple[str, ...]:
    return ROWS[re.sub(r"_(bucket|count|sum)$", "", name) if name not in ROWS else name].labels


@pytest.mark.parametrize("promql", QUERIES)
def test_what_every_server_says_is_not_summed(promql: str) -> None:
    """Two servers would double it."""
    for name in re.findall(r"\bzonekeeper_\w+", promql):
        if name in ROWS and ROWS[name].scope is Scope.INSTALLATION:
            assert re.search(rf"(max|min)[^+]*\(?{name}", promql), name
        if name in ROWS and ROWS[name].type is MetricType.COUNTER:
            assert re.search(rf"rate\({name}", promql), "a counter is shown as a rate"


def test_a_query_means_the_same_wherever_it_is_asked() -> None:
    """Queries have none of Grafana's variables, so that each can be tried without Grafana."""
    assert len(dashboard_queries()) == len(QUERIES)
    assert [query for query in dashboard_queries().values() if "$" in query] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboard_is_plain_json_whose_panels_do_not_overlap(dashboard: Dashboard) -> None:
    body: dict[str, Any] = json.loads((FOLDER / "dashboards" / f"{dashboard.uid}.json").read_text())
    assert [panel["title"] for panel in body["panels"]] == [panel.title for panel in dashboard.panels]
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in body["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < COLUMNS
        assert not cells & taken
        taken |= cells


def test_every_query_of_a_dashboard_is_one(tmp_path: Path, promtool: Promtool) -> None:
    """Prometheus parses them, as rules that record."""
    rules = [
        {"record": f"panel:{number}", "expr": str(query.values[0])} for number, query in enumerate(QUERIES)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", str(file))


def test_the_example_of_prometheus_is_accepted(promtool: Promtool) -> None:
    assert "valid prometheus config file" in promtool(
        "check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")
    )


def test_the_example_of_alertmanager_groups_as_the_webhook_does_and_names_alerts_that_exist() -> None:
    text = (FOLDER / "alertmanager.yml").read_text()
    body: dict[str, Any] = yaml.safe_load(text)
    assert body["route"]["group_by"] == ["group"]
    names = set(re.findall(r'alertname = "(\w+)"', text))
    assert names
    assert names <= {row.name for row in ALERT_ROWS}
    groups = {group for text in re.findall(r'group =~ "([^"]+)"', text) for group in text.split("|")}
    assert groups <= {row.group.value for row in ALERT_ROWS}
    receivers = {receiver["name"] for receiver in body["receivers"]}
    assert {body["route"]["receiver"], *(route["receiver"] for route in body["route"]["routes"])} <= receivers
