"""``--require-reason``: every change says why, whichever way it comes; without it none has to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.security.policy import ROUTES
from catalog.core.errors import ErrorKind
from tests.unit.operations_world import OperationsWorld, operations_world

API = "/api/v1"
ZONE, OPERATION = f"{API}/zones/{{zone:segment}}", f"{API}/operations/{{operation:segment}}"
RESET = {"dry_run": False, "shown": []}
CHANGES: dict[tuple[str, str], dict[str, Any] | None] = {
    ("POST", f"{API}/statements"): {"sql": "ALTER ZONE orders SET (REPLICAS 2)"},
    ("POST", f"{ZONE}/recovery/reset"): RESET,
    ("POST", f"{ZONE}/recovery/restart"): {},
    ("POST", f"{ZONE}/recovery/reset-lost"): {},
    ("POST", f"{OPERATION}/pause"): {},
    ("POST", f"{OPERATION}/resume"): {},
    ("POST", f"{OPERATION}/cancel"): {},
    ("POST", f"{OPERATION}/partitions/cancel"): {"partitions": [0]},
    ("POST", f"{OPERATION}/finalise"): {"copies": 0},
    ("POST", f"{OPERATION}/reverse"): {},
    ("PUT", f"{API}/nodes/{{node:segment}}/drain"): {"by": "ann"},
    ("DELETE", f"{API}/nodes/{{node:segment}}/drain"): None,
    ("POST", f"{API}/nodes/{{node:segment}}/removal"): {"by": "ann"},
    ("PATCH", f"{API}/rebalance/limits"): {"pause": {"by": "ann"}},
    ("PUT", f"{API}/log-levels/{{module:segment}}"): {"level": "debug"},
    ("DELETE", f"{API}/log-levels/{{module:segment}}"): None,
    ("POST", f"{API}/alerts/silences"): {"alert": "NodeDown", "for_s": 60},
    ("DELETE", f"{API}/alerts/silences/{{silence_id:segment}}"): None,
    ("POST", f"{API}/metastore/adopt"): {"epoch": 1, "kind": "", "reason": ""},
    ("POST", f"{API}/upgrade/finalise"): {},
}
OF_NO_CHANGE = (
    # Keys of users, logins, and the statements that are running.
    *((method, f"{ZONE}/kv/{{key:key}}") for method in ("PUT", "DELETE")),
    *((method, path) for method, path in ROUTES if "/tokens" in path or "/console-links" in path),
    *((method, path) for method, path in ROUTES if "{statement_id" in path),
    ("POST", f"{ZONE}/verify"),
    ("POST", f"{API}/plan"),
    # It is refused in its answer, as errors of statements are.
    ("POST", "/v1/statement"),
)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)")
        await made.end_moves()
        made.world.catalog.requires_reason = True
        yield made


def test_each_route_that_changes_something_is_here() -> None:
    changing = {(method, path) for method, path in ROUTES if method not in ("GET", "HEAD")}
    assert changing == CHANGES.keys() | {route for route in OF_NO_CHANGE if route[0] not in ("GET", "HEAD")}


@pytest.mark.parametrize("route", CHANGES)
async def test_a_change_without_a_reason_is_refused_and_does_nothing(
    api: OperationsWorld, route: tuple[str, str]
) -> None:
    operation = (await api.newest())["operation_id"]
    names = {"zone": "ORDERS", "operation": operation, "node": "n3", "module": "app.edge"}
    names["silence_id"] = "5a3c0c62d6f1b8e4"
    path = route[1].replace(":segment", "").format(**names)
    before = await api.world.dump()
    for headers in ({}, {"Zonekeeper-Reason": "%20"}):
        answer = await api.http.request(route[0], f"http://api{path}", json=CHANGES[route], headers=headers)
        assert answer.status_code == 400, answer.text
        problem = answer.json()
        assert (problem["name"], problem["code"]) == ("REASON_REQUIRED", ErrorKind.REASON_REQUIRED.code)
    assert await api.world.dump() == before


async def test_drivers_and_calls_are_asked_too(api: OperationsWorld) -> None:
    before = await api.world.dump()
    for sql in ("DROP ZONE orders", "CALL system.restart_partitions('ORDERS')"):
        headers = {"X-Trino-User": "ann"}
        page = (await api.http.post("http://api/v1/statement", content=sql, headers=headers)).json()
        while "error" not in page:
            page = (await api.http.get(page["nextUri"])).json()
        assert page["error"]["errorName"] == "REASON_REQUIRED"
    assert await api.world.dump() == before


async def test_questions_need_none_and_a_reason_is_enough(api: OperationsWorld) -> None:
    await api.post("/statements", {"sql": "SHOW ZONES; EXPLAIN ALTER ZONE orders SET (REPLICAS 2)"})
    await api.post("/zones/ORDERS/recovery/restart", {"dry_run": True})
    await api.post("/statements", {"sql": "ALTER ZONE orders SET (REPLICAS 2)", "reason": "more readers"})
    answer = await api.http.patch("/rebalance/limits", json={"pause": {"by": "ann", "reason": "new disks"}})
    assert answer.status_code == 200, answer.text
    answer = await api.http.put("/nodes/n3/drain", json={"by": "ann", "reason": "new disks"})
    assert answer.status_code == 200, answer.text


async def test_by_default_no_change_needs_one(api: OperationsWorld) -> None:
    api.world.catalog.requires_reason = False
    answers = [
        await api.http.put("/nodes/n3/drain", json={"by": "ann"}),
        await api.http.delete("/nodes/n3/drain"),
        await api.http.patch("/rebalance/limits", json={"pause": {"by": "ann"}}),
        await api.http.post("/statements", json={"sql": "DROP ZONE orders"}),
    ]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
