"""Scrapes say what a process has measured, in a form that Prometheus's own checker accepts."""

from __future__ import annotations

import pytest

from app.metrics.exposition import COUNTER_SERIES_MAX, Exposition
from rebalance.core.keyspace.records import ProcessRole
from rebalance.ports.metric_rows import Metric, MetricType
from tests.fixtures.promtool import Promtool
from tests.fixtures.scraped import samples, text, value


def measured_once(exposition: Exposition) -> None:
    """Every metric has a series."""
    for metric in Metric:
        labels = tuple(f"{label} of nobody" for label in metric.row.labels)
        if metric.row.type is MetricType.COUNTER:
            exposition.count(metric, *labels)
        elif metric.row.type is MetricType.GAUGE:
            exposition.set(metric, 1, *labels)
        else:
            exposition.observe(metric, 0.3, *labels)


def test_counters_add_gauges_stay_and_histograms_sort() -> None:
    exposition = Exposition((ProcessRole.SERVER,))
    for _ in range(2):
        exposition.count(Metric.RELAY_ROWS, by=3)
        exposition.set(Metric.MIRROR_KEYS, 7)
        exposition.observe(Metric.PUT_SECONDS, 0.02, "ok")
    assert value(exposition, "zonekeeper_relay_rows_total") == 6
    assert value(exposition, "zonekeeper_mirror_keys") == 7
    assert value(exposition, "zonekeeper_put_seconds_bucket", outcome="ok", le="0.01") == 0
    assert value(exposition, "zonekeeper_put_seconds_bucket", outcome="ok", le="0.025") == 2
    assert value(exposition, "zonekeeper_put_seconds_count", outcome="ok") == 2


def test_a_gauge_that_nobody_has_set_is_absent() -> None:
    exposition = Exposition((ProcessRole.SERVER,))
    assert value(exposition, "zonekeeper_spark_up") is None
    exposition.set(Metric.SPARK_UP, 0)
    assert value(exposition, "zonekeeper_spark_up") == 0


def test_series_that_are_replaced_go() -> None:
    exposition = Exposition((ProcessRole.SERVER,))
    exposition.replace(Metric.NODE_UP, [(("n1",), 1), (("n2",), 0)])
    exposition.replace(Metric.NODE_UP, [(("n2",), 1)])
    assert value(exposition, "zonekeeper_node_up", node="n1") is None
    assert value(exposition, "zonekeeper_node_up", node="n2") == 1


def test_a_process_says_what_its_roles_say() -> None:
    node = Exposition((ProcessRole.NODE,), "1.2.3")
    measured_once(node)
    said = {name for name, _ in samples(node)}
    assert "zonekeeper_copied_bytes_total" in said
    assert "zonekeeper_statements_total" not in said
    assert value(node, "zonekeeper_build_info", role="node", version="1.2.3") == 1


def test_labels_without_end_become_one_series() -> None:
    exposition = Exposition((ProcessRole.SERVER,))
    for number in range(COUNTER_SERIES_MAX + 100):
        exposition.count(Metric.REFUSALS, f"code {number}")
    assert value(exposition, "zonekeeper_refusals_total", code="_other") == 100
    assert value(exposition, "zonekeeper_refusals_total", code="code 7") == 1


def test_a_probe_that_fails_costs_its_own_gauges_only() -> None:
    exposition = Exposition((ProcessRole.SERVER,))

    def broken() -> None:
        raise RuntimeError("the metastore is gone")

    exposition.ask(broken)
    exposition.ask(lambda: exposition.set(Metric.MIRROR_KEYS, 1))
    assert value(exposition, "zonekeeper_mirror_keys") == 1


def test_a_scrape_tells_of_the_one_before() -> None:
    exposition = Exposition((ProcessRole.SERVER,))
    first = len(samples(exposition))
    assert value(exposition, "zonekeeper_series") == first
    assert samples(exposition)["zonekeeper_scrape_seconds", frozenset()] > 0


def test_nothing_tells_when_a_series_began() -> None:
    exposition = Exposition(ProcessRole)
    measured_once(exposition)
    assert not [name for name, _ in samples(exposition) if name.endswith("_created")]


@pytest.mark.parametrize("roles", [(role,) for role in ProcessRole] + [tuple(ProcessRole)])
def test_promtool_accepts_what_every_process_says(promtool: Promtool, roles: tuple[ProcessRole, ...]) -> None:
    exposition = Exposition(roles, "1.2.3")
    measured_once(exposition)
    said = promtool("check", "metrics", given=text(exposition).decode())
    assert [line for line in said.splitlines() if "zonekeeper_" in line] == []
