"""The id of a request: in its answer, its problem, the lines of the log and the audit."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.types import EventDict

from tests.fixtures.served_app import served
from tests.unit.operations_world import operations_world

OURS = re.compile("[0-9a-f]{32}")


async def test_a_well_formed_id_is_kept_everywhere(tmp_path: Path) -> None:
    async with operations_world(tmp_path) as api, served(api.app) as http:
        created = await http.post(
            "/api/v1/statements",
            json={"sql": "CREATE ZONE orders (PARTITIONS 1)"},
            headers={"X-Request-Id": "proxy-17.a_b"},
        )
        limits = await http.patch(
            "/api/v1/rebalance/limits", json={"cluster_moves": 3}, headers={"X-Request-Id": "proxy-18"}
        )
        for answer, sent in ((created, "proxy-17.a_b"), (limits, "proxy-18")):
            assert answer.is_success, answer.text
            assert answer.headers.get_list("x-request-id") == [sent]
        records = (await http.get("/api/v1/audit")).json()["records"]
        told = [(record["action"], record["request_id"]) for record in records]
        assert told == [("CHANGE LIMITS", "proxy-18"), ("CREATE ZONE", "proxy-17.a_b")]
        rows = await api.world.run("SELECT ACTION, REQUEST_ID FROM SYSTEM.AUDIT ORDER BY AUDIT_NUMBER DESC")
        assert [tuple(row) for row in rows.rows] == told


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [("X-Request-Id", "with blank")],
        [("X-Request-Id", "x" * 65)],
        [("X-Request-Id", "-first")],
        [("X-Request-Id", "a;b")],
        [("X-Request-Id", "one"), ("X-Request-Id", "two")],
    ],
)
async def test_another_id_is_made_anew(tmp_path: Path, sent: list[tuple[str, str]]) -> None:
    async with operations_world(tmp_path) as api, served(api.app) as http:
        ids = [(await http.get("/livez", headers=sent)).headers["x-request-id"] for _ in range(2)]
        assert all(OURS.fullmatch(one) for one in ids)
        assert len(set(ids)) == 2


async def test_problems_name_it_whoever_refuses(tmp_path: Path) -> None:
    async with operations_world(tmp_path) as api, served(api.app) as http:
        by_route = await http.get("/api/v1/zones/nowhere")
        by_framework = await http.get("/api/v1/nothing")
        by_edge = await http.get("/api/v1/zones", headers={"Host": "evil.example"})
        assert [answer.status_code for answer in (by_route, by_framework, by_edge)] == [404, 404, 403]
        for answer in (by_route, by_framework, by_edge):
            assert OURS.fullmatch(answer.json()["request_id"])
            assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_lines_of_an_operation_name_it_and_its_zone(tmp_path: Path) -> None:
    lines: list[EventDict] = []

    def keep(_logger: Any, _method: str, event: EventDict) -> EventDict:
        lines.append(structlog.contextvars.merge_contextvars(None, "", dict(event)))
        raise structlog.DropEvent

    def changed() -> list[EventDict]:
        return [line for line in lines if line["event"] == "operation"]

    with capture_logs(processors=[keep]):
        async with operations_world(tmp_path) as api:
            await api.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)")
            await api.end_moves()
            await api.look()
    assert {(line["zone"], line["operation"].partition("-")[0]) for line in changed()} == {(1, "1")}


async def test_lines_of_a_request_name_it(tmp_path: Path) -> None:
    lines: list[EventDict] = []

    def keep(_logger: Any, _method: str, event: EventDict) -> EventDict:
        lines.append(structlog.contextvars.merge_contextvars(None, "", dict(event)))
        raise structlog.DropEvent

    async with operations_world(tmp_path) as api, served(api.app) as http:
        with capture_logs(processors=[keep]):
            answer = await http.get("/api/v1/zones?token=secret", headers={"Host": "evil.example"})
            await asyncio.sleep(0)
    told = {line["event"]: line for line in lines if line.get("request_id") == answer.headers["x-request-id"]}
    assert told.keys() == {"request refused", "request"}
    assert (told["request"]["path"], told["request"]["status"]) == ("/api/v1/zones", 403)
    assert "secret" not in str(lines)
