"""Statements about the session, and parameters that can only ever be values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.dialects.trino import Trino

from app.sql.statements.paging import page_offset, page_token
from app.sql.statements.results import SessionContext
from app.sql.trino.front import is_ddl
from app.sql.trino.trino_session import (
    Control,
    ControlKind,
    bind,
    check_property,
    literal,
    parse_control,
    read_session,
    seconds,
)
from app.sql.views.metadata import relations, rewrite_show
from catalog.core.errors import RefusedError, StatementError
from tests.fixtures.examples import examples


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("PREPARE s FROM SELECT ?", Control(ControlKind.PREPARE, "s", "SELECT ?")),
        ("EXECUTE s USING 1, 'x''y'", Control(ControlKind.EXECUTE, "s", parameters=("1", "'x''y'"))),
        ("execute immediate 'SELECT ''a''';", Control(ControlKind.EXECUTE, text="SELECT 'a'")),
        ("DEALLOCATE PREPARE S", Control(ControlKind.DEALLOCATE, "s")),
        ("USE system", Control(ControlKind.USE, "system")),
        ('USE zonekeeper."System"', Control(ControlKind.USE, "System", catalog="zonekeeper")),
        ("SET SESSION zonekeeper.wait = true", Control(ControlKind.SET_SESSION, "wait", "true")),
        ("RESET SESSION wait", Control(ControlKind.RESET_SESSION, "wait")),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", Control(ControlKind.START_TRANSACTION)),
        ("COMMIT WORK", Control(ControlKind.COMMIT)),
        ("rollback;", Control(ControlKind.ROLLBACK)),
        ("SELECT 1", None),
        ("CREATE ZONE z", None),
        ("", None),
    ],
)
def test_statements_about_the_session(sql: str, expected: Control | None) -> None:
    assert parse_control(sql) == expected


@pytest.mark.parametrize(
    "sql",
    ["PREPARE s", "EXECUTE", "EXECUTE s USING", "EXECUTE s USING 1,", "USE", "SET SESSION x", "EXECUTE 'a'"],
)
def test_cut_short(sql: str) -> None:
    with pytest.raises(StatementError):
        parse_control(sql)


@pytest.mark.parametrize(
    "text",
    [
        *("1; DROP ZONE z", "(SELECT 1)", "a", "1 + 1", "'a' || 'b'", "cast(a AS int)", "DROP ZONE z", "1, 2"),
        "CREATE 'secret'",
    ],
)
def test_only_literals_are_parameters(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Text that is no literal is nowhere in the log."""
    with pytest.raises(StatementError):
        literal(text)
    assert not caplog.records


def test_what_looks_like_a_placeholder_and_is_none() -> None:
    assert (
        bind("SELECT ?, '?', \"?\" /* ? */ -- ?\n, ?", ("1", "2")) == "SELECT 1, '?', \"?\" /* ? */ -- ?\n, 2"
    )
    with pytest.raises(RefusedError, match="2 parameters, 1 were given"):
        bind("SELECT ?, ?", ("1",))


def test_a_minus_never_makes_a_comment() -> None:
    assert bind("SELECT 1-?", (literal("-1"),)) == "SELECT 1- -1"


@settings(max_examples=examples(300))
@given(st.text(alphabet=st.sampled_from("a'\"?;-/*\\\n ")))
def test_a_string_stays_one_string(value: str) -> None:
    """Bound into a statement it is exactly one token, and that token is the value."""
    quoted = "'" + value.replace("'", "''") + "'"
    control = parse_control(f"EXECUTE s USING {quoted}")
    assert control is not None
    tokens = Trino().tokenize(bind("SELECT ? FROM t", control.parameters))
    assert [token.text for token in tokens] == ["SELECT", value, "FROM", "t"]


def test_headers() -> None:
    session = read_session(
        [
            ("X-Trino-User", "u"),
            ("x-trino-session", "wait=true,timeout=5m"),
            ("X-Trino-Session", "zonekeeper.other=a%2Cb"),
            ("X-Trino-Prepared-Statement", "s=SELECT+%3F"),
            ("X-Trino-Transaction-Id", "NONE"),
        ]
    )
    assert (session.user, session.wait, session.timeout_s) == ("u", True, 300.0)
    assert session.properties["other"] == "a,b"
    assert session.prepared == {"s": "SELECT ?"}
    assert session.transaction_id is None
    assert (session.context.catalog, session.context.schema) == ("zonekeeper", "")


def test_properties() -> None:
    assert [seconds(text) for text in ("30", "1.5s", "2m", "300ms")] == [30, 1.5, 120, 0.3]
    for name, value in (
        ("wait", "perhaps"),
        ("timeout", "soon"),
        ("timeout", "0"),
        ("query_max_run_time", "long"),
        ("nonsense", "1"),
    ):
        with pytest.raises(RefusedError):
            check_property(name, value)


@pytest.mark.parametrize(
    ("properties", "timeout_s"),
    [
        ("wait=true", None),
        ("query_max_run_time=1s", 1),
        ("timeout=30s,query_max_run_time=1s", 1),
        ("timeout=30s,query_max_run_time=2m", 30),
    ],
)
def test_a_statement_ends_at_the_shorter_of_its_sessions_and_its_drivers_timeout(
    properties: str, timeout_s: float | None
) -> None:
    assert read_session([("X-Trino-Session", properties)]).timeout_s == timeout_s


def test_ddl_by_its_first_word() -> None:
    assert is_ddl("-- x\n/* y */ create zone z")
    assert not is_ddl("EXPLAIN CREATE ZONE z")
    assert not is_ddl("'")


def test_show_becomes_a_query_over_metadata() -> None:
    session = SessionContext(schema="public")
    assert "table_schema = 'public'" in rewrite_show("SHOW TABLES", session)
    assert "LIKE 'z%'" in rewrite_show("show tables from system.jdbc like 'z%';", session)
    assert "table_name = 'it''s Big'" in rewrite_show('DESCRIBE system."it\'s Big"', session)
    for other in ("SHOW ZONES", "SHOW CREATE ZONE z", "DESCRIBE ZONE z", "SELECT 1"):
        assert rewrite_show(other, session) == other


def test_metadata_relations_have_rows_as_wide_as_their_columns() -> None:
    for name, (columns, rows) in relations(()).items():
        assert all(len(row) == len(columns) for row in rows), name


def test_page_tokens_belong_to_their_list() -> None:
    token = page_token("list", 70)
    assert page_offset("list", token) == 70
    for subject, wrong in (("other", token), ("list", "x"), ("list", "é"), ("list", token[:-3])):
        with pytest.raises(RefusedError):
            page_offset(subject, wrong)
