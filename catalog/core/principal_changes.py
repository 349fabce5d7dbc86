"""Changes made by each command on users, roles and grants.

Checks come in this order: names, password, privileges and their object; existence; what is protected; and last
that an administrator is left, on the grants as they would be (U12).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Grant,
    GrantObject,
    Membership,
    Principal,
    Privilege,
    User,
    UserRole,
    local_user,
    privileges_of,
    role,
    zone_object,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AlterUser,
    ChangeGrants,
    ChangeMembers,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    Name,
    PrincipalCommand,
    Secret,
    shortened,
)
from catalog.core.versions import (
    CatalogSnapshot,
    Change,
    EntryKind,
    GrantEntry,
    MembershipEntry,
    PrincipalEntry,
    RoleEntry,
    UserEntry,
)
from catalog.core.zone_changes import missing_zone, nothing

NAME = re.compile(r"[a-z0-9_][a-z0-9_.@+-]{0,62}")
RESERVED_NAMES = frozenset({"public", "none"})
PASSWORD_CHARS_MIN = 8
PASSWORD_CHARS_MAX = 256
HIDDEN_PASSWORD = "********"
"""Text that stands in a statement in the place of a password."""


def change_principals(snapshot: CatalogSnapshot, command: PrincipalCommand) -> Change:
    """Raises RefusedError."""
    change = _CHANGES[type(command)](snapshot, command)
    _check_administrator_left(snapshot, change)
    return change


def _create_user(snapshot: CatalogSnapshot, command: CreateUser) -> Change:
    _check_name(command.name, "user")
    check_password(command.password, command.name)
    if existing := snapshot.grants.named(command.name.text):
        return _existing(existing, command, is_same=not existing.is_role)
    version = snapshot.version + 1
    principal = local_user(command.name.text, version)
    user = User(principal, _hashed(command.password), command.is_active, version)
    return _written(command, {"op": "create_user", "user": user.name}, UserEntry(EntryKind.WRITTEN, user))


def _alter_user(snapshot: CatalogSnapshot, command: AlterUser) -> Change:
    _check_name(command.name, "user")
    check_password(command.password, command.name)
    user = snapshot.grants.user(command.name.text)
    if user is None:
        return _missing_user(command)
    altered = user
    if command.password is not None or command.drops_password:
        altered = replace(altered, password_hash=_hashed(command.password))
    if command.is_active is not None:
        altered = replace(altered, is_active=command.is_active)
    effect = {"op": "alter_user", "user": user.name}
    if altered == user and command.password is None:
        return Change(command, applied=True, effect=effect)
    altered = replace(altered, changed_version=snapshot.version + 1)
    return _written(command, effect, UserEntry(EntryKind.WRITTEN, altered))


def _drop_user(snapshot: CatalogSnapshot, command: DropUser) -> Change:
    _check_name(command.name, "user")
    user = snapshot.grants.user(command.name.text)
    if user is None:
        return _missing_user(command)
    return _written(command, {"op": "drop_user", "user": user.name}, UserEntry(EntryKind.DROPPED, user))


def _create_role(snapshot: CatalogSnapshot, command: CreateRole) -> Change:
    _check_name(command.name, "role")
    if existing := snapshot.grants.named(command.name.text):
        return _existing(existing, command, is_same=existing.is_role)
    one = UserRole(role(command.name.text), created_version=snapshot.version + 1)
    return _written(command, {"op": "create_role", "role": one.name}, RoleEntry(EntryKind.WRITTEN, one))


def _drop_role(snapshot: CatalogSnapshot, command: DropRole) -> Change:
    _check_name(command.name, "role")
    one = snapshot.grants.roles.get(role(command.name.text))
    if one is None and command.if_exists:
        return nothing(command, None)
    if one is None:
        raise _missing_role(command.name)
    _check_not_ready(one, command.name)
    return _written(command, {"op": "drop_role", "role": one.name}, RoleEntry(EntryKind.DROPPED, one))


def _change_grants(snapshot: CatalogSnapshot, command: ChangeGrants) -> Change:
    privileges = [_privilege(name, command) for name in command.privileges]
    grants = snapshot.grants
    target = _target(snapshot, command)
    kind = EntryKind.WRITTEN if command.is_granted else EntryKind.DROPPED
    entries: list[PrincipalEntry] = []
    for name in command.grantees:
        _check_name(name, "user or role")
        grantee = grants.named(name.text)
        if grantee is None:
            message = f"there is no user and no role {name.text}"
            raise RefusedError(ErrorKind.USER_NOT_FOUND, message, name.position)
        if grantee.is_role:
            _check_not_ready(grants.roles[grantee], name)
        held = grants.held.get(grantee, {}).get(target, frozenset())
        changed = (one for one in privileges if (one in held) is not command.is_granted)
        entries += [GrantEntry(kind, Grant(grantee, one, target)) for one in changed]
    effect = {
        "op": "grant" if command.is_granted else "revoke",
        "privileges": [one.value for one in privileges],
        "object": target.kind.value if command.target.zone is None else f"ZONE {command.target.zone.text}",
        "grantees": [name.text for name in command.grantees],
    }
    return _written(command, effect, *entries)


def _change_members(snapshot: CatalogSnapshot, command: ChangeMembers) -> Change:
    grants = snapshot.grants
    for name in command.roles:
        _check_name(name, "role")
        if role(name.text) not in grants.roles:
            raise _missing_role(name)
    kind = EntryKind.WRITTEN if command.is_granted else EntryKind.DROPPED
    entries: list[PrincipalEntry] = []
    for name in command.users:
        _check_name(name, "user")
        user = grants.user(name.text)
        if role(name.text) in grants.roles:
            message = f"{name.text} is a role; a role is granted to users only"
            raise RefusedError(ErrorKind.GRANT_INVALID, message, name.position)
        if user is None:
            raise _no_user(name)
        held = grants.roles_of.get(user.principal, frozenset())
        named = (role(one.text) for one in command.roles)
        changed = (one for one in named if (one in held) is not command.is_granted)
        entries += [MembershipEntry(kind, Membership(one, user.principal)) for one in changed]
    effect = {
        "op": "grant" if command.is_granted else "revoke",
        "roles": [name.text for name in command.roles],
        "grantees": [name.text for name in command.users],
    }
    return _written(command, effect, *entries)


def _privilege(name: Name, command: ChangeGrants) -> Privilege:
    """Raises RefusedError for one that does not exist, or means nothing on the object."""
    known = {one.value: one for one in Privilege}
    privilege = known.get(name.text)
    if privilege is None:
        message = f"{shortened(name.text)} is not a privilege; accepted: {', '.join(known)}"
        raise RefusedError(ErrorKind.PRIVILEGE_UNKNOWN, message, name.position)
    kinds = SYSTEM.kind, ALL_ZONES.kind
    is_of_system, is_of_zones = (privilege in privileges_of(kind) for kind in kinds)
    if not (is_of_system if command.target.is_system else is_of_zones):
        where = "SYSTEM" if is_of_system else "ZONE and a name, or ON ALL ZONES"
        message = f"{privilege.value} is granted ON {where} only"
        raise RefusedError(ErrorKind.GRANT_INVALID, message, name.position)
    return privilege


def _target(snapshot: CatalogSnapshot, command: ChangeGrants) -> GrantObject:
    if command.target.is_system:
        return SYSTEM
    if command.target.zone is None:
        return ALL_ZONES
    zone = snapshot.zone(command.target.zone.text)
    if zone is None:
        raise missing_zone(command.target.zone)
    return zone_object(zone.zone_id)


def _check_administrator_left(snapshot: CatalogSnapshot, change: Change) -> None:
    """Check that an administrator is left, if there was one."""
    before = snapshot.grants.administrators()
    if not before or not change.entries or snapshot.after(change.entries).grants.administrators():
        return
    name = ", ".join(one.name for one in before)
    message = f"{name} is the last active user with ADMIN ON SYSTEM"
    raise RefusedError(ErrorKind.LAST_ADMINISTRATOR, message, change.command.position)


def _check_name(name: Name, what: str) -> None:
    if not NAME.fullmatch(name.text):
        message = (
            f"{shortened(name.text)} is not a valid name of a {what}: use 1 to 63 letters, digits and "
            "_ . @ + -, beginning with a letter, a digit or _"
        )
        raise RefusedError(ErrorKind.USER_NAME_INVALID, message, name.position)
    if name.text in RESERVED_NAMES:
        message = f"{name.text} is a reserved name of users and roles"
        raise RefusedError(ErrorKind.USER_NAME_INVALID, message, name.position)


def check_password(password: Secret | None, name: Name) -> None:
    """Raises RefusedError, which says nothing of the password."""
    if password is None:
        return
    problem = ""
    if not PASSWORD_CHARS_MIN <= len(password.text) <= PASSWORD_CHARS_MAX:
        problem = f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"
    elif password.text == HIDDEN_PASSWORD:
        problem = f"{HIDDEN_PASSWORD} stands for a password that is not shown: write the password itself"
    elif password.text.lower() == name.text:
        problem = "a password is another word than the user's name"
    if problem:
        raise RefusedError(ErrorKind.PASSWORD_INVALID, problem, password.position)


def _hashed(password: Secret | None) -> str | None:
    return None if password is None else password.hashed


def _check_not_ready(one: UserRole, name: Name) -> None:
    if one.is_ready:
        message = f"the role {one.name} is part of every catalog: it can be granted, not changed"
        raise RefusedError(ErrorKind.ROLE_PROTECTED, message, name.position)


def _written(command: PrincipalCommand, effect: dict[str, Any], *entries: PrincipalEntry) -> Change:
    # A name that is given twice changes once.
    return Change(command, applied=True, effect=effect, entries=tuple(dict.fromkeys(entries)))


def _missing_user(command: AlterUser | DropUser) -> Change:
    if command.if_exists:
        return nothing(command, None)
    raise _no_user(command.name)


def _no_user(name: Name) -> RefusedError:
    return RefusedError(ErrorKind.USER_NOT_FOUND, f"user {name.text} does not exist", name.position)


def _missing_role(name: Name) -> RefusedError:
    return RefusedError(ErrorKind.ROLE_NOT_FOUND, f"role {name.text} does not exist", name.position)


def _existing(existing: Principal, command: CreateUser | CreateRole, *, is_same: bool) -> Change:
    """Change nothing with IF NOT EXISTS, if a principal of the same kind exists. Raises RefusedError."""
    if is_same and command.if_not_exists:
        return nothing(command, None)
    kind = ErrorKind.ROLE_ALREADY_EXISTS if existing.is_role else ErrorKind.USER_ALREADY_EXISTS
    what = "role" if existing.is_role else "user"
    raise RefusedError(kind, f"{what} {command.name.text} already exists", command.name.position)


_CHANGES: dict[type[PrincipalCommand], Callable[[CatalogSnapshot, Any], Change]] = {
    CreateUser: _create_user,
    AlterUser: _alter_user,
    DropUser: _drop_user,
    CreateRole: _create_role,
    DropRole: _drop_role,
    ChangeGrants: _change_grants,
    ChangeMembers: _change_members,
}
