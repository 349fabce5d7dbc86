"""Queries that try to get out, or to take more than they may: real sandbox processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from app.sql.results import ColumnType, ResultSet
from app.sql.sandbox_pool import QueryLimits, SandboxPool
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Position
from parser.select import PreparedQuery


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


NUMBERS = {"numbers": stream(pa.table({"N": pa.array(range(1000), pa.int64())}))}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    """Shared: a sandbox costs a second to start."""
    made = SandboxPool(QueryLimits(timeout_s=8, rows_max=2000))
    yield made
    asyncio.run(made.close())


async def run(pool: SandboxPool, sql: str, **places: Position) -> ResultSet:
    """Past the first wall: the text goes to DuckDB as it is."""
    return await pool.run(PreparedQuery(sql, frozenset(NUMBERS), places), NUMBERS)


def sandboxes() -> list[psutil.Process]:
    children = (each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE)
    return [each for each in children if "app.sql.sandbox" in each.cmdline()]


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
    kinds = ColumnType
    assert [(column.name, column.type) for column in result.columns] == [
        ("i", kinds.INTEGER),
        ("b", kinds.BIGINT),
        ("h", kinds.BIGINT),
        ("d", kinds.DOUBLE),
        ("e", kinds.DOUBLE),
        ("t", kinds.BOOLEAN),
        ("v", kinds.VARCHAR),
        ("ts", kinds.TIMESTAMP),
        ("dt", kinds.VARCHAR),
        ("l", kinds.JSON),
        ("n", kinds.INTEGER),
        ("q", kinds.INTEGER),
        ("f", kinds.DOUBLE),
    ]
    assert result.rows == [
        (1, 2, 499500, 499.5, 1.5, True, "x", "2024-02-03 04:05:06.789", "2024-02-03", "[1, 2]", None, 3, None)
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
    endless = (
        "WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT (x * 7) % 1000003 FROM t) SELECT count(*) FROM t"
    )
    task = asyncio.create_task(run(pool, endless))
    await asyncio.sleep(0.3)
    task.cancel()
    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < QueryLimits().timeout_s / 2, "it was ended, and did not come to its limit"
    assert not sandboxes()


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


async def test_queries_wait_for_their_turn() -> None:
    pool = SandboxPool(QueryLimits(), workers=2)
    results: list[Any] = await asyncio.gather(*(run(pool, f"SELECT {n}") for n in range(6)))
    assert [result.rows for result in results] == [[(n,)] for n in range(6)]
    await pool.close()
