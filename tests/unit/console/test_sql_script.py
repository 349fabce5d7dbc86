"""The editor's logic: what changes something, where errors are, files of results."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.fragments import render
from app.console.sql_editor import (
    Sent,
    as_csv,
    as_json,
    changes_something,
    explained,
    failure,
    grid_options,
    mark,
)
from app.contract.change_text import CHANGE_COLUMNS, NO_LIMIT, change_cells
from catalog.core.errors import ErrorKind, ParseError, StatementError
from catalog.core.messages import Position
from parser.to_command import parse_ddl

RESULT = {
    "n": 1,
    "columns": [{"name": "NAME", "type": "varchar"}, {"name": "NAME", "type": "bigint"}],
    "data": [['a,"b"\n', 1], [None, 2]],
}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("SHOW ZONES", False),
        ("SELECT 1; SHOW NODES;", False),
        ("EXPLAIN DROP ZONE a", False),
        ("-- look\nDESCRIBE ZONE a", False),
        ("CREATE ZONE a", True),
        ("SHOW ZONES; DROP ZONE a", True),
        ("CALL system.restart_partitions('A')", True),
    ],
)
def test_what_changes_something(text: str, changes: bool) -> None:
    assert changes_something(text) is changes


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("CREATE ZONE a (REPLICAZ 3)", 1, 16),
        ("SHOW ZONES;\nCREATE ZONE b\n  (PARTITIONS 4, REPLICAZ 3)", 3, 18),
    ],
)
def test_a_wrong_script_is_refused_before_anybody_is_asked_for_a_reason(
    text: str, line: int, column: int
) -> None:
    with pytest.raises(StatementError) as refused:
        changes_something(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    start, end = mark(text, line, column)
    assert text[start:end] == "REPLICAZ"


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", ";;"])
def test_an_empty_script_says_what_to_write(text: str) -> None:
    with pytest.raises(StatementError):
        changes_something(text)


@given(st.text(alphabet="ab \n(é𝄞", min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 60))
def test_a_mark_is_always_inside_of_the_text_and_not_empty(text: str, line: int, column: int) -> None:
    start, end = mark(text, line, column)
    assert 0 <= start < end <= len(text)


@pytest.mark.parametrize("text", ["CREATE ZONE a (REPLICAZ 3)", "DROP ZONE a;\nCREATE ZONE b\n (REPLICAZ 3)"])
def test_a_prefix_does_not_move_an_error(text: str) -> None:
    sent = Sent(text, "/* ada: why */ ")
    with pytest.raises(ParseError) as plain:
        parse_ddl(text)
    with pytest.raises(ParseError) as refused:
        parse_ddl(sent.text)
    assert failure(refused.value, sent).place == failure(plain.value).place


@given(st.text("ab\n", max_size=20), st.text("xy", max_size=4))
def test_every_written_character_is_found_again(written: str, prefix: str) -> None:
    """Each written character has one place in the written text, whatever prefix is sent before it. Written
    characters are a and b, the others are not."""
    sent = Sent(written, prefix)
    places = [(line, at) for line, text in enumerate(sent.text.split("\n"), 1) for at, _ in enumerate(text, 1)]
    found = []
    for line, column in places:
        character = sent.text.split("\n")[line - 1][column - 1]
        if character in "ab":
            row, place = sent.written_place(line, column)
            assert written.split("\n")[row - 1][place - 1] == character
            found.append((row, place))
    assert len(set(found)) == len(found) == len(written.replace("\n", ""))


def test_explain_moves_the_error_back() -> None:
    sent = explained("DROP\nZONE a")
    assert sent.text == "EXPLAIN DROP\nZONE a"
    error = StatementError(ErrorKind.ZONE_NOT_FOUND, "no", Position(2, 6))
    assert failure(error, sent).place == "line 2, column 6"
    first = StatementError(ErrorKind.ZONE_NOT_FOUND, "no", Position(1, 9))
    assert failure(first, sent).place == "line 1, column 1"
    assert explained("explain DROP ZONE a").text == "explain DROP ZONE a"
    assert failure(StatementError(ErrorKind.INTERNAL_ERROR, "no")).place == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1"])
def test_no_spreadsheet_computes_a_text_of_a_csv(text: str) -> None:
    """Numbers stay what they are."""
    columns = [{"name": text, "type": "varchar"}, {"name": "n", "type": "bigint"}]
    rows = list(csv.reader(io.StringIO(as_csv({"columns": columns, "data": [[text, -1]]}), newline="")))
    assert rows == [[f"'{text}", "n"], [f"'{text}", "-1"]]


def test_csv_can_be_read_back() -> None:
    assert list(csv.reader(io.StringIO(as_csv(RESULT), newline=""))) == [
        ["NAME", "NAME"],
        ['a,"b"\n', "1"],
        ["", "2"],
    ]


def test_grids_keep_columns_of_one_name_apart() -> None:
    options = grid_options(RESULT)
    assert [column["headerName"] for column in options["columnDefs"]] == ["NAME", "NAME"]
    assert options["rowData"][1] == {"c0": None, "c1": 2}
    assert '"results"' in as_json([RESULT])


def test_what_a_change_did_is_a_table_as_in_the_cli() -> None:
    """No dict of Python, and no largest integer; users and tables say who and what they are."""
    effect = {"op": "alter", "zone": "A", "params": {"replicas": NO_LIMIT, "auto_scale_down": NO_LIMIT}}
    result = {"n": 1, "sql": "ALTER", "applied": True, "effect": effect, "catalog_version": 3, "warnings": []}
    assert change_cells(result) == ("1", "alter", "A", "yes", "3", "replicas=ALL auto_scale_down=OFF")
    granted = {
        **result,
        "effect": {"op": "grant", "privileges": ["SEE"], "object": "ZONE A", "grantees": ["vera"]},
    }
    assert change_cells(granted)[-1] == "privileges=SEE object=ZONE A grantees=vera"
    made = {
        **result,
        "effect": {"op": "create_table", "zone": "A", "created_default_zone": {"replicas": NO_LIMIT}},
    }
    assert change_cells(made)[-1] == "created_default_zone=(replicas=ALL)"
    changed = dict(zip(CHANGE_COLUMNS, change_cells(result), strict=True))
    page = render("sql_result", result=result, changed=changed, rows=0, cut=0)
    assert "replicas=ALL" in page
    assert "2147483647" not in page
    assert "{" not in page
