"""Sessions of the console and one-time links in the catalog's database: digests of secrets, and owners."""

from __future__ import annotations

from sqlalchemy import Engine, RowMapping, delete, insert, or_, select, update

from catalog.core.access_tokens import NO_BASIS, LoginBasis
from catalog.core.principals import Principal
from catalog.core.sessions import IDLE_US, LINKS_MAX, ConsoleSession, OneTimeLink
from catalog.store.connections import reading, writing
from catalog.store.principal_tables import ONE_TIME_LINKS, SESSIONS, belongs_to, user_version
from catalog.store.token_rows import require_active, require_room

_OWNER = SESSIONS.c.owner_source, SESSIONS.c.owner_name
_SESSIONS = select(SESSIONS, user_version(*_OWNER).label("owner_version"))
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
            query = query.where(*belongs_to(owner, *_OWNER))
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
            values = {
                "secret_hash": session.digest,
                "owner_source": session.owner.source,
                "owner_name": session.owner.name,
                "csrf": session.csrf,
                "created_us": session.created_us,
                "used_us": session.used_us,
                "expires_us": session.expires_us,
            }
            connection.execute(insert(SESSIONS), values)
            connection.commit()

    def use(self, digest: str, now_us: int) -> None:
        """Notes that it was used; one that was ended meanwhile stays so."""
        same = (SESSIONS.c.secret_hash == digest, SESSIONS.c.used_us < now_us)
        with writing(self._engine) as connection:
            connection.execute(update(SESSIONS).where(*same).values(used_us=now_us))
            connection.commit()

    def end(self, digest: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.secret_hash == digest))
            connection.commit()

    def add_link(self, link: OneTimeLink, basis: LoginBasis = NO_BASIS) -> None:
        """Add a link, and delete those that are over. Raises RefusedError (UNAUTHENTICATED) as ``add`` does,
        and (LOGIN_PROOF_LIMIT)."""
        with writing(self._engine) as connection:
            require_active(connection, link.owner, basis)
            connection.execute(delete(ONE_TIME_LINKS).where(ONE_TIME_LINKS.c.expires_us <= link.created_us))
            if basis != NO_BASIS:
                usable = (*belongs_to(link.owner, *_LINK_OWNER), ONE_TIME_LINKS.c.used_us.is_(None))
                require_room(connection, usable, LINKS_MAX, "links")
            values = {
                "secret_hash": link.digest,
                "owner_source": link.owner.source,
                "owner_name": link.owner.name,
                "created_us": link.created_us,
                "expires_us": link.expires_us,
            }
            connection.execute(insert(ONE_TIME_LINKS), values)
            connection.commit()

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
            connection.commit()
        return _owner(row)


def _session(row: RowMapping) -> ConsoleSession:
    times = row["created_us"], row["used_us"], row["expires_us"]
    return ConsoleSession(row["secret_hash"], _owner(row), row["csrf"], *times)


def _owner(row: RowMapping) -> Principal:
    return Principal(row["owner_source"], row["owner_name"], row["owner_version"])
