"""The rules for Prometheus, with its own promtool: each alert fires, does not, is resolved, and without
series."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.alerts.alert_rows import ALERT_ROWS, PUT_S, STATEMENT_S, AlertRow
from monitoring.__main__ import files
from monitoring.prometheus_rules import rules
from rebalance.ports.metric_rows import REQUEST_BUCKETS_S
from tests.fixtures.alert_series import CASES, OTHER_CASES, Case, Series, absent_test, unit_test
from tests.fixtures.promtool import METRICS, Promtool

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "monitoring" / "rules" / "zonekeeper.yml"
BY_NAME = {row.name: row for row in ALERT_ROWS}
WITHOUT_SERIES = {"NoServer", "Watchdog"}


Trial = Callable[[list[dict[str, object]]], None]


@pytest.fixture
def try_out(promtool: Promtool, tmp_path: Path) -> Trial:
    def run(tests: list[dict[str, object]]) -> None:
        file = tmp_path / "test.yml"
        file.write_text(
            json.dumps({"rule_files": [str(SHIPPED)], "evaluation_interval": "15s", "tests": tests})
        )
        promtool("test", "rules", str(file))

    return run


def test_the_files_that_ship_are_what_the_tables_say() -> None:
    """``python -m monitoring`` writes them."""
    assert [path for path, text in files().items() if path.read_text() != text] == []


def test_prometheus_accepts_the_rules_as_they_ship_and_shortened(promtool: Promtool, tmp_path: Path) -> None:
    assert f"{len(ALERT_ROWS)} rules found" in promtool("check", "rules", str(SHIPPED))
    short = tmp_path / "short.yml"
    short.write_text(rules(30))
    assert f"{len(ALERT_ROWS)} rules found" in promtool("check", "rules", str(short))
    assert "for: 2000ms" in short.read_text()


@pytest.mark.parametrize("row", ALERT_ROWS, ids=lambda row: row.name)
def test_an_alert_asks_for_metrics_of_the_table_alone(row: AlertRow) -> None:
    names = set(re.findall(r"\bzonekeeper_\w+", row.promql))
    assert names <= METRICS, names - METRICS


def test_thresholds_of_objectives_are_boundaries_of_buckets() -> None:
    assert {float(STATEMENT_S), float(PUT_S)} <= set(REQUEST_BUCKETS_S)


def test_each_alert_has_its_series() -> None:
    assert CASES.keys() | WITHOUT_SERIES == BY_NAME.keys()


def test_each_alert_fires_after_its_time_and_is_resolved(try_out: Trial) -> None:
    cases = (*CASES.items(), *OTHER_CASES)
    try_out([unit_test(BY_NAME[name], case) for name, case in cases])


def test_without_series_nothing_fires_but_what_is_about_that(try_out: Trial) -> None:
    tests = [absent_test(row, is_firing=row.name in WITHOUT_SERIES) for row in ALERT_ROWS]
    try_out(tests)
    assert all(row.absent for row in ALERT_ROWS)


@pytest.mark.parametrize("name", ["NodeDown", "StatementLatency"])
def test_an_alert_that_does_not_fire_where_it_should_is_found(name: str, try_out: Trial) -> None:
    """A case whose series are well makes the trial fail, which the two tests above rely on."""
    well = tuple(replace(series, ill=series.well) for series in CASES[name].series)
    with pytest.raises(AssertionError, match=r"got:\[\]"):
        try_out([unit_test(BY_NAME[name], replace(CASES[name], series=well))])


def test_a_server_that_is_scraped_ends_the_alarm_that_there_is_none(try_out: Trial) -> None:
    series = Series('zonekeeper_build_info{role="server"}', 1, 1)
    test = absent_test(BY_NAME["NoServer"], is_firing=False)
    try_out([{**test, "input_series": [{"series": series.name, "values": series.values(480, 1, 1)}]}])


@pytest.mark.parametrize("name", ["StatementFailures", "PutFailures"])
def test_a_few_requests_say_nothing_however_many_of_them_fail(name: str, try_out: Trial) -> None:
    """48 in the long window of six hours; all of them fail."""
    case = CASES[name]
    series = tuple(Series(each.name, 0, 0.03 if "failed" in each.name else 0, True) for each in case.series)
    with pytest.raises(AssertionError, match=r"got:\[\]"):
        try_out([unit_test(BY_NAME[name], Case(series, ill_s=21_600))])


@pytest.mark.parametrize("name", ["StatementFailures", "PutFailures"])
def test_a_users_mistake_is_no_failure(name: str, try_out: Trial) -> None:
    case = CASES[name]
    series = tuple(Series(each.name, 10, 100 if "refused" in each.name else 10, True) for each in case.series)
    only_refused = tuple(each for each in series if "failed" not in each.name)
    with pytest.raises(AssertionError, match=r"got:\[\]"):
        try_out([unit_test(BY_NAME[name], Case(only_refused, ill_s=3_600))])
