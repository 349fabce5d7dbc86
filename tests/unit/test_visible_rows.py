"""Rows that a view takes from somewhere else than the catalog are left out by their zone, too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sortedcontainers import SortedList

from app.security.statement_policy import VIEWS
from app.sql.statements.results import INTEGER, VARCHAR, AnswerColumn
from app.sql.statements.statement_line import QueryClient, QueryEntry
from app.sql.views.view_registry import ZONE_ID, Row, SystemView
from app.sql.views.view_snapshot import SystemSnapshot
from app.sql.views.visible_rows import Permit, visible_rows
from catalog.core.authorisation import (
    READY_PRIVILEGES,
    SYSTEM,
    Caller,
    Grant,
    Grants,
    Membership,
    Principal,
    Privilege,
    User,
    local_user,
    role,
    zone_object,
)
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceCopy

ROWS: list[Row] = [(1, "of one"), (2, "of another"), (9, "of one that is gone"), (None, "of none")]
COLUMNS = AnswerColumn(ZONE_ID, INTEGER), AnswerColumn("TEXT", VARCHAR)
HISTORY, GRANTED = (SystemView(name, COLUMNS, lambda _: ROWS) for name in ("HISTORY", "GRANTS"))


def seen_by(seen: frozenset[ZoneId] | None) -> SystemSnapshot:
    keys = KeyspaceCopy("t/", 0, {}, SortedList())
    return SystemSnapshot(CatalogSnapshot(), keys, Keyspace("t/"), 0, seen=seen)


@pytest.mark.parametrize(
    ("seen", "numbers"),
    [(None, [1, 2, 9, None]), (frozenset({ZoneId(1)}), [1]), (frozenset(), [])],
)
def test_rows_of_zones_that_are_not_seen_are_left_out(
    seen: frozenset[ZoneId] | None, numbers: list[int | None]
) -> None:
    assert [row[0] for row in visible_rows(HISTORY, seen_by(seen))] == numbers


def test_grants_on_no_zone_are_their_owners() -> None:
    assert [row[0] for row in visible_rows(GRANTED, seen_by(frozenset({ZoneId(2)})))] == [2, None]


def test_equal_names_of_two_sources_see_no_queries_of_each_other() -> None:
    """The name that is shown for each makes no difference."""
    anna, other = local_user("anna"), Principal("https://issuer.example", "anna")
    clients = (
        QueryClient("", "anna", anna),
        QueryClient("", "anna", other),
        QueryClient("", "anna for ben", anna),
    )
    queries = tuple(QueryEntry("", 0, client, False, 0, 0, "SELECT 1") for client in clients)
    snapshot = replace(seen_by(None), queries=queries)

    def shown_to(caller: Caller | None) -> SystemSnapshot:
        return Permit(snapshot.catalog, caller, {}).visible(snapshot)

    for principal, own in ((anna, clients[::2]), (other, clients[1:2])):
        assert tuple(entry.client for entry in shown_to(Caller(principal)).queries) == own
        scope = {SYSTEM: frozenset({Privilege.SEE})}
        assert shown_to(Caller(principal, scope=scope)).queries == ()
    assert shown_to(None).queries == queries


ALL = "SEE ON ALL ZONES"
SIGHTS = [
    ("administrator", "ZONES", ALL),
    ("administrator", "USERS", f"{ALL}; ADMIN ON SYSTEM"),
    ("administrator", "GRANTS", f"{ALL}; ADMIN ON SYSTEM"),
    ("administrator", "SQL_QUERIES", f"{ALL}; OPERATE, SEE ON SYSTEM"),
    ("administrator", "AUDIT", f"{ALL}; AUDIT ON SYSTEM"),
    ("administrator", "EXPLAIN PARTITION", f"{ALL}; SEE ON SYSTEM"),
    ("operator", "GRANTS", ALL),
    ("viewer", "NODES", f"{ALL}; SEE ON SYSTEM"),
    ("", "ZONES", "SEE ON ZONE 1"),
    ("", "GRANTS", "SEE ON ZONE 1"),
    ("", "EXPLAIN PARTITION", "SEE ON ZONE 1"),
]
"""Objects that an answer shows to a member of the role, which has READ on zone 1, too."""


@pytest.mark.parametrize(("member_of", "asked", "shown"), SIGHTS)
def test_an_answer_is_for_whoever_sees_what_it_shows(member_of: str, asked: str, shown: str) -> None:
    """Privileges that have shown nothing are not needed: an administrator's list of zones is not for
    administrators alone."""
    anna = local_user("anna")
    roles = [Membership(role(member_of), anna)] if member_of else []
    own = [Grant(anna, Privilege.READ, zone_object(ZoneId(1)))]
    grants = Grants.of(1, [User(anna)], memberships=roles, grants=own)
    ready = {role(name): held for name, held in READY_PRIVILEGES.items()}
    zones = tuple(Zone(ZoneId(number), f"Z{number}", 1, 1, None, ("default",)) for number in (1, 2))
    catalog = replace(CatalogSnapshot(), grants=replace(grants, held={**grants.held, **ready}), zones=zones)
    needed = {asked: VIEWS.get(asked)}
    assert Permit(catalog, Caller(anna), needed).shown == shown
    assert Permit(catalog, None, needed).shown == "", "nobody has logged in"
