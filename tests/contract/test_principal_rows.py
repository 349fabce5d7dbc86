"""Users, roles and grants in the catalog's database, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, func, insert, select, text
from sqlalchemy.pool import NullPool

from catalog.core.authorisation import (
    ALL_ZONES,
    READY_GRANTS,
    READY_ROLES,
    SYSTEM,
    Caller,
    Grant,
    Grants,
    Membership,
    Privilege,
    User,
    UserRole,
    local_user,
    role,
    zone_object,
)
from catalog.core.credentials import TokenRequest, issue, issued_link, opened_session
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.statement_log import NewStatement
from catalog.core.versions import (
    CatalogEntry,
    EntryKind,
    GrantEntry,
    MembershipEntry,
    RoleEntry,
    UserEntry,
    ZoneEntry,
)
from catalog.core.zone import Zone, ZoneId
from catalog.ports import CommitOutcome
from catalog.store import CatalogStore
from catalog.store.connections import parse_url
from catalog.store.tables import ONE_TIME_LINKS, SESSIONS, TOKENS
from tests.fixtures.script_runner import new_version

ANNA, BEN, READERS = local_user("anna"), local_user("ben"), role("readers")
WRITTEN, DROPPED = EntryKind.WRITTEN, EntryKind.DROPPED
ZONE = Zone(ZoneId(1), "ORDERS", 4, 3, None, ("default",))

_ids = itertools.count(1)


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


def commit(store: CatalogStore, *entries: CatalogEntry) -> Grants:
    """The grants as the one that committed knows them."""
    base = store.unit_of_work.snapshot()
    version = new_version(base, entries, f"v{next(_ids)}", "CREATE USER anna")
    assert store.unit_of_work.commit(base, [version]) is CommitOutcome.COMMITTED
    return store.unit_of_work.snapshot().grants


def read_anew(url: str, store: CatalogStore) -> Grants:
    """The grants as a server reads them that has committed none of it. SQLite takes one writer at a time."""
    store.close()
    other = CatalogStore.open(url)
    try:
        return other.unit_of_work.snapshot().grants
    finally:
        other.close()


def test_every_catalog_has_the_ready_roles(store: CatalogStore) -> None:
    grants = store.unit_of_work.snapshot().grants
    assert grants == READY_GRANTS
    assert {one.name for one in grants.roles.values()} == set(READY_ROLES)
    assert all(one.is_ready for one in grants.roles.values())
    assert grants.users == {}
    held = {name: grants.held[role(name)] for name in READY_ROLES}
    see = frozenset({Privilege.SEE})
    assert held["viewer"] == {SYSTEM: see, ALL_ZONES: see}
    assert held["writer"] == {SYSTEM: see, ALL_ZONES: see | {Privilege.READ, Privilege.WRITE}}
    assert held["administrator"] == {SYSTEM: {Privilege.ADMIN}}
    operates = see | {Privilege.OPERATE, Privilege.RECOVER}
    changes = {Privilege.ALTER, Privilege.CREATE, Privilege.DROP}
    assert held["operator"] == {SYSTEM: operates, ALL_ZONES: operates | changes}


def test_what_was_committed_is_what_others_read(store: CatalogStore, catalog_url: str) -> None:
    commit(
        store,
        ZoneEntry(WRITTEN, ZONE),
        UserEntry(WRITTEN, User(ANNA, "hash of anna", changed_version=1)),
        UserEntry(WRITTEN, User(BEN, is_active=False, changed_version=1)),
        RoleEntry(WRITTEN, UserRole(READERS, created_version=1)),
    )
    known = commit(
        store,
        MembershipEntry(WRITTEN, Membership(READERS, ANNA)),
        GrantEntry(WRITTEN, Grant(READERS, Privilege.READ, zone_object(ZONE.zone_id))),
        GrantEntry(WRITTEN, Grant(BEN, Privilege.SEE, ALL_ZONES)),
        GrantEntry(WRITTEN, Grant(BEN, Privilege.AUDIT, SYSTEM)),
        GrantEntry(DROPPED, Grant(BEN, Privilege.SEE, ALL_ZONES)),
    )
    assert Caller(ANNA).may(known, Privilege.READ, zone_object(ZONE.zone_id))
    assert known == read_anew(catalog_url, store)


@pytest.mark.parametrize(
    "last",
    [
        UserEntry(DROPPED, User(ANNA)),
        UserEntry(WRITTEN, User(ANNA, "another hash", is_active=False, changed_version=2)),
        RoleEntry(DROPPED, UserRole(READERS)),
        MembershipEntry(DROPPED, Membership(READERS, ANNA)),
        GrantEntry(DROPPED, Grant(ANNA, Privilege.SEE, SYSTEM)),
        GrantEntry(WRITTEN, Grant(ANNA, Privilege.SEE, SYSTEM)),
        ZoneEntry(DROPPED, ZONE),
    ],
    ids=lambda entry: f"{type(entry).__name__}-{entry.kind.value}",
)
def test_each_entry_changes_the_rows_as_it_changes_the_grants(
    store: CatalogStore, catalog_url: str, last: CatalogEntry
) -> None:
    before = commit(
        store,
        ZoneEntry(WRITTEN, ZONE),
        UserEntry(WRITTEN, User(ANNA, "hash of anna")),
        RoleEntry(WRITTEN, UserRole(READERS)),
        MembershipEntry(WRITTEN, Membership(READERS, ANNA)),
        GrantEntry(WRITTEN, Grant(ANNA, Privilege.SEE, SYSTEM)),
        GrantEntry(WRITTEN, Grant(READERS, Privilege.READ, zone_object(ZONE.zone_id))),
    )
    known = commit(store, last)
    is_same = isinstance(last, GrantEntry) and last.kind is WRITTEN
    assert (known == before.at(known.version)) is is_same
    assert known == read_anew(catalog_url, store)


def test_a_version_that_another_server_took_changes_no_grants(store: CatalogStore) -> None:
    base = store.unit_of_work.snapshot()
    commit(store, UserEntry(WRITTEN, User(ANNA)))
    late = new_version(base, (UserEntry(WRITTEN, User(BEN)),), "late")
    assert store.unit_of_work.commit(base, [late]) is CommitOutcome.CONFLICT
    assert set(store.unit_of_work.snapshot().grants.users) == {ANNA}


def prove(url: str) -> None:
    """A token, a session and a link of ANNA's."""
    engine = create_engine(parse_url(url), poolclass=NullPool)
    owner = {"owner_source": ANNA.source, "owner_name": ANNA.name, "created_us": 1, "expires_us": 2}
    with engine.begin() as connection:
        connection.execute(insert(TOKENS), {"token_id": "t", "secret_hash": "h", "scope": "", **owner})
        connection.execute(insert(SESSIONS), {"secret_hash": "h", "csrf": "c", "used_us": 1, **owner})
        connection.execute(insert(ONE_TIME_LINKS), {"secret_hash": "h", **owner})


def proofs(url: str) -> tuple[int, ...]:
    """Numbers of tokens, sessions and links."""
    engine = create_engine(parse_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        counts = (select(func.count()).select_from(table) for table in (TOKENS, SESSIONS, ONE_TIME_LINKS))
        return tuple(connection.execute(count).scalar_one() for count in counts)


@pytest.mark.parametrize(
    ("last", "left"),
    [
        (UserEntry(DROPPED, User(ANNA)), (0, 0, 0)),
        (UserEntry(WRITTEN, User(ANNA, "another hash")), (1, 0, 0)),
        (UserEntry(WRITTEN, User(ANNA, is_active=False)), (1, 0, 0)),
        (UserEntry(WRITTEN, User(BEN)), (1, 1, 1)),
    ],
)
def test_what_a_user_proved_itself_with_ends_with_it(
    store: CatalogStore, catalog_url: str, last: UserEntry, left: tuple[int, ...]
) -> None:
    commit(store, UserEntry(WRITTEN, User(ANNA, "hash of anna")))
    prove(catalog_url)
    assert proofs(catalog_url) == (1, 1, 1)
    commit(store, last)
    assert proofs(catalog_url) == left


def test_a_later_user_of_the_same_name_has_none_of_the_statements(store: CatalogStore) -> None:
    commit(store, UserEntry(WRITTEN, User(ANNA)))
    new = NewStatement("a" * 32, "REST", "SHOW ZONES", "hash", "key", ANNA)
    row, _ = store.statements.submit(new, "server", 15, 900)
    assert row.is_of(ANNA)
    commit(store, UserEntry(DROPPED, User(ANNA)))
    commit(store, UserEntry(WRITTEN, User(ANNA)))
    left = store.statements.read("a" * 32)
    assert left is not None
    assert not left.is_of(ANNA)
    again, is_new = store.statements.submit(
        NewStatement("b" * 32, "REST", "SHOW ZONES", "hash", "key", ANNA), "server", 15, 900
    )
    assert (again.statement_id, is_new) == ("b" * 32, True)


def test_nothing_of_a_user_is_a_later_ones_of_the_same_name(store: CatalogStore) -> None:
    """Nor are things that the earlier user asks for when the later one exists."""
    earlier, later = local_user("anna", 1), local_user("anna", 2)
    commit(store, UserEntry(WRITTEN, User(earlier)))
    commit(store, UserEntry(DROPPED, User(earlier)), UserEntry(WRITTEN, User(later)))
    token, now_us = issue(TokenRequest(), later, "a token", 1), 1
    store.tokens.add(token)
    session, link = opened_session(later, "a session", now_us), issued_link(later, "a link", now_us)
    store.sessions.add(session)
    store.sessions.add_link(link)
    row, _ = store.statements.submit(
        NewStatement("a" * 32, "REST", "SHOW ZONES", "hash", "key", later), "server", 15, 900
    )
    assert (row.is_of(later), row.is_of(earlier)) == (True, False)
    assert (store.tokens.all(earlier), store.tokens.all(later)) == ((), (token,))
    assert (store.sessions.all(earlier), store.sessions.all(later)) == ((), (session,))
    store.statements.release("REST", "key", -1, earlier)
    for act in (
        lambda: store.tokens.add(issue(TokenRequest(), earlier, "another", now_us)),
        lambda: store.sessions.add(opened_session(earlier, "another", now_us)),
        lambda: store.sessions.add_link(issued_link(earlier, "another", now_us)),
        lambda: store.statements.submit(
            NewStatement("b" * 32, "REST", "SHOW ZONES", "hash", "key", earlier), "server", 15, 900
        ),
    ):
        with pytest.raises(RefusedError) as refused:
            act()
        assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    read = store.statements.read("a" * 32), store.tokens.by_digest(token.digest)
    assert read[0] is not None
    assert (read[0].is_of(later), read[0].idempotency_key) == (True, "key")
    assert read[1] == token
    assert store.sessions.by_digest(session.digest) == session
    assert store.sessions.use_link(link.digest, now_us) == later


def test_an_idempotency_key_belongs_to_its_principal(store: CatalogStore) -> None:
    commit(store, UserEntry(WRITTEN, User(ANNA)), UserEntry(WRITTEN, User(BEN)))
    senders = (ANNA, BEN, None)
    for number, sender in enumerate(senders):
        new = NewStatement(str(number) * 32, "REST", "SHOW ZONES", "hash", "key", sender)
        assert store.statements.submit(new, "server", 15, 900)[1]
    for number, sender in enumerate(senders):
        again = NewStatement("f" * 32, "REST", "SHOW ZONES", "hash", "key", sender)
        row, is_new = store.statements.submit(again, "server", 15, 900)
        assert (row.statement_id, is_new) == (str(number) * 32, False)
    store.statements.release("REST", "key", -1, ANNA)
    freed = [NewStatement(letter * 32, "REST", "SHOW ZONES", "hash", "key", ANNA) for letter in "cd"]
    assert [store.statements.submit(new, "server", 15, 900)[1] for new in freed] == [True, False]
    assert not store.statements.submit(
        NewStatement("e" * 32, "REST", "SHOW ZONES", "hash", "key", BEN), "server", 15, 900
    )[1]


def test_the_first_user_shuts_out_builds_that_know_none(store: CatalogStore, catalog_url: str) -> None:
    """Builds of an earlier schema may write until then; a build names itself by its schema."""
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        # Of a catalog that such a build has made.
        connection.execute(text("UPDATE schema_writers SET oldest = '0007'"))

    def oldest_writer() -> str:
        with engine.connect() as connection:
            return str(connection.execute(text("SELECT oldest FROM schema_writers")).scalar_one())

    commit(store, ZoneEntry(WRITTEN, ZONE), RoleEntry(WRITTEN, UserRole(READERS)))
    assert oldest_writer() == "0007"
    commit(store, UserEntry(WRITTEN, User(ANNA)))
    assert oldest_writer() == "0010"
