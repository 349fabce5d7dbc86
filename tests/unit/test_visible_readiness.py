"""Zones in /readyz, where users log in, are named to those who may see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.alerts.conditions import InstallationFacts
from app.alerts.readiness_judge import LATE_S, judge, with_state
from app.api.health import readyz
from app.requests.context import acting
from app.security.access_view import AccessView
from catalog.core.audit import Actor
from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    Grant,
    Grants,
    Privilege,
    User,
    local_user,
    zone_object,
)
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId
from tests.fixtures.access_world import MemoryAccess
from tests.fixtures.partial_services import services_with

ZONES = (Zone(ZoneId(1), "ORDERS", 1, 1, None, ("default",)), Zone(ZoneId(2), "LOGS", 1, 1, None, ("default",)))
FACTS = InstallationFacts(
    lost={"LOGS": 1, "ORDERS": 2}, waiting=("LOGS", LATE_S), stuck_moves={"2-7": 660.0}, controller="c1"
)
REPORT = with_state(
    {
        **{"ready": True, "catalog": "ok", "metastore": "ok", "controller": "c1", "spark": "ready"},
        **{"spark_message": "", "nodes": 3, "unreadable": [], "store_servers_down": [], "unprotected": []},
        "lost_partitions": [{"zone": "LOGS", "partitions": 1}, {"zone": "ORDERS", "partitions": 2}],
        "queue": {"outbox_oldest_seconds": 0.0, "zone_oldest_seconds": LATE_S, "zone_id": 2},
        "background": {"tasks": {}, "processes": []},
    },
    [cause.body for cause in judge(FACTS)],
)
GRANTED = {
    "stranger": (),
    "anna": ((Privilege.SEE, SYSTEM), (Privilege.READ, zone_object(ZoneId(1)))),
    "viewer": ((Privilege.SEE, SYSTEM), (Privilege.SEE, ALL_ZONES)),
}
GRANTS = Grants.of(
    1,
    users=[User(local_user(name)) for name in GRANTED],
    grants=[Grant(local_user(name), *held) for name, all_held in GRANTED.items() for held in all_held],
)


async def answered(name: str) -> dict[str, Any]:
    async def report() -> dict[str, Any]:
        return REPORT

    async def snapshot() -> CatalogSnapshot:
        return CatalogSnapshot(zones=ZONES, grants=GRANTS)

    async def grants() -> Grants:
        return GRANTS

    access = AccessView(grants, MemoryAccess())
    services = services_with(readiness=report, snapshot=snapshot, access=access)
    with acting(Actor(name, verified=True, caller=Caller(local_user(name)))):
        answer = await readyz(services)
    body: dict[str, Any] = json.loads(bytes(answer.body))
    return body


@pytest.mark.parametrize(("name", "lost"), [("anna", ["ORDERS"]), ("viewer", ["LOGS", "ORDERS"])])
async def test_lost_partitions_and_waiting_zones_are_named_to_those_who_see_them(
    name: str, lost: list[str]
) -> None:
    body = await answered(name)
    assert [each["zone"] for each in body["lost_partitions"]] == lost
    causes = [each["cause"].partition(":")[0] for each in body["degraded"]]
    others = (["MOVE_STUCK"], ["ZONE_LATE"]) if name == "viewer" else ([], [])
    assert causes == others[0] + ["PARTITION_LOST"] * len(lost) + others[1]
    assert ("LOGS" in str(body), body["queue"]["zone_id"]) == ((True, 2) if name == "viewer" else (False, None))
    assert body["state"] == "degraded"


async def test_who_does_not_see_the_system_is_told_what_everybody_is() -> None:
    assert await answered("stranger") == {"ready": True, "state": "ready"}
