"""Standing of callers: whether they may go on, checked again while work runs, and before earlier results are
shown.

The proof of a login, its user and its privileges may end while a query, a long read or an open stream goes on.
Work that runs ``during`` the watch is cancelled then, within two seconds of the change, and the error says what
ended. Privileges that are added end nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from app.requests.context import Login, Proof, current_login
from app.security.login_check import WRONG_TOKEN, utc_now_us
from app.security.session_view import SessionView
from catalog.core.authorisation import LOCAL, GrantObject, Grants, Held, Privilege, lost_privileges
from catalog.core.credentials import scope_of
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from catalog.core.versions import CatalogSnapshot

LOOK_S = 0.25
"""Seconds between looks. With a second of ``FreshValue`` and a reading of the catalog an end is noticed within
two."""

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Standing:
    """Standing of the caller for whom ``task`` works. ``grants`` are those of the last look at which none was
    missing."""

    login: Login
    grants: Grants
    task: asyncio.Task[Any]
    refusal: StatementError | None = None
    cancels: int = 0

    def end(self, error: StatementError) -> None:
        self.refusal = error
        self.cancels += 1
        self.task.cancel()

    @property
    def proof(self) -> tuple[object, ...]:
        """The login's proof: two that are equal have the same user, token, session and expiry."""
        login = self.login
        token, session = login.token, login.session
        return login.caller.principal, token and token.digest, session and session.digest, login.expires_us


@dataclass(eq=False)
class StandingWatch:
    """Watch over the standing of callers; one per server, and ``run`` must run. ``catalog`` shows the zones
    that exist: a grant on a zone that was dropped has not been revoked."""

    sessions: SessionView
    catalog: Callable[[], Awaitable[CatalogSnapshot]]
    now_us: Callable[[], int] = utc_now_us

    def __post_init__(self) -> None:
        self._access = self.sessions.access
        self._watched: set[_Standing] = set()

    async def during(self, work: Coroutine[Any, Any, T], stays: str = "") -> T:
        """Await ``work`` under the watch; without a login it is not watched. ``stays``: words of the error for
        what is done already.

        Raises RefusedError (UNAUTHENTICATED, PRIVILEGE_MISSING) and StoreError (GRANTS_UNAVAILABLE) when the
        work was cancelled."""
        login = current_login()
        if login is None:
            return await work
        try:
            grants = await self._access.grants()
        except StatementError:
            work.close()
            raise
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        standing, others = _Standing(login, grants, task), task.cancelling()
        self._watched.add(standing)
        try:
            return await work
        except asyncio.CancelledError:
            refusal = standing.refusal
            # Whoever else has cancelled the task ends it.
            if refusal is None or task.cancelling() - standing.cancels > others:
                raise
            raise type(refusal)(
                refusal.kind, f"{refusal.message}; {stays}" if stays else refusal.message
            ) from None
        finally:
            self._watched.discard(standing)
            for _ in range(standing.cancels):
                task.uncancel()

    async def require(self, held: str) -> None:
        """Check that the caller has the privileges ``held`` (``access_tokens.scope_text``), under which a
        result was made by this or another user.

        Raises RefusedError (PRIVILEGE_MISSING) and StoreError (GRANTS_UNAVAILABLE)."""
        login = current_login()
        if login is None:
            return
        then, grants = scope_of(held) or {}, await self._access.grants()
        missing = await self._revoked(then, login.caller.held(grants))
        if missing:
            needed = f"{_named(*missing[0])}, which {login.caller.principal} does not have"
            raise RefusedError(ErrorKind.PRIVILEGE_MISSING, f"the result shows what needs {needed}")

    async def run(self) -> None:
        """Look at the watched work again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._watched:
                await self._look(tuple(self._watched))

    async def _look(self, watched: tuple[_Standing, ...]) -> None:
        try:
            grants = await self._access.grants()
        except StatementError as error:
            _end(watched, error)
            return
        by_proof: dict[tuple[object, ...], list[_Standing]] = {}
        for standing in watched:
            by_proof.setdefault(standing.proof, []).append(standing)
        await asyncio.gather(*(self._look_at_proof(same, grants) for same in by_proof.values()))
        for standing in watched:
            if standing.refusal is None and standing.grants is not grants:
                # What cannot be read now is looked at again; grants that grow old end it in the end.
                with suppress(StatementError):
                    await self._look_at_grants(standing, grants)

    async def _look_at_proof(self, same: list[_Standing], grants: Grants) -> None:
        login = same[0].login
        try:
            if login.expires_us is not None and self.now_us() >= login.expires_us:
                raise RefusedError(ErrorKind.UNAUTHENTICATED, "the login has expired")
            if login.token is not None:
                token = await self._access.tokens.get(login.token.digest)
                if token is None or not token.is_valid(self.now_us()):
                    raise RefusedError(ErrorKind.UNAUTHENTICATED, WRONG_TOKEN)
            if login.session is not None:
                await self.sessions.renewed(login)
        except StatementError as error:
            _end(same, error)
            return
        for standing in same:
            refusal = _of_user(standing, grants)
            if refusal is not None:
                standing.end(refusal)

    async def _look_at_grants(self, standing: _Standing, grants: Grants) -> None:
        caller = standing.login.caller
        missing = await self._revoked(caller.held(standing.grants), caller.held(grants))
        if missing:
            message = f"{_named(*missing[0])} was revoked from {caller.principal} meanwhile"
            standing.end(RefusedError(ErrorKind.PRIVILEGE_MISSING, message))
        else:
            standing.grants = grants

    async def _revoked(self, before: Held, now: Held) -> list[tuple[Privilege, GrantObject]]:
        """Privileges of ``before`` that were revoked since. Raises StoreError."""
        lost = lost_privileges(before, now)
        if not any(target.zone_id is not None for _, target in lost):
            return list(lost)
        zones = {zone.zone_id for zone in (await self.catalog()).zones}
        return [(one, target) for one, target in lost if target.zone_id is None or target.zone_id in zones]


def _of_user(standing: _Standing, grants: Grants) -> RefusedError | None:
    principal = standing.login.caller.principal
    if principal.source != LOCAL:
        return None
    user, before = grants.users.get(principal), standing.grants.users.get(principal)
    if user is None or not user.is_active:
        return RefusedError(ErrorKind.UNAUTHENTICATED, f"user {principal.name} does not exist or cannot log in")
    is_other = before is not None and before.password_hash != user.password_hash
    if is_other and standing.login.proof is Proof.PASSWORD:
        return RefusedError(ErrorKind.UNAUTHENTICATED, f"the password of {principal.name} was changed")
    return None


def _named(privilege: Privilege, target: GrantObject) -> str:
    return f"{privilege.value} ON {'the zone' if target.zone_id is not None else target.kind.value}"


def _end(watched: Iterable[_Standing], error: StatementError) -> None:
    for standing in watched:
        standing.end(error)


async def while_allowed(watch: StandingWatch | None, work: Coroutine[Any, Any, T], stays: str = "") -> T:
    """Await long ``work`` as ``StandingWatch.during`` does; ``watch`` None: no login is required."""
    return await (work if watch is None else watch.during(work, stays))
