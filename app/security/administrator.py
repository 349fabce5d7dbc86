"""Administrators that no administrator makes: the first of an installation, and one after all were locked out.

Anyone who may write the catalog's database could become an administrator in any case; this way is orderly, and
is audited. ``zonectl up`` keeps a token of its user ``admin`` in a file of the data directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from app.requests.context import acting
from app.security.token_secrets import new_secret
from catalog.core.audit import Action, Actor, AuditEntry, AuditRecord
from catalog.core.authorisation import Grants, role
from catalog.core.credentials import (
    DAY_US,
    LIFETIME_DAYS_MAX,
    AccessToken,
    TokenRequest,
    digest_of,
    issue,
    scope_text,
)
from catalog.core.messages import AlterUser, ChangeMembers, Command, CreateUser, Name, Secret
from catalog.core.snapshot import CatalogSnapshot, Topology
from parser.render import render_principal_command
from rebalance.hosting.private_files import replace_privately

ADMINISTRATOR = "administrator"
LOCAL_ADMIN = "admin"
"""The user of ``zonectl up``."""
TOKEN_LIFE_US = LIFETIME_DAYS_MAX * DAY_US
RENEWED_WITH_LEFT_US = TOKEN_LIFE_US // 3
RECOVERED = "administrators"
"""Subject of the audit's records of recoveries, by which they are looked up."""
SHOWN_US = 7 * DAY_US
"""Time for which `zonectl status` names administrators that were recovered."""


class AdministratorCatalog(Protocol):
    """Calls to the catalog's database, off the event loop. Each raises StatementError."""

    async def run(self, commands: Sequence[Command], topology: Topology) -> Sequence[object]: ...

    async def snapshot(self) -> CatalogSnapshot: ...

    async def token(self, digest: str) -> AccessToken | None: ...

    async def add_token(self, token: AccessToken) -> None: ...

    async def record(self, entry: AuditEntry) -> None: ...


def administrator_commands(grants: Grants, name: str, password: Secret | None = None) -> tuple[Command, ...]:
    """Commands that make ``name`` a user who may log in and has the role of administrators; empty: it is one
    already. ``password``: None leaves it as it is. ``name`` in lower case."""
    named, user = Name(name), grants.user(name)
    commands: list[CreateUser | AlterUser | ChangeMembers] = []
    if user is None:
        commands.append(CreateUser(named, password))
    elif not user.is_active or password is not None:
        commands.append(AlterUser(named, password, is_active=None if user.is_active else True))
    if user is None or role(ADMINISTRATOR) not in grants.roles_of.get(user.principal, ()):
        commands.append(ChangeMembers((Name(ADMINISTRATOR),), (named,), True))
    return tuple(replace(command, source=render_principal_command(command)) for command in commands)


async def recover_administrator(
    catalog: AdministratorCatalog, name: str, password: Secret, actor: Actor
) -> bool:
    """Make the user an administrator who logs in with this password; True if the user is new. Raises
    StatementError."""
    snapshot = await catalog.snapshot()
    is_new = snapshot.grants.user(name) is None
    with acting(actor):
        await catalog.run(administrator_commands(snapshot.grants, name, password), ())
        await _record(catalog, Action.RECOVER_ADMINISTRATOR, RECOVERED, actor, {"user": name})
    return is_new


def recovery_line(record: AuditRecord) -> str:
    """Describe a recovery in the words of `zonectl status`."""
    try:
        user = json.loads(record.entry.details)["user"]
    except (ValueError, KeyError, TypeError):
        user = "a user"
    at = datetime.fromtimestamp(record.at_us / 1_000_000, UTC).isoformat(timespec="seconds")
    by = record.entry.actor.name or "somebody"
    return f"{user} was made an administrator by `zonectl admin recover`, run by {by} at {at}"


async def keep_local_token(catalog: AdministratorCatalog, file: Path, now_us: int, actor: Actor) -> str:
    """Keep a token of ``admin`` with at least a third of its life left in ``file`` (0600). Empty: it is there;
    else the reason why it is not, in words.

    Where there is no file, or no administrator, ``admin`` is made one: anyone who may write the data directory
    controls the catalog as well. Else changes that administrators have made to ``admin`` stay.
    Raises StatementError and OSError.
    """
    earlier = _kept(file)
    if earlier:
        token = await catalog.token(digest_of(earlier))
        if token is not None and token.is_valid(now_us) and token.expires_us - now_us > RENEWED_WITH_LEFT_US:
            return ""
    grants = (await catalog.snapshot()).grants
    user = grants.user(LOCAL_ADMIN)
    is_due = not earlier or not grants.administrators()
    if is_due and (commands := administrator_commands(grants, LOCAL_ADMIN)):
        with acting(actor):
            await catalog.run(commands, ())
        user = (await catalog.snapshot()).grants.user(LOCAL_ADMIN)
    if user is None or not user.is_active:
        return f"user {LOCAL_ADMIN} does not exist or cannot log in; remove {file} to make it an administrator"
    secret = new_secret()
    token = issue(TokenRequest(lifetime_us=TOKEN_LIFE_US), user.principal, secret, now_us)
    await catalog.add_token(token)
    await _record(catalog, Action.CREATE_TOKEN, token.token_id, actor, {"scope": scope_text(token.scope)})
    replace_privately(file, f"{secret}\n".encode())
    return ""


def _kept(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


async def _record(
    catalog: AdministratorCatalog, action: Action, subject: str, actor: Actor, details: dict[str, str]
) -> None:
    version = (await catalog.snapshot()).version
    body = json.dumps(details)
    await catalog.record(AuditEntry(action.value, subject, actor, actor.reason, body, version, version))
