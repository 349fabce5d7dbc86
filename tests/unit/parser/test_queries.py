"""Questions: how a script is cut, SHOW, DESCRIBE, EXPLAIN, and what a SELECT may hold."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind, ParseError
from parser.queries import (
    Ddl,
    DescribeTable,
    DescribeZone,
    ExplainDdl,
    ExplainPartition,
    Query,
    QueryName,
    Show,
    ShowKind,
    Statement,
    cut_script,
    parse_statement,
)
from parser.select import QUERY_CHARS_MAX, prepare_query
from parser.text import SourceMap


def resolve(name: QueryName) -> str:
    if name.last not in ("ZONES", "NODES"):
        raise ParseError(ErrorKind.VIEW_NOT_FOUND, f"no {name}", name.position)
    return f"system.{name.last}"


def statement(text: str) -> Statement:
    return parse_statement(text).statement


def prepared(text: str) -> str:
    return prepare_query(SourceMap(text), resolve).sql


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("SHOW ZONES", ShowKind.ZONES, None),
        ("show nodes;", ShowKind.NODES, None),
        ("SHOW PARTITIONS FROM orders", ShowKind.PARTITIONS, ("ORDERS",)),
        ('SHOW CREATE ZONE "my zone"', ShowKind.CREATE_ZONE, ("my zone",)),
        ("SHOW COLUMNS IN zonekeeper.system.zones", ShowKind.COLUMNS, ("ZONEKEEPER", "SYSTEM", "ZONES")),
        ("SHOW TABLES FROM system", ShowKind.TABLES, ("SYSTEM",)),
        ("SHOW -- which\n SCHEMAS", ShowKind.SCHEMAS, None),
        ("SHOW CATALOGS", ShowKind.CATALOGS, None),
    ],
)
def test_show(text: str, kind: ShowKind, name: tuple[str, ...] | None) -> None:
    found = statement(text)
    assert isinstance(found, Show)
    assert found.kind is kind
    assert (found.name.parts if found.name else None) == name


def test_like() -> None:
    found = statement("SHOW ZONES LIKE 'a!_%' ESCAPE '!'")
    assert isinstance(found, Show)
    assert (found.like, found.escape) == ("a!_%", "!")


def test_describe_and_explain() -> None:
    assert isinstance(statement("DESCRIBE ZONE orders"), DescribeZone)
    assert isinstance(statement("DESC system.zones"), DescribeTable)
    partition = statement("EXPLAIN PARTITION public.orders.12")
    assert isinstance(partition, ExplainPartition)
    assert (partition.zone.last, partition.partition) == ("ORDERS", 12)
    quoted = statement('EXPLAIN PARTITION "a.b".0')
    assert isinstance(quoted, ExplainPartition)
    assert quoted.zone.parts == ("a.b",)


def test_a_piece_keeps_its_place() -> None:
    text = "SELECT 1; -- é\nEXPLAIN\n  CREATE ZONE z (REPLICAS 2);\nDROP ZONE z"
    query, explained, drop = cut_script(text)
    assert isinstance(query.statement, Query)
    assert isinstance(explained.statement, ExplainDdl)
    assert isinstance(drop.statement, Ddl)
    create = explained.statement.command
    assert (create.position.line, create.position.column) == (3, 3) if create.position else False
    dropped = drop.statement.command
    assert dropped.position is not None
    assert (dropped.position.line, dropped.position.column) == (4, 1)
    assert drop.source == "DROP ZONE z"


@pytest.mark.parametrize(
    ("text", "kind", "line", "column"),
    [
        ("SHOW", ErrorKind.SYNTAX_ERROR, 1, 5),
        ("SHOW THINGS", ErrorKind.SYNTAX_ERROR, 1, 6),
        ("SHOW COLUMNS", ErrorKind.SYNTAX_ERROR, 1, 13),
        ("SHOW ZONES now", ErrorKind.SYNTAX_ERROR, 1, 12),
        ("SHOW ZONES LIKE 'a' ESCAPE 'ab'", ErrorKind.SYNTAX_ERROR, 1, 28),
        ("EXPLAIN", ErrorKind.SYNTAX_ERROR, 1, 8),
        ("EXPLAIN SELECT 1", ErrorKind.STATEMENT_NOT_SUPPORTED, 1, 9),
        ("EXPLAIN PARTITION orders", ErrorKind.SYNTAX_ERROR, 1, 25),
        ("EXPLAIN PARTITION orders.1.5", ErrorKind.SYNTAX_ERROR, 1, 26),
        ("SELECT 'open", ErrorKind.SYNTAX_ERROR, 1, 8),
        ("SELECT 1;\n  SELECT 2", ErrorKind.MULTIPLE_STATEMENTS, 2, 3),
        ("DROP ZONE a; DROP ZONE b", ErrorKind.MULTIPLE_STATEMENTS, 1, 14),
    ],
)
def test_what_is_not_understood_has_a_place(text: str, kind: ErrorKind, line: int, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_statement(text)
    assert (caught.value.kind, caught.value.line, caught.value.column) == (kind, line, column)


def test_names_are_folded_and_bound() -> None:
    query = prepare_query(SourceMap('SELECT z.zone_id, "Low" FROM system.zones z'), resolve)
    assert query.sql == 'SELECT Z.ZONE_ID, "Low" FROM "system.ZONES" AS Z'
    assert query.relations == {"system.ZONES"}
    assert query.places["zone_id"].column == 10
    assert prepared("SELECT zonekeeper.system.zones.x FROM zonekeeper.system.zones") == (
        'SELECT ZONES.X FROM "system.ZONES" AS "ZONES"'
    )
    assert prepared("SELECT count(*), a FROM zones") == (
        'SELECT COUNT(*) AS "_COL0", A FROM "system.ZONES" AS "ZONES"'
    )


def test_a_cte_hides_a_view_only_where_it_is_visible() -> None:
    sql = prepared("WITH zones AS (SELECT * FROM zones) SELECT * FROM zones, system.zones s")
    assert sql == (
        'WITH ZONES AS (SELECT * FROM "system.ZONES" AS "ZONES") SELECT * FROM ZONES, "system.ZONES" AS S'
    )


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        ("SELECT * FROM 'x.csv'", ErrorKind.VIEW_NOT_FOUND, 15),
        ('SELECT * FROM "/etc/passwd"', ErrorKind.VIEW_NOT_FOUND, 15),
        ('SELECT * FROM zones."x.csv"', ErrorKind.VIEW_NOT_FOUND, 15),
        ("SELECT * FROM read_csv('x')", ErrorKind.QUERY_NOT_ALLOWED, 15),
        ("SELECT * FROM read_parquet('x')", ErrorKind.QUERY_NOT_ALLOWED, 15),
        ("SELECT * FROM duckdb_settings()", ErrorKind.QUERY_NOT_ALLOWED, 15),
        ("SELECT * FROM generate_series(1, 10)", ErrorKind.QUERY_NOT_ALLOWED, 15),
        ("SELECT getenv('HOME')", ErrorKind.QUERY_NOT_ALLOWED, 8),
        ("SELECT current_setting('threads')", ErrorKind.QUERY_NOT_ALLOWED, 8),
        ("SELECT repeat('x', 1000000000)", ErrorKind.QUERY_NOT_ALLOWED, 8),
        ("SELECT 1 INTO x FROM zones", ErrorKind.QUERY_NOT_ALLOWED, None),
        ("SELECT ?", ErrorKind.QUERY_NOT_ALLOWED, None),
        ("SELECT * FROM zones, LATERAL (SELECT 1) x", ErrorKind.QUERY_NOT_ALLOWED, None),
        ("WITH x AS (DELETE FROM zones) SELECT 1", ErrorKind.QUERY_NOT_ALLOWED, None),
        ("WITH x AS (SELECT 1) DELETE FROM zones", ErrorKind.QUERY_NOT_ALLOWED, None),
        ("SELECT a FROM zones WHERE", ErrorKind.SYNTAX_ERROR, 26),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, ErrorKind.QUERY_INVALID, None),
        ("SELECT " + "NOT " * 5000 + "true", ErrorKind.QUERY_INVALID, None),
        ('SELECT cast(1 as varchar("" 7))', ErrorKind.SYNTAX_ERROR, 1),
        ("SELECT 1" + " + 1" * 20_000, ErrorKind.QUERY_INVALID, None),
        ("SELECT '" + "x" * QUERY_CHARS_MAX + "'", ErrorKind.QUERY_INVALID, None),
    ],
)
def test_what_a_query_may_not_hold(text: str, kind: ErrorKind, column: int | None) -> None:
    with pytest.raises(ParseError) as caught:
        prepared(text)
    assert caught.value.kind is kind
    assert caught.value.line == 1
    if column is not None:
        assert caught.value.column == column


@pytest.mark.parametrize(
    "text",
    [
        *(
            "COPY zones TO 'x'",
            "ATTACH 'x'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "PRAGMA version",
            "SET threads = 4",
        ),
        *("CREATE TABLE x AS SELECT 1", "INSERT INTO zones VALUES (1)", "CALL pragma_version()", "CHECKPOINT"),
        *(
            "IMPORT DATABASE 'x'",
            "EXPORT DATABASE 'x'",
            "DESCRIBE zones",
            "USE system",
            "VACUUM",
            "PIVOT zones ON a",
        ),
    ],
)
def test_only_queries_are_queries(text: str) -> None:
    with pytest.raises(ParseError):
        prepared(text)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("123456789012345678901234567890.0/1", "CAST('123456789012345678901234567890.0' AS DECIMAL(31, 1))"),
        (f"1.0/0.{'0' * 36}1", f"CAST('1{'0' * 37}.{'0' * 37}' AS DECIMAL(38, 37))"),
        (f"1.0/0.{'0' * 40}1", f"1.0 / 0.{'0' * 40}1"),
        ("cast(a as time(b))", "CAST(A AS TIME)"),
        ("cast(a as timestamp(b))", "CAST(A AS TIMESTAMP(B))"),
    ],
)
def test_quotients_and_sizes_that_do_not_fit_are_no_defect(text: str, sql: str) -> None:
    """A value that does not fit a number is passed on: the query engine refuses it."""
    assert prepared(f"SELECT {text}").removesuffix(' AS "_COL0"') == f"SELECT {sql}"
