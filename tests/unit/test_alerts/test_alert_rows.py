"""The table of alerts, and what holds when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.alerts.alert_rows import BY_NAME, LEVEL_ROWS, STALE_S, findings_of, for_ms
from app.alerts.conditions import CERTIFICATE_S, RELAY_LATE_S
from app.alerts.facts import InstallationFacts
from rebalance.core.alert_state import Findings

ROOT = Path(__file__).parents[3]
NOTHING: dict[str, Findings | None] = {name: {} for name in BY_NAME}
WELL = InstallationFacts(controller="c1", certificate_s=CERTIFICATE_S)

FAULTS: dict[str, tuple[dict[str, Any], Findings]] = {
    "PartitionWithoutMajority": (
        {"without_majority": {"ORDERS": 64, "SALES": 1, "WELL": 0}},
        {
            (("zone", "ORDERS"),): "64 partitions without a majority of voters in zone ORDERS",
            (("zone", "SALES"),): "1 partition without a majority of voters in zone SALES",
        },
    ),
    "NodeDown": ({"absent_nodes": {"n3": 2}}, {(("node", "n3"),): "2 replicas not served by node n3"}),
    "DiskFull": (
        {"full_disks": {"n1": 1}, "full_nodes": frozenset({"n1", "n2"})},
        {
            (("node", "n1"),): "1 member ended because the disk is full on node n1",
            (("node", "n2"),): "the disk of node n2 is full",
        },
    ),
    "NoController": ({"controller": None}, {(): "no controller leads: nothing is placed or moved"}),
    "SparkAway": (
        {"spark": "starting", "spark_message": "no Java"},
        {(): "placements are computed without Spark, which is starting: no Java"},
    ),
    "MetastoreUnreachable": (
        {"metastore": "no answer within 2 s"},
        {(): "the metastore does not answer: no answer within 2 s"},
    ),
    "MetastoreSpace": ({"metastore_full": "NOSPACE"}, {(): "etcd refuses writes for want of space: NOSPACE"}),
    "Divergence": ({"divergence": "etcd went back"}, {(): "nothing is written: etcd went back"}),
    "MoveStuck": (
        {"stuck_moves": {"7-12": 660.0}},
        {(("operation", "7-12"),): "operation 7-12 has made no progress for 11 minutes"},
    ),
    "RelayLag": (
        {"relay_lag_s": RELAY_LATE_S},
        {(): "a catalog version has waited for 30 s to be published"},
    ),
    "CatalogUnreachable": ({"catalog": "OSError: x"}, {(): "the catalog does not answer: OSError: x"}),
    "CertificateExpires": (
        {"certificate_s": CERTIFICATE_S - 1},
        {(): "the certificate of the API ends in 7 days"},
    ),
}


def test_there_are_at_most_twelve_level_conditions_and_each_is_tried_here() -> None:
    assert len(LEVEL_ROWS) <= 12
    assert FAULTS.keys() == BY_NAME.keys()


def test_nothing_holds_in_an_installation_that_is_well() -> None:
    assert findings_of(WELL) == NOTHING


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_its_own_condition_and_no_other(name: str) -> None:
    change, findings = FAULTS[name]
    assert findings_of(replace(WELL, **change)) == {**NOTHING, name: findings}


@pytest.mark.parametrize(
    "change",
    [
        {"spark": ""},
        {"relay_lag_s": RELAY_LATE_S - 1},
        {"certificate_s": None},
        {"mirror_age_s": STALE_S},
    ],
)
def test_what_is_ordinary_is_no_alert(change: dict[str, Any]) -> None:
    assert findings_of(replace(WELL, **change)) == NOTHING


def test_what_the_mirror_says_is_unknown_once_it_is_old() -> None:
    """What a server knows without it is known all the same."""
    found = findings_of(replace(WELL, controller=None, mirror_age_s=STALE_S + 1, metastore="silent"))
    assert {name for name, findings in found.items() if findings is not None} == {
        "MetastoreUnreachable",
        "CatalogUnreachable",
        "CertificateExpires",
        "RelayLag",
    }
    assert found["MetastoreUnreachable"]


def test_an_expired_certificate_is_said_to_have() -> None:
    assert findings_of(replace(WELL, certificate_s=-5.0))["CertificateExpires"] == {
        (): "the certificate of the API has expired"
    }


@pytest.mark.parametrize("row", LEVEL_ROWS, ids=lambda row: row.name)
def test_labels_are_those_that_the_row_names(row: Any) -> None:
    labels = {name for labels in FAULTS[row.name][1] for name, _ in labels}
    assert labels == ({row.label} if row.label else set())


def test_a_divisor_shortens_all_times_alike() -> None:
    assert (for_ms("NodeDown"), for_ms("NodeDown", 30)) == (120_000, 4_000)
