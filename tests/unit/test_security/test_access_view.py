"""Grants as a server knows them after a change that it made itself."""

from __future__ import annotations

from app.security.access_view import AccessView
from catalog.core.authorisation import local_user
from tests.fixtures.access_world import ManualClock, MemoryAccess


async def test_a_change_counts_as_seen_only_once_it_was_read() -> None:
    """The catalog does not answer at first: the value of before is used, and read anew as soon as it can be."""
    store, clock, changes = MemoryAccess(), ManualClock(), 0
    view, anna = AccessView(store.grants, store, clock, lambda: changes), local_user("anna")
    assert (await view.grants()).users[anna].is_active
    clock.now_s += 0.1
    store.change("anna", is_active=False)
    changes, store.is_silent = 1, True
    assert (await view.grants()).users[anna].is_active
    store.is_silent = False
    assert not (await view.grants()).users[anna].is_active
