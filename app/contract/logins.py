"""Users, roles and grants; logins, their tokens, and links to the console."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.columns import Long, Named
from app.contract.marks import About


class UserRow(TypedDict):
    """Catalog versions say when: SYSTEM.EVENTS has their times."""

    name: Annotated[str, Named("name of the user", "USER_NAME", title="User")]
    source: Annotated[str, Named("local: the catalog; else an issuer", "SOURCE", "principal.source")]
    is_active: Annotated[bool, Named("false: the user may do nothing", "IS_ACTIVE")]
    password: Annotated[bool, Named("it may log in with one", "HAS_PASSWORD")]
    roles: Annotated[list[str], Named("that it is a member of", "ROLES")]
    created_version: Annotated[Long, Named("that made it", "CREATED_VERSION", "principal.version")]
    changed_version: Annotated[
        Long, Named("of the last change of password or state", "CHANGED_VERSION", title="Changed in version")
    ]


class RoleRow(TypedDict):
    name: Annotated[str, Named("name of the role", "ROLE_NAME", title="Role")]
    is_ready: Annotated[bool, Named("every catalog has it", "IS_READY")]
    members: Annotated[list[str], Named("those that the caller may see", "MEMBERS")]
    created_version: Annotated[Long, Named("catalog version that made it", "CREATED_VERSION")]


class GrantRow(TypedDict):
    grantee: Annotated[str, Named("user or role", "GRANTEE", "grantee.name", title="User or role")]
    source: Annotated[str, Named("role, local, or an issuer", "GRANTEE_SOURCE", "grantee.source")]
    privilege: Annotated[str, Named("as it was granted", "PRIVILEGE")]
    object: Annotated[str, Named("kind of what it is about", "OBJECT", "object.kind")]
    zone: Annotated[str | None, Named("where it is about one", "ZONE_NAME")]
    zone_id: Annotated[int | None, Named("given once, never used again", "ZONE_ID", "object.zone_id")]


class WhoAmI(TypedDict):
    source: Annotated[str, About("local: a user of the catalog; else the issuer that vouches for the name")]
    name: str
    roles: Annotated[list[str], About("of the catalog")]
    proof: Annotated[str, About("PASSWORD, TOKEN or JWT")]
    token_id: Annotated[str | None, About("of the token that was sent")]
    scope: Annotated[str, About("privileges that the token is limited to; empty: all that its owner has")]
    expires_at: Annotated[str | None, About("UTC; null: a password does not expire")]


class TokenBody(TypedDict):
    token_id: str
    owner: str
    scope: Annotated[str, About("privileges that it is limited to; empty: all that its owner has")]
    created_at: Annotated[str, About("UTC")]
    expires_at: Annotated[str, About("UTC")]
    revoked_at: Annotated[str | None, About("UTC; null: it was not revoked")]
    valid: Annotated[bool, About("neither expired nor revoked")]


class Tokens(TypedDict):
    tokens: Annotated[list[TokenBody], About("the newest first")]


class NewToken(TokenBody):
    secret: Annotated[str, About("shown once; the catalog keeps only a hash of it")]


class ConsoleLink(TypedDict):
    path: Annotated[str, About("of the console, with the secret as its fragment")]
    expires_at: Annotated[str, About("UTC; it logs in once")]
