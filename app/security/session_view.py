"""Sessions of the console as a server knows them: read from the catalog, and never older than two seconds while
the catalog answers."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from app.requests.context import Login, Proof
from app.security.access_view import AccessView, FreshValues
from app.security.login_check import utc_now_us
from app.security.token_secrets import LINK_PREFIX, SESSION_PREFIX, new_secret
from catalog.core.authorisation import Caller, Principal
from catalog.core.credentials import (
    NO_BASIS,
    USE_NOTED_US,
    ConsoleSession,
    LoginBasis,
    digest_of,
    issued_link,
    opened_session,
)
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.store.credential_rows import SqlSessions

SESSION_OVER = "log in again: the session does not exist, has expired or was ended"

T = TypeVar("T")


class SessionStore(Protocol):
    async def on_sessions(self, act: Callable[[SqlSessions], T]) -> T:
        """Run ``act`` on the catalog's database, off the event loop. Raises RefusedError and StoreError."""


@dataclass(eq=False)
class SessionView:
    """View of sessions; one per server. ``clock``: seconds, monotonic. ``now_us``: microseconds since 1970."""

    access: AccessView
    store: SessionStore
    clock: Callable[[], float] = time.monotonic
    now_us: Callable[[], int] = utc_now_us

    def __post_init__(self) -> None:
        self._sessions = FreshValues(self._read, self.clock, self.access.changes)

    async def login(self, secret: str) -> Login:
        """The login by the secret in a browser's cookie. Raises RefusedError (UNAUTHENTICATED) and
        StoreError."""
        return await self._login(digest_of(secret))

    async def renewed(self, login: Login) -> Login:
        """The login as its session has it now. Raises as ``login`` does where the session has ended."""
        assert login.session is not None, "logged in by a session"
        return await self._login(login.session.digest)

    async def open(self, login: Login, replaced: str) -> str:
        """Open a session, and return its secret. ``replaced``: the secret of the browser's earlier session,
        which ends; empty: it has none. Raises RefusedError (UNAUTHENTICATED) when the user cannot log in, or no
        longer with this proof, and StoreError."""
        secret = new_secret(SESSION_PREFIX)
        session, before = opened_session(login.caller.principal, secret, self.now_us()), digest_of(replaced)
        await self.store.on_sessions(lambda rows: rows.add(session, before, login.basis))
        self._sessions.forget(before)
        return secret

    async def end(self, login: Login, csrf: str) -> None:
        """End the login's session. ``csrf``: the token that pages of the session have. Raises RefusedError
        (ORIGIN_REFUSED) and StoreError."""
        session = login.session
        assert session is not None, "logged in by a session"
        if not hmac.compare_digest(digest_of(csrf), session.csrf):
            raise RefusedError(ErrorKind.ORIGIN_REFUSED, "the request is of no page of this session")
        await self.end_listed(session)

    async def listed(self, owner: Principal | None) -> tuple[ConsoleSession, ...]:
        """Valid sessions of ``owner``, the newest first; None: of all users. Raises StoreError."""
        now_us = self.now_us()
        sessions = await self.store.on_sessions(lambda rows: rows.all(owner))
        return tuple(session for session in sessions if session.is_valid(now_us))

    async def end_listed(self, session: ConsoleSession) -> None:
        """End a session, for a caller who may do so. Raises StoreError."""
        await self.store.on_sessions(lambda rows: rows.end(session.digest))
        self._sessions.forget(session.digest)

    async def note_use(self, login: Login) -> None:
        """Note that the session is used, so that it goes on. While the catalog stores nothing it may end
        sooner."""
        session, now_us = login.session, self.now_us()
        if session is None or now_us - session.used_us < USE_NOTED_US:
            return
        with suppress(StoreError):
            await self.store.on_sessions(lambda rows: rows.use(session.digest, now_us))
            self._sessions.forget(session.digest)

    async def new_link(self, owner: Principal, basis: LoginBasis = NO_BASIS) -> str:
        """Make a one-time link, and return its secret. Raises RefusedError (UNAUTHENTICATED) and StoreError."""
        secret = new_secret(LINK_PREFIX)
        link = issued_link(owner, secret, self.now_us())
        await self.store.on_sessions(lambda rows: rows.add_link(link, basis))
        return secret

    async def use_link(self, secret: str) -> Principal | None:
        """Use up a one-time link, and return its owner; None: it is not valid, or was used. Raises
        StoreError."""
        digest, now_us = digest_of(secret), self.now_us()
        return await self.store.on_sessions(lambda rows: rows.use_link(digest, now_us))

    async def _login(self, digest: str) -> Login:
        session = await self._sessions.get(digest)
        if session is None or not session.is_valid(self.now_us()):
            raise RefusedError(ErrorKind.UNAUTHENTICATED, SESSION_OVER)
        if not await self.access.has_active(session.owner):
            raise RefusedError(ErrorKind.UNAUTHENTICATED, SESSION_OVER)
        return Login(Caller(session.owner), Proof.SESSION, expires_us=session.expires_us, session=session)

    async def _read(self, digest: str) -> ConsoleSession | None:
        return await self.store.on_sessions(lambda rows: rows.by_digest(digest))
