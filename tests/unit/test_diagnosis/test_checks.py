"""Checks decide by their thresholds, and say what to do exactly where something is to be done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.diagnosis import checks
from app.diagnosis.checks import GIB, Check, CheckVerdict, worst

NOW = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)
DAY = timedelta(days=1)
OK, WARN, FAIL = CheckVerdict
KNOWN = ("0011", "0010", "0009")


DOWN = {
    "part": "nodes",
    "cause": "NODE_DOWN: node n2 is down",
    "severity": "ticket",
    "labels": {"node": "n2"},
    "since": "2026-01-01T00:00:00Z",
    "alert": "NodeDown",
}


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (checks.disk_space("/d", 5 * GIB, 10 * GIB), OK),
        (checks.disk_space("/d", 5 * GIB - 1, 10 * GIB), WARN),
        (checks.disk_space("/d", GIB - 1, 10 * GIB), FAIL),
        (checks.inodes("/d", 10, 100), OK),
        (checks.inodes("/d", 9, 100), WARN),
        (checks.inodes("/d", 1, 100), FAIL),
        (checks.inodes("/d", 0, 0), OK),
        (checks.fsync_time("/d", [0.001, 0.009, 0.5]), OK),
        (checks.fsync_time("/d", [0.001, 0.010, 0.5]), WARN),
        (checks.fsync_time("/d", [0.001, 0.1, 0.5]), FAIL),
        (checks.clock("etcd", 0.0), OK),
        (checks.clock("etcd", -0.5), WARN),
        (checks.clock("etcd", 5.0), FAIL),
        (checks.certificate("c", NOW - DAY, NOW + 30 * DAY, NOW, "renew"), OK),
        (checks.certificate("c", NOW - DAY, NOW + 29 * DAY, NOW, "renew"), WARN),
        (checks.certificate("c", NOW - DAY, NOW, NOW, "renew"), FAIL),
        (checks.certificate("c", NOW + DAY, NOW + 300 * DAY, NOW, "renew"), FAIL),
        (checks.open_files({"n1": (4_096, 3_000)}), OK),
        (checks.open_files({"up": (9_000, 1), "n1": (4_095, None)}), WARN),
        (checks.open_files({"up": (9_000, 1), "n1": (1_023, None)}), FAIL),
        (checks.open_files({"n1": (10_000, 8_000)}), WARN),
        (checks.open_files({"n1": (10_000, 9_500)}), FAIL),
        (checks.process_limit(None), OK),
        (checks.process_limit(4_095), WARN),
        (checks.process_limit(1_023), FAIL),
        (checks.python((3, 11, 0)), OK),
        (checks.python((3, 10, 9)), FAIL),
        (checks.java("17.0.15"), OK),
        (checks.java("", "Java 8 is too old"), WARN),
        (checks.etcd_version("etcd", "3.5.16"), OK),
        (checks.etcd_version("etcd", "3.5.1"), WARN),
        (checks.etcd_version("etcd", "unknown"), WARN),
        (checks.server_version("0.2.0", "0.2.0"), OK),
        (checks.server_version("0.3.0", "0.2.0"), WARN),
        (checks.etcd_size("e", 0.74 * GIB, 1, GIB), OK),
        (checks.etcd_size("e", 0.75 * GIB, 1, GIB), WARN),
        (checks.etcd_size("e", 0.9 * GIB, 1, GIB), FAIL),
        (checks.etcd_size("e", 1.4 * GIB, 1, 0), OK),
        (checks.etcd_alarms([]), OK),
        (checks.etcd_alarms(["NOSPACE of member 1"]), FAIL),
        (checks.node_leases(["n1"], {"n1": (2, 5)}), OK),
        (checks.node_leases(["n1"], {"n1": (1, 5)}), WARN),
        (checks.node_leases(["n1", "n2"], {"n1": (4, 5)}), FAIL),
        (checks.node_leases([], {}), FAIL),
        (checks.out_of_order(DOWN), WARN),
        (checks.out_of_order({**DOWN, "severity": "page"}), FAIL),
        (checks.catalog_schema("db", "0011", KNOWN), OK),
        (checks.catalog_schema("db", "0010", KNOWN), FAIL),
        (checks.catalog_schema("db", "0001", KNOWN), FAIL),
        (checks.catalog_schema("db", "", KNOWN), FAIL),
        (checks.catalog_schema("db", "0012", KNOWN), WARN),
    ],
    ids=lambda value: value.name if isinstance(value, CheckVerdict) else f"{value.name}: {value.value}",
)
def test_a_threshold_is_where_it_says(check: Check, verdict: CheckVerdict) -> None:
    assert check.verdict is verdict
    assert check.threshold
    assert bool(check.action) is (verdict is not OK)


@pytest.mark.parametrize(
    ("theirs", "asked", "answered", "expected"),
    [
        # A header of whole seconds that may be a second old says nothing of less than two.
        (0.0, 0.0, 0.1, 0.0),
        (0.0, 1.9, 1.9, 0.0),
        (0.0, 2.5, 2.6, -0.5),
        (3.0, 0.0, 0.5, 2.5),
        # A slow answer hides what it took.
        (3.0, 0.0, 3.5, 0.0),
    ],
)
def test_a_skew_is_the_least_that_the_clocks_allow(
    theirs: float, asked: float, answered: float, expected: float
) -> None:
    times = (NOW + timedelta(seconds=each) for each in (theirs, asked, answered))
    assert checks.skew_s(*times) == pytest.approx(expected)


def test_who_lacks_a_lease_or_is_down_is_named() -> None:
    leases = checks.node_leases(["n1", "n2"], {"n1": (4, 5), "n3": (0, 5)})
    assert leases.value == "n1 4 of 5 s, n2 none, n3 0 of 5 s"
    assert "logs of n2:" in leases.action


def test_what_the_server_finds_is_told_with_what_to_do() -> None:
    check = checks.out_of_order(DOWN)
    assert check.name == "nodes: NODE_DOWN n2"
    assert check.value == "node n2 is down (since 2026-01-01T00:00:00Z)"
    assert check.action.startswith("Start the node")


def test_the_action_of_a_schema_is_that_of_its_side() -> None:
    assert "zonectl migrate" in checks.catalog_schema("db", "0010", KNOWN).action
    assert "newer build" in checks.catalog_schema("db", "0012", KNOWN).action


def test_the_worst_counts() -> None:
    good, bad, ugly = (Check("", "", "", verdict) for verdict in CheckVerdict)
    assert worst([]) is OK
    assert worst([good, bad]) is WARN
    assert worst([ugly, good, bad]) is FAIL


def test_sizes_have_the_unit_that_fits() -> None:
    assert [checks.size(n) for n in (0, 1023, 2048, 3 << 20, 1.5 * GIB)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "3 MiB",
        "1.5 GiB",
    ]
