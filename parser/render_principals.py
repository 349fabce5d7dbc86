"""Commands on users, roles and grants to text, and names as every command writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from catalog.core.messages import (
    AlterUser,
    ChangeGrants,
    ChangeMembers,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantTarget,
    Name,
    PrincipalCommand,
    UserCommand,
)
from parser.hidden_secrets import HIDDEN
from parser.rules import RESERVED

_PLAIN_NAME = re.compile("[A-Z_][A-Z0-9_]*")
_PLAIN_PRINCIPAL = re.compile("[a-z_][a-z0-9_]*")


def render_name(name: Name) -> str:
    """Unquoted where that means the same, and where a name needs quotes but was written without."""
    if name.malformed or (_PLAIN_NAME.fullmatch(name.text) and name.text not in RESERVED):
        return name.text
    return _in_quotes(name.text)


def render_principal_command(command: PrincipalCommand) -> str:
    """One statement; ``'********'`` stands for a password."""
    if isinstance(command, ChangeGrants):
        privileges = ", ".join(map(_privilege, command.privileges))
        return _change(f"{privileges} ON {_target(command.target)}", command.grantees, command.is_granted)
    if isinstance(command, ChangeMembers):
        return _change(_listed(command.roles), command.users, command.is_granted)
    return " ".join((*_verb(command), render_principal(command.name), *_options(command)))


def render_principal(name: Name) -> str:
    """The name of a user or role, which has no case."""
    is_plain = _PLAIN_PRINCIPAL.fullmatch(name.text) and name.text.upper() not in RESERVED
    return name.text if is_plain else _in_quotes(name.text)


def _verb(command: UserCommand) -> Iterator[str]:
    words = {
        CreateUser: "CREATE USER",
        AlterUser: "ALTER USER",
        DropUser: "DROP USER",
        CreateRole: "CREATE ROLE",
        DropRole: "DROP ROLE",
    }
    yield words[type(command)]
    if isinstance(command, CreateUser | CreateRole):
        if command.if_not_exists:
            yield "IF NOT EXISTS"
    elif command.if_exists:
        yield "IF EXISTS"


def _options(command: UserCommand) -> Iterator[str]:
    if not isinstance(command, CreateUser | AlterUser):
        return
    if command.password is not None:
        yield f"PASSWORD {HIDDEN}"
    if isinstance(command, AlterUser) and command.drops_password:
        yield "PASSWORD NULL"
    if command.is_active is False:
        yield "NOLOGIN"
    if command.is_active and isinstance(command, AlterUser):
        yield "LOGIN"


def _change(what: str, names: tuple[Name, ...], is_granted: bool) -> str:
    return f"GRANT {what} TO {_listed(names)}" if is_granted else f"REVOKE {what} FROM {_listed(names)}"


def _privilege(name: Name) -> str:
    """Render a privilege, also one that does not exist; the words of those that do stand alone, reserved or
    not."""
    return name.text if _PLAIN_NAME.fullmatch(name.text) else _in_quotes(name.text)


def _target(target: GrantTarget) -> str:
    if target.is_system:
        return "SYSTEM"
    return "ALL ZONES" if target.zone is None else f"ZONE {render_name(target.zone)}"


def _listed(names: Iterable[Name]) -> str:
    return ", ".join(map(render_principal, names))


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
