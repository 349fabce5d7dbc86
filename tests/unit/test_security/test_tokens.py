"""Opaque tokens: how long they are valid, and what a token that is made by another one may allow."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.security.token_secrets import new_secret
from catalog.core.authorisation import ALL_ZONES, SYSTEM, Held, Privilege, local_user, zone_object
from catalog.core.credentials import (
    DAY_US,
    AccessToken,
    TokenRequest,
    digest_of,
    is_within,
    issue,
    reaches,
    scope_of,
    scope_text,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId

ANNA = local_user("anna")
NOW = 1_800_000_000_000_000
ORDINARY = TokenRequest()
READER: Held = {ALL_ZONES: frozenset({Privilege.READ})}


def issued(request: TokenRequest = ORDINARY, parent: AccessToken | None = None) -> AccessToken:
    return issue(request, ANNA, new_secret(), NOW, parent)


def refusal(request: TokenRequest, parent: AccessToken | None = None) -> ErrorKind:
    with pytest.raises(RefusedError) as refused:
        issued(request, parent)
    return refused.value.kind


def test_a_secret_has_256_bits_and_only_its_digest_is_kept() -> None:
    secret = new_secret()
    assert re.fullmatch(r"zkt_[A-Za-z0-9_-]{43}", secret)
    assert secret != new_secret()
    token = issue(TokenRequest(), ANNA, secret, NOW)
    assert token.digest == digest_of(secret)
    assert secret not in repr(token)


def test_a_token_is_valid_for_thirty_days_unless_told_otherwise() -> None:
    token = issued()
    assert token.expires_us - NOW == 30 * DAY_US
    assert token.is_valid(token.expires_us - 1)
    assert not token.is_valid(token.expires_us)
    assert not replace(token, revoked_us=NOW + 1).is_valid(NOW + 2)


@pytest.mark.parametrize(("days", "is_issued"), [(90, True), (91, False), (0, False), (-1, False)])
def test_a_token_is_valid_for_at_most_ninety_days(days: int, is_issued: bool) -> None:
    request = TokenRequest(lifetime_us=days * DAY_US)
    if is_issued:
        assert issued(request).expires_us == NOW + days * DAY_US
    else:
        assert refusal(request) is ErrorKind.INVALID_REQUEST


def test_a_token_of_a_token_ends_with_it() -> None:
    parent = issued(TokenRequest(lifetime_us=DAY_US))
    assert issued(parent=parent).expires_us == parent.expires_us
    assert issued(TokenRequest(lifetime_us=DAY_US), parent).expires_us == parent.expires_us
    assert refusal(TokenRequest(lifetime_us=DAY_US + 1), parent) is ErrorKind.TOKEN_TOO_BROAD


def test_a_token_of_a_token_has_its_scope_or_less() -> None:
    parent = issued(TokenRequest(scope=READER))
    assert issued(parent=parent).scope == READER
    narrower: Held = {zone_object(ZoneId(7)): frozenset({Privilege.READ, Privilege.SEE})}
    assert issued(TokenRequest(scope=narrower), parent).scope == narrower
    for broader in ({ALL_ZONES: frozenset({Privilege.WRITE})}, {SYSTEM: frozenset({Privilege.SEE})}):
        assert refusal(TokenRequest(scope=broader), parent) is ErrorKind.TOKEN_TOO_BROAD


def test_no_limit_is_within_nothing_but_no_limit() -> None:
    assert is_within(None, None)
    assert is_within(READER, None)
    assert not is_within(None, READER)
    assert not is_within(
        {ALL_ZONES: frozenset({Privilege.READ})}, {zone_object(ZoneId(7)): frozenset({Privilege.READ})}
    )


def test_a_token_reaches_itself_and_those_within_its_scope() -> None:
    """A password reaches all of them."""
    narrow, other, narrower, whole = (
        issued(TokenRequest(scope=scope))
        for scope in (
            READER,
            {ALL_ZONES: frozenset({Privilege.WRITE})},
            {zone_object(ZoneId(7)): frozenset({Privilege.READ})},
            None,
        )
    )
    everything = (narrow, other, narrower, whole)
    assert [reaches(None, token) for token in everything] == [True] * 4
    assert [reaches(whole, token) for token in everything] == [True] * 4
    assert [reaches(narrow, token) for token in everything] == [True, False, True, False]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("read on all zones", "READ ON ALL ZONES"),
        (" SEE,READ ON ALL  ZONES;OPERATE ON SYSTEM ", "READ, SEE ON ALL ZONES; OPERATE ON SYSTEM"),
        ("WRITE ON ZONE 7; READ ON ZONE 7", "READ, WRITE ON ZONE 7"),
    ],
)
def test_a_scope_is_read_and_written(text: str, shown: str) -> None:
    assert scope_text(scope_of(text)) == shown
    assert scope_of(shown) == scope_of(text)


@pytest.mark.parametrize(
    "text", ["READ", "READ ON", "FLY ON SYSTEM", "READ ON SYSTEM", "ADMIN ON ALL ZONES", ";", "READ ON ZONE x"]
)
def test_a_scope_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        scope_of(text)
    assert refused.value.kind is ErrorKind.INVALID_REQUEST
