"""Causes that count as degraded, as alerts judge them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.alerts.alert_rows import BY_NAME, STALE_S
from app.alerts.conditions import InstallationFacts
from app.alerts.readiness_judge import LATE_S, judge
from app.contract.health import InstallationPart
from app.core.alerts import Alert, AlertState
from rebalance.core.causes.cause import Cause
from tests.fixtures.alert_faults import FAULTS

WELL = InstallationFacts(controller="c1", nodes=3)
SILENT = replace(WELL, metastore="no answer within 1 s", controller=None, nodes=0, unserved={"ORDERS": 1})
LOST = Alert("PartitionWithoutMajority", (("zone", "ORDERS"),), AlertState.FIRING, 1_000, "1 partition", 2_000)


@pytest.mark.parametrize(
    ("change", "part", "cause"),
    [
        (
            {"not_agreed": "loading"},
            InstallationPart.METASTORE,
            "METASTORE_UNAVAILABLE: loading",
        ),
        (
            {"mirror_age_s": STALE_S + 1},
            InstallationPart.METASTORE,
            "METASTORE_UNAVAILABLE: what this server knows of the metastore is 16 s old",
        ),
        (
            {"spark": "down", "spark_message": "no Java"},
            InstallationPart.SPARK,
            "SPARK_DOWN: no Java; placements are computed without it",
        ),
        ({"nodes": 0}, InstallationPart.NODES, "NO_NODE: no node is alive"),
        (
            {"unserved": {"BULK": 2}},
            InstallationPart.ZONES,
            "LEADER_UNKNOWN: 2 partitions take no writes yet in zone BULK",
        ),
        (
            {"lost": {"BULK": 2}},
            InstallationPart.ZONES,
            "PARTITION_LOST: 2 partitions have no in-sync copy left in zone BULK",
        ),
        (
            {"unserved": None},
            InstallationPart.ZONES,
            "NOT_COUNTED: partitions have not been counted yet since the server started",
        ),
        (
            {"waiting": ("BULK", 61.2)},
            InstallationPart.QUEUE,
            "ZONE_LATE: zone BULK has waited for its placement for 61 s",
        ),
        (
            {"unreadable": ("RECORD_NOT_READABLE: z/topology: format 2",)},
            InstallationPart.METASTORE,
            "RECORD_NOT_READABLE: z/topology: format 2",
        ),
        (
            {"tasks": (("n2", "mirrors", "ValueError: x"),)},
            InstallationPart.BACKGROUND,
            "TASK_ENDED: n2, mirrors: ValueError: x",
        ),
        (
            {"tasks": (("n2 store", "start", "STORE_DAMAGED: x"),)},
            InstallationPart.NODES,
            "STORE_DAMAGED: x",
        ),
    ],
)
def test_one_part_one_cause(change: dict[str, Any], part: InstallationPart, cause: str) -> None:
    assert judge(WELL) == ()
    (found,) = judge(replace(WELL, **change))
    assert (found.body["part"], found.body["cause"]) == (part.value, cause)


@pytest.mark.parametrize("name", FAULTS)
def test_what_an_alert_is_about_is_told_at_once_and_while_it_fires(name: str) -> None:
    """A server is not ready beside a firing alert, nor beside a pending one that is not ordinary."""
    change, findings = FAULTS[name]
    row = BY_NAME[name]
    told = {cause.labels: cause for cause in judge(replace(WELL, **change))}
    firing = [Alert(name, labels, AlertState.FIRING, 7_000, text, 8_000) for labels, text in findings.items()]
    if row.is_ordinary:
        assert not told
    else:
        assert {labels: cause.detail for labels, cause in told.items()} == findings
        assert {cause.cause for cause in told.values()} == {row.cause}
    for facts in (replace(WELL, **change), WELL, SILENT):
        fired = {each.labels: each.body for each in judge(facts, firing) if each.alert == name}
        assert {labels: body["since"] for labels, body in fired.items()} == dict.fromkeys(
            findings, "1970-01-01T00:00:07Z"
        )
        assert {body["severity"] for body in fired.values()} == {row.severity.value}


@pytest.mark.parametrize(
    ("lost", "causes"),
    [
        (2, ["PARTITION_LOST: 2 partitions have no in-sync copy left in zone ORDERS"]),
        (
            1,
            [
                "NO_MAJORITY: 1 partition without a majority of voters in zone ORDERS",
                "PARTITION_LOST: 1 partition has no in-sync copy left in zone ORDERS",
            ],
        ),
        # Counted a moment later.
        (3, ["PARTITION_LOST: 3 partitions have no in-sync copy left in zone ORDERS"]),
    ],
)
@pytest.mark.parametrize("alerts", [(), (LOST,)], ids=["before", "firing"])
def test_a_lost_partition_is_told_once(lost: int, causes: list[str], alerts: tuple[Alert, ...]) -> None:
    """The cause names the alert that fires for it, which counts it among those without a majority."""
    facts = replace(WELL, without_majority={"ORDERS": 2}, unserved={"ORDERS": 2}, lost={"ORDERS": lost})
    told = [cause.body for cause in judge(facts, alerts)]
    assert [body["cause"] for body in told] == causes
    fired = [(body["alert"], body["since"]) for body in told]
    assert fired == [(LOST.name, "1970-01-01T00:00:01Z") if alerts else (None, None)] * len(causes)


@pytest.mark.parametrize("fires", [False, True])
def test_what_is_short_for_want_of_matching_nodes_is_told_once(fires: bool) -> None:
    alerts = (replace(LOST, name="ReplicasMissing"),) if fires else ()
    facts = replace(WELL, replicas_missing={"ORDERS": 3, "BULK": 1}, below_quorum={"ORDERS": 3})
    told = {cause.body["cause"]: cause.body["alert"] for cause in judge(facts, alerts)}
    assert told == {
        "REPLICAS_MISSING: 1 partition with fewer replicas than wanted in zone BULK": None,
        "QUORUM_EXCEEDS_DATA_NODES: 3 partitions with fewer voters than QUORUM SIZE in zone ORDERS": (
            "ReplicasMissing" if fires else None
        ),
    }


@pytest.mark.parametrize(
    "change",
    [{"spark": "starting"}, {"relay_lag_s": LATE_S - 1}, {"waiting": ("ORDERS", LATE_S - 1)}],
)
def test_what_is_ordinary_is_not_degraded(change: dict[str, Any]) -> None:
    assert judge(replace(WELL, **change)) == ()


def test_what_is_over_or_pending_no_more_is_not_told() -> None:
    assert (
        judge(WELL, [replace(LOST, state=AlertState.RESOLVED), replace(LOST, state=AlertState.PENDING)]) == ()
    )


def test_a_silent_metastore_is_one_cause_beside_what_fires() -> None:
    """The mirror cannot show then who leads and who lives."""
    assert [each.part for each in judge(SILENT)] == [InstallationPart.METASTORE]
    assert [each.cause for each in judge(SILENT, [LOST])] == [Cause.NO_MAJORITY, Cause.METASTORE_UNAVAILABLE]
