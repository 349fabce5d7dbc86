"""Alerts as they are shown: what each user sees of them, and how ``zonectl`` shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from app.alerts.shown_alerts import alert_body, seen_alerts
from app.bootstrap.server import build_app
from app.cli.alerts import alert_lines
from app.contract.health import Alerts
from app.core.alerts import Alert, Silence
from catalog.core.zone import ZoneId
from tests.fixtures.alert_faults import DOWN, EVERY, LOST, OVER, STUCK
from tests.fixtures.partial_services import services_with

SILENCE = Silence("NodeDown", (("node", "n3"),), 0, 3_600_000, "alice", "new disks")


@pytest.mark.parametrize(
    ("zones", "shown"),
    [
        (None, EVERY),
        ({}, [DOWN, OVER]),
        ({"ORDERS": ZoneId(3)}, [LOST, DOWN, OVER]),
        ({"SALES": ZoneId(7)}, [STUCK, DOWN, OVER]),
    ],
)
def test_alerts_of_a_zone_are_for_those_who_see_the_zone(
    zones: dict[str, ZoneId] | None, shown: list[Alert]
) -> None:
    assert seen_alerts(EVERY, zones) == shown


async def test_the_route_answers_without_a_catalog_as_it_documents() -> None:
    async def no_catalog() -> Any:
        raise AssertionError("nobody has to log in, so nobody's zones are asked for")

    ended = [OVER, replace(OVER, name="NodeDown", labels=(("node", "n9"),), ends_ms=1_500)]
    silences = SimpleNamespace(now=lambda: (SILENCE,))
    watch = SimpleNamespace(alerts=EVERY, ended=ended, judged_ms=120_000, silences=silences)
    app = build_app(services_with(alerts=watch, snapshot=no_catalog))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        body = (await client.get("/api/v1/alerts")).json()
        states = {
            state: (await client.get("/api/v1/alerts", params={"state": state})).json()
            for state in ("firing", "pending", "resolved", "over")
        }
    assert TypeAdapter(Alerts).validate_python(body) == body
    assert body["judged_at"] == "1970-01-01T00:02:00Z"
    assert [alert["name"] for alert in body["alerts"]] == [alert.name for alert in EVERY]
    (silenced,) = [alert for alert in body["alerts"] if alert["silence"]]
    assert (silenced["name"], silenced["state"], silenced["silence"]["reason"]) == (
        *("NodeDown", "pending"),
        "new disks",
    )
    names = {state: [alert["name"] for alert in answer.get("alerts", ())] for state, answer in states.items()}
    assert names == {
        "firing": ["PartitionWithoutMajority", "MoveStuck"],
        "pending": ["NodeDown"],
        "resolved": ["RelayLag", "NodeDown"],
        "over": [],
    }
    assert states["over"]["name"] == "INVALID_REQUEST"


def test_a_body_says_since_when_and_where_to_read_on() -> None:
    body = alert_body(LOST)
    assert (body["state"], body["severity"], body["labels"]) == ("firing", "page", {"zone": "ORDERS"})
    assert (body["since"], body["starts_at"], body["ends_at"]) == (
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:01:00Z",
        None,
    )
    assert (Path(__file__).parents[3] / body["runbook"]).is_file()


def test_status_has_a_line_for_what_fires_and_for_what_is_pending() -> None:
    assert list(alert_lines([alert_body(alert) for alert in EVERY])) == [
        f"ALERT {LOST.name} since 1970-01-01T00:01:00Z: 1 partition is lost; see docs/runbook/{LOST.name}.md",
        "ALERT MoveStuck since 1970-01-01T00:00:01Z: it stands (unknown now); see docs/runbook/MoveStuck.md",
        "PENDING ALERT NodeDown since 1970-01-01T00:00:00Z: 1 replica not served; see docs/runbook/NodeDown.md",
    ]


def test_status_says_what_is_silenced() -> None:
    assert list(alert_lines([alert_body(DOWN, SILENCE)])) == [
        "PENDING ALERT NodeDown since 1970-01-01T00:00:00Z: 1 replica not served (silenced until "
        "1970-01-01T01:00:00Z: new disks); see docs/runbook/NodeDown.md"
    ]
