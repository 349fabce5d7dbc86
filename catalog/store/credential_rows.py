"""Opaque tokens, sessions of the console and one-time links in the catalog's database.

Of each the digest of its secret is kept, and its owner; of a token what it allows, too.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, delete, func, insert, or_, select, update

from catalog.core.authorisation import Principal
from catalog.core.credentials import (
    DAY_US,
    IDLE_US,
    LIFETIME_DAYS_MAX,
    LINKS_MAX,
    NO_BASIS,
    TOKENS_MAX,
    AccessToken,
    ConsoleSession,
    LoginBasis,
    OneTimeLink,
    scope_of,
    scope_text,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.store.connections import reading, writing
from catalog.store.tables import ONE_TIME_LINKS, SESSIONS, TOKENS, USERS, belongs_to, user_version

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
            values = _values(token, "token_id", "created_us", "expires_us", "revoked_us")
            connection.execute(insert(TOKENS), {**values, "scope": scope_text(token.scope)})

    def revoke(self, token_id: str, now_us: int) -> None:
        """Revoke a token once: a later call changes nothing."""
        same = (TOKENS.c.token_id == token_id, TOKENS.c.revoked_us.is_(None))
        with writing(self._engine) as connection:
            connection.execute(update(TOKENS).where(*same).values(revoked_us=now_us))


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


def _values(proof: AccessToken | ConsoleSession | OneTimeLink, *names: str) -> dict[str, Any]:
    """Columns that all proofs have, and those whose names are fields of this one."""
    owner = {"owner_source": proof.owner.source, "owner_name": proof.owner.name}
    return {"secret_hash": proof.digest, **owner, **{name: getattr(proof, name) for name in names}}


def _token(row: RowMapping) -> AccessToken:
    times = row["created_us"], row["expires_us"], row["revoked_us"]
    return AccessToken(row["token_id"], row["secret_hash"], _owner(row), scope_of(row["scope"]), *times)


_SESSION_OWNER = SESSIONS.c.owner_source, SESSIONS.c.owner_name
_SESSIONS = select(SESSIONS, user_version(*_SESSION_OWNER).label("owner_version"))
_LINK_OWNER = ONE_TIME_LINKS.c.owner_source, ONE_TIME_LINKS.c.owner_name
_LINKS = select(*_LINK_OWNER, user_version(*_LINK_OWNER).label("owner_version"))


class SqlSessions:
    """All calls block and raise StoreError. Every one of them is a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def by_digest(self, digest: str) -> ConsoleSession | None:
        """Find a session, also one that has expired."""
        query = _SESSIONS.where(SESSIONS.c.secret_hash == digest)
        with reading(self._engine) as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else _session(row)

    def all(self, owner: Principal | None) -> tuple[ConsoleSession, ...]:
        """The newest first, also those that have expired; None: of all users."""
        query = _SESSIONS.order_by(SESSIONS.c.created_us.desc(), SESSIONS.c.secret_hash)
        if owner is not None:
            query = query.where(*belongs_to(owner, *_SESSION_OWNER))
        with reading(self._engine) as connection:
            return tuple(map(_session, connection.execute(query).mappings()))

    def add(self, session: ConsoleSession, replaced: str | None = None, basis: LoginBasis = NO_BASIS) -> None:
        """``replaced``: the digest of the session that it takes the place of. Those that are over are deleted.
        Raises RefusedError (UNAUTHENTICATED) when at this moment the owner is no active user, or ``basis``
        does not hold any more."""
        over = or_(
            SESSIONS.c.expires_us <= session.created_us,
            SESSIONS.c.used_us <= session.created_us - IDLE_US,
            SESSIONS.c.secret_hash == (replaced or ""),
        )
        with writing(self._engine) as connection:
            require_active(connection, session.owner, basis)
            connection.execute(delete(SESSIONS).where(over))
            values = _values(session, "csrf", "created_us", "used_us", "expires_us")
            connection.execute(insert(SESSIONS), values)

    def use(self, digest: str, now_us: int) -> None:
        """Notes that it was used; one that was ended meanwhile stays so."""
        same = (SESSIONS.c.secret_hash == digest, SESSIONS.c.used_us < now_us)
        with writing(self._engine) as connection:
            connection.execute(update(SESSIONS).where(*same).values(used_us=now_us))

    def end(self, digest: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.secret_hash == digest))

    def add_link(self, link: OneTimeLink, basis: LoginBasis = NO_BASIS) -> None:
        """Add a link, and delete those that are over. Raises RefusedError (UNAUTHENTICATED) as ``add`` does,
        and (LOGIN_PROOF_LIMIT)."""
        with writing(self._engine) as connection:
            require_active(connection, link.owner, basis)
            connection.execute(delete(ONE_TIME_LINKS).where(ONE_TIME_LINKS.c.expires_us <= link.created_us))
            if basis != NO_BASIS:
                usable = (*belongs_to(link.owner, *_LINK_OWNER), ONE_TIME_LINKS.c.used_us.is_(None))
                require_room(connection, usable, LINKS_MAX, "links")
            connection.execute(insert(ONE_TIME_LINKS), _values(link, "created_us", "expires_us"))

    def use_link(self, digest: str, now_us: int) -> Principal | None:
        """Use a link once and return its owner: None for one that does not exist, was used or has expired."""
        usable = (
            ONE_TIME_LINKS.c.secret_hash == digest,
            ONE_TIME_LINKS.c.used_us.is_(None),
            ONE_TIME_LINKS.c.expires_us > now_us,
        )
        with writing(self._engine) as connection:
            if connection.execute(update(ONE_TIME_LINKS).where(*usable).values(used_us=now_us)).rowcount != 1:
                return None
            row = connection.execute(_LINKS.where(ONE_TIME_LINKS.c.secret_hash == digest)).mappings().one()
        return _owner(row)


def _session(row: RowMapping) -> ConsoleSession:
    times = row["created_us"], row["used_us"], row["expires_us"]
    return ConsoleSession(row["secret_hash"], _owner(row), row["csrf"], *times)


def _owner(row: RowMapping) -> Principal:
    return Principal(row["owner_source"], row["owner_name"], row["owner_version"])
