"""Opaque tokens on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.authorisation import Principal, User, local_user
from catalog.core.credentials import (
    DAY_US,
    TOKENS_MAX,
    AccessToken,
    LoginBasis,
    TokenRequest,
    issue,
    scope_of,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.versions import EntryKind, UserEntry
from catalog.store import CatalogStore
from catalog.store.connections import open_engine, parse_url, writing
from catalog.store.principal_rows import write_principal
from tests.fixtures.catalog_users import store_with

ANNA, BERTA = local_user("anna"), local_user("berta")
NOW = 1_800_000_000_000_000


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    with store_with(catalog_url, ANNA, BERTA) as opened:
        yield opened


def issued(owner: Principal, secret: str, request: TokenRequest | None = None, at: int = NOW) -> AccessToken:
    return issue(request or TokenRequest(), owner, secret, at)


def test_a_token_is_there_until_it_is_revoked(store: CatalogStore) -> None:
    token = issued(ANNA, "secret", TokenRequest(scope=scope_of("SEE ON ALL ZONES; READ ON ZONE 7")))
    store.tokens.add(token)
    assert store.tokens.by_digest(token.digest) == token
    assert store.tokens.by_digest(issued(ANNA, "another").digest) is None
    for at in (NOW + 5, NOW + 6):
        store.tokens.revoke(token.token_id, at)
    kept = store.tokens.by_digest(token.digest)
    assert kept is not None
    assert kept.revoked_us == NOW + 5


def test_what_was_revoked_makes_no_token(store: CatalogStore) -> None:
    parent, child = issued(ANNA, "parent"), issued(ANNA, "child")
    store.tokens.add(parent)
    basis = LoginBasis(parent.digest)
    store.tokens.add(child, basis)
    store.tokens.revoke(parent.token_id, NOW + 1)
    with pytest.raises(RefusedError) as refused:
        store.tokens.add(issued(ANNA, "another"), basis)
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    with pytest.raises(RefusedError):
        store.tokens.add(issued(ANNA, "another"), LoginBasis(user_version=-1))
    assert len(store.tokens.all(ANNA)) == 2


def test_tokens_are_listed_by_owner_and_the_newest_first(store: CatalogStore) -> None:
    tokens = [issued(owner, f"{n}", at=NOW + n) for n, owner in enumerate((ANNA, BERTA, ANNA))]
    for token in tokens:
        store.tokens.add(token)
    assert store.tokens.all(ANNA) == (tokens[2], tokens[0])
    assert store.tokens.all(None) == (tokens[2], tokens[1], tokens[0])


def test_a_token_belongs_to_a_user_who_is_there_and_active(store: CatalogStore, catalog_url: str) -> None:
    engine = open_engine(parse_url(catalog_url))
    with writing(engine) as connection:
        write_principal(connection, UserEntry(EntryKind.WRITTEN, User(BERTA, is_active=False)))
        connection.commit()
    engine.dispose()
    for owner in (BERTA, local_user("nobody"), Principal("https://issuer.example", "anna")):
        with pytest.raises(RefusedError) as refused:
            store.tokens.add(issued(owner, "secret"))
        assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    assert store.tokens.all(None) == ()


def test_tokens_that_ended_long_ago_are_deleted(store: CatalogStore) -> None:
    old = issued(ANNA, "old", TokenRequest(lifetime_us=DAY_US))
    store.tokens.add(old)
    store.tokens.add(issued(ANNA, "new", at=NOW + 89 * DAY_US))
    assert len(store.tokens.all(None)) == 2
    newest = issued(ANNA, "newest", at=NOW + 91 * DAY_US)
    store.tokens.add(newest)
    assert old not in store.tokens.all(None)


def test_a_user_has_so_many_valid_tokens_at_once(store: CatalogStore) -> None:
    """Tokens that the server makes by itself are not refused, and ended ones make room."""
    basis = LoginBasis(user_version=0)
    for number in range(TOKENS_MAX):
        store.tokens.add(issued(ANNA, f"secret {number}"), basis)
    with pytest.raises(RefusedError) as refused:
        store.tokens.add(issued(ANNA, "one more"), basis)
    assert refused.value.kind is ErrorKind.LOGIN_PROOF_LIMIT
    assert len(store.tokens.all(ANNA)) == TOKENS_MAX
    store.tokens.add(issued(BERTA, "of another"), basis)
    store.tokens.add(issued(ANNA, "of the server"))
    for token in store.tokens.all(ANNA)[:2]:
        store.tokens.revoke(token.token_id, NOW)
    store.tokens.add(issued(ANNA, "one more"), basis)
