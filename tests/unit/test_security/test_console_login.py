"""The login to the console: sessions and their ends, links, and what no page of another site can do."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from app.edge.middleware import Edge
from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust
from app.security.access_view import AccessView
from app.security.authenticate import Authentication
from app.security.console_login import BODY_BYTES_MAX, LOGIN_COOKIE, SESSION_COOKIE
from app.security.login_check import BY_USER_MAX, LoginCheck
from app.security.passwords import PasswordChecks, hash_password
from app.security.session_view import SessionView
from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.member_counts import MemberCounts
from catalog.core.authorisation import Grants
from catalog.core.credentials import IDLE_US, LIFETIME_US, LINK_US, csrf_of, digest_of
from catalog.core.snapshot import Topology, ZoneDefaults
from parser.to_command import parse_ddl
from tests.fixtures.access_world import ManualClock, basic, bearer, says_who
from tests.fixtures.console_browser import LOGIN_PATH, ConsoleBrowser, csrf_in
from tests.fixtures.databases import migrated_file
from tests.fixtures.known_users import user_of

ANNA = {"user": "anna", "password": "anna's password"}
HTTPS_URL = "https://zones.example:7443"
PAGE = "/console/zones"
SECOND_US = 1_000_000


class LoginRig:
    """Rig of a catalog with the users anna and berta, behind the login to the console."""

    def __init__(self, catalog: CatalogExecutor, clock: ManualClock) -> None:
        async def grants() -> Grants:
            return (await catalog.snapshot()).grants

        self.catalog, self.clock = catalog, clock
        self.passwords = PasswordChecks(clock)
        access = AccessView(grants, catalog, clock)  # type: ignore[arg-type]  # of the executor: tokens only
        self.sessions = SessionView(access, catalog, clock, clock.now_us)
        check = LoginCheck(access, self.passwords, None, clock, clock.now_us, use_link=self.sessions.use_link)
        gate = Authentication(says_who, check, access, lambda _: HTTPS_URL, self.sessions)
        self.app = Edge(gate, Trust(), HttpLimits())

    def browser(self, scheme: str = "https") -> ConsoleBrowser:
        return ConsoleBrowser(self.app, scheme)

    async def run(self, sql: str) -> None:
        await self.catalog.run(parse_ddl(sql), Topology(()))

    def wait(self, us: int) -> None:
        self.clock.now_s += us / SECOND_US


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LoginRig]:
    url = migrated_file(tmp_path)
    catalog = CatalogExecutor(url, ZoneDefaults(), MemberCounts(lambda _: ()), hash_password)
    await catalog.open(lambda: None)
    opened = LoginRig(catalog, ManualClock())
    for name in ("anna", "berta"):
        await opened.run(f"CREATE USER {name} PASSWORD '{name}''s password'")
    yield opened
    opened.passwords.close()
    await catalog.close()


async def who(browser: ConsoleBrowser) -> str | None:
    """None: the page leads to the login."""
    answer = await browser.open(PAGE)
    if answer.status_code == 303:
        assert answer.headers["location"] == f"{LOGIN_PATH}?next=%2Fconsole%2Fzones"
        return None
    name: str = answer.json()["name"]
    return name


async def test_a_user_logs_in_and_out(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        assert await who(browser) is None
        answer = await browser.log_in(**ANNA)
        assert (answer.status_code, answer.json()) == (200, {"user": "anna"})
        assert await who(browser) == "anna"
        csrf = csrf_of(browser.cookies[SESSION_COOKIE])
        secret = browser.cookies[SESSION_COOKIE]
        assert (await browser.send("/console/logout", csrf)).status_code == 200
        assert SESSION_COOKIE not in browser.cookies
        browser.plant(SESSION_COOKIE, secret)
        assert await who(browser) is None


async def test_a_page_is_asked_for_again_while_the_catalog_cannot_be_read(
    rig: LoginRig, tmp_path: Path
) -> None:
    async with rig.browser() as browser:
        await browser.log_in(**ANNA)
        with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as connection:
            connection.execute("ALTER TABLE sessions RENAME TO elsewhere")
        rig.wait(60 * SECOND_US)
        answer = await browser.open(PAGE)
        assert (answer.status_code, answer.headers.get("refresh")) == (503, "2")


async def test_an_old_password_opens_no_session_while_it_is_still_taken_for_right(rig: LoginRig) -> None:
    """Users are known as of two seconds ago at worst; a session would outlive that by eight hours."""
    async with rig.browser() as browser:
        await browser.log_in(**ANNA)
        await rig.run("ALTER USER anna PASSWORD 'another password'")
        answer = await browser.log_in(**ANNA)
        assert answer.status_code == 401
        assert "changed" in answer.json()["detail"]
    rig.wait(3 * SECOND_US)
    assert await rig.sessions.listed(await user_of(rig.catalog, "anna")) == ()
    async with rig.browser() as browser:
        assert (await browser.log_in(user="anna", password="another password")).status_code == 200


async def test_a_login_is_short(rig: LoginRig) -> None:
    """A stranger's megabytes are not read: they would hold up everybody."""
    async with rig.browser() as browser:
        many = {f"field {number}": "" for number in range(BODY_BYTES_MAX // 10)}
        answer = await browser.log_in(**many, **ANNA)
        assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST")
        assert await who(browser) is None


async def test_cookies_are_for_this_host_its_tls_and_no_script(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        page = await browser.open(LOGIN_PATH)
        answer = await browser.send(LOGIN_PATH, csrf_in(page.text), **ANNA)
        cookies = [*page.headers.get_list("set-cookie"), *answer.headers.get_list("set-cookie")]
        assert [cookie.partition("=")[0] for cookie in cookies] == [LOGIN_COOKIE, SESSION_COOKIE, LOGIN_COOKIE]
        for cookie in cookies:
            assert cookie.startswith("__Host-")
            assert {"Path=/", "Secure", "HttpOnly"} <= set(cookie.split("; "))
            assert cookie.endswith(("SameSite=Lax", "SameSite=Strict"))
            assert "Domain" not in cookie


async def test_the_catalog_keeps_digests_alone(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        await browser.log_in(**ANNA)
        secret = browser.cookies[SESSION_COOKIE]
    kept = await rig.catalog.on_sessions(lambda rows: rows.by_digest(digest_of(secret)))
    assert kept is not None
    assert secret not in str(kept)
    assert csrf_of(secret) not in str(kept)
    assert await rig.catalog.on_sessions(lambda rows: rows.by_digest(secret)) is None


async def test_answers_are_kept_by_no_cache(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        before = [await browser.open(path) for path in (PAGE, LOGIN_PATH)]
        await browser.log_in(**ANNA)
        for answer in (*before, await browser.open(PAGE)):
            assert answer.headers["cache-control"] == "no-store"


async def test_a_login_is_none_of_a_page_of_another_site(rig: LoginRig) -> None:
    async with rig.browser() as browser, rig.browser() as other:
        foreign = csrf_in((await other.open(LOGIN_PATH)).text)
        # Whose page is not this browser's, which has no page of the login, and which has one.
        assert (await browser.send(LOGIN_PATH, foreign, **ANNA)).status_code == 403
        own = csrf_in((await browser.open(LOGIN_PATH)).text)
        assert (await browser.send(LOGIN_PATH, foreign, **ANNA)).status_code == 403
        for nothing in ("", "ä", "\ud800"):
            assert (await browser.send(LOGIN_PATH, nothing, **ANNA)).status_code == 403
        form = await browser.http.post(LOGIN_PATH, data={**ANNA, "csrf": own})
        assert form.status_code == 400
        headers = {"Origin": "https://elsewhere.example"}
        sent = await browser.http.post(LOGIN_PATH, json={**ANNA, "csrf": own}, headers=headers)
        assert sent.json()["name"] == "ORIGIN_REFUSED"
        assert SESSION_COOKIE not in browser.cookies
        assert (await browser.send(LOGIN_PATH, own, **ANNA)).status_code == 200


async def test_a_logout_is_none_of_a_page_of_another_session(rig: LoginRig) -> None:
    async with rig.browser() as browser, rig.browser() as other:
        await browser.log_in(**ANNA)
        await other.log_in(user="berta", password="berta's password")
        for csrf in ("", csrf_of(other.cookies[SESSION_COOKIE]), browser.cookies[SESSION_COOKIE]):
            answer = await browser.send("/console/logout", csrf)
            assert (answer.status_code, answer.json()["name"]) == (403, "ORIGIN_REFUSED")
        assert await who(browser) == "anna"


async def test_a_session_that_was_put_into_the_browser_is_not_logged_in(rig: LoginRig) -> None:
    """Fixation: who knows the cookie of before knows nothing of the session."""
    async with rig.browser() as attacker, rig.browser() as victim:
        await attacker.log_in(user="berta", password="berta's password")
        planted = attacker.cookies[SESSION_COOKIE]
        for secret in (planted, "zks_made-up"):
            victim.plant(SESSION_COOKIE, secret)
            await victim.log_in(**ANNA)
            assert await who(victim) == "anna"
            assert victim.cookies[SESSION_COOKIE] != secret
        # The session that was there has ended with the login.
        assert await who(attacker) is None


async def test_each_login_is_a_session_of_its_own(rig: LoginRig) -> None:
    secrets = set()
    for _ in range(2):
        async with rig.browser() as browser:
            await browser.log_in(**ANNA)
            secrets.add(browser.cookies[SESSION_COOKIE])
    assert len(secrets) == 2


async def test_a_session_ends_after_eight_hours_of_use(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        await browser.log_in(**ANNA)
        step = IDLE_US - 60 * SECOND_US
        for _ in range(LIFETIME_US // step):
            rig.wait(step)
            assert await who(browser) == "anna"
        rig.wait(LIFETIME_US % step)
        assert await who(browser) is None


async def test_a_session_ends_after_half_an_hour_without_use(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        await browser.log_in(**ANNA)
        rig.wait(IDLE_US - SECOND_US)
        # A file of a page is no use of it.
        assert (await browser.open("/console/_nicegui/x.js")).status_code == 200
        rig.wait(SECOND_US)
        assert await who(browser) is None


@pytest.mark.parametrize(
    "sql",
    ["DROP USER anna", "ALTER USER anna NOLOGIN", "ALTER USER anna PASSWORD 'another long password'"],
)
async def test_what_ends_a_user_ends_its_sessions_within_two_seconds(rig: LoginRig, sql: str) -> None:
    async with rig.browser() as browser, rig.browser() as other:
        await browser.log_in(**ANNA)
        await other.log_in(user="berta", password="berta's password")
        await rig.run(sql)
        rig.wait(2 * SECOND_US)
        assert await who(browser) is None
        assert await who(other) == "berta"


async def test_a_link_logs_in_once(rig: LoginRig) -> None:
    secret = await rig.sessions.new_link(await user_of(rig.catalog, "anna"))
    async with rig.browser() as browser, rig.browser() as other:
        assert (await browser.log_in(link=secret)).json() == {"user": "anna"}
        assert await who(browser) == "anna"
        answer = await other.log_in(link=secret)
        assert (answer.status_code, answer.json()["name"]) == (401, "UNAUTHENTICATED")
        assert await who(other) is None


@pytest.mark.parametrize("sql", ["CREATE USER carla", "ALTER USER dora LOGIN"])
async def test_a_link_of_a_user_that_was_just_made_is_good_at_once(rig: LoginRig, sql: str) -> None:
    """The server's grants are older than the user, for the link and for the session that it opens."""
    await rig.run("CREATE USER dora NOLOGIN")
    async with rig.browser() as browser, rig.browser() as other:
        await browser.log_in(**ANNA)
        await rig.run(sql)
        user = sql.split()[2]
        secret = await rig.sessions.new_link(await user_of(rig.catalog, user))
        assert (await other.log_in(link=secret)).json() == {"user": user}
        assert await who(other) == user


async def test_a_link_holds_for_five_minutes(rig: LoginRig) -> None:
    first, second = [await rig.sessions.new_link(await user_of(rig.catalog, "anna")) for _ in range(2)]
    async with rig.browser() as browser:
        rig.wait(LINK_US - SECOND_US)
        assert (await browser.log_in(link=first)).status_code == 200
        rig.wait(SECOND_US)
        assert (await browser.log_in(link=second)).status_code == 401
        assert (await browser.log_in(link="zkl_made-up")).status_code == 401


async def test_a_link_is_read_from_no_address(rig: LoginRig) -> None:
    secret = await rig.sessions.new_link(await user_of(rig.catalog, "anna"))
    async with rig.browser() as browser:
        for path in (f"{LOGIN_PATH}?link={secret}", f"{LOGIN_PATH}/{secret}", f"{PAGE}?link={secret}"):
            await browser.open(path)
        assert await who(browser) is None
        assert (await browser.log_in(link=secret)).status_code == 200


async def test_failed_logins_are_limited_and_say_nothing_of_users(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        refused = [await browser.log_in(user=name, password="wrong") for name in ("anna", "\ud800")]
        assert len({answer.text.replace(answer.headers["x-request-id"], "ID") for answer in refused}) == 1
        for _ in range(BY_USER_MAX):
            answer = await browser.log_in(user="anna", password="wrong")
        assert (answer.status_code, answer.json()["name"]) == (429, "LOGIN_LIMITED")
        assert int(answer.headers["retry-after"]) > 0
        # No dialog of the browser's own asks for a password.
        assert "www-authenticate" not in refused[0].headers


async def test_only_the_login_page_and_its_files_are_there_without_a_session(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        for path in ("", ".js", ".css"):
            assert (await browser.open(f"{LOGIN_PATH}{path}")).status_code == 200
        for path in (
            PAGE,
            "/console/_nicegui/x.js",
            "/console/login.html",
            "/console/login/x",
            "/console/logout",
        ):
            assert (await browser.http.get(path)).status_code == 401, path
        policy = (await browser.open(LOGIN_PATH)).headers["content-security-policy"]
        assert "unsafe" not in policy


async def test_only_a_session_opens_the_console_and_it_opens_nothing_else(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        for headers in (basic("anna"), bearer("zkt_x")):
            assert (await browser.http.get(PAGE, headers=headers)).status_code == 401
        await browser.log_in(**ANNA)
        assert (await browser.http.get("/api/v1/zones")).status_code == 401
        assert (await browser.http.get("/readyz")).json() == {"anonymous": True}


async def test_http_leads_to_https_and_takes_no_password(rig: LoginRig) -> None:
    async with rig.browser("http") as browser:
        answer = await browser.open("/console/zones?q=a%20b")
        assert (answer.status_code, answer.headers["location"]) == (307, f"{HTTPS_URL}/console/zones?q=a%20b")
        sent = await browser.http.post(LOGIN_PATH, json={**ANNA, "csrf": "x"})
        assert sent.json()["name"] == "CREDENTIAL_NOT_ENCRYPTED"


async def test_the_way_back_after_a_login_is_of_this_server(rig: LoginRig) -> None:
    async with rig.browser() as browser:
        answer = await browser.open("/console//elsewhere.example/x")
        assert answer.headers["location"] == f"{LOGIN_PATH}?next=%2Fconsole%2F%2Felsewhere.example%2Fx"


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b'{"user": 1}', b'{"link": null}', b"[" * 100_000])
async def test_what_is_no_login_is_refused(rig: LoginRig, body: bytes) -> None:
    async with rig.browser() as browser:
        headers = {"Content-Type": "application/json"}
        answer = await browser.http.post(LOGIN_PATH, content=body, headers=headers)
        assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST")
