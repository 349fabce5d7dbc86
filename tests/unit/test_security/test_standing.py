"""Checks of a caller while something runs for it: what ends that, within two seconds, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from app.requests.context import Login, Proof, logged_in
from app.security.access_view import REFUSED_S, AccessView
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from catalog.core.authorisation import (
    ALL_ZONES,
    READY_PRIVILEGES,
    SYSTEM,
    Caller,
    Grant,
    Membership,
    Privilege,
    local_user,
    role,
    zone_object,
)
from catalog.core.credentials import DAY_US, ConsoleSession, TokenRequest, digest_of, opened_session
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId
from tests.fixtures.access_world import ManualClock, MemoryAccess

WAIT_S = 60.0
HELD_S = 2.0
"""The age at which what a server knows is read anew before it is used."""
BERTA = local_user("berta")
ORDERS = zone_object(ZoneId(1))
VIEWER = role("viewer")


class World:
    """Berta may see and recover all zones, write to the zone ORDERS, and is a viewer."""

    def __init__(self) -> None:
        self.clock, self.access = ManualClock(), MemoryAccess()
        self.sessions: dict[str, ConsoleSession] = {}
        self.catalog_failures = 0
        self.zones = (Zone(ZoneId(1), "ORDERS", 1, 1, None, ("default",)),)
        view = AccessView(self.access.grants, self.access, self.clock)
        sessions = SessionView(view, self, self.clock, self.clock.now_us)
        self.watch = StandingWatch(sessions, self.catalog, self.clock.now_us)
        for privilege, target in (
            (Privilege.SEE, ALL_ZONES),
            (Privilege.RECOVER, ALL_ZONES),
            (Privilege.WRITE, ORDERS),
        ):
            self.grant(Grant(BERTA, privilege, target))
        granted = replace(
            self.access.granted, held={**self.access.granted.held, VIEWER: READY_PRIVILEGES["viewer"]}
        )
        self.access.granted = granted.with_member(Membership(VIEWER, BERTA), is_member=True)

    async def on_sessions(self, act: Callable[[Any], Any]) -> Any:
        """Act on the sessions by their digests, as the catalog's method does."""
        return act(self)

    def by_digest(self, digest: str) -> ConsoleSession | None:
        return self.sessions.get(digest)

    async def catalog(self) -> CatalogSnapshot:
        if self.catalog_failures:
            self.catalog_failures -= 1
            raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, "the catalog's database does not answer")
        return replace(CatalogSnapshot(), zones=self.zones)

    def grant(self, grant: Grant, *, is_held: bool = True) -> None:
        self.access.granted = self.access.granted.with_grant(grant, is_held=is_held)

    def token(self) -> Login:
        secret = self.access.issued("berta", TokenRequest(lifetime_us=DAY_US))
        token = self.access.kept[digest_of(secret)]
        return Login(Caller(BERTA), Proof.TOKEN, token, token.expires_us)

    def session(self) -> Login:
        session = opened_session(BERTA, "zks_secret", self.clock.now_us())
        self.sessions[session.digest] = session
        return Login(Caller(BERTA), Proof.SESSION, expires_us=session.expires_us, session=session)

    async def looks(self) -> None:
        """Wait until the watch has looked at the present state, which is HELD_S later."""
        self.clock.now_s += HELD_S
        before = self.access.reads
        async with asyncio.timeout(WAIT_S):
            while self.access.reads == before:
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    looking = asyncio.create_task(made.watch.run())
    yield made
    looking.cancel()


PASSWORD = Login(Caller(BERTA), Proof.PASSWORD)


async def begun(world: World, login: Login, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """The work, which runs."""
    started = asyncio.Event()

    async def noted() -> Any:
        started.set()
        return await work

    with logged_in(login):
        running = asyncio.create_task(world.watch.during(noted()))
    await started.wait()
    return running


async def end_of(running: asyncio.Task[Any]) -> StatementError:
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(StatementError) as ended:
            await running
    return ended.value


async def test_what_cannot_be_read_for_a_moment_ends_no_watch(world: World) -> None:
    running = await begun(world, PASSWORD, asyncio.Event().wait())
    world.catalog_failures = 3
    world.grant(Grant(BERTA, Privilege.WRITE, ORDERS), is_held=False)
    world.clock.now_s += HELD_S
    assert (await end_of(running)).kind is ErrorKind.PRIVILEGE_MISSING
    assert world.catalog_failures == 0


def revoke_grant(world: World, _: Login) -> None:
    world.grant(Grant(BERTA, Privilege.RECOVER, ALL_ZONES), is_held=False)


def revoke_zone_grant(world: World, _: Login) -> None:
    world.grant(Grant(BERTA, Privilege.WRITE, ORDERS), is_held=False)


def revoke_role(world: World, _: Login) -> None:
    world.access.granted = world.access.granted.with_member(Membership(VIEWER, BERTA), is_member=False)


def disable(world: World, _: Login) -> None:
    world.access.change("berta", is_active=False)


def drop(world: World, _: Login) -> None:
    world.access.granted = world.access.granted.without(BERTA)


def change_password(world: World, _: Login) -> None:
    world.access.change("berta", password_hash="another")


def revoke_token(world: World, login: Login) -> None:
    assert login.token is not None
    kept = world.access.kept
    kept[login.token.digest] = replace(kept[login.token.digest], revoked_us=1)


def end_session(world: World, _: Login) -> None:
    world.sessions.clear()


def expire(world: World, login: Login) -> None:
    world.clock.now_s += DAY_US / 1_000_000


MISSING, GONE = ErrorKind.PRIVILEGE_MISSING, ErrorKind.UNAUTHENTICATED
ENDS = [
    (proof, change, kind)
    for proof in ("password", "token", "session")
    for change, kind in (
        (revoke_grant, MISSING),
        (revoke_zone_grant, MISSING),
        (revoke_role, MISSING),
        (disable, GONE),
        (drop, GONE),
    )
] + [
    ("password", change_password, GONE),
    ("token", revoke_token, GONE),
    ("token", expire, GONE),
    ("session", end_session, GONE),
    ("session", expire, GONE),
]


@pytest.mark.parametrize(("proof", "change", "kind"), ENDS)
async def test_what_ends_ends_what_runs_within_two_seconds(
    world: World, proof: str, change: Callable[[World, Login], None], kind: ErrorKind
) -> None:
    login = PASSWORD if proof == "password" else world.token() if proof == "token" else world.session()
    running = await begun(world, login, asyncio.Event().wait())
    change(world, login)
    world.clock.now_s += HELD_S
    assert (await end_of(running)).kind is kind


async def test_what_is_added_or_held_otherwise_or_goes_with_its_zone_ends_nothing(world: World) -> None:
    """Viewers see all zones, too."""
    goes_on = asyncio.Event()
    running = await begun(world, PASSWORD, goes_on.wait())
    world.grant(Grant(BERTA, Privilege.OPERATE, SYSTEM))
    await world.looks()
    world.grant(Grant(BERTA, Privilege.SEE, ALL_ZONES), is_held=False)
    await world.looks()
    world.zones = ()
    world.grant(Grant(BERTA, Privilege.WRITE, ORDERS), is_held=False)
    await world.looks()
    world.access.change("anna", is_active=False)
    await world.looks()
    assert not running.done()
    # What was added counts from then on.
    world.grant(Grant(BERTA, Privilege.OPERATE, SYSTEM), is_held=False)
    world.clock.now_s += HELD_S
    error = await end_of(running)
    assert (error.kind, error.message) == (MISSING, "OPERATE ON SYSTEM was revoked from local:berta meanwhile")


async def test_a_password_change_ends_no_token(world: World) -> None:
    goes_on = asyncio.Event()
    running = await begun(world, world.token(), goes_on.wait())
    change_password(world, PASSWORD)
    await world.looks()
    goes_on.set()
    assert await running


async def test_a_catalog_that_stays_away_ends_what_runs(world: World) -> None:
    running = await begun(world, world.token(), asyncio.Event().wait())
    world.access.is_silent = True
    world.clock.now_s += REFUSED_S
    assert (await end_of(running)).kind is ErrorKind.GRANTS_UNAVAILABLE


async def test_what_comes_to_its_end_anyway_is_answered(world: World) -> None:
    """A change that has begun is not undone by a cancellation: its result is what is said."""

    async def to_its_end() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7
        raise AssertionError("unreachable")

    running = await begun(world, PASSWORD, to_its_end())
    drop(world, PASSWORD)
    world.clock.now_s += HELD_S
    async with asyncio.timeout(WAIT_S):
        assert await running == 7


async def test_whoever_waits_no_longer_ends_the_work(world: World) -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = await begun(world, PASSWORD, endless())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_task_whose_work_was_ended_goes_on_as_if_nobody_had_cancelled_it(world: World) -> None:
    """Watched twice, as a request is that runs a query."""
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def answered() -> tuple[ErrorKind, int]:
        with pytest.raises(StatementError) as ended:
            await world.watch.during(world.watch.during(endless()))
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return ended.value.kind, task.cancelling()

    with logged_in(PASSWORD):
        running = asyncio.create_task(answered())
    await started.wait()
    drop(world, PASSWORD)
    world.clock.now_s += HELD_S
    async with asyncio.timeout(WAIT_S):
        assert await running == (GONE, 0)


async def test_a_task_that_its_owner_cancels_as_well_ends(world: World) -> None:
    cancelled = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.Event().wait()

    running = await begun(world, PASSWORD, slow_to_end())
    drop(world, PASSWORD)
    world.clock.now_s += HELD_S
    async with asyncio.timeout(WAIT_S):
        await cancelled.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_errors_of_the_work_are_its_own(world: World) -> None:
    async def fails() -> None:
        raise KeyError("its own")

    running = await begun(world, PASSWORD, fails())
    with pytest.raises(KeyError):
        await running


@pytest.mark.parametrize("zone", [None, 1, 2])
async def test_results_need_sight_of_the_zones_that_they_show(world: World, zone: int | None) -> None:
    """Zone 1 is there, zone 2 is gone; None: of all zones."""
    target = ALL_ZONES if zone is None else zone_object(ZoneId(zone))
    granted = world.access.granted.with_member(Membership(VIEWER, BERTA), is_member=False)
    world.access.granted = replace(granted, held={})
    world.grant(Grant(BERTA, Privilege.READ, target))
    shown = f"SEE ON {target}"
    with logged_in(PASSWORD):
        await world.watch.require(shown)
        world.grant(Grant(BERTA, Privilege.READ, target), is_held=False)
        world.clock.now_s += HELD_S
        if zone == 2:
            await world.watch.require(shown)
        else:
            with pytest.raises(RefusedError, match="the result shows what needs SEE ON"):
                await world.watch.require(shown)
            world.grant(Grant(BERTA, Privilege.SEE, ALL_ZONES))
            world.clock.now_s += HELD_S
            await world.watch.require(shown)


async def test_results_that_show_the_system_need_the_same_of_it(world: World) -> None:
    world.grant(Grant(BERTA, Privilege.SEE, SYSTEM))
    with logged_in(PASSWORD):
        with pytest.raises(RefusedError, match="AUDIT ON SYSTEM, which local:berta does not have"):
            await world.watch.require("SEE ON ALL ZONES; AUDIT ON SYSTEM")
        world.grant(Grant(BERTA, Privilege.ADMIN, SYSTEM))
        world.clock.now_s += HELD_S
        await world.watch.require("SEE ON ALL ZONES; AUDIT ON SYSTEM")


async def test_work_of_nobody_is_not_watched(world: World) -> None:
    world.access.is_silent = True

    async def one() -> int:
        return 1

    assert await world.watch.during(one()) == 1
    await world.watch.require("ADMIN ON SYSTEM")
