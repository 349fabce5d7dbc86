"""Links that log in once, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.principals import User, local_user
from catalog.core.sessions import LINK_US, issued_link
from catalog.core.versions import EntryKind, UserEntry
from catalog.store import CatalogStore
from catalog.store.connections import open_engine, parse_url, writing
from catalog.store.principal_rows import write_principal

ANNA, BERTA = local_user("anna"), local_user("berta")
NOW = 1_800_000_000_000_000


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    engine = open_engine(parse_url(catalog_url))
    with writing(engine) as connection:
        for principal in (ANNA, BERTA):
            write_principal(connection, UserEntry(EntryKind.WRITTEN, User(principal)))
        connection.commit()
    engine.dispose()
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


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
