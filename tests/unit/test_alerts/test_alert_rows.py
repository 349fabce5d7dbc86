"""The table of alerts, and what holds when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.alerts.alert_rows import BY_NAME, LEVEL_ROWS, LEVEL_ROWS_MAX, STALE_S, findings_of, for_ms
from app.alerts.conditions import CERTIFICATE_S, RELAY_LATE_S, InstallationFacts
from app.core.alerts import Findings
from tests.fixtures.alert_faults import FAULTS

ROOT = Path(__file__).parents[3]
NOTHING: dict[str, Findings | None] = {name: {} for name in BY_NAME}
WELL = InstallationFacts(controller="c1", certificates={"s1": ("api.pem", CERTIFICATE_S)})


def test_there_are_few_level_conditions_and_each_is_tried_here() -> None:
    assert len(LEVEL_ROWS) <= LEVEL_ROWS_MAX
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
        {"certificates": {}},
        {"mirror_age_s": STALE_S},
    ],
)
def test_what_is_ordinary_is_no_alert(change: dict[str, Any]) -> None:
    assert findings_of(replace(WELL, **change)) == NOTHING


def test_what_the_mirror_says_is_unknown_once_it_is_old() -> None:
    """Alerts that a server can judge without the mirror are all that is known then."""
    found = findings_of(replace(WELL, controller=None, mirror_age_s=STALE_S + 1, metastore="silent"))
    assert {name for name, findings in found.items() if findings is not None} == {
        "MetastoreUnreachable",
        "CatalogUnreachable",
        "RelayLag",
    }
    assert found["MetastoreUnreachable"]


def test_an_expired_certificate_is_said_to_have() -> None:
    expired = replace(WELL, certificates={"n1": ("tls.pem", -5.0)})
    assert findings_of(expired)["CertificateExpires"] == {
        (("process", "n1"),): "certificate tls.pem, which process n1 has loaded, has expired"
    }


@pytest.mark.parametrize("row", LEVEL_ROWS, ids=lambda row: row.name)
def test_labels_are_those_that_the_row_names(row: Any) -> None:
    labels = {name for labels in FAULTS[row.name][1] for name, _ in labels}
    assert labels == ({row.label} if row.label else set())


def test_a_divisor_shortens_all_times_alike() -> None:
    assert (for_ms("NodeDown"), for_ms("NodeDown", 30)) == (120_000, 4_000)
