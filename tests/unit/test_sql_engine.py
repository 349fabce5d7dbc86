"""The SQL engine over a whole catalog and keyspace: views, SHOW, DESCRIBE, EXPLAIN, scripts, limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import INTEGER, ResultSet, ScriptError, SessionContext
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.zone import TIMER_OFF, Node
from parser.to_command import parse_ddl
from tests.unit.sql_world import DEFAULT_NODES, World, opened


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    pool = SandboxPool(QueryLimits(rows_max=5000))
    yield pool
    asyncio.run(pool.close())


@pytest.fixture
async def world(tmp_path: Path, sandbox: SandboxPool) -> AsyncIterator[World]:
    """One zone: ORDERS with 4 partitions of 3 replicas on 3 nodes, all running."""
    async with opened(tmp_path, sandbox) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 3)")
        await made.serve(1, 4)
        yield made


async def rows(world: World, sql: str) -> list[tuple[Any, ...]]:
    return list((await world.engine.execute(sql, SessionContext())).rows)


async def objects(world: World, sql: str) -> list[dict[str, Any]]:
    result = await world.engine.execute(sql, SessionContext())
    names = [column.name for column in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


async def refused(world: World, sql: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        await world.engine.execute(sql, SessionContext())
    return caught.value


async def test_ddl_says_what_it_did(world: World) -> None:
    result = await world.run("/* a */ ALTER ZONE orders SET (REPLICAS 3)")
    assert (result.update_type, result.applied, result.zone_id, result.catalog_version) == (
        "ALTER ZONE",
        False,
        1,
        1,
    )
    assert [warning.name for warning in result.warnings] == ["NOTHING_CHANGED"]
    assert result.columns == ()
    assert (await world.run("ALTER ZONE orders SET (AUTO SCALE UP 3)")).applied
    result = await world.run("DROP ZONE IF EXISTS nothing")
    assert (result.update_type, result.applied, result.zone_id) == ("DROP ZONE", False, None)


@pytest.mark.row("IEP-015")
async def test_zones_have_the_documented_columns(world: World) -> None:
    """IEP-015: QUORUM_SIZE is stored and shown, also a derived one."""
    result = await world.engine.execute("SELECT * FROM system.zones", SessionContext())
    assert [column.name for column in result.columns] == [
        *("ZONE_ID", "ZONE_NAME", "ZONE_PARTITIONS", "ZONE_REPLICAS", "ZONE_QUORUM_SIZE"),
        *("DATA_NODES_AUTO_ADJUST_SCALE_UP", "DATA_NODES_AUTO_ADJUST_SCALE_DOWN", "DATA_NODES_FILTER"),
        *("ZONE_DISTRIBUTION_ALGORITHM", "ZONE_CONSISTENCY_MODE", "ZONE_REBALANCE_STRATEGY"),
        *("ZONE_PARTITION_LOSS_POLICY", "ZONE_STORAGE_PROFILES", "ZONE_VOTERS", "ZONE_LEARNERS"),
        *("DATA_NODES", "IS_DEFAULT_ZONE", "ZONE_STATE"),
    ]
    placed = "rendezvous", "STRONG_CONSISTENCY", None, None, "default"
    assert result.rows == [
        (1, "ORDERS", 4, 3, 2, 0, 2147483647, "$..*", *placed, 3, 0, "n1, n2, n3", False, "ACTIVE")
    ]
    assert result.columns[0].type == INTEGER
    assert result.catalog_version == 1


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT zone_name FROM zones", [("ORDERS",)]),
        ("SELECT z.zone_name FROM zonekeeper.system.zones z", [("ORDERS",)]),
        ('SELECT "ZONE_NAME" FROM SYSTEM."ZONES"', [("ORDERS",)]),
        ("SELECT storage_profile, is_default_profile FROM zone_storage_profiles", [("default", True)]),
        ("SELECT count(*) FROM tables", [(0,)]),
        ("SELECT node_name, members FROM nodes WHERE is_alive ORDER BY 1", [("n1", 4), ("n2", 4), ("n3", 4)]),
        ("SELECT DISTINCT partition_state FROM global_zone_partition_states", [("AVAILABLE",)]),
        (
            "SELECT node_name, count(*) n FROM local_zone_partition_states WHERE partition_state = 'HEALTHY' "
            "GROUP BY node_name HAVING count(*) > 1 ORDER BY node_name LIMIT 2 OFFSET 1",
            [("n2", 4), ("n3", 4)],
        ),
        ("SELECT count(*) FROM zones z JOIN assignments a ON a.zone_id = z.zone_id WHERE a.is_stable", [(12,)]),
        ("SELECT count(*) FROM assignments WHERE is_leader AND position = 1 AND role = 'VOTER'", [(4,)]),
        ("SELECT 1 WHERE 'a_b' LIKE 'a!_%' ESCAPE '!' AND NOT 'axb' LIKE 'a!_%' ESCAPE '!'", [(1,)]),
        ("WITH zones AS (SELECT zone_id + 1 AS x FROM zones) SELECT x FROM zones", [(2,)]),
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("SELECT count(*) FROM operations", [(0,)]),
        (
            "SELECT catalog_version, statement FROM events",
            [(1, "CREATE ZONE orders (PARTITIONS 4, REPLICAS 3)")],
        ),
        ("SELECT 7 / 2, '{', 'x' || 'y' // a comment", [(3, "{", "xy")]),
    ],
)
async def test_select(world: World, sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert await rows(world, sql) == expected


async def test_times_and_the_snapshot(world: World) -> None:
    found = await objects(world, "SELECT e.committed_at, s.* FROM events e, snapshot s")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", found[0]["COMMITTED_AT"])
    assert found[0]["CATALOG_VERSION"] == 1
    assert found[0]["METASTORE_REVISION"] == world.mirror.revision


async def test_states_follow_the_nodes(world: World) -> None:
    """Two of three voters: DEGRADED; one: READ_ONLY; none: UNAVAILABLE."""
    query = "SELECT DISTINCT partition_state FROM global_zone_partition_states"
    expected = ["AVAILABLE", "DEGRADED", "READ_ONLY", "UNAVAILABLE"]
    for down, state in enumerate(expected):
        await world.set_nodes(*DEFAULT_NODES[down:])
        assert await rows(world, query) == [(state,)]
    gone = await rows(world, "SELECT node_name, is_alive, pid FROM nodes ORDER BY 1")
    assert gone == [("n1", False, None), ("n2", False, None), ("n3", False, None)]


async def test_operations_show_what_moves_and_why(world: World) -> None:
    await world.run("ALTER ZONE orders SET (REPLICAS 1)")
    (operation,) = await objects(world, "SELECT * FROM operations")
    assert operation["STATE"] == "WAITING"
    assert (operation["PARTITIONS"], operation["DONE"], operation["WAITING"]) == (4, 0, 4)
    assert operation["CAUSES"] == '[{"cause": "LEADER_HAS_NOT_BEGUN", "partitions": 4}]'
    assert operation["CATALOG_VERSION"] == 2
    pending = "SELECT count(*) FROM assignments WHERE is_pending AND is_stable AND is_target"
    assert await rows(world, pending) == [(4,)]


async def test_a_zone_that_is_not_placed_yet(world: World) -> None:
    await world.run("CREATE ZONE young (PARTITIONS 2, REPLICAS 3)", reconcile=False)
    states = await rows(
        world, "SELECT partition_state FROM global_zone_partition_states WHERE zone_name = 'YOUNG'"
    )
    assert states == [("UNAVAILABLE",), ("UNAVAILABLE",)]
    assert await rows(world, "SELECT zone_quorum_size FROM zones WHERE zone_name = 'YOUNG'") == [(2,)]
    assert len(await rows(world, "SHOW PARTITIONS FROM young")) == 2
    assert await rows(world, "DESCRIBE ZONE young")


@pytest.mark.parametrize(
    ("sql", "kind", "line", "column"),
    [
        ("SELECT nope FROM zones", ErrorKind.COLUMN_NOT_FOUND, 1, 8),
        ("SELECT z.nope\nFROM zones z", ErrorKind.COLUMN_NOT_FOUND, 1, 10),
        ("SELECT *\n  FROM nowhere", ErrorKind.VIEW_NOT_FOUND, 2, 8),
        ("SELECT * FROM other.system.zones", ErrorKind.CATALOG_NOT_FOUND, 1, 15),
        ("SELECT * FROM 'x.csv'", ErrorKind.VIEW_NOT_FOUND, 1, 15),
        ("SELECT zone_id, count(*) FROM zones", ErrorKind.QUERY_INVALID, 1, 8),
        ("SELECT CAST(zone_name AS integer) FROM zones", ErrorKind.QUERY_FAILED, None, None),
        ("SELECT a.zone_id FROM assignments a, assignments b, assignments c, assignments d",
         ErrorKind.RESULT_TOO_LARGE, None, None),
        ("SHOW PARTITIONS FROM nowhere", ErrorKind.ZONE_NOT_FOUND, 1, 22),
        ("SHOW CREATE ZONE nowhere", ErrorKind.ZONE_NOT_FOUND, 1, 18),
        ("DESCRIBE ZONE nowhere", ErrorKind.ZONE_NOT_FOUND, 1, 15),
        ("DESCRIBE nowhere", ErrorKind.VIEW_NOT_FOUND, 1, 10),
        ("EXPLAIN PARTITION orders.4", ErrorKind.INVALID_REQUEST, 1, 19),
        ("SHOW ZONES; SHOW NODES", ErrorKind.MULTIPLE_STATEMENTS, 1, 13),
        ("DROP ZONE a; DROP ZONE b", ErrorKind.MULTIPLE_STATEMENTS, 1, 14),
        ("", ErrorKind.SYNTAX_ERROR, 1, 1),
    ],
)  # fmt: skip
async def test_refusals(world: World, sql: str, kind: ErrorKind, line: int | None, column: int | None) -> None:
    error = await refused(world, sql)
    assert (error.kind, error.line, error.column) == (kind, line, column), error


async def test_show(world: World) -> None:
    (zone,) = await objects(world, "SHOW ZONES")
    assert (zone["ZONE_NAME"], zone["REPLICAS"], zone["QUORUM_SIZE"], zone["VOTERS"], zone["LEARNERS"]) == (
        *("ORDERS", "3", 2, 3, 0),
    )
    assert await rows(world, "SHOW ZONES LIKE 'ord%'") == [tuple(zone.values())]
    assert await rows(world, "SHOW ZONES LIKE 'x%'") == []
    assert [row[0] for row in await rows(world, "SHOW NODES")] == ["n1", "n2", "n3"]
    assert ("ZONES", "SYSTEM", "VIEW", None) in await rows(world, "SHOW TABLES FROM system")
    assert await rows(world, "SHOW TABLES FROM public") == []
    partitions = await objects(world, "SHOW PARTITIONS FROM orders")
    assert [row["STATE"] for row in partitions] == ["AVAILABLE"] * 4
    assert {row["MOVE"] for row in partitions} == {"DONE"}
    assert await rows(world, "SHOW CATALOGS") == [("ZONEKEEPER",)]
    assert ("SYSTEM",) in await rows(world, "SHOW SCHEMAS")
    columns = await rows(world, "SHOW COLUMNS FROM system.events")
    assert [row[:2] for row in columns][:2] == [("CATALOG_VERSION", "bigint"), ("COMMITTED_AT", "timestamp(3)")]
    assert columns == await rows(world, "DESCRIBE events")


async def test_tables_of_the_catalog_are_described(world: World) -> None:
    await world.run(
        "CREATE TABLE sales (id INT, shop VARCHAR(10), n INT DEFAULT 3, PRIMARY KEY (id, shop)) "
        "COLOCATE BY (shop) ZONE orders"
    )
    found = [row[:3] for row in await rows(world, "DESCRIBE sales")]
    assert found == [
        ("ID", "INTEGER", "primary key"),
        ("SHOP", "VARCHAR(10)", "primary key, colocation"),
        ("N", "INTEGER", "default 3"),
    ]
    assert [row[:3] for row in await rows(world, "SHOW COLUMNS FROM public.sales")] == found


@pytest.mark.row("IEP-015")
async def test_show_create_zone_reads_back(world: World) -> None:
    """IEP-015."""
    await world.run("CREATE ZONE \"odd name\" (REPLICAS ALL, QUORUM SIZE 2) STORAGE PROFILES ['rocks']")
    for name in ("orders", '"odd name"'):
        ((_, statement),) = await rows(world, f"SHOW CREATE ZONE {name}")
        (created,) = parse_ddl(statement)
        await world.run(f"DROP ZONE {name}")
        before = await world.run(statement)
        assert before.effect is not None
        assert created.name.text == before.effect["zone"]
    assert statement.startswith('CREATE ZONE "odd name" (PARTITIONS 4, REPLICAS ALL, QUORUM SIZE 2, ')
    assert statement.endswith(" STORAGE PROFILES ['rocks']")


@pytest.mark.row("IEP-011", "IEP-015")
async def test_describe_zone_shows_every_notion(world: World) -> None:
    """IEP-011, IEP-015."""
    found = {row[0]: row[1] for row in await rows(world, "DESCRIBE ZONE orders")}
    assert {name: found[name] for name in ("REPLICAS", "QUORUM_SIZE", "CONSENSUS_SIZE", "LEARNERS")} == {
        "REPLICAS": "3",
        "QUORUM_SIZE": "2",
        "CONSENSUS_SIZE": "3",
        "LEARNERS": "0",
    }
    assert found["DATA_NODES"] == "n1, n2, n3"
    assert found["STATE"] == "CONVERGED"


def section(found: ResultSet, name: str) -> list[tuple[Any, ...]]:
    return [row[1:] for row in found.rows if row[0] == name]


async def explain(world: World, sql: str) -> ResultSet:
    """Result of an EXPLAIN. Nothing is changed by it: catalog and keyspace are byte for byte what they were."""
    before = await world.dump()
    found = await world.engine.execute(sql, SessionContext())
    assert await world.dump() == before
    return found


async def test_explain_create(world: World) -> None:
    found = await explain(world, "EXPLAIN CREATE ZONE young (PARTITIONS 6, REPLICAS 5)")
    assert ("replicas", None, "5", None, None, "") in section(found, "PARAMETER")
    assert ("data nodes", None, "n1, n2, n3", None, None, "") in section(found, "DATA_NODES")
    assert [(row[0], row[3]) for row in section(found, "ADD")] == [("n1", 6), ("n2", 6), ("n3", 6)]
    balance = {row[0]: (row[1], row[2]) for row in section(found, "BALANCE")}
    assert balance["n1 replicas"] == (None, "6")
    assert balance["replicas max-min"] == (None, "0")
    assert [warning.name for warning in found.warnings] == ["REPLICAS_ABOVE_DATA_NODES"]


async def test_explain_alter_says_what_then_happens(world: World) -> None:
    await world.set_nodes(*DEFAULT_NODES, Node("n4"))
    found = await explain(world, "EXPLAIN ALTER ZONE orders SET (REPLICAS 1)")
    order = list(dict.fromkeys(row[0] for row in found.rows))
    assert order[:2] == ["STATEMENT", "REMOVE"], "what moves is above what stays"
    changes = [row[-1] for row in section(found, "PARAMETER")]
    assert changes == sorted(changes, reverse=True)
    assert ("replicas", "3", "1", None, None, "changes") in section(found, "PARAMETER")
    moves = {row[0]: row[3] for kind in ("MOVE", "ADD", "REMOVE") for row in section(found, kind)}
    before = {n: await stable(world, n) for n in range(4)}
    await world.run("ALTER ZONE orders SET (REPLICAS 1)")
    expected: dict[str, int] = {}
    for number in range(4):
        pending = await world.assignments(world.keyspace.partition(partition(number)).pending)
        assert pending is not None
        donors, stealers = sorted(before[number] - pending.nodes), sorted(pending.nodes - before[number])
        pairs = [f"{a} -> {b}" for a, b in zip(donors, stealers, strict=False)]
        for name in (*pairs, *donors[len(stealers) :]):
            expected[name] = expected.get(name, 0) + 1
    assert moves == expected
    assert sum(moves.values()) == 8


def partition(number: int) -> Any:
    from catalog.core.zone import ZoneId
    from rebalance.core.keyspace.keys import PartitionId

    return PartitionId(ZoneId(1), number)


async def stable(world: World, number: int) -> frozenset[str]:
    found = await world.assignments(world.keyspace.partition(partition(number)).stable)
    assert found is not None
    return found.nodes


async def test_explain_drop_and_nothing(world: World) -> None:
    found = await explain(world, "EXPLAIN DROP ZONE orders")
    assert [(row[0], row[3]) for row in section(found, "REMOVE")] == [("n1", 4), ("n2", 4), ("n3", 4)]
    found = await explain(world, "EXPLAIN ALTER ZONE orders SET (REPLICAS 3)")
    assert "changes nothing" in section(found, "STATEMENT")[0][-1]
    found = await explain(world, "EXPLAIN DROP ZONE IF EXISTS nowhere")
    assert len(found.rows) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE ZONE orders",
        "CREATE ZONE z (PARTITIONS 0)",
        "CREATE ZONE z (REPLICAS 3, QUORUM SIZE 1)",
        "CREATE ZONE z (PARTITIONS 200, REPLICAS 3)",
        "ALTER ZONE nowhere SET (REPLICAS 2)",
        "ALTER ZONE orders SET (PARTITIONS 9)",
        "CREATE ZON z",
        "DROP ZONE",
    ],
)
async def test_explain_refuses_as_the_statement_does(world: World, sql: str) -> None:
    before = await world.dump()
    explained = await refused(world, f"EXPLAIN\n{sql}")
    done = await refused(world, sql)
    assert (explained.kind, explained.message, explained.column) == (done.kind, done.message, done.column)
    assert explained.line == (done.line or 0) + 1
    assert await world.dump() == before


async def test_explain_partition_has_a_reason_for_every_node(world: World) -> None:
    await world.run("CREATE ZONE fast (PARTITIONS 2, REPLICAS 1) STORAGE PROFILES ['rocks']")
    await world.serve(2, 2)
    await world.set_nodes(*DEFAULT_NODES[1:], Node("n9", profiles=("default",), member_limit=0))
    found = {row["NODE_NAME"]: row for row in await objects(world, "EXPLAIN PARTITION fast.0")}
    assert set(found) == {"n1", "n2", "n3", "n9"}
    assert found["n3"]["VERDICT"] == found["n9"]["VERDICT"] == "EXCLUDED"
    assert "lacks the storage profile rocks" in found["n3"]["REASON"]
    assert "member limit (0 of 0)" in found["n9"]["REASON"]
    assert "the node is down" in found["n1"]["REASON"]
    assert {found[name]["VERDICT"] for name in ("n1", "n2")} == {"VOTER", "CANDIDATE"}
    for name in ("n1", "n2"):
        chosen = found[name]["VERDICT"] == "VOTER"
        assert (found[name]["RANK"] == 1) == chosen
        assert found[name]["HOLDS"] == ("VOTER" if chosen else "NONE")
        assert f"rank {found[name]['RANK']} of 2" in found[name]["REASON"]
    assert all(row["REASON"] for row in found.values())


async def test_scripts_of_all_kinds(world: World) -> None:
    script = "SHOW ZONES;\nCREATE ZONE b (PARTITIONS 1);\nSELECT zone_name FROM zones ORDER BY 1"
    done = [each.to_json() for each in await world.engine.run_script(script)]
    assert [each["n"] for each in done] == [1, 2, 3]
    assert done[1]["effect"]["op"] == "create"
    assert "columns" not in done[1]
    assert done[2]["columns"] == [{"name": "ZONE_NAME", "type": "varchar"}]
    assert done[2]["data"] == [["B"], ["ORDERS"]]
    assert (done[2]["applied"], done[2]["effect"], done[2]["catalog_version"]) == (None, None, 2)


@pytest.mark.parametrize(
    ("script", "kind", "statement", "line", "done"),
    [
        # Read whole: nothing is done.
        ("CREATE ZONE c; SELECT * FROM 'x.csv'", ErrorKind.VIEW_NOT_FOUND, 2, 1, 0),
        ("CREATE ZONE c;\nSHOW", ErrorKind.SYNTAX_ERROR, 2, 2, 0),
        ("SHOW ZONES;\n\nCREATE ZON c", ErrorKind.SYNTAX_ERROR, 2, 3, 0),
        # Refused when run: what came before stays.
        ("SHOW ZONES; CREATE ZONE orders", ErrorKind.ZONE_ALREADY_EXISTS, 2, 1, 1),
        ("CREATE ZONE c;\nSELECT nope FROM zones", ErrorKind.COLUMN_NOT_FOUND, 2, 2, 1),
    ],
)
async def test_a_script_that_fails(
    world: World, script: str, kind: ErrorKind, statement: int, line: int, done: int
) -> None:
    before = await world.catalog.snapshot()
    with pytest.raises(ScriptError) as caught:
        await world.engine.run_script(script)
    error = caught.value
    assert (error.kind, error.statement, error.line, len(error.results)) == (kind, statement, line, done)
    changed = (await world.catalog.snapshot()).version - before.version
    assert changed == (1 if done and script.startswith("CREATE") else 0)


async def test_a_transaction_holds_no_zone_statement(world: World) -> None:
    session = SessionContext(in_transaction=True)
    assert (await world.engine.execute("SELECT 1", session)).rows == [(1,)]
    with pytest.raises(StatementError):
        await world.engine.execute("DROP ZONE orders", session)


async def test_views_that_take_too_long_are_given_up(tmp_path: Path, sandbox: SandboxPool) -> None:
    async with opened(tmp_path, sandbox, timeout_s=0.0001) as world:
        for number in range(4):
            await world.run(f"CREATE ZONE z{number} (PARTITIONS 8)")
        assert (await refused(world, "SELECT * FROM assignments")).kind is ErrorKind.QUERY_TIMEOUT


async def test_one_snapshot_for_all_views(world: World) -> None:
    """Counts over two views of one query agree while zones come and go, and so do version and history."""

    async def change() -> None:
        for _ in range(5):
            await world.run("CREATE ZONE t (PARTITIONS 3)")
            await world.run("DROP ZONE t")

    changing = asyncio.create_task(change())
    while not changing.done():
        (row,) = await rows(
            world,
            "SELECT (SELECT sum(zone_partitions) FROM zones),"
            " (SELECT count(*) FROM global_zone_partition_states),"
            " (SELECT max(catalog_version) FROM events), (SELECT catalog_version FROM snapshot)",
        )
        assert row[0] == row[1]
        assert row[2] == row[3]
    await changing


@pytest.mark.row("IEP-052")
async def test_timers_are_stored_altered_and_shown(world: World) -> None:
    """IEP-052: ALTER of a timer is stored, shown everywhere, explained, and moves nothing."""
    await world.run("CREATE ZONE timed (PARTITIONS 1, REPLICAS 1, AUTO SCALE UP 5, AUTO SCALE DOWN 7)")
    query = (
        "SELECT data_nodes_auto_adjust_scale_up, data_nodes_auto_adjust_scale_down FROM zones "
        "WHERE zone_name = 'TIMED'"
    )
    assert await rows(world, query) == [(5, 7)]
    told = await explain(world, "EXPLAIN ALTER ZONE timed SET (AUTO SCALE UP 9)")
    assert "9" in str(told)
    await world.run("ALTER ZONE timed SET (AUTO SCALE UP 9, AUTO SCALE DOWN OFF)")
    assert await rows(world, query) == [(9, TIMER_OFF)]
    ((_, statement),) = await rows(world, "SHOW CREATE ZONE timed")
    assert "AUTO SCALE UP 9" in statement
