"""Statements of callers that have logged in: what they may run, and what they see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.requests.context import acting
from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.desired_state import DdlFile, DdlFileError
from app.sql.plan.member_counts import MemberCounts
from app.sql.statements.results import ScriptError, SessionContext, StatementResult
from catalog.core.audit import NOBODY, Actor, Channel
from catalog.core.authorisation import Privilege, zone_object
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.messages import CreateUser, Name
from catalog.core.snapshot import CatalogSnapshot, ZoneDefaults
from catalog.core.zone import Origin, Zone, ZoneId
from tests.fixtures.callers import SETUP, by, refusal, rename_unchecked, rows
from tests.fixtures.databases import migrated_file
from tests.unit.operations_world import OperationsWorld, operations_world
from tests.unit.sql_world import World


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as opened:
        await opened.run(SETUP)
        yield opened


@pytest.fixture
def world(api: OperationsWorld) -> World:
    return api.world


async def names(world: World) -> set[str]:
    return {zone.name for zone in (await world.catalog.snapshot()).zones}


async def test_a_member_of_a_role_does_what_the_role_may_and_no_more(world: World) -> None:
    async with by(world, "anna"):
        await world.engine.run_script("ALTER ZONE orders SET (REPLICAS 2)")
        missing = await refusal(world, "DROP ZONE orders")
        assert (missing.kind, missing.line, missing.column) == (ErrorKind.PRIVILEGE_MISSING, 1, 11)
        assert (await refusal(world, "DROP ZONE logs")).kind is ErrorKind.ZONE_NOT_FOUND
        assert (await refusal(world, "CREATE ZONE z")).kind is ErrorKind.PRIVILEGE_MISSING
        assert (await refusal(world, "GRANT SEE ON SYSTEM TO anna")).kind is ErrorKind.PRIVILEGE_MISSING


async def test_a_script_is_authorised_as_a_whole_before_its_first_statement(world: World) -> None:
    scripts = {
        "ALTER ZONE orders SET (REPLICAS 2); SHOW ZONES; CREATE ZONE z9": 3,
        "ALTER ZONE orders SET (REPLICAS 2); CREATE ZONE z9": 2,
        "SHOW ZONES; SELECT * FROM system.audit": 2,
        "ALTER ZONE orders SET (REPLICAS 2); SELECT * FROM system.nodes": 2,
        "ALTER ZONE orders SET (REPLICAS 2); SHOW NODES": 2,
        "ALTER ZONE orders SET (REPLICAS 2); CALL system.activate_zone('ORDERS')": 2,
        "ALTER ZONE orders RENAME TO bills; DROP ZONE bills": 2,
    }
    version = (await world.catalog.snapshot()).version
    async with by(world, "anna"):
        for sql, number in scripts.items():
            refused = await refusal(world, sql)
            if "CALL" in sql:
                assert refused.kind is ErrorKind.PRIVILEGE_MISSING
            assert (refused.kind, refused.statement) == (ErrorKind.PRIVILEGE_MISSING, number), sql
            assert isinstance(refused, ScriptError)
            assert refused.results == ()
    assert (await world.catalog.snapshot()).version == version


async def test_what_is_taken_away_in_the_same_transaction_is_gone(world: World) -> None:
    """A REVOKE and the statement of whom it concerns wait together, and are committed together."""
    release = threading.Event()
    busy = asyncio.ensure_future(world.catalog.on_log(lambda _: release.wait(60)))
    revoking = asyncio.ensure_future(world.engine.run_script("REVOKE orderers FROM anna"))
    await asyncio.sleep(0)
    async with by(world, "anna"):
        altering = asyncio.ensure_future(world.engine.run_script("ALTER ZONE orders SET (REPLICAS 2)"))
    await asyncio.sleep(0)
    release.set()
    _, revoked, refused = await asyncio.gather(busy, revoking, altering, return_exceptions=True)
    assert not isinstance(revoked, BaseException)
    assert isinstance(refused, StatementError)
    assert refused.kind is ErrorKind.ZONE_NOT_FOUND


async def test_what_is_taken_away_is_gone_with_the_next_statement(world: World) -> None:
    async with by(world, "root"):
        await world.engine.run_script("REVOKE orderers FROM anna")
    async with by(world, "anna"):
        assert (await refusal(world, "ALTER ZONE orders SET (REPLICAS 2)")).kind is ErrorKind.ZONE_NOT_FOUND
    async with by(world, "root"):
        await world.engine.run_script("GRANT ALTER ON ZONE orders TO anna; ALTER USER anna NOLOGIN")
    async with by(world, "anna"):
        assert (await refusal(world, "ALTER ZONE orders SET (REPLICAS 2)")).kind is ErrorKind.ZONE_NOT_FOUND


@pytest.mark.parametrize(
    "question", ["SELECT count(*) FROM system.audit", "SHOW NODES", "SELECT node_name FROM system.nodes"]
)
async def test_a_question_of_a_script_is_authorised_again_when_its_turn_comes(
    world: World, question: str
) -> None:
    async with by(world, "root"):
        await world.engine.run_script("CREATE USER second; GRANT administrator TO second")
    async with by(world, "second"):
        refused = await refusal(world, f"REVOKE administrator FROM second; {question}")
    assert isinstance(refused, ScriptError)
    assert (refused.kind, refused.statement, len(refused.results)) == (ErrorKind.PRIVILEGE_MISSING, 2, 1)


async def test_rows_counts_and_sums_show_no_hidden_zone(world: World) -> None:
    views = ("zones", "zone_storage_profiles", "tables", "global_zone_partition_states", "assignments")
    async with by(world, "anna"):
        for view in views:
            zones = {row[0] for row in await rows(world, f"SELECT DISTINCT zone_name FROM system.{view}")}
            assert zones == {"ORDERS"}, view
        assert await rows(world, "SELECT count(*) FROM system.tables") == [(1,)]
        assert await rows(world, "SELECT count(*) FROM system.operations WHERE zone_id <> 1") == [(0,)]
        assert [row[0] for row in await rows(world, "SHOW ZONES")] == ["ORDERS"]
        assert "LOGS" not in str(await rows(world, "SHOW TABLES"))
        for sql in ("DESCRIBE ZONE logs", "SHOW CREATE ZONE logs", "EXPLAIN PARTITION logs.0"):
            assert (await refusal(world, sql)).kind is ErrorKind.ZONE_NOT_FOUND
        assert (await refusal(world, "CALL system.activate_zone('LOGS')")).kind is ErrorKind.ZONE_NOT_FOUND
    async with by(world, "nobody"):
        assert await rows(world, "SELECT count(*) FROM system.zones") == [(0,)]
    async with by(world, "viewer1"):
        assert len(await rows(world, "SHOW ZONES")) == 2
    assert len(await rows(world, "SHOW ZONES")) == 2


async def test_a_call_is_authorised_for_the_zone_that_it_ends_at(world: World) -> None:
    """CALL takes a name as SQL reads it; one that differs by case only is older than the rule against it."""
    calls = (
        "activate_zone",
        "deactivate_zone",
        "reset_lost_partitions",
        "reset_partitions",
        "restart_partitions",
    )
    await world.engine.run_script("CREATE ZONE twin; GRANT RECOVER, OPERATE ON ZONE twin TO ben")
    await rename_unchecked(world, "TWIN", "orders")
    for call in calls:
        for name in ("logs", "LOGS"):
            async with by(world, "nobody"):
                assert (await refusal(world, f"CALL system.{call}('{name}')")).kind is ErrorKind.ZONE_NOT_FOUND
        async with by(world, "anna"):
            assert (await refusal(world, f"CALL system.{call}('orders')")).kind is ErrorKind.PRIVILEGE_MISSING
        async with by(world, "ben"):
            assert (await refusal(world, f"CALL system.{call}('ORDERS')")).kind is ErrorKind.ZONE_NOT_FOUND
            own = await refusal(world, f"CALL system.{call}('orders')")
            assert own.kind not in (ErrorKind.ZONE_NOT_FOUND, ErrorKind.PRIVILEGE_MISSING)


async def test_a_table_that_is_there_already_names_no_hidden_zone(world: World) -> None:
    """That the name is taken is told."""
    await world.engine.run_script("GRANT CREATE ON ZONE orders TO anna")
    async with by(world, "anna"):
        (done,) = await world.engine.run_script("CREATE TABLE IF NOT EXISTS u (id INT PRIMARY KEY) ZONE orders")
        assert "LOGS" not in str(done.to_json())
        assert isinstance(done, StatementResult)
        assert done.zone_id is None
        taken = await refusal(world, "CREATE TABLE u (id INT PRIMARY KEY) ZONE orders")
        assert taken.kind is ErrorKind.TABLE_ALREADY_EXISTS
        assert "LOGS" not in taken.message


async def test_one_callers_rows_are_not_anothers(world: World) -> None:
    """Views of one snapshot are kept between queries, for those who see all of them."""
    count = "SELECT count(*) FROM system.zones"
    for _ in range(2):
        assert await rows(world, count) == [(2,)]
        async with by(world, "anna"):
            assert await rows(world, count) == [(1,)]
        async with by(world, "root"):
            assert await rows(world, count) == [(2,)]
        async with by(world, "nobody"):
            assert await rows(world, count) == [(0,)]


async def test_users_and_queries_are_each_callers_own_too(world: World) -> None:
    """Rows stay each caller's own among users who see all zones, and so share the views of zones."""
    users, queries = "SELECT count(*) FROM system.users", "SELECT count(*) FROM system.sql_queries"
    for _ in range(2):
        async with by(world, "root"):
            assert await rows(world, users) == [(6,)]
            assert await rows(world, queries) == [(1,)]
        async with by(world, "viewer1"):
            assert await rows(world, users) == [(1,)]


async def test_sums_of_nodes_are_for_whoever_sees_all_zones(world: World) -> None:
    async with by(world, "root"):
        await world.engine.run_script("GRANT SEE ON SYSTEM TO anna")
    async with by(world, "anna"):
        members = await rows(world, "SELECT node_name, members FROM system.nodes ORDER BY 1")
        assert members == [("n1", None), ("n2", None), ("n3", None)]
        shown = await rows(world, "SHOW NODES")
        assert {row[7] for row in shown} == {None}
        assert {row[8] for row in shown} == {None}
    async with by(world, "viewer1"):
        assert {row[1] for row in await rows(world, "SELECT node_name, members FROM system.nodes")} != {None}


async def test_a_drain_that_is_refused_names_no_hidden_zone(api: OperationsWorld) -> None:
    """The refusal says that there is a zone that the caller may not see."""
    await api.run(
        "ALTER ZONE logs SET (NODES FILTER '$[?(@.region == \"US\")]'); GRANT OPERATE ON SYSTEM TO anna"
    )
    await api.world.settle()
    for name, named in (("anna", "a zone that you may not see"), ("root", "zone LOGS")):
        async with by(api.world, name):
            refused = await api.http.put("/nodes/n1/drain", json={"by": name})
            assert refused.json()["name"] == "DRAIN_LEAVES_NO_DATA_NODE"
            assert f"without n1, {named} has no living data node" in refused.json()["detail"]


async def test_pauses_name_no_hidden_zone_and_are_of_none(api: OperationsWorld) -> None:
    await api.run("GRANT SEE, OPERATE ON SYSTEM TO anna")
    await api.world.settle()
    pauses = {"zone_pauses": {"logs": {"by": "root"}, "orders": {"by": "root"}}}
    async with by(api.world, "root"):
        assert (await api.http.patch("/rebalance/limits", json=pauses)).status_code == 200
    async with by(api.world, "anna"):
        shown = (await api.http.get("/rebalance/limits")).json()["zone_pauses"]
        assert [pause["zone"] for pause in shown] == ["ORDERS"]
        for name in ("logs", "LOGS", "nowhere"):
            refused = await api.http.patch("/rebalance/limits", json={"zone_pauses": {name: None}})
            assert refused.json()["detail"] == f'zone "{name}" does not exist'
        kept = await api.http.patch("/rebalance/limits", json={"zone_pauses": {"orders": None}})
        assert kept.json()["zone_pauses"] == []
    async with by(api.world, "root"):
        shown = (await api.http.get("/rebalance/limits")).json()["zone_pauses"]
        assert [pause["zone"] for pause in shown] == ["LOGS"]


async def test_users_and_grants_are_shown_to_themselves_and_to_administrators(world: World) -> None:
    async with by(world, "anna"):
        assert await rows(world, "SELECT user_name, roles FROM system.users") == [("anna", "orderers")]
        assert await rows(world, "SHOW GRANTS") == [("orderers", "role", "ALTER", "ZONE", "ORDERS", 1)]
        assert await rows(world, "SHOW GRANTS FOR anna") == await rows(world, "SHOW GRANTS")
        assert (await refusal(world, "SHOW GRANTS FOR root")).kind is ErrorKind.USER_NOT_FOUND
        assert [row[0] for row in await rows(world, "SHOW ROLES")] == ["orderers"]
    async with by(world, "root"):
        assert len(await rows(world, "SHOW USERS")) == 6
        assert len(await rows(world, "SHOW ROLES LIKE 'view%'")) == 1
        granted = await rows(world, "SELECT privilege, object FROM system.grants WHERE grantee = 'viewer'")
        assert sorted(granted) == [("SEE", "ALL ZONES"), ("SEE", "SYSTEM")]
    assert len(await rows(world, "SHOW USERS")) == 6


async def test_explain_and_plans_need_what_they_explain(world: World) -> None:
    async with by(world, "anna"):
        assert await rows(world, "EXPLAIN ALTER ZONE orders SET (REPLICAS 1)")
        assert (await refusal(world, "EXPLAIN DROP ZONE orders")).kind is ErrorKind.PRIVILEGE_MISSING
        assert (await refusal(world, "EXPLAIN DROP ZONE logs")).kind is ErrorKind.ZONE_NOT_FOUND
        with pytest.raises(StatementError) as refused:
            await world.engine.change_plan("DROP ZONE orders")
        assert refused.value.kind is ErrorKind.PRIVILEGE_MISSING
        files = [DdlFile("a.sql", "CREATE ZONE orders (PARTITIONS 2)")]
        assert (await world.engine.plan(files, prune=["*"])).changes
        with pytest.raises(StatementError) as refused:
            await world.engine.change_plan("DROP TABLE t")
        assert refused.value.kind is ErrorKind.PRIVILEGE_MISSING
    async with by(world, "root"):
        refused_plan = await refusal(world, "EXPLAIN CREATE USER carl")
        assert refused_plan.kind is ErrorKind.STATEMENT_NOT_SUPPORTED


async def test_a_stale_plan_tells_others_statements_to_auditors_only(world: World) -> None:
    async with by(world, "anna"):
        plan = await world.engine.change_plan("ALTER ZONE orders SET (REPLICAS 1)")
    await world.engine.run_script("ALTER ZONE logs SET (REPLICAS 2)")
    async with by(world, "anna"):
        with pytest.raises(StatementError) as refused:
            await world.engine.run_planned("ALTER ZONE orders SET (REPLICAS 1)", str(plan.plan_id))
        assert refused.value.kind is ErrorKind.PLAN_CHANGED
        assert "logs" not in refused.value.message.lower()


async def test_a_scope_narrows_what_its_owner_may(world: World) -> None:
    async with by(world, "root", {zone_object(ZoneId(1)): frozenset({Privilege.ALTER})}):
        await world.engine.run_script("ALTER ZONE orders SET (REPLICAS 2)")
        assert (await refusal(world, "DROP ZONE orders")).kind is ErrorKind.PRIVILEGE_MISSING
        assert (await refusal(world, "CREATE USER carl")).kind is ErrorKind.PRIVILEGE_MISSING
        assert [row[0] for row in await rows(world, "SHOW ZONES")] == ["ORDERS"]


async def test_a_reversal_is_authorised_again_when_it_is_committed(world: World) -> None:
    """The grants that decide are those of the catalog version that the reversal is made of."""
    origin = Origin("whoever", False, "")
    zone = (await world.catalog.snapshot()).zone("ORDERS")
    assert zone is not None

    def restored(catalog: CatalogSnapshot) -> Zone:
        return replace(zone, auto_scale_up=7)

    for name, kind in (("ben", ErrorKind.ZONE_NOT_FOUND), ("viewer1", ErrorKind.PRIVILEGE_MISSING)):
        async with by(world, name):
            with pytest.raises(StatementError) as refused:
                await world.catalog.restore(restored, "REVERSE OPERATION 1-1", origin)
        assert refused.value.kind is kind
    async with by(world, "anna"):
        assert await world.catalog.restore(restored, "REVERSE OPERATION 1-1", origin)
    changed = (await world.catalog.snapshot()).zone("ORDERS")
    assert changed is not None
    assert changed.auto_scale_up == 7


async def test_nobody_drains_or_pauses_in_the_name_of_another(api: OperationsWorld) -> None:
    """Nor is that shown with the node, or with what waits."""
    pause = {"by": "alice", "reason": "inventory"}
    async with by(api.world, "oper"):
        assert (await api.http.put("/nodes/n1/drain", json={"by": "alice"})).status_code == 200
        limits = {"pause": pause, "zone_pauses": {"orders": pause}}
        assert (await api.http.patch("/rebalance/limits", json=limits)).status_code == 200
        await api.world.settle()
        (drain,) = [node["drain"] for node in (await api.get("/nodes"))["nodes"] if node["name"] == "n1"]
        shown = await api.get("/rebalance/limits")
    assert [held["by"] for held in (drain, shown["pause"], *shown["zone_pauses"])] == ["oper"] * 3


async def test_what_is_done_for_nobody_changes_nothing(tmp_path: Path) -> None:
    """Refused where users log in: a task that has lost for whom it works may not do everything. The server
    itself, as for the token of ``up``, names itself as the actor."""
    url = migrated_file(tmp_path)
    catalog = CatalogExecutor(url, ZoneDefaults(), MemberCounts(lambda _: ()), requires_login=True)
    await catalog.open(lambda: None)
    commands = (CreateUser(Name("anna")),)

    def restored(_: CatalogSnapshot) -> Zone:
        raise AssertionError("it is refused before")

    async def reverse() -> None:
        await catalog.restore(restored, "REVERSE OPERATION 1-1", Origin("whoever", True, ""))

    try:
        for actor in (NOBODY, *(Actor("root", True, channel) for channel in (Channel.REST, Channel.CONSOLE))):
            for change in (partial(catalog.run, commands, ()), reverse):
                with acting(actor), pytest.raises(StatementError) as refused:
                    await change()
                assert refused.value.kind is ErrorKind.UNAUTHENTICATED
        assert (await catalog.snapshot()).version == 0
        with acting(Actor("zonectl up", channel=Channel.SYSTEM)):
            assert len(await catalog.run(commands, ())) == 1
    finally:
        await catalog.close()


async def test_drivers_are_authorised_alike(world: World) -> None:
    async with by(world, "anna"):
        for sql, kind in (
            ("DROP ZONE orders", ErrorKind.PRIVILEGE_MISSING),
            ("SELECT * FROM system.audit", ErrorKind.PRIVILEGE_MISSING),
            ("DESCRIBE ZONE logs", ErrorKind.ZONE_NOT_FOUND),
        ):
            with pytest.raises(StatementError) as refused:
                await world.engine.execute(sql, SessionContext())
            assert refused.value.kind is kind
        answer = await world.engine.execute("SELECT zone_name FROM system.zones", SessionContext())
        assert [tuple(row) for row in answer.rows] == [("ORDERS",)]


async def test_nobody_makes_the_server_hash_passwords_who_may_not_make_users(world: World) -> None:
    async with by(world, "anna"):
        refused = await refusal(world, "CREATE USER carl PASSWORD 'short'")
        assert refused.kind is ErrorKind.PRIVILEGE_MISSING
    async with by(world, "root"):
        assert (await refusal(world, "CREATE USER carl PASSWORD 'short'")).kind is ErrorKind.PASSWORD_INVALID


async def test_a_logged_statement_is_its_senders(api: OperationsWorld) -> None:
    body = {"sql": "SHOW ZONES", "wait_timeout": 30}
    async with by(api.world, "anna"):
        answer = await api.http.post("/statements", json=body)
        path = answer.headers["Location"].removeprefix("/api/v1")
        assert (await api.http.get(path)).status_code == 200
    requests = (("GET", path), ("GET", f"{path}/results/1/rows"), ("DELETE", path), ("POST", f"{path}/cancel"))
    for other in ("ben", "viewer1", "nobody"):
        async with by(api.world, other):
            for method, address in requests:
                sent = {} if method == "POST" else None
                refused = await api.http.request(method, address, json=sent)
                assert (refused.status_code, refused.json()["name"]) == (404, "STATEMENT_NOT_FOUND")
    for operating in ("oper", "root"):
        async with by(api.world, operating):
            assert (await api.http.get(path)).status_code == 200
    async with by(api.world, "anna"):
        assert (await api.http.delete(path)).status_code == 204


async def test_drivers_pages_are_their_senders(api: OperationsWorld) -> None:
    headers = {"X-Trino-User": "anna"}
    async with by(api.world, "anna"):
        first = await api.http.post(
            "http://api/v1/statement", content=b"SELECT zone_name FROM system.zones", headers=headers
        )
    address = first.json()["nextUri"]
    async with by(api.world, "ben"):
        refused = await api.http.get(address)
        assert refused.status_code == 404
        assert (await api.http.delete(address)).status_code == 404
    async with by(api.world, "anna"):
        while "data" not in (page := (await api.http.get(address)).json()):
            address = page["nextUri"]
        assert page["data"] == [["ORDERS"]]


async def test_an_idempotency_key_is_its_senders(api: OperationsWorld) -> None:
    key = {"Idempotency-Key": "one key"}
    answers = {}
    for name in ("anna", "ben"):
        async with by(api.world, name):
            answers[name] = (await api.http.post("/statements", json={"sql": "SHOW ZONES"}, headers=key)).json()
            again = (await api.http.post("/statements", json={"sql": "SHOW ZONES"}, headers=key)).json()
            assert again == answers[name]
    assert answers["anna"]["statement_id"] != answers["ben"]["statement_id"]
    assert "ORDERS" not in str(answers["ben"])


async def test_where_nobody_logs_in_everything_is_as_before(world: World) -> None:
    await world.engine.run_script("CREATE ZONE z; DROP ZONE z; CREATE USER carl PASSWORD 'long enough'")
    assert await names(world) == {"ORDERS", "LOGS"}


async def test_files_and_plans_are_of_zones_and_tables(world: World) -> None:
    with pytest.raises(DdlFileError) as refused:
        await world.engine.plan([DdlFile("users.sql", "CREATE ZONE z;\nCREATE USER carl")], prune=())
    assert refused.value.cause.kind is ErrorKind.STATEMENT_NOT_SUPPORTED
    assert refused.value.cause.line == 2
    with pytest.raises(StatementError) as not_planned:
        await world.engine.change_plan("CREATE ZONE z; GRANT viewer TO ben")
    assert (not_planned.value.kind, not_planned.value.statement) == (ErrorKind.STATEMENT_NOT_SUPPORTED, 2)


async def test_the_audit_names_who_was_granted_something_and_what(world: World) -> None:
    await world.engine.run_script("GRANT SEE, OPERATE ON SYSTEM TO ben; REVOKE viewer FROM viewer1")
    audit = await rows(
        world, "SELECT action, subject, details FROM system.audit ORDER BY audit_number DESC LIMIT 2"
    )
    assert audit == [
        ("REVOKE", "viewer1", "REVOKE viewer FROM viewer1"),
        ("GRANT", "ben", "GRANT SEE, OPERATE ON SYSTEM TO ben"),
    ]
    answer = await world.engine.execute("GRANT viewer TO ben", SessionContext())
    assert (answer.update_type, answer.applied) == ("GRANT", True)
