"""CALL of the two procedures that bring partitions back: what is read and done, and each refusal's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.sql.results import SessionContext
from app.sql.sandbox_pool import QueryLimits, SandboxPool
from catalog.core.errors import ErrorKind, ParseError, StatementError
from catalog.core.zone import ZoneId
from parser.calls import Call, Procedure
from parser.queries import parse_statement
from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from tests.unit.sql_world import DEFAULT_NODES, World, opened


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    pool = SandboxPool(QueryLimits())
    yield pool
    asyncio.run(pool.close())


@pytest.fixture
async def world(tmp_path: Path, sandbox: SandboxPool) -> AsyncIterator[World]:
    """ORDERS: 2 partitions of 3 replicas, all running."""
    async with opened(tmp_path, sandbox) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 3)")
        await made.serve(1, 2)
        yield made


def read(text: str) -> tuple[Procedure, str, list[int], list[str]]:
    call = parse_statement(text).statement
    assert isinstance(call, Call)
    numbers, nodes = [each.value for each in call.partitions], [each.value for each in call.nodes]
    return call.procedure, call.zone.value, numbers, nodes


def test_what_is_read() -> None:
    reset, restart = Procedure.RESET_PARTITIONS, Procedure.RESTART_PARTITIONS
    assert read("CALL system.reset_partitions('orders', ARRAY[0, 17])") == (reset, "orders", [0, 17], [])
    assert read("call Reset_Partitions ( 'Orders' ) -- all") == (reset, "Orders", [], [])
    text = "CALL system.restart_partitions('z', ARRAY[], ARRAY['n1', 'N-2'])"
    assert read(text) == (restart, "z", [], ["n1", "N-2"])


@pytest.mark.parametrize(
    ("text", "kind", "column", "message"),
    [
        ("CALL", ErrorKind.SYNTAX_ERROR, 5, "expected system.reset_partitions or"),
        ("CALL system.drop_all('z')", ErrorKind.STATEMENT_NOT_SUPPORTED, 6, "unknown procedure"),
        ("CALL system.reset_partitions 'z'", ErrorKind.SYNTAX_ERROR, 30, "expected (, found 'z'"),
        ("CALL reset_partitions(z)", ErrorKind.SYNTAX_ERROR, 23, "expected a zone's name in single quotes"),
        ("CALL reset_partitions('z', 0)", ErrorKind.SYNTAX_ERROR, 28, "expected ARRAY[...], found 0"),
        ("CALL reset_partitions('z', ARRAY[-1])", ErrorKind.SYNTAX_ERROR, 34, "a partition's number"),
        ("CALL reset_partitions('z', ARRAY[1.5])", ErrorKind.SYNTAX_ERROR, 34, "it has digits only"),
        ("CALL reset_partitions('z', ARRAY[1)", ErrorKind.SYNTAX_ERROR, 35, "expected ], found )"),
        ("CALL reset_partitions('z', ARRAY[1], 'n')", ErrorKind.SYNTAX_ERROR, 38, "expected ARRAY[...]"),
        (
            "CALL restart_partitions('z', ARRAY[1], ARRAY['n'], 'n')",
            ErrorKind.SYNTAX_ERROR,
            50,
            "expected ), found ,",
        ),
        ("CALL reset_partitions('z') x", ErrorKind.SYNTAX_ERROR, 28, "the end of the statement, found x"),
    ],
)
def test_what_is_not_read(text: str, kind: ErrorKind, column: int, message: str) -> None:
    """The place is that of the word that does not fit."""
    with pytest.raises(ParseError) as error:
        parse_statement(text)
    assert error.value.kind is kind
    assert (error.value.line, error.value.column) == (1, column)
    assert message in error.value.message


async def refused(world: World, sql: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        await world.engine.execute(sql, SessionContext())
    return caught.value


@pytest.mark.row("IEP-059", "R1", shows="service")
async def test_a_reset(world: World) -> None:
    """IEP-059, S211, R1: pending is forced, a row for each partition says on whom. The voters that are dead are
    named, and the copy may be."""
    await world.serve(1, 2, down=("n2", "n3"))
    await world.set_nodes(DEFAULT_NODES[0])
    lacking = await refused(world, "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2'])")
    assert lacking.kind is ErrorKind.LOSS_NOT_CONFIRMED
    assert (lacking.line, lacking.column) == (1, 56)
    assert lacking.message.endswith("confirm exactly n2, n3")
    unknown = "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2', 'n3'], 'n2')"
    assert (await refused(world, unknown)).kind is ErrorKind.NODE_SET_ILLEGAL
    sql = "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2', 'n3'])"
    done = await world.engine.execute(sql, SessionContext())
    names = [column.name for column in done.columns]
    row = dict(zip(names, done.rows[0], strict=True))
    assert (row["PARTITION_ID"], row["OUTCOME"], row["SURVIVOR"], row["PLANNED"]) == (1, "RESET", "n1", None)
    assert row["POSSIBLY_LOST_ENTRIES"] == 2
    pending = await world.assignments(world.keyspace.partition(PartitionId(ZoneId(1), 1)).pending)
    assert pending == Assignments(("n1",))
    assert pending.forced
    assert await world.assignments(world.keyspace.partition(PartitionId(ZoneId(1), 0)).pending) is None


async def test_a_restart(world: World) -> None:
    """In a script too, between other statements."""
    sql = "SHOW ZONES; CALL system.restart_partitions('ORDERS', ARRAY[0], ARRAY['n2'])"
    (_, done) = await world.engine.run_script(sql)
    assert done.to_json()["data"] == [[0, "n2"]]
    asked = world.keyspace.restart(PartitionId(ZoneId(1), 0), "n2")
    assert await world.metastore.get(asked) is not None


@pytest.mark.parametrize(
    ("sql", "kind", "place"),
    [
        ("CALL system.reset_partitions('ghost')", ErrorKind.ZONE_NOT_FOUND, (1, 30)),
        ("CALL system.reset_partitions('orders')", ErrorKind.RECOVERY_NOT_NEEDED, (1, 6)),
        ("CALL system.reset_partitions('orders', ARRAY[0])", ErrorKind.RECOVERY_NOT_NEEDED, (1, 6)),
        ("CALL system.reset_partitions('orders', ARRAY[0,\n 7])", ErrorKind.PARTITION_NOT_FOUND, (2, 2)),
        ("CALL restart_partitions('orders', ARRAY[0], ARRAY['x'])", ErrorKind.NODE_NOT_FOUND, (1, 51)),
    ],
)
async def test_refusals(world: World, sql: str, kind: ErrorKind, place: tuple[int, int]) -> None:
    """S211: a code, a SQLSTATE, and the place of the argument that is to blame; nothing is written."""
    before = await world.dump()
    error = await refused(world, sql)
    assert error.kind is kind
    assert len(error.kind.sqlstate) == 5
    assert (error.line, error.column) == place
    assert await world.dump() == before


async def test_not_in_a_transaction(world: World) -> None:
    session = SessionContext(in_transaction=True)
    with pytest.raises(StatementError) as caught:
        await world.engine.execute("CALL system.reset_partitions('orders')", session)
    assert caught.value.kind is ErrorKind.TRANSACTION_NOT_SUPPORTED
