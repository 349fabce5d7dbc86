"""Authorisation: the one function that decides who may do what, on grants of one catalog version."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    Grant,
    GrantObject,
    Grants,
    Membership,
    ObjectKind,
    Permission,
    Principal,
    Privilege,
    User,
    UserRole,
    local_user,
    privileges_of,
    role,
    zone_object,
)
from catalog.core.versions import CatalogSnapshot, EntryKind, GrantEntry, RoleEntry, UserEntry, ZoneEntry
from catalog.core.zone import Zone, ZoneId
from tests.fixtures.examples import examples

ANNA, BEN, ROBIN = local_user("anna"), local_user("ben"), Principal("https://issuer.example", "anna")
READERS = role("readers")
ORDERS, LOGS = zone_object(ZoneId(1)), zone_object(ZoneId(2))
OBJECTS = (SYSTEM, ALL_ZONES, ORDERS, LOGS)


def grants_of(*grants: Grant, is_active: bool = True, member: bool = False) -> Grants:
    memberships = [Membership(READERS, ANNA)] if member else []
    users = [User(ANNA, is_active=is_active), User(BEN)]
    return Grants.of(7, users, [UserRole(READERS)], memberships, grants)


def test_nothing_is_allowed_that_was_not_granted() -> None:
    for privilege, target in itertools.product(Privilege, OBJECTS):
        is_zone = target.kind is ObjectKind.ZONE
        assert Caller(ANNA).decide(grants_of(), privilege, target).access is (
            Permission.HIDDEN if is_zone else Permission.MISSING
        )


@pytest.mark.parametrize("privilege", sorted(privileges_of(ObjectKind.ZONE), key=str))
def test_a_privilege_of_a_zone_is_of_that_zone_and_shows_it(privilege: Privilege) -> None:
    grants = grants_of(Grant(ANNA, privilege, ORDERS))
    for other in privileges_of(ObjectKind.ZONE):
        decision = Caller(ANNA).decide(grants, other, ORDERS)
        assert decision.access is (
            Permission.ALLOWED if other in (privilege, Privilege.SEE) else Permission.MISSING
        )
        assert Caller(ANNA).decide(grants, other, LOGS).access is Permission.HIDDEN
        assert Caller(BEN).decide(grants, other, ORDERS).access is Permission.HIDDEN
        assert not Caller(ANNA).may(grants, other, ALL_ZONES)
        assert not Caller(ANNA).may(grants, other, SYSTEM)


def test_all_zones_are_those_of_later_too_and_not_the_system() -> None:
    grants = grants_of(Grant(ANNA, Privilege.READ, ALL_ZONES))
    later = zone_object(ZoneId(10**9))
    assert Caller(ANNA).may(grants, Privilege.READ, later)
    assert Caller(ANNA).may(grants, Privilege.SEE, later)
    assert Caller(ANNA).decide(grants, Privilege.WRITE, later).access is Permission.MISSING
    assert not Caller(ANNA).may(grants, Privilege.SEE, SYSTEM)


def test_see_of_the_system_follows_from_nothing_else() -> None:
    for privilege in privileges_of(ObjectKind.SYSTEM) - {Privilege.SEE, Privilege.ADMIN}:
        assert not Caller(ANNA).may(grants_of(Grant(ANNA, privilege, SYSTEM)), Privilege.SEE, SYSTEM)


def test_admin_implies_everything_and_nothing_implies_admin() -> None:
    grants = grants_of(Grant(ANNA, Privilege.ADMIN, SYSTEM))
    every = [Grant(BEN, one, SYSTEM) for one in privileges_of(ObjectKind.SYSTEM) - {Privilege.ADMIN}]
    every += [Grant(BEN, one, ALL_ZONES) for one in privileges_of(ObjectKind.ZONE)]
    for privilege, target in itertools.product(Privilege, OBJECTS):
        assert Caller(ANNA).may(grants, privilege, target)
    assert not Caller(BEN).may(grants_of(*every), Privilege.ADMIN, SYSTEM)


def test_a_member_has_what_the_role_has() -> None:
    granted = Grant(READERS, Privilege.READ, ORDERS)
    assert Caller(ANNA).may(grants_of(granted, member=True), Privilege.READ, ORDERS)
    assert not Caller(ANNA).may(grants_of(granted, member=False), Privilege.READ, ORDERS)


@pytest.mark.parametrize("target", OBJECTS)
def test_an_inactive_or_unknown_user_may_do_nothing(target: GrantObject) -> None:
    granted = Grant(ANNA, Privilege.ADMIN, SYSTEM)
    for privilege in Privilege:
        assert not Caller(ANNA).may(grants_of(granted, is_active=False), privilege, target)
        assert not Caller(local_user("nobody")).may(grants_of(granted), privilege, target)


def test_equal_names_of_two_sources_are_two_principals() -> None:
    grants = grants_of(Grant(ANNA, Privilege.ADMIN, SYSTEM))
    assert not Caller(ROBIN).may(grants, Privilege.SEE, SYSTEM)
    assert Caller(ROBIN).may(grants_of(Grant(ROBIN, Privilege.SEE, SYSTEM)), Privilege.SEE, SYSTEM)


def test_another_source_vouches_for_roles() -> None:
    grants = grants_of(Grant(READERS, Privilege.READ, ORDERS))
    assert Caller(ROBIN, roles=(READERS,)).may(grants, Privilege.READ, ORDERS)
    assert not Caller(ROBIN).may(grants, Privilege.READ, ORDERS)


def test_a_scope_narrows_and_never_widens() -> None:
    grants = grants_of(Grant(ANNA, Privilege.ADMIN, SYSTEM))
    narrow = Caller(ANNA, scope={ORDERS: frozenset({Privilege.READ})})
    assert narrow.may(grants, Privilege.READ, ORDERS)
    assert narrow.may(grants, Privilege.SEE, ORDERS)
    assert narrow.decide(grants, Privilege.WRITE, ORDERS).access is Permission.MISSING
    assert narrow.decide(grants, Privilege.SEE, LOGS).access is Permission.HIDDEN
    assert not narrow.may(grants, Privilege.ADMIN, SYSTEM)
    wide = Caller(BEN, scope={SYSTEM: frozenset({Privilege.ADMIN})})
    assert not wide.may(grants, Privilege.SEE, ORDERS)


def test_the_reason_names_who_needs_what() -> None:
    missing = Caller(ANNA).decide(grants_of(), Privilege.OPERATE, SYSTEM)
    assert missing.reason == "local:anna needs OPERATE ON SYSTEM"


def test_administrators_are_active_users_with_admin_directly_or_by_a_role() -> None:
    admin = Grant(READERS, Privilege.ADMIN, SYSTEM)
    assert grants_of(admin, member=True).administrators() == (ANNA,)
    assert grants_of(admin, member=True, is_active=False).administrators() == ()
    assert grants_of(Grant(BEN, Privilege.ADMIN, SYSTEM)).administrators() == (BEN,)
    assert grants_of(Grant(BEN, Privilege.SEE, SYSTEM)).administrators() == ()


def test_a_dropped_zone_takes_its_grants_along_and_a_renamed_one_keeps_them() -> None:
    zone = Zone(ZoneId(1), "ORDERS", 4, 3, None, ("default",))
    granted = Grant(ANNA, Privilege.WRITE, ORDERS)
    entries = (
        UserEntry(EntryKind.WRITTEN, User(ANNA)),
        ZoneEntry(EntryKind.WRITTEN, zone),
        GrantEntry(EntryKind.WRITTEN, granted),
    )
    catalog = CatalogSnapshot().after(entries)
    renamed = catalog.after((ZoneEntry(EntryKind.WRITTEN, Zone(ZoneId(1), "BILLS", 4, 3, None, ("default",))),))
    assert renamed.grants.grants == (granted,)
    dropped = renamed.after((ZoneEntry(EntryKind.DROPPED, zone),))
    assert dropped.grants.grants == ()
    again = Zone(dropped.next_zone_id, "ORDERS", 4, 3, None, ("default",))
    grants = dropped.after((ZoneEntry(EntryKind.WRITTEN, again),)).grants
    assert not Caller(ANNA).may(grants, Privilege.SEE, zone_object(again.zone_id))


def test_a_dropped_user_or_role_leaves_nothing_behind() -> None:
    grants = grants_of(Grant(ANNA, Privilege.SEE, SYSTEM), Grant(READERS, Privilege.READ, ORDERS), member=True)
    without_role = grants.without(READERS)
    assert (without_role.roles_of, without_role.grants) == ({}, (Grant(ANNA, Privilege.SEE, SYSTEM),))
    without_user = grants.without(ANNA)
    assert (without_user.roles_of, without_user.grants) == ({}, (Grant(READERS, Privilege.READ, ORDERS),))


def test_grants_are_of_the_version_that_they_were_changed_by() -> None:
    catalog = CatalogSnapshot().after((RoleEntry(EntryKind.WRITTEN, UserRole(READERS)),))
    assert (catalog.version, catalog.grants.version) == (1, 1)


# Two users, a role, two zones: what a larger world could show, this one shows.
_GRANTEES = st.sampled_from((ANNA, BEN, READERS, ROBIN))
_ZONE_GRANTS = st.builds(
    Grant,
    _GRANTEES,
    st.sampled_from(sorted(privileges_of(ObjectKind.ZONE), key=str)),
    st.sampled_from((ALL_ZONES, ORDERS, LOGS)),
)
_SYSTEM_GRANTS = st.builds(
    Grant, _GRANTEES, st.sampled_from(sorted(privileges_of(ObjectKind.SYSTEM), key=str)), st.just(SYSTEM)
)
_GRANTS = st.frozensets(_ZONE_GRANTS | _SYSTEM_GRANTS, max_size=6)
_MEMBERS = st.frozensets(st.sampled_from((ANNA, BEN, ROBIN)))
_SCOPES = st.none() | st.frozensets(_ZONE_GRANTS | _SYSTEM_GRANTS, max_size=3)


def allowed(grants: frozenset[Grant], subjects: set[Principal], privilege: Privilege, at: GrantObject) -> bool:
    """The rules of the privileges said once more, one grant at a time."""
    for grant in grants:
        if grant.grantee not in subjects:
            continue
        if (grant.privilege, grant.object) == (Privilege.ADMIN, SYSTEM):
            return True
        covers = grant.object == at or (grant.object == ALL_ZONES and at.kind is ObjectKind.ZONE)
        if covers and (grant.privilege is privilege or (privilege is Privilege.SEE and at != SYSTEM)):
            return True
    return False


@settings(max_examples=examples(2_000), deadline=None)
@given(_GRANTS, _MEMBERS, _SCOPES, st.sampled_from((ANNA, BEN, ROBIN)), st.booleans())
def test_decisions_are_those_of_a_plain_reading(
    grants: frozenset[Grant],
    members: frozenset[Principal],
    scope: frozenset[Grant] | None,
    asking: Principal,
    is_active: bool,
) -> None:
    users = [User(ANNA, is_active=is_active), User(BEN)]
    catalog = Grants.of(1, users, [UserRole(READERS)], [Membership(READERS, one) for one in members], grants)
    subjects = {asking, READERS} if asking in members else {asking}
    held = None if scope is None else Grants.of(1, grants=[Grant(asking, g.privilege, g.object) for g in scope])
    caller = Caller(asking, scope=None if held is None else held.held.get(asking, {}))
    for privilege, target in itertools.product(Privilege, OBJECTS):
        expected = allowed(grants, subjects, privilege, target) and (asking != ANNA or is_active)
        if scope is not None:
            expected = expected and allowed(scope, {one.grantee for one in scope}, privilege, target)
        assert caller.may(catalog, privilege, target) is expected, (privilege, target)
    seen = caller.seen_zones(catalog, (ZoneId(1), ZoneId(2)))
    one_by_one = {
        zone for zone in (ZoneId(1), ZoneId(2)) if caller.may(catalog, Privilege.SEE, zone_object(zone))
    }
    assert one_by_one == ({ZoneId(1), ZoneId(2)} if seen is None else seen)


@settings(max_examples=examples(500), deadline=None)
@given(_GRANTS, st.lists(_ZONE_GRANTS | _SYSTEM_GRANTS, max_size=6), st.booleans())
def test_one_change_at_a_time_comes_to_the_same_grants(
    before: frozenset[Grant], changes: list[Grant], is_held: bool
) -> None:
    grants, expected = Grants.of(1, grants=before), set(before)
    for change in changes:
        grants = grants.with_grant(change, is_held=is_held)
        expected = expected | {change} if is_held else expected - {change}
    assert grants == Grants.of(1, grants=expected)
