"""Statements on users, roles and grants as text, and texts without the secrets that they hold."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import (
    AlterUser,
    ChangeGrants,
    ChangeMembers,
    Command,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantTarget,
    Name,
    Secret,
)
from parser.hidden_secrets import hide_secrets
from parser.queries import Show, ShowKind, cut_script
from parser.to_command import parse_ddl, parse_single

ANNA, SECRET = Name("anna"), Secret("x")
SEE_ALTER = (Name("SEE"), Name("ALTER"))


@pytest.mark.parametrize(
    ("sql", "command"),
    [
        ("CREATE USER Anna", CreateUser(ANNA)),
        ("create user if not exists anna", CreateUser(ANNA, if_not_exists=True)),
        ("CREATE USER anna WITH PASSWORD 'marked1'", CreateUser(ANNA, SECRET)),
        ("CREATE USER anna PASSWORD 'marked1' NOLOGIN", CreateUser(ANNA, SECRET, is_active=False)),
        ("CREATE USER anna LOGIN PASSWORD NULL", CreateUser(ANNA)),
        ('CREATE USER "Anna@Example.org"', CreateUser(Name("anna@example.org"))),
        ("ALTER USER anna WITH PASSWORD 'marked1'", AlterUser(ANNA, SECRET)),
        ("ALTER USER IF EXISTS anna NOLOGIN", AlterUser(ANNA, is_active=False, if_exists=True)),
        ("ALTER USER anna PASSWORD NULL LOGIN", AlterUser(ANNA, drops_password=True, is_active=True)),
        ("DROP USER IF EXISTS anna", DropUser(ANNA, if_exists=True)),
        ("CREATE ROLE IF NOT EXISTS Anna", CreateRole(ANNA, if_not_exists=True)),
        ("DROP ROLE anna", DropRole(ANNA)),
        ("GRANT see, ALTER ON ALL ZONES TO anna", ChangeGrants(SEE_ALTER, GrantTarget(), (ANNA,), True)),
        (
            'REVOKE see ON ZONE "orders" FROM anna, ben',
            ChangeGrants((Name("SEE"),), GrantTarget(zone=Name("orders")), (ANNA, Name("ben")), False),
        ),
        (
            "GRANT admin ON system TO anna",
            ChangeGrants((Name("ADMIN"),), GrantTarget(is_system=True), (ANNA,), True),
        ),
        ("GRANT viewer, writer TO anna", ChangeMembers((Name("viewer"), Name("writer")), (ANNA,), True)),
        ("REVOKE viewer FROM anna", ChangeMembers((Name("viewer"),), (ANNA,), False)),
    ],
)
def test_statements_are_read(sql: str, command: Command) -> None:
    assert parse_single(sql) == command


def test_the_password_is_read_and_shown_nowhere() -> None:
    command = parse_single("ALTER USER anna PASSWORD 'it''s marked1'")
    assert isinstance(command, AlterUser)
    assert command.password is not None
    assert command.password.text == "it's marked1"
    assert command.source == "ALTER USER anna PASSWORD '********'"
    assert "marked1" not in repr(command)
    (piece,) = cut_script("ALTER USER anna PASSWORD 'it''s marked1'")
    assert piece.source == command.source
    assert "marked1" not in repr(piece)


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("CREATE USER", 12, "expected a user name, found the end of the statement"),
        ("ALTER USER anna", 16, "expected PASSWORD, LOGIN, NOLOGIN, found the end of the statement"),
        ("CREATE USER anna WITH", 22, "expected PASSWORD, LOGIN, NOLOGIN, found the end of the statement"),
        ("CREATE USER anna PASSWORD marked1", 27, "expected a password in single quotes, or NULL, found"),
        ("CREATE USER anna 'marked1'", 18, "expected PASSWORD, LOGIN, NOLOGIN, found something else"),
        ("CREATE USER anna PASSWORD 'a' 'marked1'", 31, "expected PASSWORD, LOGIN, NOLOGIN or the end"),
        ("CREATE USER anna PASSWORD 'marked1' PASSWORD 'b'", 37, "PASSWORD is given twice"),
        ("CREATE USER anna LOGIN NOLOGIN", 24, "NOLOGIN is given twice, or against another option"),
        ("CREATE USER anna PASSWORD 'marked1", 27, "a string that is never closed by ' starts here"),
        ("DROP ROLE anna 'marked1'", 16, "expected the end of the statement, found something else"),
        ("GRANT see anna", 11, 'expected "," or ON behind privileges, or TO behind roles, found anna'),
        ("GRANT see ON zones TO anna", 14, "expected SYSTEM, ALL ZONES or ZONE and a name, found zones"),
        ("GRANT see ON SYSTEM FROM anna", 21, "expected TO, found FROM"),
        ("REVOKE see ON SYSTEM TO anna", 22, "expected FROM, found TO"),
        ("GRANT ON SYSTEM TO anna", 7, "expected a privilege or a role, found ON"),
        ("GRANT see ON ALL zone TO anna", 18, "expected ZONES, found zone"),
    ],
)
def test_what_is_not_a_statement_is_refused_at_its_place(sql: str, column: int, message: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_ddl(sql)
    assert (error.value.kind, error.value.line, error.value.column) == (ErrorKind.SYNTAX_ERROR, 1, column)
    assert message in error.value.message
    assert "marked1" not in str(error.value)


def test_a_role_is_not_altered() -> None:
    with pytest.raises(ParseError, match="ALTER ROLE is not supported here") as error:
        parse_ddl("ALTER ROLE anna PASSWORD 'marked1'")
    assert error.value.kind is ErrorKind.STATEMENT_NOT_SUPPORTED
    assert "marked1" not in str(error.value)


@pytest.mark.parametrize(
    ("sql", "kind", "name"),
    [
        ("SHOW USERS", ShowKind.USERS, None),
        ("SHOW ROLES LIKE 'v%'", ShowKind.ROLES, None),
        ("SHOW GRANTS", ShowKind.GRANTS, None),
        ("SHOW GRANTS FOR anna", ShowKind.GRANTS, "ANNA"),
    ],
)
def test_show_asks_for_users_roles_and_grants(sql: str, kind: ShowKind, name: str | None) -> None:
    (piece,) = cut_script(sql)
    assert isinstance(piece.statement, Show)
    shown = piece.statement.name
    assert (piece.statement.kind, None if shown is None else shown.last) == (kind, name)


HIDDEN = "'********'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT 1; CREATE ZONE a", "SELECT 1; CREATE ZONE a"),
        ("SHOW COLUMNS FROM password", "SHOW COLUMNS FROM password"),
        ("ALTER USER a PASSWORD NULL NOLOGIN", "ALTER USER a PASSWORD NULL NOLOGIN"),
        (
            "CREATE ZONE z; ALTER USER a PASSWORD 'marked1' LOGIN; SELECT 'kept'",
            f"CREATE ZONE z; ALTER USER a PASSWORD {HIDDEN} LOGIN; SELECT 'kept'",
        ),
        ("alter user a password\n /* marked */ 'marked1'", f"alter user a password\n /* marked */ {HIDDEN}"),
        ("CREATE USER a PASSWORD ‘marked1’", f"CREATE USER a PASSWORD {HIDDEN}"),
        ("CREATE USER a PASSWORD marked1", f"CREATE USER a PASSWORD {HIDDEN}"),
        ("CREATE USER a PASSWORD mar ked1-x", f"CREATE USER a PASSWORD {HIDDEN}"),
        ("CREATE USER a PASSWORD = marked1", f"CREATE USER a PASSWORD = {HIDDEN}"),
        ("CREATE USER a PASSWORD 'marked1", f"CREATE USER a PASSWORD {HIDDEN}"),
        ("CREATE USER a PASSWORD 'b' 'marked1'", f"CREATE USER a PASSWORD {HIDDEN} {HIDDEN}"),
        ("CREATE USER a 'marked1'", f"CREATE USER a {HIDDEN}"),
        ("EXPLAIN ALTER USER a WITH 'marked1'", f"EXPLAIN ALTER USER a WITH {HIDDEN}"),
        ("CREATE USER a IDENTIFIED BY 'marked1'", f"CREATE USER a IDENTIFIED BY {HIDDEN}"),
        ("ALTER ROLE a WITH ENCRYPTED PASSWORD 'marked1'", f"ALTER ROLE a WITH ENCRYPTED PASSWORD {HIDDEN}"),
        ("SET PASSWORD FOR a = 'marked1'", f"SET PASSWORD FOR a = {HIDDEN}"),
        ("EXPLAIN CREATE USER a PASSWORD 'marked1'", f"EXPLAIN CREATE USER a PASSWORD {HIDDEN}"),
        (
            "EXECUTE IMMEDIATE 'CREATE USER a PASSWORD ''marked1'''",
            "EXECUTE IMMEDIATE 'CREATE USER a PASSWORD ''********'''",
        ),
        ("CREATE USER a PASSWORD 'marked1\x00'", HIDDEN),
    ],
)
def test_a_text_is_kept_without_its_secrets(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown
    assert hide_secrets(shown) == shown
