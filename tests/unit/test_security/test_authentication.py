"""Ways to log in: passwords, tokens and JWTs over TLS, and a short list of addresses without any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import httpx
import pytest
import pytest_asyncio

from app.security.access_view import REFUSED_S, AccessView
from app.security.authenticate import OPEN, Authentication
from app.security.jwt import IssuerKeys, JwtChecks, JwtIssuer, fetch_keys
from app.security.login_check import BY_USER_MAX, WINDOW_S, LoginCheck
from app.security.passwords import PasswordChecks
from catalog.core.credentials import DAY_US, TokenRequest
from tests.fixtures.access_world import ManualClock, MemoryAccess, basic, bearer, says_who
from tests.fixtures.issuer import AUDIENCE, ISSUER, JwtIssuerServer, issuing

HTTPS_URL = "https://127.0.0.1:7443"
ZONES = "/api/v1/zones"


@pytest.fixture(scope="module")
def issuer() -> Iterator[JwtIssuerServer]:
    with issuing() as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world() -> MemoryAccess:
    return MemoryAccess()


@pytest_asyncio.fixture
async def gate(
    world: MemoryAccess, clock: ManualClock, issuer: JwtIssuerServer
) -> AsyncIterator[Authentication]:
    access = AccessView(world.grants, world, clock)
    passwords = PasswordChecks(clock)
    keys = IssuerKeys(partial(fetch_keys, issuer.url), clock)
    jwts = JwtChecks(JwtIssuer(ISSUER, AUDIENCE, issuer.url), keys)
    check = LoginCheck(access, passwords, jwts, clock, clock.now_us)
    yield Authentication(says_who, check, access, lambda _: HTTPS_URL)
    passwords.close()


def client_of(gate: Authentication, scheme: str = "https", address: str = "192.0.2.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(gate, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://zones.example")


@pytest_asyncio.fixture
async def client(gate: Authentication) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gate) as opened:
        yield opened


@pytest_asyncio.fixture
async def plain(gate: Authentication) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gate, "http") as opened:
        yield opened


async def test_a_password_logs_in(client: httpx.AsyncClient) -> None:
    answer = await client.get(ZONES, headers=basic("anna"))
    assert answer.json() == {"source": "local", "name": "anna", "acts_for": ""}


async def test_no_cache_keeps_what_a_login_is_answered(client: httpx.AsyncClient) -> None:
    for headers in (basic("anna"), basic("anna", "wrong"), {}):
        answer = await client.get(ZONES, headers=headers)
        assert answer.headers["cache-control"] == "no-store"


async def test_names_of_users_have_no_case(client: httpx.AsyncClient) -> None:
    answer = await client.get(ZONES, headers=basic("ANNA", "anna's password"))
    assert answer.json()["name"] == "anna"


async def test_without_a_credential_the_answer_says_how_to_log_in(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", ZONES), ("POST", "/v1/statement"), ("GET", "/nowhere")):
        answer = await client.request(method, path)
        assert answer.status_code == 401
        assert answer.json()["name"] == "UNAUTHENTICATED"
        assert answer.json()["sqlState"] == "28000"
        assert f"zonectl login {HTTPS_URL}" in answer.json()["detail"]
        assert answer.headers.get_list("www-authenticate") == [
            'Basic realm="Zonekeeper", charset="UTF-8"',
            'Bearer realm="Zonekeeper"',
        ]


async def test_what_is_open_is_open_for_nobody_in_particular(plain: httpx.AsyncClient) -> None:
    for method, path in OPEN:
        answer = await plain.request(method, path)
        assert answer.status_code == 200
        assert method == "HEAD" or answer.json() == {"anonymous": True}
    for method, path in (
        ("POST", "/v1/info"),
        ("GET", "/readyz/"),
        ("GET", "https://zones.example//readyz"),
        ("GET", "/v1/statement"),
    ):
        assert (await plain.request(method, path)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        basic("anna", "wrong"),
        basic("anna", ""),
        basic("nobody", "anna's password"),
        {"Authorization": "Basic ?"},
        {"Authorization": "Basic YW5uYQ=="},
        {"Authorization": "Basic"},
        {"Authorization": "Bearer"},
        {"Authorization": "Digest x"},
        {"Authorization": ""},
        bearer("zkt_unknown"),
        bearer("a.b.c"),
        bearer("anything"),
    ],
    ids=str,
)
async def test_what_proves_nothing_is_refused(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await client.get(ZONES, headers=headers)
    assert (answer.status_code, answer.json()["name"]) == (401, "UNAUTHENTICATED")


async def test_a_wrong_credential_is_not_let_in_where_none_is_needed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/readyz", headers=basic("anna", "wrong"))).status_code == 401


async def test_two_credentials_are_none(client: httpx.AsyncClient) -> None:
    headers = [("Authorization", basic(user)["Authorization"]) for user in ("anna", "berta")]
    assert (await client.get(ZONES, headers=headers)).status_code == 401


async def test_an_unknown_user_and_a_wrong_password_get_the_same_text(client: httpx.AsyncClient) -> None:
    unknown = await client.get(ZONES, headers=basic("nobody", "x"))
    wrong = await client.get(ZONES, headers=basic("anna", "x"))
    assert unknown.json() == wrong.json()


async def test_no_password_and_no_token_is_accepted_without_tls(
    plain: httpx.AsyncClient, world: MemoryAccess, issuer: JwtIssuerServer
) -> None:
    for headers in (
        basic("anna"),
        basic("anna", "wrong"),
        bearer(world.issued("anna")),
        bearer(issuer.token()),
    ):
        for path in (ZONES, "/readyz"):
            answer = await plain.get(path, headers=headers)
            assert (answer.status_code, answer.json()["name"]) == (403, "CREDENTIAL_NOT_ENCRYPTED")
            assert HTTPS_URL in answer.json()["detail"]


async def test_a_token_logs_its_owner_in_until_it_ends(
    client: httpx.AsyncClient, world: MemoryAccess, clock: ManualClock
) -> None:
    secret = world.issued("berta", TokenRequest(lifetime_us=DAY_US))
    assert (await client.get(ZONES, headers=bearer(secret))).json()["name"] == "berta"
    clock.now_s += 86_400
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 401


@pytest.mark.parametrize("how", ["the token is revoked", "its owner is disabled", "its owner is dropped"])
async def test_a_token_that_ends_is_refused_within_two_seconds(
    client: httpx.AsyncClient, world: MemoryAccess, clock: ManualClock, how: str
) -> None:
    """A server that did not end it refuses it in time as well."""
    secret = world.issued("berta")
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 200
    if how == "the token is revoked":
        world.revoke(secret)
    elif how == "its owner is disabled":
        world.change("berta", is_active=False)
    else:
        principal = next(user for user in world.granted.users if user.name == "berta")
        world.granted = world.granted.without(principal)
    clock.now_s += 2
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 401


async def test_a_changed_password_is_refused_within_two_seconds(
    client: httpx.AsyncClient, world: MemoryAccess, clock: ManualClock
) -> None:
    assert (await client.get(ZONES, headers=basic("berta"))).status_code == 200
    world.change("berta", password_hash=None)
    clock.now_s += 2
    assert (await client.get(ZONES, headers=basic("berta"))).status_code == 401


async def test_a_disabled_user_is_not_let_in(client: httpx.AsyncClient, world: MemoryAccess) -> None:
    world.change("berta", is_active=False)
    assert (await client.get(ZONES, headers=basic("berta"))).status_code == 401


async def test_a_jwt_logs_a_principal_of_its_issuer_in(
    client: httpx.AsyncClient, issuer: JwtIssuerServer
) -> None:
    """A principal that has the name of a user of the catalog is not that user."""
    answer = await client.get(ZONES, headers=bearer(issuer.token(sub="anna")))
    assert answer.json() == {"source": ISSUER, "name": "anna", "acts_for": ""}


async def test_failures_are_limited_where_they_come_from(gate: Authentication, clock: ManualClock) -> None:
    async with client_of(gate) as client:
        for _ in range(BY_USER_MAX):
            assert (await client.get(ZONES, headers=basic("anna", "wrong"))).status_code == 401
        answer = await client.get(ZONES, headers=basic("anna"))
        assert (answer.status_code, answer.json()["name"]) == (429, "LOGIN_LIMITED")
        assert answer.headers["retry-after"] == str(int(WINDOW_S))
        assert (await client.get(ZONES, headers=basic("berta"))).status_code == 200
    async with client_of(gate, address="198.51.100.7") as elsewhere:
        assert (await elsewhere.get(ZONES, headers=basic("anna"))).status_code == 200
    clock.now_s += WINDOW_S
    async with client_of(gate) as client:
        assert (await client.get(ZONES, headers=basic("anna"))).status_code == 200


async def test_failures_hold_up_no_token_that_is_right(client: httpx.AsyncClient, world: MemoryAccess) -> None:
    secret = world.issued("anna")
    statuses = [(await client.get(ZONES, headers=bearer(f"zkt_{n}"))).status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 200


async def test_a_server_that_cannot_read_grants_refuses_everything_but_health(
    client: httpx.AsyncClient, world: MemoryAccess, clock: ManualClock
) -> None:
    secret = world.issued("anna")
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 200
    world.is_silent = True
    clock.now_s += REFUSED_S - 1
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 200
    clock.now_s += 1
    for headers in (bearer(secret), basic("anna")):
        answer = await client.get(ZONES, headers=headers)
        assert (answer.status_code, answer.json()["name"]) == (503, "GRANTS_UNAVAILABLE")
        assert (await client.get("/readyz", headers=headers)).json() == {"anonymous": True}
    world.is_silent = False
    assert (await client.get(ZONES, headers=bearer(secret))).status_code == 200


async def test_requests_of_a_second_read_the_catalog_once(
    client: httpx.AsyncClient, world: MemoryAccess, clock: ManualClock
) -> None:
    secret = world.issued("anna")
    for _ in range(20):
        await client.get(ZONES, headers=bearer(secret))
    assert world.reads == 2


@pytest.mark.parametrize(
    ("user", "stated", "status", "acts_for"),
    [
        ("anna", "anna", 200, ""),
        ("anna", "ANNA", 200, ""),
        ("anna", "berta", 403, None),
        ("proxy", "berta", 200, "berta"),
    ],
)
async def test_x_trino_user_is_a_claim(
    client: httpx.AsyncClient, user: str, stated: str, status: int, acts_for: str | None
) -> None:
    answer = await client.post("/v1/statement", headers={**basic(user), "X-Trino-User": stated})
    assert answer.status_code == status
    if acts_for is None:
        assert answer.json()["name"] == "PRIVILEGE_MISSING"
    else:
        assert answer.json() == {"source": "local", "name": user, "acts_for": acts_for}


async def test_x_trino_role_gives_nothing(client: httpx.AsyncClient) -> None:
    for text, status in (("system=ALL", 200), ("system=ROLE{administrator}", 403), ("administrator", 400)):
        headers = {**basic("anna"), "X-Trino-User": "anna", "X-Trino-Role": text}
        assert (await client.post("/v1/statement", headers=headers)).status_code == status
        assert (await client.get(ZONES, headers=headers)).status_code == 200


async def test_guesses_at_the_same_time_are_no_more_than_one_by_one(client: httpx.AsyncClient) -> None:
    """The right one is not told from the others once so many have failed."""
    guesses = [*(f"wrong {number}" for number in range(3 * BY_USER_MAX)), "anna's password"]
    answers = await asyncio.gather(*(client.get(ZONES, headers=basic("anna", guess)) for guess in guesses))
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [401] * BY_USER_MAX + [429] * (len(guesses) - BY_USER_MAX)
    assert statuses[-1] == 429


async def test_the_right_password_at_the_same_time_is_right_each_time(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.get(ZONES, headers=basic("anna")) for _ in range(3 * BY_USER_MAX)))
    assert {answer.status_code for answer in answers} == {200}
