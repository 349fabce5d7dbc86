"""Users, roles and grants as rows, and back. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, delete, insert, select, update

from catalog.core.authorisation import (
    Grant,
    GrantObject,
    Grants,
    Membership,
    ObjectKind,
    Principal,
    Privilege,
    User,
    UserRole,
    role,
)
from catalog.core.versions import (
    CatalogEntry,
    EntryKind,
    GrantEntry,
    MembershipEntry,
    RoleEntry,
    UserEntry,
    ZoneEntry,
)
from catalog.core.zone import ZoneId
from catalog.store.tables import (
    GRANTS,
    ONE_TIME_LINKS,
    ROLE_MEMBERS,
    ROLES,
    SESSIONS,
    STATEMENT_LOG,
    TOKENS,
    USERS,
    raise_oldest_writer,
)

FIRST_WRITER_WITH_USERS = "0010"
"""An older build does not ask who may do what: once there are users it is refused (U11)."""
_NO_ZONE = 0


def read_grants(connection: Connection, version: int) -> Grants:
    """Read the grants as they are now: the caller has read ``version`` before, so they are never older than
    that."""
    rows = connection.execute(select(USERS)).mappings().all()
    users = {(row["source"], row["name"]): _user(row) for row in rows}
    roles = connection.execute(select(ROLES)).mappings()
    members = connection.execute(select(ROLE_MEMBERS))
    grants = connection.execute(select(GRANTS))

    def subject(source: str, name: str) -> Principal:
        user = users.get((source, name))
        return Principal(source, name) if user is None else user.principal

    return Grants.of(
        version,
        users.values(),
        [UserRole(role(row["name"]), row["is_ready"], row["created_version"]) for row in roles],
        [Membership(role(row.role), subject(row.source, row.name)) for row in members],
        [
            Grant(subject(row.source, row.name), Privilege(row.privilege), _object(row.object, row.zone_id))
            for row in grants
        ],
    )


def write_principal(connection: Connection, entry: CatalogEntry) -> None:
    """Write what one entry of a version changes in these tables; a zone that is dropped takes its grants
    along."""
    if isinstance(entry, UserEntry):
        _write_user(connection, entry)
    elif isinstance(entry, RoleEntry):
        _write_role(connection, entry)
    elif isinstance(entry, GrantEntry):
        _put_or_delete(connection, GRANTS, _grant_row(entry.grant), entry.kind)
    elif isinstance(entry, MembershipEntry):
        user = entry.membership.user
        member = {"role": entry.membership.role.name, "source": user.source, "name": user.name}
        _put_or_delete(connection, ROLE_MEMBERS, member, entry.kind)
    elif isinstance(entry, ZoneEntry) and entry.kind is EntryKind.DROPPED:
        connection.execute(delete(GRANTS).where(GRANTS.c.zone_id == entry.zone.zone_id))


def _write_user(connection: Connection, entry: UserEntry) -> None:
    user, principal = entry.user, entry.user.principal
    of_user = {"source": principal.source, "name": principal.name}
    _delete(connection, USERS, of_user)
    if entry.kind is EntryKind.DROPPED:
        _delete(connection, ROLE_MEMBERS, of_user)
        _delete(connection, GRANTS, of_user)
        _end_proofs(connection, principal, (TOKENS, SESSIONS, ONE_TIME_LINKS))
        _disown_statements(connection, principal)
        return
    values = {
        **of_user,
        "password_hash": user.password_hash,
        "is_active": user.is_active,
        "created_version": principal.version,
        "changed_version": user.changed_version,
    }
    connection.execute(insert(USERS), values)
    raise_oldest_writer(connection, FIRST_WRITER_WITH_USERS)
    # Whoever knew the password before, or was let in before, logs in again.
    _end_proofs(connection, principal, (SESSIONS, ONE_TIME_LINKS))


def _write_role(connection: Connection, entry: RoleEntry) -> None:
    one, name = entry.role, entry.role.name
    if entry.kind is EntryKind.WRITTEN:
        values = {"name": name, "is_ready": one.is_ready, "created_version": one.created_version}
        connection.execute(insert(ROLES), values)
        return
    _delete(connection, ROLES, {"name": name})
    _delete(connection, ROLE_MEMBERS, {"role": name})
    _delete(connection, GRANTS, {"source": one.principal.source, "name": name})


def _end_proofs(connection: Connection, principal: Principal, tables: Iterable[Table]) -> None:
    for table in tables:
        _delete(connection, table, {"owner_source": principal.source, "owner_name": principal.name})


def _disown_statements(connection: Connection, principal: Principal) -> None:
    """A later user of the same name is another one: it reads no statement of this one."""
    log = STATEMENT_LOG
    owned = (log.c.principal_source == principal.source) & (log.c.principal_name == principal.name)
    gone = {"principal_source": "gone", "idempotency_key": None}
    connection.execute(update(log).where(owned).values(gone))


def _put_or_delete(connection: Connection, table: Table, values: dict[str, Any], kind: EntryKind) -> None:
    _delete(connection, table, values)
    if kind is EntryKind.WRITTEN:
        connection.execute(insert(table), values)


def _delete(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Rows that have these values."""
    same = [table.c[name] == value for name, value in values.items()]
    connection.execute(delete(table).where(*same))


def _grant_row(grant: Grant) -> dict[str, Any]:
    return {
        "source": grant.grantee.source,
        "name": grant.grantee.name,
        "object": grant.object.kind.value,
        "zone_id": _NO_ZONE if grant.object.zone_id is None else grant.object.zone_id,
        "privilege": grant.privilege.value,
    }


def _user(row: RowMapping) -> User:
    principal = Principal(row["source"], row["name"], row["created_version"])
    return User(principal, row["password_hash"], row["is_active"], row["changed_version"])


def _object(kind: str, zone_id: int) -> GrantObject:
    return GrantObject(ObjectKind(kind), None if zone_id == _NO_ZONE else ZoneId(zone_id))
