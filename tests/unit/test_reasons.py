"""Reasons of changes: given in any way, each stands in its own column wherever the change does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub
from tests.unit.operations_world import OperationsWorld, operations_world

WIDER = "ALTER ZONE orders SET (REPLICAS 2)"
WHY = "más lectores – №7"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)")
        await made.end_moves()
        yield made


async def rows(api: OperationsWorld, sql: str) -> list[list[object]]:
    answer = await api.post("/statements", {"sql": sql})
    return answer["results"][0]["data"]


async def in_the_body(api: OperationsWorld) -> None:
    await api.post("/statements", {"sql": WIDER, "reason": WHY})


async def logged(api: OperationsWorld) -> None:
    await api.post("/statements", {"sql": WIDER, "reason": WHY, "wait_timeout": 30})


async def as_a_plan(api: OperationsWorld) -> None:
    plan = await api.post("/plan", {"sql": WIDER})
    await api.post("/statements", {"sql": WIDER, "plan_id": plan["plan_id"], "reason": WHY})


async def in_a_header(api: OperationsWorld) -> None:
    await api.post("/statements", {"sql": WIDER}, headers={"Zonekeeper-Reason": quote(WHY)})


async def in_a_session(api: OperationsWorld) -> None:
    headers = {"X-Trino-User": "ann", "X-Trino-Session": f"reason={quote(WHY)}"}
    page = (await api.http.post("http://api/v1/statement", content=WIDER, headers=headers)).json()
    while "nextUri" in page:
        page = (await api.http.get(page["nextUri"])).json()
    assert "error" not in page


@pytest.mark.parametrize("ask", [in_the_body, logged, as_a_plan, in_a_header, in_a_session])
async def test_a_reason_is_kept_where_the_change_is(api: OperationsWorld, ask: object) -> None:
    assert callable(ask)
    await ask(api)
    await api.reconcile()
    (record, *_) = (await api.get("/audit"))["records"]
    assert (record["action"], record["reason"], record["details"]) == ("ALTER ZONE", WHY, WIDER)
    newest = await api.newest()
    assert (newest["kind"], newest["reason"], newest["statement"]) == ("ALTER_ZONE", WHY, WIDER)
    assert (await api.get(f"/operations/{newest['operation_id']}"))["reason"] == WHY
    for view, order in (
        ("audit", "audit_number"),
        ("operation_history", "started_at"),
        ("events", "catalog_version"),
    ):
        assert (await rows(api, f"SELECT reason FROM {view} ORDER BY {order} DESC LIMIT 1")) == [[WHY]], view


async def test_a_reason_belongs_to_one_request(api: OperationsWorld) -> None:
    await in_the_body(api)
    await api.run("ALTER ZONE orders SET (REPLICAS 3)")
    await api.reconcile()
    assert [each["reason"] for each in (await api.get("/audit"))["records"]] == ["", WHY, ""]
    assert (await api.newest())["reason"] == ""


async def test_what_has_no_body_takes_the_header(api: OperationsWorld) -> None:
    await api.http.put("/nodes/n3/drain", json={"by": "ann", "reason": "disks"})
    await api.world.settle()
    answer = await api.http.delete("/nodes/n3/drain", headers={"Zonekeeper-Reason": quote(WHY)})
    assert answer.status_code == 200, answer.text
    found = [(each["action"], each["reason"]) for each in (await api.get("/audit"))["records"]]
    assert found[:2] == [("UNDRAIN NODE", WHY), ("DRAIN NODE", "disks")]


@pytest.mark.parametrize("wrong", ["two\nlines", "bell\a", "\u202egnp.exe", "zero\u200bwidth", "x" * 501])
async def test_a_reason_is_one_line_that_shows_what_it_is(api: OperationsWorld, wrong: str) -> None:
    """Refused in the body, in the header and in the session; nothing is changed."""
    before = await api.world.dump()
    refused = await api.post("/statements", {"sql": WIDER, "reason": wrong}, 400)
    assert "reason" in refused["detail"]
    refused = await api.post("/statements", {"sql": WIDER}, 400, {"Zonekeeper-Reason": quote(wrong)})
    assert "a reason" in refused["detail"]
    await api.post("/operations/1-1/cancel", {"by": "ann", "reason": wrong}, 400)
    headers = {"X-Trino-User": "ann", "X-Trino-Session": f"reason={quote(wrong)}"}
    page = (await api.http.post("http://api/v1/statement", content=WIDER, headers=headers)).json()
    page = (await api.http.get(page["nextUri"])).json()
    assert "a reason" in page["error"]["message"]
    assert await api.world.dump() == before


async def test_the_longest_reason_is_kept_whole(api: OperationsWorld) -> None:
    longest = "é" * 500
    await api.post("/statements", {"sql": WIDER, "reason": longest})
    await api.reconcile()
    assert (await api.newest())["reason"] == longest
    assert (await api.get("/audit"))["records"][0]["reason"] == longest


@pytest.mark.parametrize("arguments", [("sql", "-f"), ("apply",)])
def test_commands_send_the_reason(stub: ApiStub, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "zones.sql"
    file.write_text("CREATE ZONE a")
    main([*arguments, str(file), "--reason", WHY])
    main(["node", "undrain", "n3", "--reason", WHY])
    assert len(stub.requests) == 2
    assert {each.headers["Zonekeeper-Reason"] for each in stub.requests} == {quote(WHY)}
