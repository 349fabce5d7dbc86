"""One plan under one id, however it is asked for; carried out as it was shown, or refused with what changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.core.keyspace.records import ConfigurationRecord
from tests.unit.operations_world import OperationsWorld, operations_world

WIDER = "ALTER ZONE orders SET (REPLICAS 2)"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)")
        await made.end_moves()
        yield made


async def planned(api: OperationsWorld, sql: str = WIDER) -> dict[str, Any]:
    return await api.post("/plan", {"sql": sql})


async def explained(api: OperationsWorld, sql: str) -> list[dict[str, Any]]:
    answer = await api.http.post("/statements", json={"sql": f"EXPLAIN {sql}"})
    (found,) = answer.json()["results"]
    names = [each["name"].lower() for each in found["columns"]]
    return [dict(zip(names, row, strict=True)) for row in found["data"]]


@pytest.mark.row("VOL-032", "VOL-087")
@pytest.mark.parametrize(
    "sql",
    [
        WIDER,
        "CREATE ZONE more (PARTITIONS 2, REPLICAS 3)",
        "DROP ZONE orders",
        "CREATE TABLE t (id INT PRIMARY KEY) ZONE orders",
    ],
)
async def test_every_way_to_ask_shows_the_same_plan(api: OperationsWorld, sql: str) -> None:
    """VOL-032, VOL-087: POST /plan, validate_only and EXPLAIN agree on the id and on what moves, and asking
    changes nothing; the id names the revisions that the plan was computed from."""
    before = await api.world.dump()
    plan = await planned(api, sql)
    (change,) = plan["changes"]
    rows = await explained(api, sql)
    assert rows[-1]["section"] == "PLAN"
    assert rows[-1]["name"] == plan["plan_id"]
    assert rows[:-1] == change["effects"]
    assert await api.post("/statements", {"sql": sql, "validate_only": True}) == plan
    assert await planned(api, sql) == plan, "asked again"
    numbers = [plan[name] for name in ("catalog_version", "data_nodes_revision", "target_revision")]
    assert plan["plan_id"].rpartition("-")[0] == "-".join(map(str, numbers))
    assert await api.world.dump() == before


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE more (id INT PRIMARY KEY) ZONE orders",
        "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY) ZONE orders",
        "ALTER TABLE t ADD COLUMN note VARCHAR",
        "DROP TABLE t",
        "ALTER ZONE orders RENAME TO sales",
        "ALTER ZONE orders SET DEFAULT",
        "ALTER ZONE orders SET (AUTO SCALE DOWN 7)",
        "ALTER ZONE orders SET (REPLICAS 1)",
        "DROP ZONE IF EXISTS nowhere",
    ],
)
async def test_what_moves_nothing_shows_no_move(api: OperationsWorld, sql: str) -> None:
    """And carrying it out names no target, and begins no operation."""
    await api.run("CREATE TABLE t (id INT PRIMARY KEY) ZONE orders")
    rows = await explained(api, sql)
    assert [row for row in rows if row["section"] in ("MOVE", "ADD", "REMOVE", "ROLE") and row["name"]] == []
    before = (await api.newest())["operation_id"]
    await api.run(sql)
    assert (await api.newest())["operation_id"] == before


async def test_every_way_to_ask_has_the_warnings(api: OperationsWorld) -> None:
    """Warnings are given before a change is run and after: by the plan of a script, the plan of files, EXPLAIN,
    and the answer of REST."""
    sql = "ALTER ZONE orders SET (REPLICAS 2)"
    files = [{"name": "z.sql", "text": "CREATE ZONE orders (PARTITIONS 4, REPLICAS 2)"}]
    plans = [await planned(api, sql), await api.post("/plan", {"files": files})]
    asked = [each for plan in plans for each in plan["changes"]]
    asked += (await api.post("/statements", {"sql": f"EXPLAIN {sql}"}))["results"]
    asked += (await api.post("/statements", {"sql": sql}))["results"]
    names = [[warning["name"] for warning in answer["warnings"]] for answer in asked]
    assert names == [["NO_MAJORITY_AFTER_LOSS"]] * 4


async def test_a_statement_of_a_script_follows_the_ones_before_it(api: OperationsWorld) -> None:
    script = f"{WIDER}; ALTER ZONE orders SET (REPLICAS 1); CREATE ZONE b (PARTITIONS 2); DROP ZONE b"
    moved = []
    for change in (await planned(api, script))["changes"]:
        rows = [row for row in change["effects"] if row["section"] in ("MOVE", "ADD", "REMOVE") and row["name"]]
        moved.append({(row["section"], sum(each["replicas"] for each in rows)) for row in rows})
    assert moved == [{("ADD", 4)}, {("REMOVE", 4)}, {("ADD", 2)}, {("REMOVE", 2)}]


@pytest.mark.row("VOL-087")
async def test_files_have_the_plan_of_their_statements(api: OperationsWorld) -> None:
    """VOL-087: with what the files compare, and the plan of the statements that lead there; where nothing is to
    be done there is no plan."""
    files = [{"name": "zones.sql", "text": "CREATE ZONE orders (PARTITIONS 4, REPLICAS 2); CREATE ZONE more"}]
    plan = await api.post("/plan", {"files": files})
    script = ";\n".join(each["sql"] for each in plan["changes"])
    assert plan["plan_id"] == (await planned(api, script))["plan_id"]
    assert [each["action"] for each in plan["changes"]] == ["change", "create"]
    altered = plan["changes"][0]
    assert {each["section"] for each in altered["effects"]} >= {"ADD", "BALANCE", "PARAMETER"}
    assert altered["differences"] == [{"property": "REPLICAS", "before": "1", "after": "2"}]
    done = await api.post("/statements", {"sql": script, "plan_id": plan["plan_id"]})
    assert [each["catalog_version"] for each in done["results"]] == [2, 3]
    again = await api.post("/plan", {"files": files})
    assert (again["plan_id"], again["changes"]) == (None, [])
    assert await api.post("/plan", {"files": files, "plan_id": plan["plan_id"]}) == again, "applied already"
    files[0]["text"] += "; CREATE ZONE others"
    refused = await api.post("/plan", {"files": files, "plan_id": plan["plan_id"]}, 409)
    assert "version 3, not 1 any more, by ALTER ZONE ORDERS" in refused["detail"]


async def test_a_plan_is_carried_out_once_and_as_it_was_shown(api: OperationsWorld) -> None:
    """The moves are those of the plan: each partition that the target places otherwise, copy for copy. The same
    plan a second time is refused as PLAN_CHANGED."""
    plan = await planned(api)
    done = await api.post("/statements", {"sql": WIDER, "plan_id": plan["plan_id"]})
    assert done["results"][0]["applied"]
    await api.reconcile()
    operation = await api.get(f"/operations/{(await api.newest())['operation_id']}")
    added = {
        each["name"]: each["replicas"] for each in plan["changes"][0]["effects"] if each["section"] == "ADD"
    }
    assert {unit["stealer"]: unit["copies"] for unit in operation["plan"]["units"]} == added
    again = await api.post("/statements", {"sql": WIDER, "plan_id": plan["plan_id"]}, 409)
    assert (again["name"], again["sqlState"]) == ("PLAN_CHANGED", "40001")
    assert f"at version 2, not 1 any more, by {WIDER}; nothing was changed" in again["detail"]


SIZE = 16_384


async def grown(api: OperationsWorld, size: int) -> None:
    """Leaders say how large their partitions are; the group's members are as stable says."""
    items = (await api.world.metastore.range(api.world.keyspace.zone_partitions(ZoneId(1)))).items
    for item in items:
        if item.key.endswith("/configuration"):
            record = replace(ConfigurationRecord.decode(item.value), size_bytes=size)
            await api.world.put(item.key, record.encode())
    await api.world.settle()


def estimate_of(effects: list[dict[str, Any]]) -> int:
    return sum(row["bytes"] for row in effects if row["section"] in ("MOVE", "ADD", "REMOVE", "ROLE"))


@pytest.mark.parametrize("replicas", [2, 3])
async def test_one_estimate_and_one_measure(api: OperationsWorld, replicas: int) -> None:
    """Plan, EXPLAIN, operation, its table and its history say the same bytes to copy, also when partitions grow
    while they are copied; what was copied is another number."""
    await grown(api, SIZE)
    sql = f"ALTER ZONE orders SET (REPLICAS {replicas})"
    (change,) = (await planned(api, sql))["changes"]
    estimate = estimate_of(change["effects"])
    assert estimate == 4 * (replicas - 1) * SIZE
    assert estimate_of(await explained(api, sql)) == estimate
    await api.run(sql)
    await grown(api, SIZE + 4_096)
    name = (await api.newest())["operation_id"]
    for copied in (0, 4 * (replicas - 1) * 2 * SIZE):
        shown = await api.get(f"/operations/{name}")
        assert shown["progress"]["bytes"] == {"estimated": estimate, "copied": copied}
        assert sum(unit["bytes"] for unit in shown["plan"]["units"]) == estimate
        assert (await api.newest())["progress"]["bytes"]["estimated"] == estimate
        view = "SELECT bytes_estimated, bytes_copied FROM operation_history ORDER BY started_at DESC LIMIT 1"
        answer = await api.post("/statements", {"sql": view})
        assert answer["results"][0]["data"] == [[estimate, copied]]
        await api.end_moves()
        await grown(api, 2 * SIZE)
        await api.look()
    assert shown["state"] == "DONE"


async def catalog_changes(api: OperationsWorld) -> None:
    await api.run("CREATE ZONE other (PARTITIONS 1)")


async def a_node_joins(api: OperationsWorld) -> None:
    await api.world.set_nodes(*api.world.nodes, Node("n9"))
    await api.reconcile()


async def a_target_is_named(api: OperationsWorld) -> None:
    key = api.world.keyspace.target_pointer(ZoneId(1))
    found = await api.world.metastore.get(key)
    assert found is not None
    await api.world.put(key, found.value)
    await api.world.settle()


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (catalog_changes, "the catalog is at version 2, not 1 any more, by CREATE ZONE other (PARTITIONS 1)"),
        (a_node_joins, "data nodes changed at revision"),
        (a_target_is_named, "a target was named at revision"),
    ],
)
async def test_what_changed_is_said_and_nothing_is_done(api: OperationsWorld, happens: Any, told: str) -> None:
    """40001 for each of the three numbers of the id."""
    plan = await planned(api)
    await happens(api)
    before = await api.world.dump()
    refused = await api.post("/statements", {"sql": WIDER, "plan_id": plan["plan_id"]}, 409)
    assert (refused["name"], refused["sqlState"]) == ("PLAN_CHANGED", "40001")
    assert told in refused["detail"]
    assert (await api.post("/plan", {"sql": WIDER, "plan_id": plan["plan_id"]}, 409))["name"] == "PLAN_CHANGED"
    assert await api.world.dump() == before


async def test_other_statements_are_another_plan(api: OperationsWorld) -> None:
    plan = await planned(api)
    other = "ALTER ZONE orders SET (REPLICAS 3)"
    refused = await api.post("/statements", {"sql": other, "plan_id": plan["plan_id"]}, 409)
    assert "another change than the planned one" in refused["detail"]
    spelled = "alter  zone ORDERS set (replicas 2)"
    assert (await planned(api, spelled))["plan_id"] == plan["plan_id"], "what it comes to counts"


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/plan", {}, 400, "either files or sql"),
        ("/plan", {"sql": WIDER, "files": [{"name": "a", "text": "DROP ZONE x"}]}, 400, "either files or sql"),
        ("/plan", {"sql": "ALTER ZONE nowhere SET (REPLICAS 2)"}, 404, "NOWHERE"),
        ("/statements", {"sql": WIDER, "plan_id": "1-2-3"}, 400, "plan_id"),
        ("/statements", {"sql": WIDER, "validate_only": True, "wait_timeout": 1}, 400, "does not go with"),
        ("/statements", {"sql": WIDER, "validate_only": True, "plan_id": "1-2-3-" + "0" * 12}, 400, "send one"),
        ("/statements", {"sql": "SELECT 1", "validate_only": True}, 400, "SELECT"),
    ],
)
async def test_what_is_no_plan(
    api: OperationsWorld, path: str, body: dict[str, Any], status: int, told: str
) -> None:
    refused = await api.post(path, body, status)
    assert told in str(refused)
