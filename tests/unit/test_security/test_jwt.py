"""JWTs of one issuer: what is accepted, and when its keys are read."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.security.jwt import (
    FETCH_INTERVAL_S,
    KEYS_AGE_S_MAX,
    KEYS_BYTES_MAX,
    SKEW_S,
    IssuerKeys,
    JwtChecks,
    JwtIssuer,
    fetch_keys,
)
from catalog.core.authorisation import Principal, role
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from tests.fixtures.issuer import AUDIENCE, ISSUER, JwtIssuerServer, issuing

HOUR_S = 3_600


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[JwtIssuerServer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def issuer(shared_issuer: JwtIssuerServer) -> JwtIssuerServer:
    shared_issuer.requests, shared_issuer.redirect_to, shared_issuer.answer = 0, None, None
    shared_issuer.keys = {"first": shared_issuer.keys["first"]}
    return shared_issuer


@pytest.fixture
def checks(issuer: JwtIssuerServer, clock: ManualClock) -> JwtChecks:
    settings = JwtIssuer(ISSUER, AUDIENCE, issuer.url, roles={"zone-operators": "operator"})
    return JwtChecks(settings, IssuerKeys(partial(fetch_keys, issuer.url), clock))


async def refusal(checks: JwtChecks, token: str) -> str:
    with pytest.raises(RefusedError) as refused:
        await checks.identity(token)
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    return refused.value.message


class Ahead(NamedTuple):
    """Seconds after the time at which the token is made."""

    seconds: int


def in_seconds(seconds: float) -> int:
    return int(time.time() + seconds)


async def test_a_good_token_names_a_principal_of_its_issuer(checks: JwtChecks, issuer: JwtIssuerServer) -> None:
    identity = await checks.identity(issuer.token())
    assert identity.principal == Principal(ISSUER, "anna")
    assert identity.roles == ()


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"aud": None},
        {"iss": None},
        {"sub": None},
        {"exp": Ahead(-SKEW_S - 5)},
        {"exp": Ahead(HOUR_S + SKEW_S + 30)},
        {"exp": 10**30},
        {"exp": "soon"},
        {"nbf": Ahead(SKEW_S + 30)},
        {"iat": Ahead(SKEW_S + 30)},
        {"aud": "another"},
        {"aud": [AUDIENCE, "another"]},
        {"iss": ISSUER + "/"},
        {"iss": "local"},
        {"sub": ""},
        {"sub": "a\nb"},
        {"sub": "x" * 129},
        {"sub": 7},
    ],
    ids=str,
)
async def test_a_token_with_other_claims_is_refused(
    checks: JwtChecks, issuer: JwtIssuerServer, claims: dict[str, Any]
) -> None:
    made = {
        name: in_seconds(claim.seconds) if isinstance(claim, Ahead) else claim for name, claim in claims.items()
    }
    assert "not accepted" in await refusal(checks, issuer.token(**made))


@pytest.mark.parametrize("exp", [-SKEW_S + 20, HOUR_S])
async def test_clocks_may_differ_by_a_minute(checks: JwtChecks, issuer: JwtIssuerServer, exp: int) -> None:
    assert await checks.identity(issuer.token(exp=in_seconds(exp)))


async def test_an_algorithm_that_is_not_listed_is_refused(checks: JwtChecks, issuer: JwtIssuerServer) -> None:
    """Signing with a secret that is public, or not at all, lets no caller in."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": in_seconds(60)}
    public = issuer.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    unsigned = f"{part({'alg': 'none', 'kid': 'first'})}.{part(claims)}."
    header = part({"alg": "HS256", "kid": "first", "typ": "JWT"})
    signed = f"{header}.{part(claims)}"
    with_public_key = f"{signed}.{base64.urlsafe_b64encode(_hmac(public, signed)).decode().rstrip('=')}"
    for token in (unsigned, with_public_key):
        assert "algorithm" in await refusal(checks, token)
    assert issuer.requests == 0


def _hmac(key: bytes, text: str) -> bytes:
    return jwt.get_algorithm_by_name("HS256").sign(text.encode(), key)


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "\u2603.a.b", "e30.e30.e30"])
async def test_what_is_no_token_is_refused(checks: JwtChecks, token: str) -> None:
    assert await refusal(checks, token)


async def test_a_changed_token_is_refused(checks: JwtChecks, issuer: JwtIssuerServer) -> None:
    head, _, signature = issuer.token().split(".")
    _, body, _ = issuer.token(sub="root").split(".")
    await refusal(checks, f"{head}.{body}.{signature}")


async def test_an_unknown_key_makes_keys_be_read_once_a_minute(
    checks: JwtChecks, issuer: JwtIssuerServer, clock: ManualClock
) -> None:
    await checks.identity(issuer.token())
    assert issuer.requests == 1
    issuer.add_key("second")
    for _ in range(5):
        assert "key" in await refusal(checks, issuer.token("second"))
        await checks.identity(issuer.token())
    assert issuer.requests == 1
    clock.now_s += FETCH_INTERVAL_S
    assert await checks.identity(issuer.token("second"))
    assert issuer.requests == 2


async def test_keys_that_were_withdrawn_are_forgotten(
    checks: JwtChecks, issuer: JwtIssuerServer, clock: ManualClock
) -> None:
    token = issuer.token()
    await checks.identity(token)
    kept = issuer.keys.pop("first")
    issuer.add_key("second")
    clock.now_s += KEYS_AGE_S_MAX
    await refusal(checks, token)
    issuer.keys["first"] = kept


async def test_without_keys_nobody_is_let_in(issuer: JwtIssuerServer, clock: ManualClock) -> None:
    """A redirect counts as no answer: nothing but the configured address is asked."""
    issuer.redirect_to = issuer.url + "/elsewhere"
    settings = JwtIssuer(ISSUER, AUDIENCE, issuer.url)
    checks = JwtChecks(settings, IssuerKeys(partial(fetch_keys, issuer.url), clock))
    with pytest.raises(StoreError) as failure:
        await checks.identity(issuer.token())
    assert failure.value.kind is ErrorKind.GRANTS_UNAVAILABLE
    assert issuer.requests == 1
    with pytest.raises(StoreError):
        await checks.identity(issuer.token())
    assert issuer.requests == 1


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk"])
async def test_no_token_says_where_its_key_is(checks: JwtChecks, issuer: JwtIssuerServer, name: str) -> None:
    """Neither an address in its header is asked, nor a key taken from there."""
    await checks.identity(issuer.token())
    with issuing() as elsewhere:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": in_seconds(60)}
        own = json.loads(elsewhere.key_set())["keys"][0]
        headers = {"kid": "first", name: own if name == "jwk" else elsewhere.url}
        await refusal(checks, jwt.encode(claims, elsewhere.keys["first"], "ES256", headers=headers))
        assert elsewhere.requests == 0
    assert issuer.requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"keys": 7}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]}',
        b'{"keys": [' + b" " * KEYS_BYTES_MAX + b"]}",
        b"[" * 100_000,
    ],
    ids=["nothing", "no text", "a list", "no keys", "a secret", "too large", "too deep"],
)
async def test_an_issuer_that_answers_wrongly_lets_nobody_in(
    checks: JwtChecks, issuer: JwtIssuerServer, answer: bytes
) -> None:
    """And ends nothing: keys are read again later."""
    issuer.answer = answer
    for _ in range(2):
        with pytest.raises((StoreError, RefusedError)) as refused:
            await checks.identity(issuer.token())
        assert refused.value.kind in (ErrorKind.GRANTS_UNAVAILABLE, ErrorKind.UNAUTHENTICATED)
    assert issuer.requests == 1


@pytest.mark.parametrize(
    ("groups", "roles"),
    [
        (["zone-operators"], (role("operator"),)),
        (["administrator", "role:administrator", "zone-operators"], (role("operator"),)),
        ("zone-operators", (role("operator"),)),
        (["administrator"], ()),
        ([{"zone-operators": 1}, 7], ()),
        ({"zone-operators": True}, ()),
    ],
)
async def test_claims_give_the_roles_that_the_settings_name(
    checks: JwtChecks, issuer: JwtIssuerServer, groups: Any, roles: tuple[Principal, ...]
) -> None:
    assert (await checks.identity(issuer.token(groups=groups))).roles == roles


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("ES256", "none")},
        {"algorithms": ()},
        {"issuer": ""},
        {"issuer": "local"},
        {"issuer": "role"},
        {"audience": ""},
        {"keys_url": "http://issuer.example/keys"},
        {"keys_url": "file:///etc/keys"},
        {"keys_url": "https:///keys"},
    ],
    ids=str,
)
def test_settings_that_would_weaken_it_are_refused(changes: dict[str, Any]) -> None:
    good = JwtIssuer(ISSUER, AUDIENCE, "https://issuer.example/keys")
    good.check()
    with pytest.raises(ValueError):
        replace(good, **changes).check()
