"""Links that log in once, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.authorisation import local_user
from catalog.core.credentials import LINK_US, LINKS_MAX, LoginBasis, issued_link
from catalog.core.errors import ErrorKind, RefusedError
from catalog.store import CatalogStore
from tests.fixtures.catalog_users import store_with

ANNA, BERTA = local_user("anna"), local_user("berta")
NOW = 1_800_000_000_000_000


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    with store_with(catalog_url, ANNA, BERTA) as opened:
        yield opened


def test_a_link_is_used_once(store: CatalogStore) -> None:
    mine, other = issued_link(ANNA, "mine", NOW), issued_link(BERTA, "other", NOW)
    store.sessions.add_link(mine)
    store.sessions.add_link(other)
    assert store.sessions.use_link(issued_link(ANNA, "unknown", NOW).digest, NOW) is None
    assert store.sessions.use_link(mine.digest, NOW + 1) == ANNA
    assert store.sessions.use_link(mine.digest, NOW + 2) is None
    assert store.sessions.use_link(other.digest, NOW + 3) == BERTA


def test_a_link_ends_after_five_minutes(store: CatalogStore) -> None:
    link = issued_link(ANNA, "late", NOW)
    store.sessions.add_link(link)
    assert LINK_US == 300_000_000
    assert store.sessions.use_link(link.digest, NOW + LINK_US) is None
    assert store.sessions.use_link(link.digest, NOW + LINK_US - 1) == ANNA


def test_a_user_has_so_many_links_at_once(store: CatalogStore) -> None:
    """One that was used makes room, and so do those that have expired."""
    basis = LoginBasis(user_version=0)
    for number in range(LINKS_MAX):
        store.sessions.add_link(issued_link(ANNA, f"secret {number}", NOW), basis)
    with pytest.raises(RefusedError) as refused:
        store.sessions.add_link(issued_link(ANNA, "one more", NOW), basis)
    assert refused.value.kind is ErrorKind.LOGIN_PROOF_LIMIT
    assert store.sessions.use_link(issued_link(ANNA, "secret 0", NOW).digest, NOW) == ANNA
    store.sessions.add_link(issued_link(ANNA, "one more", NOW), basis)
    store.sessions.add_link(issued_link(ANNA, "later", NOW + LINK_US), basis)
