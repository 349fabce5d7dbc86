"""The table of statements: every row, each cell flipped, and what a hidden zone looks like."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from app.security.statement_policy import (
    COMMANDS,
    PROCEDURES,
    QUESTIONS,
    VIEWS,
    Need,
    authorise_call,
    authorised,
    check_complete,
    require,
)
from app.sql.views.system_views import SYSTEM_VIEWS
from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    Grant,
    GrantObject,
    Grants,
    Privilege,
    User,
    local_user,
    privileges_of,
    zone_object,
)
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from catalog.core.messages import Command
from catalog.core.snapshot import CatalogSnapshot, apply_command
from catalog.core.zone import ZoneId
from catalog.filters.json_path import JSON_PATH
from parser.queries import Call, Procedure, ShowKind, cut_script
from tests.unit.catalog.commands import catalog, command, nodes

ANNA = local_user("anna")
CALLER = Caller(ANNA)
ORDERS, LOGS = zone_object(ZoneId(1)), zone_object(ZoneId(2))
ZONES = catalog("CREATE ZONE orders", "CREATE ZONE logs", "CREATE TABLE t (id INT PRIMARY KEY) ZONE orders")

STATEMENTS = {
    "CREATE ZONE new": (Privilege.CREATE, ALL_ZONES),
    "ALTER ZONE orders SET (REPLICAS 2)": (Privilege.ALTER, ORDERS),
    "ALTER ZONE orders RENAME TO bills": (Privilege.ALTER, ORDERS),
    "ALTER ZONE orders SET DEFAULT": (Privilege.ALTER, ALL_ZONES),
    "DROP ZONE orders": (Privilege.DROP, ORDERS),
    "CREATE TABLE u (id INT PRIMARY KEY) ZONE orders": (Privilege.CREATE, ORDERS),
    "CREATE TABLE u (id INT PRIMARY KEY)": (Privilege.CREATE, ALL_ZONES),
    "ALTER TABLE t ADD COLUMN c INT": (Privilege.ALTER, ORDERS),
    "ALTER TABLE t DROP COLUMN id": (Privilege.ALTER, ORDERS),
    "DROP TABLE t": (Privilege.DROP, ORDERS),
    "CREATE USER ben": (Privilege.ADMIN, SYSTEM),
    "ALTER USER anna NOLOGIN": (Privilege.ADMIN, SYSTEM),
    "DROP USER anna": (Privilege.ADMIN, SYSTEM),
    "CREATE ROLE r": (Privilege.ADMIN, SYSTEM),
    "DROP ROLE r": (Privilege.ADMIN, SYSTEM),
    "GRANT SEE ON SYSTEM TO anna": (Privilege.ADMIN, SYSTEM),
    "REVOKE viewer FROM anna": (Privilege.ADMIN, SYSTEM),
}
CALLS = {
    "CALL system.reset_partitions('ORDERS')": Privilege.RECOVER,
    "CALL system.restart_partitions('ORDERS')": Privilege.RECOVER,
    "CALL system.reset_lost_partitions('ORDERS')": Privilege.RECOVER,
    "CALL system.activate_zone('ORDERS')": Privilege.OPERATE,
    "CALL system.deactivate_zone('ORDERS')": Privilege.OPERATE,
}
EVERY_GRANT = [
    *((privilege, SYSTEM) for privilege in privileges_of(SYSTEM.kind)),
    *itertools.product(privileges_of(ALL_ZONES.kind), (ALL_ZONES, ORDERS, LOGS)),
]


def with_grants(*grants: tuple[Privilege, GrantObject]) -> CatalogSnapshot:
    """The zones and the table, and what ANNA is granted."""
    held = Grants.of(3, [User(ANNA)], grants=[Grant(ANNA, privilege, target) for privilege, target in grants])
    return CatalogSnapshot(
        3, ZONES.zones, ZONES.next_zone_id, ZONES.tables, ZONES.next_table_id, None, None, held
    )


def is_allowed(ask: Callable[[CatalogSnapshot], CatalogSnapshot], snapshot: CatalogSnapshot) -> bool:
    """Neither refused nor judged on a catalog without the zone."""
    try:
        return ask(snapshot) is snapshot
    except RefusedError as error:
        if error.kind is not ErrorKind.PRIVILEGE_MISSING:
            raise
        return False


def enough(needed: Privilege, target: GrantObject) -> set[tuple[Privilege, GrantObject]]:
    """The single grants that are enough for it."""
    objects = (target, ALL_ZONES) if target in (ORDERS, LOGS) else (target,)
    return {(needed, one) for one in objects} | {(Privilege.ADMIN, SYSTEM)}


def test_every_kind_of_statement_is_asked_about_here() -> None:
    assert {type(command(sql)) for sql in STATEMENTS} == set(COMMANDS)
    assert {call(sql).procedure for sql in CALLS} == set(PROCEDURES)


def call(sql: str) -> Call:
    (piece,) = cut_script(sql)
    assert isinstance(piece.statement, Call)
    return piece.statement


@pytest.mark.parametrize(("sql", "needed"), STATEMENTS.items())
def test_each_statement_needs_its_privilege_and_no_other(
    sql: str, needed: tuple[Privilege, GrantObject]
) -> None:
    """Each of all grants alone: any other privilege or object in a row of the table would be seen here."""
    parsed = command(sql)
    allowed = {
        grant
        for grant in EVERY_GRANT
        if is_allowed(lambda s: authorised(s, parsed, CALLER), with_grants(grant))
    }
    assert allowed == enough(*needed)


@pytest.mark.parametrize(("sql", "needed"), CALLS.items())
def test_each_call_needs_its_privilege_and_no_other(sql: str, needed: Privilege) -> None:
    parsed = call(sql)
    allowed = {
        grant
        for grant in EVERY_GRANT
        if is_allowed(lambda s: authorise_call(s, parsed, CALLER), with_grants(grant))
    }
    assert allowed == enough(needed, ORDERS)


NEEDS = {
    **{f"SHOW {kind.value}": QUESTIONS[kind] for kind in ShowKind},
    **{f"SYSTEM.{name}": VIEWS[name] for name in VIEWS},
}
EXPECTED = {
    "SHOW NODES": (Privilege.SEE, SYSTEM),
    "SYSTEM.NODES": (Privilege.SEE, SYSTEM),
    "SYSTEM.ALERTS": (Privilege.SEE, SYSTEM),
    "SYSTEM.SQL_QUERIES": (Privilege.SEE, SYSTEM),
    "SYSTEM.EXCHANGES": (Privilege.SEE, ALL_ZONES),
    "SYSTEM.EVENTS": (Privilege.AUDIT, SYSTEM),
    "SYSTEM.AUDIT": (Privilege.AUDIT, SYSTEM),
}


@pytest.mark.parametrize(("what", "need"), NEEDS.items())
def test_each_question_and_view_needs_its_privilege_and_no_other(what: str, need: Need | None) -> None:
    def ask(snapshot: CatalogSnapshot) -> CatalogSnapshot:
        require(CALLER, snapshot, need, None)
        return snapshot

    allowed = {grant for grant in EVERY_GRANT if is_allowed(ask, with_grants(grant))}
    if what not in EXPECTED:
        assert allowed == set(EVERY_GRANT)
        assert is_allowed(ask, with_grants())
        return
    expected = enough(*EXPECTED[what])
    if EXPECTED[what] == (Privilege.SEE, ALL_ZONES):
        # Each privilege of zones implies to see them.
        expected |= {(privilege, ALL_ZONES) for privilege in privileges_of(ALL_ZONES.kind)}
    assert allowed == expected


def test_a_server_that_knows_more_or_less_than_the_table_does_not_start() -> None:
    views = [view.name for view in SYSTEM_VIEWS]
    check_complete(views)
    with pytest.raises(RuntimeError, match="the views differ in: SECRETS"):
        check_complete([*views, "SECRETS"])
    with pytest.raises(RuntimeError, match="the views differ in: ZONES"):
        check_complete([name for name in views if name != "ZONES"])


def judged(sql: str, snapshot: CatalogSnapshot) -> str:
    """Outcome of the statement, as its sender reads it."""
    parsed: Command = command(sql)
    try:
        known = authorised(snapshot, parsed, CALLER)
        done = apply_command(known, parsed, nodes(3), filters=JSON_PATH)
    except StatementError as error:
        return str(error)
    return f"applied {done.applied}"


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER ZONE {} SET (REPLICAS 2)",
        "ALTER ZONE {} RENAME TO bills",
        "ALTER ZONE IF EXISTS {} SET (REPLICAS 2)",
        "DROP ZONE {}",
        "DROP ZONE IF EXISTS {}",
        "CREATE TABLE u (id INT PRIMARY KEY) ZONE {}",
    ],
)
def test_a_hidden_zone_answers_as_one_that_does_not_exist(sql: str) -> None:
    for grants in ((), ((Privilege.DROP, LOGS), (Privilege.ALTER, LOGS))):
        hidden = judged(sql.format("orders"), with_grants(*grants))
        missing = judged(sql.format("absent"), with_grants(*grants)).replace("ABSENT", "ORDERS")
        assert hidden == missing


@pytest.mark.parametrize("sql", ["DROP TABLE {}", "ALTER TABLE {} ADD COLUMN c INT", "DROP TABLE IF EXISTS {}"])
def test_a_table_of_a_hidden_zone_answers_as_one_that_does_not_exist(sql: str) -> None:
    hidden = judged(sql.format("t"), with_grants())
    assert hidden == judged(sql.format("x"), with_grants()).replace("table X", "table T")


def test_a_zone_that_is_seen_says_what_is_missing() -> None:
    message = judged("DROP ZONE orders", with_grants((Privilege.READ, ORDERS)))
    assert message == "PRIVILEGE_MISSING: local:anna needs DROP ON ZONE ORDERS (line 1, column 11)"
    parsed = call("CALL system.activate_zone('ORDERS')")
    with pytest.raises(RefusedError, match="local:anna needs OPERATE ON ZONE ORDERS"):
        authorise_call(with_grants((Privilege.SEE, ORDERS)), parsed, CALLER)
    assert authorise_call(with_grants(), parsed, CALLER).zone("ORDERS") is None
    assert PROCEDURES[Procedure.ACTIVATE_ZONE].privilege is Privilege.OPERATE


def test_a_name_that_a_hidden_zone_has_is_taken() -> None:
    """Named and accepted: names are shared by all zones."""
    grants = with_grants((Privilege.ALTER, LOGS))
    assert "zone ORDERS already exists" in judged("ALTER ZONE logs RENAME TO orders", grants)
