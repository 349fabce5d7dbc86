"""The pages of users and of the own account: what they list, what their dialogs run, and for whom."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from app.api.tokens import LinkCreate, TokenCreate, create_console_link, create_token
from app.requests.context import Login, Proof, logged_in
from app.security.console_login import SESSION_COOKIE
from app.security.token_secrets import new_secret
from app.sql.statements.results import SessionContext
from catalog.core.audit import AuditFilter
from catalog.core.authorisation import Caller, Principal
from catalog.core.credentials import ID_CHARS, TokenRequest, digest_of, issue
from catalog.core.errors import RefusedError
from tests.fixtures.console_browser import ConsoleBrowser
from tests.fixtures.console_socket import PageSocket, SentPage, button_in, field_in, grid_in
from tests.fixtures.known_users import user_of
from tests.fixtures.open_console import OpenConsole, open_console

pytestmark = pytest.mark.asyncio(loop_scope="module")

USERS, ACCOUNT = "/console/users", "/console/account"
SECRET = "marked password of ida"
Elements = dict[str, dict[str, Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenConsole]:
    async with open_console(tmp_path_factory.mktemp("logins")) as opened:
        await opened.run("CREATE USER ada")
        await opened.run("GRANT administrator TO ada")
        yield opened


async def fill(socket: PageSocket, dialog: Elements, word: str, fields: dict[str, str]) -> str:
    """Confirms a dialog; what the page reports then."""
    for label, value in {**fields, "Reason": "a test"}.items():
        await socket.type_into(field_in(dialog, label), value)
    told = len(socket.notices)
    sure = button_in(dialog, word)
    assert sure is not None
    await socket.click(sure)
    await socket.wait(lambda: len(socket.notices) > told)
    return socket.notices[-1]


async def run_form(socket: PageSocket, word: str, fields: dict[str, str]) -> str:
    before, opener = set(socket.elements), button_in(socket.elements, word)
    assert opener is not None
    await socket.click(opener)
    return await fill(socket, await socket.dialog(before), word, fields)


async def pick(socket: PageSocket, grid: str, name: str, word: str) -> str:
    """Selects a row and confirms what the page then asks."""
    before = set(socket.elements)
    await socket.pick(grid_in(socket.elements, grid)[0], name)
    return await fill(socket, await socket.dialog(before), word, {})


async def rows_of(browser: ConsoleBrowser, path: str, grid: str) -> list[dict[str, object]]:
    return grid_in(SentPage.of((await browser.open(path)).text).elements, grid)[1]


async def token_of(console: OpenConsole, user: str) -> str:
    """The id of a new one."""
    owner = await user_of(console.world.catalog, user)
    token = issue(TokenRequest(), owner, new_secret(), time.time_ns() // 1_000)
    await console.world.catalog.add_token(token)
    return token.token_id


async def test_a_user_is_made_in_a_dialog_and_its_password_is_kept_nowhere(console: OpenConsole) -> None:
    async with console.browser("ada") as browser, console.page(browser, USERS) as socket:
        told = await run_form(socket, "New user", {"Name": "Ida", "Password": SECRET})
        assert told == "CREATE USER ida PASSWORD '********'"
        users = {row["name"]: row for row in await rows_of(browser, USERS, "Users")}
        assert (users["ida"]["login"], users["ida"]["password"]) == ("allowed", "yes")
        pages = [(await browser.open(path)).text for path in (USERS, "/console/audit", "/console/")]
    (record,) = await console.world.catalog.audit(AuditFilter(action="CREATE USER", subject="ida"), 5)
    actor = record.entry.actor
    assert (actor.name, actor.verified, actor.channel.name) == ("ada", True, "CONSOLE")
    assert record.entry.reason == "a test"
    log = (await console.world.engine.execute("SELECT * FROM events", SessionContext())).rows
    assert [one for one in (*pages, str(record), str(log)) if SECRET in one] == []


async def test_a_refused_statement_is_shown_in_its_dialog(console: OpenConsole) -> None:
    async with console.browser("ada") as browser, console.page(browser, USERS) as socket:
        before, opener = set(socket.elements), button_in(socket.elements, "New role")
        assert opener is not None
        await socket.click(opener)
        dialog = await socket.dialog(before)
        await socket.type_into(field_in(dialog, "Name"), "viewer")
        await socket.type_into(field_in(dialog, "Reason"), "a test")
        sure = button_in(dialog, "New role")
        assert sure is not None
        await socket.click(sure)
        await socket.wait(lambda: "already exists" in json.dumps(socket.made_since(before)))


async def test_a_grant_is_made_and_revoked(console: OpenConsole) -> None:
    await console.run("CREATE USER aaron")
    async with console.browser("ada") as browser, console.page(browser, USERS) as socket:
        await run_form(socket, "Grant", {})
        # The first of each choice.
        name = "REVOKE SEE ON SYSTEM FROM aaron"
        assert name in {row["name"] for row in await rows_of(browser, USERS, "Grants")}
    async with console.browser("ada") as browser, console.page(browser, USERS) as socket:
        assert await pick(socket, "Grants", name, "Revoke") == name
        assert name not in {row["name"] for row in await rows_of(browser, USERS, "Grants")}


async def test_a_row_that_is_made_up_runs_nothing(console: OpenConsole) -> None:
    async with console.browser("ada") as browser, console.page(browser, USERS) as socket:
        before = set(socket.elements)
        await socket.pick(grid_in(socket.elements, "Grants")[0], "DROP USER vera")
        # Handled in order: when the next one is answered the first was.
        opener = button_in(socket.elements, "New role")
        assert opener is not None
        await socket.click(opener)
        await socket.dialog(before)
        assert sum(one.get("tag") == "q-card" for one in socket.made_since(before).values()) == 1
        assert "vera" in {row["name"] for row in await rows_of(browser, USERS, "Users")}


async def test_an_account_lists_and_ends_the_own_logins_alone(console: OpenConsole) -> None:
    own, foreign = await token_of(console, "vera"), await token_of(console, "olga")
    async with (
        console.browser("vera") as browser,
        console.browser("vera") as second,
        console.browser("olga") as other,
        console.page(browser, ACCOUNT) as socket,
    ):
        sessions = await rows_of(browser, ACCOUNT, "Sessions")
        assert {row["owner"] for row in sessions} == {"vera"}
        assert [row["note"] for row in sessions].count("this one") == 1
        assert [row["name"] for row in await rows_of(browser, ACCOUNT, "Tokens")] == [own]
        assert "revoked" in await pick(socket, "Tokens", own, "Revoke token")
        assert [row["note"] for row in await rows_of(browser, ACCOUNT, "Tokens")] == ["revoked"]
        theirs = session_id(other)
        await refuse(socket, "Tokens", foreign, "Revoke token", "there is no token")
        await refuse(socket, "Sessions", theirs, "End session", "there is no session")
        assert "ended" in await pick(socket, "Sessions", session_id(second), "End session")
        assert (await second.open("/console/zones")).status_code == 303
        assert (await other.open("/console/zones")).status_code == 200
    records = await console.world.catalog.audit(AuditFilter(action="END SESSION"), 5)
    assert [record.entry.actor.name for record in records] == ["vera"]


async def refuse(socket: PageSocket, grid: str, name: str, word: str, refusal: str) -> None:
    """A row that the page does not have is asked for."""
    before = set(socket.elements)
    await socket.pick(grid_in(socket.elements, grid)[0], name)
    dialog = await socket.dialog(before)
    await socket.type_into(field_in(dialog, "Reason"), "a test")
    sure = button_in(dialog, word)
    assert sure is not None
    await socket.click(sure)
    await socket.wait(lambda: refusal in json.dumps(socket.made_since(before)))


def session_id(browser: ConsoleBrowser) -> str:
    return digest_of(browser.cookies[SESSION_COOKIE])[:ID_CHARS]


async def test_an_administrator_lists_and_ends_the_logins_of_all(console: OpenConsole) -> None:
    token = await token_of(console, "olga")
    async with (
        console.browser("ada") as browser,
        console.browser("olga") as other,
        console.page(other, "/console/zones") as ended,
        console.page(browser, USERS) as socket,
    ):
        assert "of olga" in await pick(socket, "Tokens", token, "Revoke token")
        begun = time.monotonic()
        assert "of olga" in await pick(socket, "Sessions", session_id(other), "End session")
        await ended.wait(ended.is_over.is_set)
        print(f"closed {time.monotonic() - begun:.2f} s after the session was ended")
        assert (await other.open("/console/zones")).status_code == 303


async def test_an_account_is_for_whoever_has_logged_in(console: OpenConsole) -> None:
    async with console.browser("nora") as browser:
        text = (await browser.open(ACCOUNT)).text
        assert "A privilege is missing" not in text
        assert "revision" not in text
        assert "A privilege is missing" in (await browser.open(USERS)).text


async def test_a_user_of_an_issuer_has_no_way_into_the_console(console: OpenConsole) -> None:
    """Neither a link nor a session that was made for it lets it in, also not as the catalog's user of that
    name."""
    issuer = Principal("https://issuer.example", "olga")
    with logged_in(Login(Caller(issuer), Proof.JWT)), pytest.raises(RefusedError) as refused:
        await create_console_link(LinkCreate(), console.services)
    assert refused.value.kind.name == "PRIVILEGE_MISSING"
    assert "https://issuer.example" in refused.value.message
    with pytest.raises(RefusedError):
        await console.sessions.open(Login(Caller(issuer), Proof.JWT), "")
    with pytest.raises(RefusedError):
        await console.sessions.new_link(issuer)


async def test_a_token_that_another_server_has_revoked_makes_nothing_that_outlives_it(
    console: OpenConsole,
) -> None:
    """A revoked token makes neither a token nor a link to the console, though this server takes it as valid
    for two seconds."""
    catalog = console.world.catalog
    owner = await user_of(catalog, "olga")
    token = issue(TokenRequest(), owner, new_secret(), time.time_ns() // 1_000)
    await catalog.add_token(token)
    await catalog.revoke_token(token.token_id, token.created_us + 1)
    before = await catalog.tokens(token.owner)
    with logged_in(Login(Caller(token.owner), Proof.TOKEN, token, token.expires_us)):
        for made in (
            create_token(TokenCreate(), console.services),
            create_console_link(LinkCreate(), console.services),
        ):
            with pytest.raises(RefusedError) as refused:
                await made
            assert refused.value.kind.name == "UNAUTHENTICATED"
    assert await catalog.tokens(token.owner) == before
