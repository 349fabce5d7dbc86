"""Forms of the page of users: a statement for each, and what its fields offer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from catalog.core.authorisation import LOCAL, Privilege
from catalog.core.messages import Name
from catalog.core.snapshot import CatalogSnapshot
from parser.render import render_name, render_principal


class FormField(Enum):
    """Field of a form, with its label."""

    NAME = "Name"
    PASSWORD = "Password"
    USER = "User"
    ROLE = "Role"
    GRANTEE = "User or role"
    PRIVILEGE = "Privilege"
    TARGET = "On"


TYPED = frozenset({FormField.NAME, FormField.PASSWORD})
"""The others are chosen from ``choices``."""


@dataclass(frozen=True, slots=True)
class StatementForm:
    """``template``: the statement, with the names of its fields in braces."""

    word: str
    consequence: str
    template: str
    is_dangerous: bool = False

    @property
    def fields(self) -> tuple[FormField, ...]:
        return tuple(field for field in FormField if f"{{{field.name}}}" in self.template)

    def statement(self, values: Mapping[FormField, str]) -> str:
        """``values``: as they were typed, or chosen."""
        texts = {field.name: _rendered(field, values.get(field, "")) for field in self.fields}
        return self.template.format_map(texts).strip()


USER_FORMS = (
    StatementForm(
        "New user", "Without a password it can log in with tokens only.", "CREATE USER {NAME} {PASSWORD}"
    ),
    StatementForm("Set password", "Sessions and links of the user end.", "ALTER USER {USER} {PASSWORD}"),
    StatementForm("Allow login", "The user can log in again.", "ALTER USER {USER} LOGIN"),
    StatementForm("Forbid login", "Sessions end, and tokens are refused.", "ALTER USER {USER} NOLOGIN", True),
    StatementForm(
        "Drop user",
        "Its grants, tokens and sessions end, and a new user of this name gets none of them.",
        "DROP USER {USER}",
        True,
    ),
)
ROLE_FORMS = (
    StatementForm("New role", "It has no privileges until they are granted.", "CREATE ROLE {NAME}"),
    StatementForm("Add to role", "The user has the role's privileges within 2 s.", "GRANT {ROLE} TO {USER}"),
    StatementForm(
        "Remove from role",
        "The user loses the role's privileges within 2 s.",
        "REVOKE {ROLE} FROM {USER}",
        True,
    ),
    StatementForm("Drop role", "Its members lose its privileges.", "DROP ROLE {ROLE}", True),
)
GRANT_FORMS = (
    StatementForm(
        "Grant",
        "ALL ZONES includes zones that are created later.",
        "GRANT {PRIVILEGE} ON {TARGET} TO {GRANTEE}",
    ),
)
REVOKE = StatementForm(
    "Revoke", "It holds on every server within 2 s.", "REVOKE {PRIVILEGE} ON {TARGET} FROM {GRANTEE}", True
)


def choices(field: FormField, catalog: CatalogSnapshot) -> list[str]:
    """Values that the field offers, sorted."""
    if field is FormField.PRIVILEGE:
        return [privilege.value for privilege in Privilege]
    if field is FormField.TARGET:
        zones = sorted(target_text("ZONE", zone.name) for zone in catalog.zones)
        return [target_text("SYSTEM"), target_text("ALL ZONES"), *zones]
    grants = catalog.grants
    users = sorted(principal.name for principal in grants.users if principal.source == LOCAL)
    roles = sorted(principal.name for principal in grants.roles)
    offered = {FormField.USER: users, FormField.ROLE: roles, FormField.GRANTEE: [*users, *roles]}
    return offered[field]


def target_text(kind: str, zone: str | None = None) -> str:
    """Write what a privilege is granted on, as a statement names it."""
    return kind if zone is None else f"ZONE {render_name(Name(zone))}"


def _rendered(field: FormField, value: str) -> str:
    if field is FormField.PASSWORD:
        literal = value.replace("'", "''")
        return f"PASSWORD '{literal}'" if value else ""
    if field in (FormField.PRIVILEGE, FormField.TARGET):
        return value
    return render_principal(Name(value.strip().lower()))
