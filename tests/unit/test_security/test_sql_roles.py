"""X-Trino-Role takes roles away, and gives none."""

from __future__ import annotations

import itertools

import pytest

from app.security.authenticate import narrowed, selected_roles
from catalog.core.authorisation import (
    ALL_ZONES,
    READY_GRANTS,
    READY_ROLES,
    SYSTEM,
    Caller,
    Grant,
    Membership,
    Privilege,
    User,
    local_user,
    privileges_of,
    role,
)
from catalog.core.errors import ErrorKind, RefusedError

ANNA = local_user("anna")
GRANTS = (
    READY_GRANTS.with_user(User(ANNA))
    .with_member(Membership(role("viewer"), ANNA), is_member=True)
    .with_member(Membership(role("operator"), ANNA), is_member=True)
    .with_grant(Grant(ANNA, Privilege.READ, ALL_ZONES), is_held=True)
)
VIEWER, OPERATOR = role("viewer"), role("operator")


@pytest.mark.parametrize(
    ("lines", "enabled"),
    [
        ([], None),
        ([""], None),
        (["system=ALL"], None),
        (["system=NONE"], frozenset()),
        (["system=ROLE{viewer}"], {VIEWER}),
        (["system=ROLE%7Bviewer%7D"], {VIEWER}),
        (['system=ROLE{"Viewer"}'], {VIEWER}),
        (["hive=ROLE{admin},zonekeeper=role{operator}"], {OPERATOR}),
        (["hive=ROLE{admin}"], None),
        (["system=ROLE{viewer}", "zonekeeper=ROLE{operator}"], frozenset()),
        (["system=ROLE{viewer},zonekeeper=ALL"], {VIEWER}),
    ],
)
def test_what_drivers_send(lines: list[str], enabled: set[object] | None) -> None:
    assert selected_roles(lines) == enabled


@pytest.mark.parametrize("text", ["viewer", "system=", "system=viewer", "system=ROLE{}", "system=ROLE{a}b"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="X-Trino-Role is") as refused:
        selected_roles([text])
    assert refused.value.kind is ErrorKind.INVALID_REQUEST


def test_a_role_that_the_user_does_not_have_is_refused() -> None:
    for name in ("administrator", "unknown"):
        with pytest.raises(RefusedError, match=f"does not have the role {name}") as refused:
            narrowed(Caller(ANNA), GRANTS, frozenset({role(name)}))
        assert refused.value.kind is ErrorKind.PRIVILEGE_MISSING


def test_no_choice_of_roles_allows_more() -> None:
    """Over all subsets of the ready roles, privileges and objects."""
    whole, pairs, taken = Caller(ANNA), 0, 0
    for count in range(len(READY_ROLES) + 1):
        for names in itertools.combinations(READY_ROLES, count):
            less = Caller(ANNA, enabled=frozenset(map(role, names)))
            for target in (SYSTEM, ALL_ZONES):
                for privilege in privileges_of(target.kind):
                    pairs += 1
                    allowed = less.may(GRANTS, privilege, target)
                    assert whole.may(GRANTS, privilege, target) or not allowed
                    taken += whole.may(GRANTS, privilege, target) and not allowed
    assert pairs > taken > 0


def test_what_the_user_itself_was_granted_stays() -> None:
    less = narrowed(Caller(ANNA), GRANTS, frozenset())
    assert less.may(GRANTS, Privilege.READ, ALL_ZONES)
    assert not less.may(GRANTS, Privilege.SEE, SYSTEM)
    one = narrowed(Caller(ANNA), GRANTS, frozenset({VIEWER}))
    assert one.may(GRANTS, Privilege.SEE, SYSTEM)
    assert not one.may(GRANTS, Privilege.OPERATE, SYSTEM)
    with pytest.raises(RefusedError):
        narrowed(one, GRANTS, frozenset({role("writer")}))


def test_narrowing_again_takes_away_more() -> None:
    one = narrowed(Caller(ANNA), GRANTS, frozenset({VIEWER}))
    assert narrowed(one, GRANTS, frozenset({OPERATOR})).enabled == frozenset()
