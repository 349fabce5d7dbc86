"""Reading costs no more than the size of the text, ends at its limits, and ends once no caller waits."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from operator import itemgetter

import pytest

from app.sql.trino.trino_session import parse_control
from catalog.core.errors import ErrorKind, ParseError
from parser.queries import QueryName, cut_script, read_each
from parser.script import first_words, split_script
from parser.select import prepare_query
from parser.text import DEFAULT_LIMITS, OWN_TEXT, ReadingStoppedError, ScriptLimits, SourceMap, StopFlag

SHAPES = {
    "questions": lambda n: "SHOW ZONES;" * n,
    "changes": lambda n: "DROP ZONE a;\n" * n,
    "mistakes": lambda n: "SHOW THINGS;\n" * n,
    "explained": lambda n: "EXPLAIN DROP ZONE a;" * n,
    "comments that never end": lambda n: "SHOW /*+ x; " * n,
    "comments": lambda n: "/**/" * n,
    "a string that never ends": lambda n: "SHOW 'a;b" + "''c;d" * n,
    "quotes": lambda n: "SHOW \"'’‘; " * n,
    "one statement": lambda n: f"CREATE TABLE t ({', '.join(f'c{m} INT' for m in range(n))})",
    "one list": lambda n: f"CREATE ZONE z STORAGE PROFILES [{','.join(['''`a`'''.replace('`', chr(39))] * n)}]",
    "one huge word": lambda n: "a" * n,
    "signs": lambda n: "/-" * n,
}
TIMES = 8
TIMES_MAX = 3 * TIMES
"""Quadratic work is 64 times as much."""


def read_all(text: str) -> int:
    return sum(1 for _ in read_each(text, OWN_TEXT))


def cpu_seconds(text: str) -> float:
    def once() -> float:
        begun = time.process_time()
        read_all(text)
        return time.process_time() - begun

    return min(once() for _ in range(3))


@pytest.mark.parametrize("shape", SHAPES)
def test_time_is_linear(shape: str) -> None:
    few, many = SHAPES[shape](1_000), SHAPES[shape](1_000 * TIMES)
    read_all(few)
    assert cpu_seconds(many) < TIMES_MAX * cpu_seconds(few) + 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_is_linear(shape: str) -> None:
    def peak(text: str) -> int:
        tracemalloc.start()
        try:
            read_all(text)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    text = SHAPES[shape](200)
    read_all(text)
    assert peak(SHAPES[shape](200 * TIMES)) < 1.5 * TIMES * peak(text) + 200_000


@pytest.mark.parametrize(
    ("limits", "good", "bad", "kind", "column"),
    [
        (ScriptLimits(text_bytes_max=12), "SHOW ZONES--", "SHOW ZONES--é", ErrorKind.TEXT_TOO_LARGE, 1),
        (ScriptLimits(statements_max=2), "SHOW ZONES;" * 2, "SHOW ZONES;" * 3, ErrorKind.TEXT_TOO_LARGE, 23),
        (ScriptLimits(tokens_max=3), "DROP ZONE a", "DROP ZONE a.b", ErrorKind.TEXT_TOO_LARGE, 12),
        (
            ScriptLimits(nesting_max=2),
            "SELECT ((1)); SELECT ((1))",
            "SELECT (1); SELECT (([1]))",
            ErrorKind.TEXT_NESTED_TOO_DEEPLY,
            22,
        ),
    ],
)
def test_what_is_beyond_a_limit_is_refused_where_it_is(
    limits: ScriptLimits, good: str, bad: str, kind: ErrorKind, column: int
) -> None:
    assert cut_script(good, limits)
    with pytest.raises(ParseError) as refused:
        cut_script(bad, limits)
    assert (refused.value.kind, refused.value.line, refused.value.column) == (kind, 1, column)
    assert "at most" in refused.value.message


def test_a_text_beyond_the_limit_is_not_looked_at() -> None:
    """The work does not grow with what is too much."""
    text = "SHOW ZONES;" * 1_001
    few, many = text, text * 30
    with pytest.raises(ParseError, match="at most 1000 statements"):
        cut_script(few)
    with pytest.raises(ParseError, match="at most 1000 statements"):
        cut_script(many)

    def seconds(script: str) -> float:
        begun = time.process_time()
        with pytest.raises(ParseError):
            cut_script(script)
        return time.process_time() - begun

    assert min(seconds(many) for _ in range(3)) < 5 * min(seconds(few) for _ in range(3)) + 0.05


def resolve(name: QueryName) -> str:
    return name.last


DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: f"SELECT {'(' * n}1{')' * n}",
    "subqueries": lambda n: f"SELECT * FROM {'(SELECT * FROM ' * n}t{') x' * n}",
    "functions": lambda n: f"SELECT {'abs(' * n}1{')' * n}",
    "casts": lambda n: f"SELECT {'CAST(' * n}1{' AS bigint)' * n}",
    "cases": lambda n: f"SELECT {'CASE WHEN true THEN ' * n}1{' END' * n}",
    "arrays": lambda n: f"SELECT {'ARRAY[' * n}1{']' * n}",
    "sums": lambda n: f"SELECT 1{' + 1' * n}",
    "conditions": lambda n: f"SELECT 1 WHERE true{' AND true OR false' * n}",
    "unions": lambda n: f"SELECT 1{' UNION SELECT 1' * n}",
    "dots": lambda n: f"SELECT a{'.a' * n}",
    "subscripts": lambda n: f"SELECT a{'[1]' * n}",
    "ins": lambda n: f"SELECT {'1 IN (' * n}1{')' * n}",
    "joins": lambda n: f"SELECT 1 FROM t{' CROSS JOIN t' * n}",
    "not": lambda n: f"SELECT {'NOT ' * n}true",
}


def refusal(read: Callable[[], object]) -> ParseError | None:
    try:
        read()
    except ParseError as error:
        return error
    return None


@pytest.mark.parametrize("depth", [5, 90, 199, 800])
@pytest.mark.parametrize("shape", DEEP)
def test_a_deep_query_is_read_or_refused_with_a_code(shape: str, depth: int) -> None:
    def read() -> None:
        for piece in cut_script(DEEP[shape](depth)):
            prepare_query(SourceMap(piece.source), resolve)

    refused = refusal(read)
    if refused is not None:
        assert depth > 5
        assert refused.kind in (ErrorKind.QUERY_INVALID, ErrorKind.TEXT_NESTED_TOO_DEEPLY)
        assert refused.line == 1


LONG = {
    "columns": lambda n: f"SELECT {','.join('1' * n)}",
    "ors": lambda n: f"SELECT 1 WHERE {' OR '.join(['a = 1'] * (n // 4))}",
    "intervals": lambda n: "SELECT date '2020-01-01'" + "+ interval '1' day" * (n // 6),
    "zones": lambda n: "SELECT a" + " at time zone 'UTC'" * (n // 5),
    "subscripts": lambda n: "SELECT a" + "[1]" * (n // 5),
    "few subscripts": lambda n: f"SELECT coalesce({','.join('1' * (n - 300))})" + "[1]" * 90,
    "names of WITH": lambda n: (
        f"WITH {','.join(f'w{m} AS (SELECT 1)' for m in range(n // 7))} SELECT 1 FROM t{', t' * (n // 3)}"
    ),
}


@pytest.mark.parametrize("shape", LONG)
def test_a_long_query_costs_no_more_than_its_size(shape: str) -> None:
    """The longest that are read: 5,000 things take some ten times what 500 take, and not a hundred times."""

    def read(things: int) -> tuple[float, ParseError | None]:
        text, begun_s = LONG[shape](things), time.thread_time()
        refused = refusal(lambda: prepare_query(SourceMap(text), resolve))
        return time.thread_time() - begun_s, refused

    few_s = min(read(490)[0] for _ in range(3))
    many_s, refused = min((read(4_900) for _ in range(2)), key=itemgetter(0))
    assert many_s < 40 * few_s
    if refused is not None:
        assert refused.kind is ErrorKind.QUERY_INVALID
        assert refused.message == "the query is nested too deeply"


def test_what_stands_in_the_place_of_others_is_whole() -> None:
    text = "SELECT date '2020-01-01' + interval '1' day + interval '2' day, a at time zone 'UTC'"
    assert prepare_query(SourceMap(text), resolve).sql == (
        "SELECT CAST(CAST(CAST('2020-01-01' AS DATE) + INTERVAL '1' DAY AS DATE) + INTERVAL '2' DAY AS DATE) "
        'AS "_COL0", CAST(A AS TIMESTAMPTZ) AS "_COL1"'
    )


@pytest.mark.parametrize("depth", [3, 199, 800])
@pytest.mark.parametrize("shape", [("ARRAY[", "]"), ("CAST(", " AS bigint)"), ("-", "")])
def test_a_deep_parameter_is_bound_or_refused_with_a_code(shape: tuple[str, str], depth: int) -> None:
    opening, closing = shape
    refused = refusal(lambda: parse_control(f"EXECUTE s USING {opening * depth}1{closing * depth}"))
    if refused is not None:
        assert refused.kind in (ErrorKind.SYNTAX_ERROR, ErrorKind.TEXT_NESTED_TOO_DEEPLY)
    else:
        assert depth == 3


def test_a_flag_stops_the_reading() -> None:
    stop = StopFlag()
    reading = read_each("SHOW ZONES;" * 900, DEFAULT_LIMITS, stop)
    next(reading)
    stop.set()
    with pytest.raises(ReadingStoppedError):
        list(reading)
    wide = f"CREATE TABLE t ({', '.join(f'c{n} INT' for n in range(3_000))})"
    with pytest.raises(ReadingStoppedError):
        cut_script(wide, DEFAULT_LIMITS, stop)


def test_a_flag_stops_the_cutting() -> None:
    """The cutting ends as well where no statement is parsed."""
    stop = StopFlag()
    cutting = split_script("SHOW ZONES;" * 900, DEFAULT_LIMITS, stop)
    next(cutting)
    stop.set()
    with pytest.raises(ReadingStoppedError):
        list(cutting)


def test_first_words() -> None:
    assert first_words(" -- a\n/* b */ create/**/zone x", 2) == "CREATE ZONE"
    assert first_words("'SELECT' x", 1) == first_words("", 1) == first_words("/* open", 1) == ""
