"""The table of metrics keeps its rules, and its document is as it has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rebalance.core.keyspace.records import ProcessRole
from rebalance.core.moves.move_status import MoveState
from rebalance.ports.metric_rows import (
    BUCKETS_MAX,
    MOVE_BUCKETS_S,
    REQUEST_BUCKETS_S,
    ZONE_GAUGES_MAX,
    Metric,
    MetricType,
    Scope,
)
from scripts.metric_docs import PAGE, page

ROOT = Path(__file__).parents[3]
NAMES = (ROOT / "tests" / "data" / "metric_names.txt").read_text().split()
rows = pytest.mark.parametrize("metric", list(Metric), ids=lambda metric: metric.row.name)


@rows
def test_a_name_says_what_it_is(metric: Metric) -> None:
    row = metric.row
    assert re.fullmatch(r"zonekeeper_[a-z][a-z0-9_]*[a-z0-9]", row.name)
    assert row.name.endswith("_total") == (row.type is MetricType.COUNTER)
    assert not row.name.endswith(("_count", "_sum", "_bucket"))
    assert bool(row.buckets) == (row.type is MetricType.HISTOGRAM)
    assert row.unit == "seconds" or not row.buckets
    assert row.help.endswith(".")
    assert "|" not in row.help
    assert row.roles


@rows
def test_what_every_server_says_is_a_gauge_of_servers(metric: Metric) -> None:
    if metric.row.scope is Scope.INSTALLATION:
        assert metric.row.type is MetricType.GAUGE
        assert metric.row.roles == {ProcessRole.SERVER}


@rows
def test_the_error_is_a_label_of_counters_only(metric: Metric) -> None:
    if "code" in metric.row.labels or "status" in metric.row.labels:
        assert metric.row.type is MetricType.COUNTER


def test_no_name_means_two_things() -> None:
    names = [metric.row.name for metric in Metric]
    assert len(set(names)) == len(names) == len(Metric)


def test_there_are_two_families_of_buckets() -> None:
    assert {metric.row.buckets for metric in Metric} == {(), REQUEST_BUCKETS_S, MOVE_BUCKETS_S}
    for buckets in (REQUEST_BUCKETS_S, MOVE_BUCKETS_S):
        assert len(buckets) <= BUCKETS_MAX
        assert list(buckets) == sorted(set(buckets))
    assert (REQUEST_BUCKETS_S[0], REQUEST_BUCKETS_S[-1]) == (0.001, 10)
    assert (MOVE_BUCKETS_S[0], MOVE_BUCKETS_S[-1]) == (1, 24 * 3_600)


def test_a_zone_has_few_series_and_all_are_gauges() -> None:
    of_zones = [metric.row for metric in Metric if "zone" in metric.row.labels]
    assert {row.type for row in of_zones} == {MetricType.GAUGE}
    assert sum(len(MoveState) if "state" in row.labels else 1 for row in of_zones) <= ZONE_GAUGES_MAX


def test_the_document_is_as_the_table_has_it() -> None:
    """``python scripts/metric_docs.py`` writes it."""
    assert PAGE.read_text() == page()


def test_a_name_that_goes_is_in_the_changelog() -> None:
    """``tests/data/metric_names.txt`` only grows: dashboards and rules of others have these names."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    names = {metric.row.name for metric in Metric}
    assert names <= set(NAMES), f"add to tests/data/metric_names.txt: {sorted(names - set(NAMES))}"
    gone = [name for name in NAMES if name not in names and name not in changelog]
    assert not gone, f"renamed or removed without an entry in CHANGELOG.md: {gone}"
