"""Rows of the views of users, roles and grants. Of a password they only say whether there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.sql.views.view_registry import BIGINT, BOOLEAN, INTEGER, VARCHAR, ZONE_ID, Row
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.principals import Principal

USERS, ROLES, GRANTS = OF_CALLERS = "USERS", "ROLES", "GRANTS"

USER_COLUMNS = {
    **dict.fromkeys(("USER_NAME", "SOURCE"), VARCHAR),
    **dict.fromkeys(("IS_ACTIVE", "HAS_PASSWORD"), BOOLEAN),
    "ROLES": VARCHAR,
    **dict.fromkeys(("CREATED_VERSION", "CHANGED_VERSION"), BIGINT),
}
ROLE_COLUMNS = {
    "ROLE_NAME": VARCHAR,
    "IS_READY": BOOLEAN,
    "MEMBERS": VARCHAR,
    "CREATED_VERSION": BIGINT,
}
GRANT_COLUMNS = {
    **dict.fromkeys(("GRANTEE", "GRANTEE_SOURCE", "PRIVILEGE", "OBJECT"), VARCHAR),
    "ZONE_NAME": VARCHAR,
    ZONE_ID: INTEGER,
}


def user_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Catalog versions say when: SYSTEM.EVENTS has their times."""
    grants = snapshot.catalog.grants
    for principal, user in sorted(grants.users.items(), key=_by_name):
        yield (
            user.name,
            principal.source,
            user.is_active,
            user.password_hash is not None,
            _names(grants.roles_of.get(principal, ())),
            principal.version,
            user.changed_version,
        )


def role_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """MEMBERS: those that the caller may see."""
    grants = snapshot.catalog.grants
    for principal, one in sorted(grants.roles.items(), key=_by_name):
        members = [user for user, roles in grants.roles_of.items() if principal in roles]
        yield one.name, one.is_ready, _names(members), one.created_version


def grant_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Each privilege as it was granted, directly or to a role; what follows from it is not written out."""
    catalog = snapshot.catalog
    for grant in catalog.grants.grants:
        zone = catalog.zone_with_id(grant.object.zone_id)
        yield (
            grant.grantee.name,
            grant.grantee.source,
            grant.privilege.value,
            grant.object.kind.value,
            zone.name if zone is not None else None,
            grant.object.zone_id,
        )


def _by_name(item: tuple[Principal, object]) -> str:
    return str(item[0])


def _names(principals: Iterable[Principal]) -> str:
    return ", ".join(sorted(principal.name for principal in principals))
