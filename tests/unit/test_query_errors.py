"""Refusals by the engine of queries, as clients read them: in this service's words, never the engine's."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from app.sql.query.query_errors import general_words, own_words
from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from catalog.core.errors import RefusedError
from parser.select import PreparedQuery
from tests.fixtures.examples import examples

LISTED = Path(__file__).parents[1] / "data" / "query_errors.tsv"
ENGINES = re.compile(
    r"duckdb|\bSET\b|PRAGMA|\b(?:Use|Try|You might|In order to|Did you mean|Candidate|Consider)\b|_LITERAL|"
    r"\bU?INT\d|\bHUGEINT\b|\bBOOL\b|error_on|max_expression",
)
GENERAL = general_words("QUERY_INVALID"), general_words("QUERY_FAILED")

advice = st.sampled_from(
    [
        "SET max_expression_depth TO 2000 to allow it",
        "Use TRY(...) to return NULL, or SET error_on_division_by_zero=false",
        "You might need to add explicit type casts",
        "In order to select one, please add explicit type casts",
        'Did you mean "threads"?',
        "Candidate functions: +(INT64, INT64) -> INT64",
        "PRAGMA enable_verification; see duckdb.org",
        "Consider SET memory_limit in duckdb",
    ]
)
words = st.sampled_from(
    [
        *("Cannot", "Could not", "Invalid", "Unsupported", "Failed to", "Missing", "Unknown", "No", "The"),
        *("column", "function", "type", "INT64", "HUGEINT", "cast", "bind", "state", "vector", "BOOL", '"N"'),
        *("DuckDB", "setting", "PRAGMA", "SET threads", "extension 'json'", "INTEGER_LITERAL", "is not", "in"),
    ]
)
unknown = st.lists(st.one_of(words, advice, st.text(max_size=8)), max_size=8).map(" ".join)
ends = st.sampled_from([". ", "! ", ", ", "; ", ": ", " ", " - "])
known = st.sampled_from(
    [
        ('Referenced column "n" not found in FROM clause', "there is no column n"),
        ('Referenced table "t" not found', "there is no table t in FROM"),
        ("Table with name t does not exist", "there is no table t"),
        ("Scalar Function with name f does not exist", "there is no function f"),
        ("Could not convert string 'a' to INT32", "'a' is no value of the type INTEGER"),
        (
            "Type DOUBLE with value inf can't be cast to the destination type BOOL",
            "inf is beyond the type BOOLEAN",
        ),
        ("Unimplemented type for cast (FLOAT -> BLOB)", "a value of the type REAL cannot be cast to VARBINARY"),
        ("Cannot mix values of type DATE and INTEGER_LITERAL in CASE", "values of the types DATE and INTEGER"),
        ("Overflow in addition of INT64 (1 + 2)", "overflow in the addition of two values of the type BIGINT"),
        ("Division by zero in expression (1 % 0)", "division by zero"),
        ("Max expression depth limit of 1000 exceeded", "the query is nested too deeply"),
        (
            'Ambiguous reference to column name "n" (use: "a.n" or "b.n")',
            'the column n is ambiguous: write "a.n"',
        ),
    ]
)


@settings(max_examples=examples(1_000), deadline=None)
@given(unknown)
def test_what_has_no_words_of_ours_is_told_in_general_ones(detail: str) -> None:
    """The engine's words, whatever they are, are no part of what is told."""
    told = own_words(detail)
    assert told is None or ENGINES.search(told) is None, (detail, told)


@settings(max_examples=examples(400), deadline=None)
@given(known, st.lists(st.tuples(ends, advice), max_size=3))
def test_advice_of_the_engine_is_left_out(sentence: tuple[str, str], more: list[tuple[str, str]]) -> None:
    detail, words = sentence
    told = own_words(detail + "".join(end + text for end, text in more))
    assert told is not None
    assert told.startswith(words)
    assert ENGINES.search(told) is None, told


async def test_each_error_of_the_engine_is_told_in_own_words() -> None:
    """Queries with every fault that there are words for, and some with faults that there are none for."""
    sink = pa.BufferOutputStream()
    table = pa.table({"N": pa.array(range(5), pa.int64()), "S": pa.array(list("abcde"))})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    tables = {"numbers": bytes(sink.getvalue())}

    async def load() -> dict[str, bytes]:
        return tables

    pool = SandboxPool(QueryLimits(timeout_s=120, waiting_s=120))
    told = []
    rows = [line.split("\t") for line in LISTED.read_text().splitlines()[1:]]
    try:
        for sql, _ in rows:
            try:
                await pool.run(PreparedQuery(sql, frozenset(tables), {}), load)
            except RefusedError as error:
                told.append([sql, error.message])
    finally:
        await pool.close()
    assert told == rows
    assert len(rows) > 100
    assert {message for _, message in rows} > set(GENERAL)
    assert [row for row in told if ENGINES.search(row[1])] == []
