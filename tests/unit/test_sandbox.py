"""Queries that try to get out, or to take more than they may: real sandbox processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from app.requests.context import acting
from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import BIGINT, BOOLEAN, DOUBLE, INTEGER, VARCHAR, ResultSet, ResultType
from catalog.core.audit import Actor
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Position
from parser.select import PreparedQuery, prepare_query
from parser.text import SourceMap


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


NUMBERS = {"numbers": stream(pa.table({"N": pa.array(range(1000), pa.int64())}))}


PATIENT = QueryLimits(timeout_s=120, waiting_s=120)
ENDLESS = "WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT (x * 7) % 1000003 FROM t) SELECT count(*) FROM t"


async def nothing() -> dict[str, bytes]:
    return {}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    """Shared: a sandbox costs a second to start."""
    made = SandboxPool(QueryLimits(timeout_s=8, rows_max=2000))
    yield made
    asyncio.run(made.close())


async def run(pool: SandboxPool, sql: str, **places: Position) -> ResultSet:
    """Past the first wall: the text goes to DuckDB as it is."""

    async def load() -> dict[str, bytes]:
        return NUMBERS

    return await pool.run(PreparedQuery(sql, frozenset(NUMBERS), places), load)


def sandboxes() -> list[psutil.Process]:
    children = (each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE)
    return [each for each in children if "app.sql.query.sandbox" in each.cmdline()]


async def refused(pool: SandboxPool, sql: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await run(pool, sql)
    return caught.value


async def test_values_and_types(pool: SandboxPool) -> None:
    result = await run(
        pool,
        "SELECT 1::INTEGER i, 2::BIGINT b, sum(N) h, avg(N) d, 1.5::DECIMAL(3,1) e, true t, 'x' v, "
        "TIMESTAMP '2024-02-03 04:05:06.789123' ts, DATE '2024-02-03' dt, [1, 2] l, NULL n, "
        "7 / 2 q, 'inf'::DOUBLE f FROM numbers",
    )
    assert [(column.name, column.type) for column in result.columns] == [
        ("i", INTEGER),
        ("b", BIGINT),
        ("h", BIGINT),
        ("d", DOUBLE),
        ("e", ResultType("decimal(3,1)")),
        ("t", BOOLEAN),
        ("v", VARCHAR),
        ("ts", ResultType("timestamp(6)")),
        ("dt", ResultType("date")),
        ("l", ResultType("array(integer)")),
        ("n", ResultType("unknown")),
        ("q", INTEGER),
        ("f", DOUBLE),
    ]
    assert result.rows == [
        (
            *(1, 2, 499500, 499.5, "1.5", True, "x", "2024-02-03 04:05:06.789123", "2024-02-03"),
            *([1, 2], None, 3, "Infinity"),
        )
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM 'numbers.csv'",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/proc/self/environ')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM 'https://127.0.0.1:1/x.parquet'",
        "COPY numbers TO '{path}'",
        "COPY (SELECT 1) TO '{path}' (FORMAT csv)",
        "EXPORT DATABASE '{path}'",
        "ATTACH '{path}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 4",
        "SET memory_limit = '8GB'",
        "RESET lock_configuration",
        "SET GLOBAL enable_external_access = true",
        "PRAGMA enable_profiling",
        "CREATE TABLE t AS SELECT 1",
        "CREATE MACRO f(x) AS x",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT getenv('PATH')",
    ],
)
async def test_there_is_no_way_out(pool: SandboxPool, sql: str, tmp_path: Path) -> None:
    path = tmp_path / "written"
    error = await refused(pool, sql.format(path=path))
    assert error.kind in (ErrorKind.QUERY_NOT_ALLOWED, ErrorKind.QUERY_INVALID, ErrorKind.QUERY_FAILED)
    assert not path.exists()
    assert (await run(pool, "SELECT count(*) FROM numbers")).rows == [(1000,)]


async def test_the_environment_is_empty(pool: SandboxPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONEKEEPER_SECRET", "hidden")
    await run(pool, "SELECT 1")
    process = sandboxes()[0]
    assert not {
        name for name in process.environ() if name not in ("PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_")
    }


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM numbers a, numbers b, numbers c, numbers d WHERE a.N + b.N + c.N + d.N = 1",
        "SELECT sum(range) FROM range(100000000000)",
    ],
)
async def test_time_is_limited(sql: str) -> None:
    pool = SandboxPool(QueryLimits(timeout_s=1.5))
    await run(pool, "SELECT 1")
    error = await refused(pool, sql)
    assert error.kind in (ErrorKind.QUERY_TIMEOUT, ErrorKind.QUERY_MEMORY_LIMIT)
    assert (await run(pool, "SELECT 1")).rows == [(1,)]
    await pool.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 1000000000) FROM range(10)",
        "SELECT length(string_agg(repeat('x', 1000000), '')) FROM numbers",
        "SELECT list(a.range) FROM range(100000000) a",
        "SELECT a.N, b.N, c.N FROM numbers a, numbers b, numbers c ORDER BY a.N + b.N LIMIT 1 OFFSET 99999999",
        "WITH RECURSIVE t AS (SELECT 'x' s UNION ALL SELECT s || s FROM t) SELECT max(length(s)) FROM t",
    ],
)
async def test_memory_is_limited(pool: SandboxPool, sql: str) -> None:
    error = await refused(pool, sql)
    assert error.kind in (ErrorKind.QUERY_MEMORY_LIMIT, ErrorKind.QUERY_TIMEOUT, ErrorKind.QUERY_FAILED), error
    assert (await run(pool, "SELECT 1")).rows == [(1,)]


async def test_rows_are_limited(pool: SandboxPool) -> None:
    error = await refused(pool, "SELECT a.N FROM numbers a, numbers b")
    assert error.kind is ErrorKind.RESULT_TOO_LARGE
    assert "2000" in error.message
    assert len((await run(pool, "SELECT a.N FROM numbers a, numbers b LIMIT 2000")).rows) == 2000


async def test_cancelling_ends_the_query(pool: SandboxPool) -> None:
    await run(pool, "SELECT 1")
    task = asyncio.create_task(run(pool, ENDLESS))
    await asyncio.sleep(0.3)
    before = sandboxes()
    task.cancel()
    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < QueryLimits().timeout_s / 2, "it was ended, and did not come to its limit"
    async with asyncio.timeout(30):
        while len(set(before) - set(sandboxes())) != 1:
            await asyncio.sleep(0.02)


async def test_errors_have_places(pool: SandboxPool) -> None:
    with pytest.raises(RefusedError) as caught:
        await run(pool, "SELECT Nope FROM numbers", nope=Position(3, 9))
    assert caught.value.kind is ErrorKind.COLUMN_NOT_FOUND
    assert (caught.value.line, caught.value.column) == (3, 9)
    assert "\n" not in caught.value.message
    assert (await refused(pool, "SELECT CAST('x' AS INTEGER)")).kind is ErrorKind.QUERY_FAILED
    assert (await refused(pool, "SELECT 1 / 0")).kind is ErrorKind.QUERY_FAILED
    assert (await refused(pool, "SELECT 9223372036854775807::HUGEINT * 4")).kind is ErrorKind.QUERY_FAILED
    assert (await refused(pool, "SELECT N, count(*) FROM numbers")).kind is ErrorKind.QUERY_INVALID


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope FROM numbers", "there is no column nope"),
        ("SELECT v.nope FROM numbers v", "v has no column nope"),
        ("SELECT N FROM numbers a, numbers b", "the column N is ambiguous: write 'a.N' or 'b.N'"),
        ("SELECT other.N FROM numbers", "there is no table other in FROM"),
        ("SELECT 1" + " + 1" * 2_400, "the query is nested too deeply"),
        ("SELECT abs('x')", "abs does not take arguments of these types"),
        ("SELECT CAST('x' AS INTEGER)", "'x' is no value of the type INTEGER"),
        ("SELECT CAST(300 AS TINYINT)", "300 is beyond the type TINYINT"),
        ("SELECT 9223372036854775807 + 1", "overflow in the addition of two values of the type BIGINT"),
        (
            "SELECT count(DISTINCT *)",
            "* stands for columns in the list of SELECT and in count(*) alone",
        ),
        ('SELECT "current_role"', "there is no column current_role"),
        ('SELECT "current_schema"', "there is no column current_schema"),
    ],
)
async def test_errors_are_of_the_query(pool: SandboxPool, sql: str, message: str) -> None:
    assert (await refused(pool, sql)).message == message


async def test_the_user_is_who_asks(pool: SandboxPool) -> None:
    text = "SELECT user, current_user, session_user"
    with acting(Actor(name="o'hara")):
        assert (await run(pool, text)).rows == [("o'hara",) * 3]
        prepared = prepare_query(SourceMap("SELECT current_user, user"), lambda name: name.last)
        assert (await pool.run(prepared, nothing)).rows == [("o'hara",) * 2]
        assert (await run(pool, 'SELECT user FROM (SELECT N AS "user" FROM numbers) LIMIT 1')).rows == [(0,)]
    with acting(Actor(name="kim")):
        assert (await run(pool, text)).rows == [("kim",) * 3]


async def test_queries_wait_for_their_turn() -> None:
    pool = SandboxPool(QueryLimits())
    results: list[Any] = await asyncio.gather(*(run(pool, f"SELECT {n}") for n in range(6)))
    assert [result.rows for result in results] == [[(n,)] for n in range(6)]
    await pool.close()


@asynccontextmanager
async def busy(
    count: int, limits: QueryLimits = PATIENT
) -> AsyncIterator[tuple[SandboxPool, list[asyncio.Task[ResultSet]]]]:
    """A pool in which ``count`` queries run or wait that never end."""
    pool = SandboxPool(limits)
    endless = [asyncio.create_task(run(pool, ENDLESS)) for _ in range(count)]
    try:
        await positions(pool, (0,) * min(count, 2) + tuple(range(1, count - 1)))
        yield pool, endless
    finally:
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
        await pool.close()


async def positions(pool: SandboxPool, wanted: tuple[int, ...]) -> None:
    """Returns when the queries of the pool are at these positions; 0 is one that runs."""
    async with asyncio.timeout(60):
        while tuple(entry.position for entry in pool.queries) != wanted:
            await asyncio.sleep(0.01)


async def cheap(pool: SandboxPool, sql: str) -> ResultSet:
    return await pool.run(PreparedQuery(sql, frozenset(), {}), nothing, is_cheap=True)


async def test_a_cheap_query_passes_endless_ones() -> None:
    async with busy(8) as (pool, endless):
        assert (await cheap(pool, "SELECT 1")).rows == [(1,)]
        assert not any(task.done() for task in endless)
        assert [entry.position for entry in pool.queries] == [0, 0, 1, 2, 3, 4, 5, 6]
        # A place is free again as soon as its query is cancelled, whether it runs or waits.
        endless[0].cancel()
        endless[7].cancel()
        await positions(pool, (0, 0, 1, 2, 3, 4))
        assert [task.done() for task in endless] == [True, *[False] * 6, True]


async def test_a_server_that_has_just_started_has_a_process_for_a_cheap_query() -> None:
    """Beside one that never ends, without starting another first."""
    before = {each.pid for each in sandboxes()}
    pool = SandboxPool(QueryLimits(timeout_s=120), spares=2)
    pool.warm()
    async with asyncio.timeout(60):
        while len(warm := {each.pid for each in sandboxes()} - before) < 2:
            await asyncio.sleep(0.01)
    endless = asyncio.create_task(run(pool, ENDLESS))
    await positions(pool, (0,))
    assert (await cheap(pool, "SELECT 1")).rows == [(1,)]
    assert warm <= {each.pid for each in sandboxes()}
    assert not endless.done()
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)
    await pool.close()


async def test_a_query_that_is_not_cheap_leaves_the_kept_place() -> None:
    async with busy(2, replace(PATIENT, cheap_s=0.3)) as (pool, endless):
        endless.append(asyncio.create_task(cheap(pool, ENDLESS)))
        await positions(pool, (0, 0, 1))
        assert (await cheap(pool, "SELECT 1")).rows == [(1,)]
        endless[0].cancel()
        # It has the place of the one that was cancelled, and begins anew there.
        await positions(pool, (0, 0))
        assert not endless[2].done()


async def test_waiting_has_a_limit_of_its_own() -> None:
    async with busy(2, replace(PATIENT, waiting_s=0.2)) as (pool, _):
        assert (await refused(pool, "SELECT 1")).kind is ErrorKind.QUERY_WAIT_TIMEOUT
        await positions(pool, (0, 0))


@pytest.mark.parametrize(
    ("sql", "kind", "value"),
    [
        ("DATE '-0044-03-15'", "date", "-0044-03-15"),
        ("TIMESTAMP '-0044-03-15 01:02:03.5'", "timestamp(6)", "-0044-03-15 01:02:03.500000"),
        ("TIMESTAMP_NS '2024-02-03 04:05:06.1'", "timestamp(9)", "2024-02-03 04:05:06.100000000"),
        ("'1e-45'::FLOAT", "real", 1e-45),
        ("18446744073709551615::UBIGINT", "decimal(20,0)", "18446744073709551615"),
        ("12345678901234567890::BIGNUM", "decimal(38,0)", "12345678901234567890"),
        ("MAP {[1]: 2}", "map(array(integer), integer)", {"[1]": 2}),
        ("MAP {true: 'x'::BLOB}", "map(boolean, varbinary)", {"true": "eA=="}),
        ("{'a b': [INTERVAL 1 DAY]}", 'row("a b" array(varchar))', [["1 day"]]),
        ("to_days(-1) - to_milliseconds(1)", "interval day to second", "-1 00:00:00.001"),
        ("to_months(-14)", "interval year to month", "-1-2"),
        ("union_value(a := 1)", "varchar", "1"),
    ],
)
async def test_values_that_clients_read(pool: SandboxPool, sql: str, kind: str, value: object) -> None:
    result = await run(pool, f"SELECT {sql} AS v, [{sql}] AS l FROM numbers LIMIT 1")
    assert (result.columns[0].type.value, result.rows[0][0]) == (kind, value)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("'infinity'::DATE", "infinity is not a date"),
        ("'-infinity'::TIMESTAMP", "-infinity is not a time"),
        ("'infinity'::TIMESTAMPTZ", "infinity is not a time"),
        ("to_microseconds(1)", "has microseconds"),
        ("to_months(1) + to_days(1)", "either of months or of days"),
        ("340282366920938463463374607431768211455::UHUGEINT", "does not fit into a decimal"),
    ],
)
async def test_values_that_no_client_reads(pool: SandboxPool, sql: str, message: str) -> None:
    error = await refused(pool, f"SELECT {sql}")
    assert error.kind is ErrorKind.QUERY_FAILED
    assert message in error.message


async def test_order_and_names_survive_the_casts(pool: SandboxPool) -> None:
    days = "(VALUES ('2020-01-03'), ('2020-01-01'), ('2020-01-02')) t (x)"
    result = await run(pool, f"SELECT x AS a, x::DATE AS a FROM {days} ORDER BY x DESC LIMIT 2")
    assert [column.name for column in result.columns] == ["a", "a"]
    assert result.rows == [("2020-01-03", "2020-01-03"), ("2020-01-02", "2020-01-02")]


async def test_an_answer_has_a_size(pool: SandboxPool) -> None:
    error = await refused(pool, "SELECT repeat('x', 20000) FROM numbers a, range(2)")
    assert error.kind is ErrorKind.RESULT_TOO_LARGE
    assert "32 MiB" in error.message


async def test_a_session_has_its_zone(pool: SandboxPool) -> None:
    query = PreparedQuery("SELECT TIMESTAMPTZ '2024-07-03 04:05:06.789+00:00'", frozenset(), {})
    shown = {
        "UTC": "2024-07-03 04:05:06.789000 UTC",
        "Europe/Berlin": "2024-07-03 06:05:06.789000 +02:00",
        "-03:30": "2024-07-03 00:35:06.789000 -03:30",
        "Z": "2024-07-03 04:05:06.789000 UTC",
    }
    for zone, text in shown.items():
        assert (await pool.run(query, nothing, time_zone=zone)).rows == [(text,)]
    with pytest.raises(RefusedError, match="there is no time zone Nowhere/It'is") as caught:
        await pool.run(query, nothing, time_zone="Nowhere/It'is")
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
