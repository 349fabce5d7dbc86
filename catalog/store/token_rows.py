"""Opaque tokens in the catalog's database: digests of secrets, and what they allow whom."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, delete, func, insert, select, update

from catalog.core.access_tokens import (
    DAY_US,
    LIFETIME_DAYS_MAX,
    NO_BASIS,
    TOKENS_MAX,
    AccessToken,
    LoginBasis,
    scope_of,
    scope_text,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.principals import Principal
from catalog.store.connections import reading, writing
from catalog.store.principal_tables import TOKENS, USERS, belongs_to, user_version

KEPT_US = LIFETIME_DAYS_MAX * DAY_US
"""A token that has expired or was revoked is shown for so long after it was made, and then deleted."""
_OWNER = TOKENS.c.owner_source, TOKENS.c.owner_name
_TOKENS = select(TOKENS, user_version(*_OWNER).label("owner_version"))


class SqlTokens:
    """All calls block and raise StoreError. Every one of them is a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def by_digest(self, digest: str) -> AccessToken | None:
        with reading(self._engine) as connection:
            row = connection.execute(_TOKENS.where(TOKENS.c.secret_hash == digest)).mappings().first()
        return None if row is None else _token(row)

    def all(self, owner: Principal | None) -> tuple[AccessToken, ...]:
        """The newest first; None: of all users."""
        query = _TOKENS.order_by(TOKENS.c.created_us.desc(), TOKENS.c.token_id)
        if owner is not None:
            query = query.where(*belongs_to(owner, *_OWNER))
        with reading(self._engine) as connection:
            return tuple(map(_token, connection.execute(query).mappings()))

    def add(self, token: AccessToken, basis: LoginBasis = NO_BASIS) -> None:
        """Raises RefusedError: UNAUTHENTICATED when at this moment the owner is no active user, or ``basis``
        does not hold any more, and LOGIN_PROOF_LIMIT, but for one that the server makes by itself."""
        with writing(self._engine) as connection:
            require_active(connection, token.owner, basis)
            old = TOKENS.c.created_us < token.created_us - KEPT_US
            connection.execute(delete(TOKENS).where(old, TOKENS.c.expires_us < token.created_us))
            if basis != NO_BASIS:
                valid = TOKENS.c.revoked_us.is_(None), TOKENS.c.expires_us > token.created_us
                require_room(connection, (*belongs_to(token.owner, *_OWNER), *valid), TOKENS_MAX, "tokens")
            connection.execute(insert(TOKENS), _row(token))
            connection.commit()

    def revoke(self, token_id: str, now_us: int) -> None:
        """Revoke a token once: a later call changes nothing."""
        same = (TOKENS.c.token_id == token_id, TOKENS.c.revoked_us.is_(None))
        with writing(self._engine) as connection:
            connection.execute(update(TOKENS).where(*same).values(revoked_us=now_us))
            connection.commit()


def require_active(connection: Connection, owner: Principal, basis: LoginBasis = NO_BASIS) -> None:
    """Require an active owner until the transaction ends. Raises RefusedError (UNAUTHENTICATED)."""
    named = (USERS.c.source == owner.source, USERS.c.name == owner.name)
    same = (*named, USERS.c.created_version == owner.version, USERS.c.is_active)
    version = connection.scalar(select(USERS.c.changed_version).where(*same).with_for_update(read=True))
    if version is None:
        raise RefusedError(ErrorKind.UNAUTHENTICATED, f"user {owner.name} does not exist or cannot log in")
    if basis.user_version not in (None, version):
        raise RefusedError(ErrorKind.UNAUTHENTICATED, f"the password of {owner.name} was changed")
    if basis.token_digest is not None:
        valid = (TOKENS.c.secret_hash == basis.token_digest, TOKENS.c.revoked_us.is_(None))
        if connection.scalar(select(TOKENS.c.token_id).where(*valid).with_for_update(read=True)) is None:
            raise RefusedError(ErrorKind.UNAUTHENTICATED, "the token was revoked")


def require_room(
    connection: Connection, conditions: tuple[ColumnElement[bool], ...], most: int, what: str
) -> None:
    """Raises RefusedError (LOGIN_PROOF_LIMIT) where ``most`` rows meet the conditions."""
    if (connection.scalar(select(func.count()).where(*conditions)) or 0) >= most:
        raise RefusedError(ErrorKind.LOGIN_PROOF_LIMIT, f"the user has {most} {what} already")


def _row(token: AccessToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "secret_hash": token.digest,
        "owner_source": token.owner.source,
        "owner_name": token.owner.name,
        "scope": scope_text(token.scope),
        "created_us": token.created_us,
        "expires_us": token.expires_us,
        "revoked_us": token.revoked_us,
    }


def _token(row: RowMapping) -> AccessToken:
    return AccessToken(
        token_id=row["token_id"],
        digest=row["secret_hash"],
        owner=Principal(row["owner_source"], row["owner_name"], row["owner_version"]),
        scope=scope_of(row["scope"]),
        created_us=row["created_us"],
        expires_us=row["expires_us"],
        revoked_us=row["revoked_us"],
    )
