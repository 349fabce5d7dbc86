"""Places besides rows that could tell of hidden zones: lists, plans, sums, causes, and other tokens' pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.sql.statements.results import StatementResult
from catalog.core.authorisation import ALL_ZONES, SYSTEM, Held, Privilege, zone_object
from catalog.core.errors import ErrorKind
from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.core.moves.drain import Drain
from tests.fixtures.callers import SETUP, by, refusal, rename_unchecked, rows
from tests.unit.operations_world import OperationsWorld, operations_world
from tests.unit.sql_world import DEFAULT_NODES, World

ONE_ZONE: Held = {
    zone_object(ZoneId(1)): frozenset({Privilege.ALTER, Privilege.DROP}),
    SYSTEM: frozenset({Privilege.SEE, Privilege.OPERATE}),
}
NARROW: Held = {zone_object(ZoneId(1)): frozenset({Privilege.ALTER})}
LOGS = "2-"
"""Operations of the zone that is hidden from anna begin so."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as opened:
        await opened.run(SETUP)
        yield opened


@pytest.fixture
def world(api: OperationsWorld) -> World:
    return api.world


async def test_operations_of_a_hidden_zone_are_in_no_list(api: OperationsWorld) -> None:
    await api.run("ALTER ZONE orders SET (REPLICAS 2); ALTER ZONE logs SET (REPLICAS 2)")
    everything = {one["zone"] for one in (await api.get("/operations"))["operations"]}
    assert everything == {"ORDERS", "LOGS"}
    async with by(api.world, "anna"):
        shown = await api.get("/operations", page_size=1)
        assert {one["zone"] for one in shown["operations"]} == {"ORDERS"}
        while shown["next_page_token"]:
            shown = await api.get("/operations", page_size=1, page_token=shown["next_page_token"])
            assert {one["zone"] for one in shown["operations"]} <= {"ORDERS"}
    async with by(api.world, "nobody"):
        assert (await api.get("/operations"))["operations"] == []
    async with by(api.world, "viewer1"):
        assert {one["zone"] for one in (await api.get("/operations"))["operations"]} == everything


async def test_a_plan_of_files_is_of_the_zones_that_are_seen(api: OperationsWorld) -> None:
    file = {"name": "zones.sql", "text": "CREATE ZONE orders (PARTITIONS 2, REPLICAS 3)"}
    body = {"files": [file], "prune": ["*"]}
    async with by(api.world, "root", ONE_ZONE):
        shown = await api.post("/plan", body)
        assert [(one["action"], one["name"]) for one in shown["changes"]] == [
            ("drop", "T"),
            ("change", "ORDERS"),
        ]
        assert "LOGS" not in str(shown)
        kept = await api.post("/plan", {"files": [file]})
        assert kept["unmanaged"] == [{"kind": "table", "name": "T"}]
    async with by(api.world, "anna"):
        # ALTER alone: the change is hers, and the drop is not.
        assert (await api.post("/plan", {"files": [file]}))["changes"][0]["name"] == "ORDERS"
        assert (await api.post("/plan", body, 403))["name"] == "PRIVILEGE_MISSING"
    async with by(api.world, "nobody"):
        # Nothing of the file is there for them, and they may make nothing.
        assert (await api.post("/plan", body, 403))["name"] == "PRIVILEGE_MISSING"


async def test_a_plan_of_a_script_needs_what_its_statements_need(api: OperationsWorld) -> None:
    async with by(api.world, "anna"):
        assert (await api.post("/plan", {"sql": "ALTER ZONE orders SET (REPLICAS 3)"}))["plan_id"]
        assert (await api.post("/plan", {"sql": "DROP ZONE orders"}, 403))["name"] == "PRIVILEGE_MISSING"
        assert (await api.post("/plan", {"sql": "DROP ZONE logs"}, 404))["name"] == "ZONE_NOT_FOUND"


async def test_a_full_node_is_named_without_the_sum_over_all_zones(world: World) -> None:
    await world.set_nodes(*(replace(node, member_limit=4) for node in DEFAULT_NODES))
    too_many = "ALTER ZONE orders SET (REPLICAS 3)"
    await world.engine.run_script("CREATE ZONE more (PARTITIONS 2, REPLICAS 3)")
    whole = await refusal(world, too_many)
    assert whole.kind is ErrorKind.NODE_MEMBER_LIMIT
    assert "replicas of other zones and may hold 4" in whole.message
    async with by(world, "viewer1"):
        assert (await refusal(world, too_many)).kind is ErrorKind.PRIVILEGE_MISSING
    async with by(world, "anna"):
        for sql in (too_many, f"EXPLAIN {too_many}", f"SHOW ZONES; {too_many}"):
            refused = await refusal(world, sql)
            assert refused.kind is ErrorKind.NODE_MEMBER_LIMIT
            assert "no room for the 2 replicas that zone ORDERS would need there" in refused.message
            assert "hold" not in refused.message
            assert refused.line == 1
    async with by(world, "root"):
        assert (await refusal(world, too_many)).message == whole.message


async def test_explain_counts_members_of_seen_zones_and_names_no_drain_to_others(world: World) -> None:
    key = world.keyspace.member(PartitionId(ZoneId(2), 0), "n-of-logs")
    await world.put(key, MemberRecord(MemberState.RUNNING, "", "").encode())
    await world.set_nodes(*DEFAULT_NODES, replace(DEFAULT_NODES[0], name="n4"))
    await world.put(f"{world.keyspace.drains}n4", Drain("olga", "new disks", 0).encode())
    await world.settle()
    explain = "EXPLAIN PARTITION orders.0"
    assert "n-of-logs" in str(await rows(world, explain))
    assert "olga: new disks" in str(await rows(world, explain))
    async with by(world, "anna"):
        shown = str(await rows(world, explain))
        assert "n-of-logs" not in shown
        assert "it is drained" in shown
        assert "olga" not in shown
    async with by(world, "viewer1"):
        assert "olga: new disks" in str(await rows(world, explain))


@pytest.mark.parametrize(
    ("limits", "cause", "shown"),
    [
        (
            Limits(one_operation=True),
            "OPERATION_RUNS: 2-",
            "OPERATION_RUNS: another operation goes first, one at a time",
        ),
        (Limits(cluster_moves=1), "CLUSTER_CAP: 1/1", "CLUSTER_CAP: reached"),
        (Limits(receiver_moves=1), "NODE_CAP: n3 1/1 as receiver", "NODE_CAP: n3 full as receiver"),
    ],
)
async def test_what_a_partition_waits_for_tells_of_no_hidden_zone(
    api: OperationsWorld, world: World, limits: Limits, cause: str, shown: str
) -> None:
    """Each of the eight ways on which a cause is shown gives the caller the cause without the hidden zone."""
    await api.end_moves()
    await api.end_moves(2)
    await world.put(world.keyspace.limits, limits.encode())
    await world.settle()
    while world.admission.limits != limits:
        await world.settle()
    await api.run("ALTER ZONE logs SET (REPLICAS 2)")
    moved = world.keyspace.partition(PartitionId(ZoneId(2), 0))
    await world.put(moved.pending, Assignments(("n1", "n2", "n3")).encode())
    await api.run("ALTER ZONE orders SET (REPLICAS 3)")
    newest = next(one for one in (await api.get("/operations"))["operations"] if one["zone"] == "ORDERS")

    async def causes() -> list[str]:
        answers = [
            await api.get(path)
            for path in (
                "/zones/orders",
                "/zones/orders/partitions",
                "/zones/orders/partitions/1",
                "/progress/1",
                f"/operations/{newest['operation_id']}",
            )
        ]
        questions = (
            "SHOW PARTITIONS FROM orders",
            "EXPLAIN PARTITION orders.1",
            "SELECT * FROM system.operations WHERE zone_name = 'ORDERS'",
        )
        answers += [{"rows": await rows(world, sql)} for sql in questions]
        return [str(answer) for answer in answers]

    for name in ("viewer1", "root"):
        async with by(world, name):
            assert [cause in answer for answer in await causes()] == [True] * 8
    async with by(world, "anna"):
        for answer in await causes():
            assert shown in answer
            assert cause not in answer
            assert LOGS not in answer


async def test_what_nodes_hold_is_counted_for_those_who_see_all_zones(api: OperationsWorld) -> None:
    async with by(api.world, "viewer1"):
        assert all(node["members"] is not None for node in (await api.get("/nodes"))["nodes"])
    async with by(api.world, "root", ONE_ZONE):
        nodes = (await api.get("/nodes"))["nodes"]
        assert [(node["members"], node["copies"]) for node in nodes] == [(None, None)] * len(nodes)
        drained = await api.http.put("/nodes/n1/drain", json={"by": "root"})
        assert drained.status_code == 200
        assert (drained.json()["members"], drained.json()["copies"]) == (None, None)
        # Nor how many zones would be left without a data node.
        await api.http.put("/nodes/n2/drain", json={"by": "root"})
        refused = await api.http.put("/nodes/n3/drain", json={"by": "root"})
        assert refused.json()["name"] == "DRAIN_LEAVES_NO_DATA_NODE"
        assert "zone ORDERS has no living" in refused.json()["detail"]
    refused = await api.http.put("/nodes/n3/drain", json={"by": "root"})
    assert "zone ORDERS and 1 more has no living" in refused.json()["detail"]


async def test_nodes_are_named_to_those_who_see_all_zones(api: OperationsWorld) -> None:
    async with by(api.world, "anna"):
        refused = await api.get("/zones/orders/recovery/states", 404, node="nowhere")
        assert refused["detail"] == "there is no node nowhere"
    async with by(api.world, "root", ONE_ZONE):
        refused = (await api.http.put("/nodes/nowhere/drain", json={"by": "root"})).json()
        assert (refused["name"], refused["detail"]) == ("NODE_NOT_FOUND", "there is no node nowhere")
    refused = (await api.http.put("/nodes/nowhere/drain", json={"by": "root"})).json()
    assert refused["detail"] == "there is no node nowhere; known nodes: n1, n2, n3"


async def test_a_narrower_token_reads_no_statement_of_a_wider_one(api: OperationsWorld) -> None:
    """A statement is not found by its id or its pages, and an idempotency key does not lead to it; the wider
    token reads the statements of both."""
    key, body = {"Idempotency-Key": "one key"}, {"sql": "SHOW ZONES"}
    async with by(api.world, "root"):
        wide = (await api.http.post("/statements", json=body, headers=key)).json()
        first = await api.http.post(
            "http://api/v1/statement",
            content=b"SELECT zone_name FROM system.zones",
            headers={"X-Trino-User": "root"},
        )
    page = first.json()["nextUri"]
    path = f"/statements/{wide['statement_id']}"
    async with by(api.world, "root", NARROW):
        for method, address in (
            ("GET", path),
            ("GET", f"{path}/results/1/rows"),
            ("DELETE", path),
            ("GET", page),
        ):
            refused = await api.http.request(method, address)
            assert (refused.status_code, "LOGS" in refused.text) == (404, False), address
        narrow = (await api.http.post("/statements", json=body, headers=key)).json()
        assert narrow["statement_id"] != wide["statement_id"]
        assert "LOGS" not in str(narrow)
        again = (await api.http.post("/statements", json=body, headers=key)).json()
        assert again == narrow
        assert (await api.http.get(f"/statements/{narrow['statement_id']}")).status_code == 200
    other: Held = {ALL_ZONES: frozenset({Privilege.SEE})}
    async with by(api.world, "root", other):
        assert (await api.http.get(f"/statements/{narrow['statement_id']}")).status_code == 404
    async with by(api.world, "root"):
        for statement in (wide, narrow):
            assert (await api.http.get(f"/statements/{statement['statement_id']}")).status_code == 200
        while "LOGS" not in (answer := await api.http.get(page)).text:
            page = answer.json()["nextUri"]


async def test_a_taken_name_is_told_without_its_zone(world: World) -> None:
    """The answers say that the name is taken, as `docs/security.md` has it, and nothing else."""
    await world.engine.run_script("CREATE USER maker; GRANT CREATE ON ALL ZONES TO maker")
    async with by(world, "anna"):
        taken = await refusal(world, "ALTER ZONE orders RENAME TO logs")
        assert taken.kind is ErrorKind.ZONE_ALREADY_EXISTS
        assert taken.message == "zone LOGS already exists"
    async with by(world, "root", {zone_object(ZoneId(1)): frozenset({Privilege.CREATE})}):
        (done,) = await world.engine.run_script("CREATE TABLE IF NOT EXISTS u (id INT PRIMARY KEY) ZONE orders")
        assert isinstance(done, StatementResult)
        assert "LOGS" not in str(done.to_json())


async def test_a_name_in_an_address_is_read_as_in_sql_over_what_is_seen(api: OperationsWorld) -> None:
    """Two zones whose names differ by case only, as an earlier release has made them: none hides the other."""
    world = api.world
    await api.run("CREATE ZONE twin (PARTITIONS 2); GRANT SEE ON ZONE twin TO ben")
    await rename_unchecked(world, "TWIN", "orders")

    async def zone_at(name: str) -> int | None:
        answer = await api.http.get(f"/zones/{name}")
        assert answer.status_code in (200, 404)
        return answer.json().get("zone_id")

    async with by(world, "root"):
        (sql,) = await world.engine.run_script("ALTER ZONE orders SET (REPLICAS 2)")
        assert isinstance(sql, StatementResult)
        assert sql.zone_id == 1
        assert "NAME_CONFUSABLE" in {warning.name for warning in sql.warnings}
        assert [await zone_at(name) for name in ("orders", "ORDERS", "%22ORDERS%22")] == [1, 1, 1]
        assert await zone_at("%22orders%22") == 3
        assert await zone_at("%22Orders%22") is None
    async with by(world, "anna"):
        assert [await zone_at(name) for name in ("orders", "ORDERS", "%22orders%22")] == [1, 1, None]
    async with by(world, "ben"):
        assert [await zone_at(name) for name in ("orders", "ORDERS", "%22orders%22")] == [3, None, 3]
