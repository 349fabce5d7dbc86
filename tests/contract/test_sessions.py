"""Sessions of the console and one-time links on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.authorisation import User, local_user
from catalog.core.credentials import IDLE_US, LIFETIME_US, LINK_US, LoginBasis, issued_link, opened_session
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.versions import EntryKind, UserEntry
from catalog.store import CatalogStore
from catalog.store.connections import open_engine, parse_url, writing
from catalog.store.principal_rows import write_principal

ANNA, BERTA, NOBODY = local_user("anna"), local_user("berta"), local_user("nobody")
NOW = 1_800_000_000_000_000


def write(url: str, *entries: UserEntry) -> None:
    engine = open_engine(parse_url(url))
    with writing(engine) as connection:
        for entry in entries:
            write_principal(connection, entry)
        connection.commit()
    engine.dispose()


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    write(catalog_url, *(UserEntry(EntryKind.WRITTEN, User(one)) for one in (ANNA, BERTA)))
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


def test_a_session_is_there_until_it_is_ended(store: CatalogStore) -> None:
    session = opened_session(ANNA, "secret", NOW)
    store.sessions.add(session)
    assert store.sessions.by_digest(session.digest) == session
    assert store.sessions.by_digest(opened_session(ANNA, "another", NOW).digest) is None
    store.sessions.end(session.digest)
    assert store.sessions.by_digest(session.digest) is None


def test_sessions_are_listed_by_owner_the_newest_first(store: CatalogStore) -> None:
    sessions = [opened_session(owner, f"secret {at}", NOW + at) for at, owner in enumerate((ANNA, BERTA, ANNA))]
    for session in sessions:
        store.sessions.add(session)
    assert store.sessions.all(None) == tuple(reversed(sessions))
    assert store.sessions.all(ANNA) == (sessions[2], sessions[0])
    assert store.sessions.all(NOBODY) == ()


def test_a_session_takes_the_place_of_the_one_before(store: CatalogStore) -> None:
    before, other = opened_session(ANNA, "before", NOW), opened_session(ANNA, "other", NOW)
    for session in (before, other):
        store.sessions.add(session)
    store.sessions.add(opened_session(BERTA, "after", NOW), before.digest)
    assert store.sessions.by_digest(before.digest) is None
    assert store.sessions.by_digest(other.digest) == other


def test_the_last_use_is_kept_and_never_goes_back(store: CatalogStore) -> None:
    session = opened_session(ANNA, "secret", NOW)
    store.sessions.add(session)
    for at in (NOW + 7, NOW + 5):
        store.sessions.use(session.digest, at)
    kept = store.sessions.by_digest(session.digest)
    assert kept is not None
    assert kept.used_us == NOW + 7
    store.sessions.end(session.digest)
    store.sessions.use(session.digest, NOW + 9)
    assert store.sessions.by_digest(session.digest) is None


@pytest.mark.parametrize("later", [IDLE_US, LIFETIME_US])
def test_sessions_that_are_over_are_deleted_by_the_next_one(store: CatalogStore, later: int) -> None:
    session = opened_session(ANNA, "secret", NOW)
    store.sessions.add(session)
    store.sessions.add(opened_session(ANNA, "soon", NOW + IDLE_US - 1))
    assert store.sessions.by_digest(session.digest) == session
    store.sessions.add(opened_session(ANNA, "late", NOW + later))
    assert store.sessions.by_digest(session.digest) is None


def test_a_link_is_used_once_and_in_time(store: CatalogStore) -> None:
    first, second = issued_link(ANNA, "first", NOW), issued_link(BERTA, "second", NOW)
    for link in (first, second):
        store.sessions.add_link(link)
    assert store.sessions.use_link(first.digest, NOW + LINK_US - 1) == ANNA
    assert store.sessions.use_link(first.digest, NOW + LINK_US - 1) is None
    assert store.sessions.use_link(second.digest, NOW + LINK_US) is None
    assert store.sessions.use_link("unknown", NOW) is None


def test_both_belong_to_a_user_who_is_there_and_active(store: CatalogStore, catalog_url: str) -> None:
    write(catalog_url, UserEntry(EntryKind.WRITTEN, User(BERTA, is_active=False)))
    for owner in (BERTA, NOBODY):
        for add in (
            lambda owner=owner: store.sessions.add(opened_session(owner, "secret", NOW)),
            lambda owner=owner: store.sessions.add_link(issued_link(owner, "secret", NOW)),
        ):
            with pytest.raises(RefusedError) as refused:
                add()
            assert refused.value.kind is ErrorKind.UNAUTHENTICATED


def test_both_need_what_their_maker_has_proved(store: CatalogStore, catalog_url: str) -> None:
    write(catalog_url, UserEntry(EntryKind.WRITTEN, User(ANNA, changed_version=7)))
    session, link = opened_session(ANNA, "secret", NOW), issued_link(ANNA, "link", NOW)
    for basis in (LoginBasis(user_version=6), LoginBasis(token_digest="of no token")):
        with pytest.raises(RefusedError):
            store.sessions.add(session, None, basis)
        with pytest.raises(RefusedError):
            store.sessions.add_link(link, basis)
    assert store.sessions.all(ANNA) == ()
    assert store.sessions.use_link(link.digest, NOW) is None
    store.sessions.add(session, None, LoginBasis(user_version=7))
    assert store.sessions.all(ANNA) == (session,)


@pytest.mark.parametrize("kind", [EntryKind.DROPPED, EntryKind.WRITTEN])
def test_a_change_of_a_user_ends_its_sessions_and_links(
    store: CatalogStore, catalog_url: str, kind: EntryKind
) -> None:
    sessions = {owner: opened_session(owner, f"secret of {owner}", NOW) for owner in (ANNA, BERTA)}
    links = {owner: issued_link(owner, f"link of {owner}", NOW) for owner in (ANNA, BERTA)}
    for owner in (ANNA, BERTA):
        store.sessions.add(sessions[owner])
        store.sessions.add_link(links[owner])
    write(catalog_url, UserEntry(kind, User(ANNA)))
    assert store.sessions.by_digest(sessions[ANNA].digest) is None
    assert store.sessions.use_link(links[ANNA].digest, NOW) is None
    assert store.sessions.by_digest(sessions[BERTA].digest) == sessions[BERTA]
    assert store.sessions.use_link(links[BERTA].digest, NOW) == BERTA
