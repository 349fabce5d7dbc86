"""Who asks for what is being done now.

A context variable, because between the edge (outermost) and the commit (innermost, in the worker thread) lie
engines that need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from catalog.core.audit import NOBODY, Actor
from catalog.core.authorisation import Caller, Held
from catalog.core.principals import Principal
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import Origin, ZoneId

_CURRENT: ContextVar[Actor] = ContextVar("actor", default=NOBODY)


def current_actor() -> Actor:
    """``NOBODY`` outside of requests."""
    return _CURRENT.get()


def current_caller() -> Caller | None:
    """Who is authorised for what is being done now. None where nobody has to log in, and for what a server does
    by itself."""
    return _CURRENT.get().caller


def current_principal() -> Principal | None:
    """Whose is what is being done now; None where there is no caller."""
    caller = current_caller()
    return None if caller is None else caller.principal


def current_scope() -> Held | None:
    """The scope of what is being done now; None: all that its principal may."""
    caller = current_caller()
    return None if caller is None else caller.scope


def seen_zones(catalog: CatalogSnapshot) -> frozenset[ZoneId] | None:
    """Those that may be shown to who asks; None: all, also those that are gone."""
    caller = current_caller()
    return (
        None if caller is None else caller.seen_zones(catalog.grants, (zone.zone_id for zone in catalog.zones))
    )


def current_origin() -> Origin:
    """As what asks for a change of the metastore's keys."""
    actor = current_actor()
    return Origin(actor.name, actor.verified, actor.reason)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """What runs inside the block, in this task or in tasks that it begins, is done for ``actor``."""
    before = _CURRENT.set(actor)
    try:
        yield
    finally:
        _CURRENT.reset(before)
