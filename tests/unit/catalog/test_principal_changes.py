"""Changes of users, roles and grants by statements, and the refusals of such statements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.authorisation import (
    ALL_ZONES,
    READY_GRANTS,
    SYSTEM,
    Caller,
    Grants,
    Principal,
    Privilege,
    local_user,
    zone_object,
)
from catalog.core.errors import ErrorKind
from catalog.core.messages import CreateUser, Secret
from catalog.core.snapshot import CatalogSnapshot, apply_command
from catalog.core.zone import ZoneId
from catalog.filters.json_path import JSON_PATH
from tests.unit.catalog.commands import catalog, change, command, nodes, refusal

ANNA = local_user("anna", 1)
FRESH = CatalogSnapshot(grants=READY_GRANTS)


def after(*statements: str, on: CatalogSnapshot = FRESH) -> CatalogSnapshot:
    """The catalog that these statements lead to."""
    snapshot = on
    for sql in statements:
        snapshot = snapshot.after(change(sql, snapshot).entries)
    return snapshot


def anna(snapshot: CatalogSnapshot) -> Principal:
    user = snapshot.grants.user("anna")
    assert user is not None
    return user.principal


def test_a_user_is_made_with_what_is_kept_of_its_password() -> None:
    created = command("CREATE USER anna PASSWORD 'long enough'")
    assert isinstance(created, CreateUser)
    hashed = replace(created, password=Secret("long enough", "$argon2id$..."))
    done = apply_command(FRESH, hashed, nodes(3), filters=JSON_PATH)
    snapshot = FRESH.after(done.entries)
    user = snapshot.grants.users[ANNA]
    assert (user.password_hash, user.is_active) == ("$argon2id$...", True)
    assert user.principal == local_user("anna", 1)
    assert done.effect == {"op": "create_user", "user": "anna"}


def test_names_of_users_and_roles_are_compared_without_case_and_shared() -> None:
    snapshot = after("CREATE USER anna", "CREATE ROLE readers")
    assert refusal("CREATE USER ANNA", snapshot)[0] is ErrorKind.USER_ALREADY_EXISTS
    assert refusal('CREATE ROLE "Anna"', snapshot)[0] is ErrorKind.USER_ALREADY_EXISTS
    assert refusal("CREATE USER readers", snapshot)[0] is ErrorKind.ROLE_ALREADY_EXISTS
    assert refusal("CREATE USER IF NOT EXISTS readers", snapshot)[0] is ErrorKind.ROLE_ALREADY_EXISTS
    assert not change("CREATE USER IF NOT EXISTS Anna", snapshot).applied
    assert not change("CREATE ROLE IF NOT EXISTS READERS", snapshot).applied


def test_altering_changes_what_is_given_and_says_when() -> None:
    snapshot = after("CREATE USER anna", "CREATE USER ben", "ALTER USER anna NOLOGIN")
    user = snapshot.grants.users[ANNA]
    assert (user.is_active, user.principal.version, user.changed_version) == (False, 1, 3)
    assert change("ALTER USER anna NOLOGIN", snapshot).entries == ()
    assert after("ALTER USER anna LOGIN", on=snapshot).grants.users[ANNA].is_active


def test_dropping_takes_grants_and_memberships_along() -> None:
    snapshot = after(
        "CREATE USER anna",
        "CREATE ROLE readers",
        "GRANT readers TO anna",
        "GRANT SEE ON SYSTEM TO anna, readers",
        "DROP USER anna",
        "CREATE USER anna",
    )
    assert not Caller(anna(snapshot)).may(snapshot.grants, Privilege.SEE, SYSTEM)
    snapshot = after("GRANT readers TO anna", "DROP ROLE readers", "CREATE ROLE readers", on=snapshot)
    assert not Caller(anna(snapshot)).may(snapshot.grants, Privilege.SEE, SYSTEM)
    assert snapshot.grants.held == READY_GRANTS.held


def test_grants_are_given_and_taken_and_repeated_without_a_version() -> None:
    snapshot = after("CREATE ZONE orders", "CREATE USER anna", "GRANT READ, WRITE ON ZONE orders TO anna")
    orders = zone_object(ZoneId(1))
    assert Caller(anna(snapshot)).may(snapshot.grants, Privilege.WRITE, orders)
    repeated = change("GRANT WRITE ON ZONE orders TO anna", snapshot)
    assert (repeated.applied, repeated.entries) == (False, ())
    snapshot = after("REVOKE WRITE ON ZONE orders FROM anna", on=snapshot)
    assert not Caller(anna(snapshot)).may(snapshot.grants, Privilege.WRITE, orders)
    assert Caller(anna(snapshot)).may(snapshot.grants, Privilege.READ, orders)
    assert change("REVOKE WRITE ON ZONE orders FROM anna", snapshot).entries == ()
    assert len(change("GRANT SEE, SEE ON SYSTEM TO anna, anna", snapshot).entries) == 1


def test_a_grant_follows_the_zone_and_not_its_name() -> None:
    snapshot = after(
        "CREATE ZONE orders",
        "CREATE USER anna",
        "GRANT READ ON ZONE orders TO anna",
        "ALTER ZONE orders RENAME TO bills",
        "CREATE ZONE orders",
    )
    bills, orders = snapshot.zone("BILLS"), snapshot.zone("ORDERS")
    assert bills is not None
    assert orders is not None
    assert Caller(anna(snapshot)).may(snapshot.grants, Privilege.READ, zone_object(bills.zone_id))
    assert not Caller(anna(snapshot)).may(snapshot.grants, Privilege.SEE, zone_object(orders.zone_id))
    again = after("DROP ZONE bills", "CREATE ZONE bills", on=snapshot)
    made = again.zone("BILLS")
    assert made is not None
    assert not Caller(anna(again)).may(again.grants, Privilege.SEE, zone_object(made.zone_id))
    assert not again.grants.held.get(anna(again))


def test_a_revoke_of_all_zones_leaves_what_one_zone_has() -> None:
    snapshot = after(
        "CREATE ZONE orders",
        "CREATE USER anna",
        "GRANT READ ON ALL ZONES TO anna",
        "GRANT READ ON ZONE orders TO anna",
        "REVOKE READ ON ALL ZONES FROM anna",
    )
    assert Caller(anna(snapshot)).may(snapshot.grants, Privilege.READ, zone_object(ZoneId(1)))
    assert not Caller(anna(snapshot)).may(snapshot.grants, Privilege.READ, ALL_ZONES)


@pytest.mark.parametrize(
    ("sql", "kind", "part"),
    [
        ("CREATE USER public", ErrorKind.USER_NAME_INVALID, "public is a reserved name"),
        ('CREATE USER "two words"', ErrorKind.USER_NAME_INVALID, "use 1 to 63 letters, digits and _ . @ + -"),
        (f"CREATE ROLE {'a' * 64}", ErrorKind.USER_NAME_INVALID, "is not a valid name of a role"),
        ("CREATE USER carl PASSWORD 'short'", ErrorKind.PASSWORD_INVALID, "has 8 to 256 characters"),
        ("CREATE USER carlotta PASSWORD 'CARLOTTA'", ErrorKind.PASSWORD_INVALID, "than the user's name"),
        ("ALTER USER anna PASSWORD '********'", ErrorKind.PASSWORD_INVALID, "write the password itself"),
        ("ALTER USER carl LOGIN", ErrorKind.USER_NOT_FOUND, "user carl does not exist"),
        ("DROP USER viewer", ErrorKind.USER_NOT_FOUND, "user viewer does not exist"),
        ("DROP ROLE anna", ErrorKind.ROLE_NOT_FOUND, "role anna does not exist"),
        ("DROP ROLE viewer", ErrorKind.ROLE_PROTECTED, "the role viewer is part of every catalog"),
        ("GRANT READ ON ALL ZONES TO viewer", ErrorKind.ROLE_PROTECTED, "can be granted, not changed"),
        ("REVOKE ADMIN ON SYSTEM FROM administrator", ErrorKind.ROLE_PROTECTED, "administrator"),
        (
            "GRANT SEEN ON SYSTEM TO anna",
            ErrorKind.PRIVILEGE_UNKNOWN,
            "SEEN is not a privilege; accepted: SEE,",
        ),
        ("GRANT ADMIN ON ALL ZONES TO anna", ErrorKind.GRANT_INVALID, "ADMIN is granted ON SYSTEM only"),
        ("GRANT READ ON SYSTEM TO anna", ErrorKind.GRANT_INVALID, "READ is granted ON ZONE and a name"),
        ("GRANT SEE ON ZONE none TO anna", ErrorKind.ZONE_NOT_FOUND, "zone NONE does not exist"),
        ("GRANT SEE ON SYSTEM TO carl", ErrorKind.USER_NOT_FOUND, "there is no user and no role carl"),
        ("GRANT owner TO anna", ErrorKind.ROLE_NOT_FOUND, "role owner does not exist"),
        ("GRANT viewer TO carl", ErrorKind.USER_NOT_FOUND, "user carl does not exist"),
        ("GRANT viewer TO writer", ErrorKind.GRANT_INVALID, "a role is granted to users only"),
    ],
)
def test_each_violation_has_a_code_and_a_place(sql: str, kind: ErrorKind, part: str) -> None:
    refused, message = refusal(sql, after("CREATE USER anna"))
    assert refused is kind
    assert part in message


def test_if_exists_ignores_what_is_missing() -> None:
    for sql in ("ALTER USER IF EXISTS a LOGIN", "DROP USER IF EXISTS a", "DROP ROLE IF EXISTS a"):
        assert not change(sql, FRESH).applied


@pytest.mark.parametrize(
    "sql",
    [
        "DROP USER anna",
        "ALTER USER anna NOLOGIN",
        "REVOKE administrator FROM anna",
        "DROP USER IF EXISTS anna",
    ],
)
def test_the_last_active_administrator_stays(sql: str) -> None:
    snapshot = after(
        "CREATE USER anna",
        "GRANT administrator TO anna",
        "CREATE USER ben NOLOGIN",
        "GRANT administrator TO ben",
    )
    kind, message = refusal(sql, snapshot)
    assert kind is ErrorKind.LAST_ADMINISTRATOR
    assert "anna is the last active user with ADMIN ON SYSTEM" in message
    assert change(sql, after("ALTER USER ben LOGIN", on=snapshot)).applied


def test_the_last_administrator_by_a_role_of_its_own_stays_too() -> None:
    snapshot = after(
        "CREATE USER anna", "CREATE ROLE owners", "GRANT ADMIN ON SYSTEM TO owners", "GRANT owners TO anna"
    )
    for sql in ("DROP ROLE owners", "REVOKE ADMIN ON SYSTEM FROM owners", "REVOKE owners FROM anna"):
        assert refusal(sql, snapshot)[0] is ErrorKind.LAST_ADMINISTRATOR


def test_other_statements_change_no_grants() -> None:
    assert catalog("CREATE ZONE a", "ALTER ZONE a SET (REPLICAS 2)").grants == Grants(version=2)
