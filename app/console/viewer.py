"""Viewer of a page, and what they may see and do of it: a context variable, as the actor is.

Where no login is required there is no viewer, and everything is shown. Work of the console's own, such as
reading for all pages, has none either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property

from app.requests.context import Login, acting, logged_in
from app.security.policy import CONTROLS, PAGES, SEE_SYSTEM, Need, PageControl, Subject
from app.security.session_view import SessionView
from catalog.core.audit import NOBODY, Actor
from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    GrantObject,
    Grants,
    Permission,
    Privilege,
    zone_object,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import OF_ALL_ZONES
from rebalance.core.causes.cause import cause_of


@dataclass(frozen=True)
class Viewer:
    """Viewer with rights as of ``grants``, which are two seconds old at most when an event or a timer
    begins."""

    login: Login
    grants: Grants
    actor: Actor

    @property
    def caller(self) -> Caller:
        return self.login.caller

    @property
    def session(self) -> str:
        """The digest of its secret."""
        assert self.login.session is not None, "logged in by a session"
        return self.login.session.digest

    @cached_property
    def rights(self) -> object:
        """Return the rights; where two are equal, pages show and allow the same."""
        return self.caller.rights(self.grants)

    @property
    def role_names(self) -> list[str]:
        return sorted(role.name for role in self.caller.all_roles(self.grants))

    @cached_property
    def sees_all_zones(self) -> bool:
        return self.caller.may(self.grants, Privilege.SEE, ALL_ZONES)

    def sees(self, zone_id: ZoneId) -> bool:
        return self.sees_all_zones or self.caller.may(self.grants, Privilege.SEE, zone_object(zone_id))

    def refusal(self, needs: Iterable[Need], zone_id: ZoneId | None = None) -> RefusedError | None:
        """Return why it may not be done; None: it may."""
        for privilege, subject in needs:
            decision = self.caller.decide(self.grants, privilege, _target(subject, zone_id))
            if decision.access is not Permission.ALLOWED:
                return RefusedError(ErrorKind.PRIVILEGE_MISSING, decision.reason)
        return None


_CURRENT: ContextVar[Viewer | None] = ContextVar("viewer", default=None)


def current_viewer() -> Viewer | None:
    return _CURRENT.get()


@contextmanager
def viewing(viewer: Viewer) -> Iterator[None]:
    """Do and show what runs inside the block for ``viewer``."""
    before = _CURRENT.set(viewer)
    try:
        with logged_in(viewer.login), acting(viewer.actor):
            yield
    finally:
        _CURRENT.reset(before)


@contextmanager
def for_everybody() -> Iterator[None]:
    """Run the block as the console itself, whose pages then show each what it may see."""
    before = _CURRENT.set(None)
    try:
        with acting(NOBODY):
            yield
    finally:
        _CURRENT.reset(before)


def sees(zone_id: ZoneId) -> bool:
    viewer = current_viewer()
    return viewer is None or viewer.sees(zone_id)


def sees_all_zones() -> bool:
    viewer = current_viewer()
    return viewer is None or viewer.sees_all_zones


def shown_cause(cause: str) -> str:
    """Return what a partition waits for, read for all pages: without its details where they tell of other
    zones, for viewers who do not see them all."""
    kind = cause_of(cause)
    return kind.text() if kind in OF_ALL_ZONES and not sees_all_zones() else cause


def sees_system() -> bool:
    viewer = current_viewer()
    return viewer is None or viewer.refusal((SEE_SYSTEM,)) is None


def page_refusal(path: str) -> RefusedError | None:
    viewer = current_viewer()
    return None if viewer is None else viewer.refusal(PAGES[path].needs)


def may_use(control: PageControl, zone_id: ZoneId | None = None) -> bool:
    """Check that a page shows the control. ``zone_id``: of the zone that it is about; None: it is about
    none."""
    viewer = current_viewer()
    return viewer is None or viewer.refusal(CONTROLS[control], zone_id) is None


def require(control: PageControl, zone_id: ZoneId | None = None) -> None:
    """Require the privilege for a control before it is used. Raises RefusedError (PRIVILEGE_MISSING)."""
    viewer = current_viewer()
    refusal = None if viewer is None else viewer.refusal(CONTROLS[control], zone_id)
    if refusal is not None:
        raise refusal


async def renewed(viewer: Viewer, sessions: SessionView) -> Viewer:
    """Return the viewer as of now. Raises RefusedError (UNAUTHENTICATED) when the session is over, and
    StoreError."""
    login = await sessions.renewed(viewer.login)
    return replace(viewer, login=login, grants=await sessions.access.grants())


def _target(subject: Subject, zone_id: ZoneId | None) -> GrantObject:
    if subject is Subject.SYSTEM:
        return SYSTEM
    return ALL_ZONES if subject is Subject.ALL_ZONES or zone_id is None else zone_object(zone_id)
