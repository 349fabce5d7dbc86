"""Events that are sent when their session is over, or what allowed them: they do nothing, and sockets close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from app.security.console_login import SESSION_COOKIE
from app.security.token_secrets import SESSION_PREFIX, new_secret
from catalog.core.credentials import csrf_of, opened_session
from tests.fixtures.console_browser import ConsoleBrowser
from tests.fixtures.console_socket import PageSocket, button_in, field_in
from tests.fixtures.known_users import user_of
from tests.fixtures.open_console import OpenConsole, open_console

NODE = "/console/nodes/n2"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenConsole]:
    async with open_console(tmp_path_factory.mktemp("ends")) as opened:
        yield opened


async def ask_to_drain(socket: PageSocket) -> int:
    """Up to the last question; the number of its button."""
    before, drain = set(socket.elements), button_in(socket.elements, "Drain")
    assert drain is not None
    await socket.click(drain)
    dialog = await socket.dialog(before)
    await socket.type_into(field_in(dialog, "Reason"), "new disks")
    sure = button_in(dialog, "Drain")
    assert sure is not None
    return sure


async def test_an_event_after_a_revoke_does_nothing(console: OpenConsole) -> None:
    """The dialog is open, and its socket not closed yet."""
    await console.run("CREATE USER urs")
    await console.run("GRANT operator TO urs")
    async with console.browser("urs") as browser, console.page(browser, "/console/nodes/n4") as socket:
        sure = await ask_to_drain(socket)
        urs = await user_of(console.world.catalog, "urs")
        await console.run("REVOKE operator FROM urs")
        async with asyncio.timeout(60):
            while urs in (await console.sessions.access.grants()).roles_of:
                await asyncio.sleep(0.02)
        await socket.click(sure)
        await socket.wait(socket.is_over.is_set)
        assert "n4" not in console.services.views.drains()
    await console.run("DROP USER urs")


async def test_a_session_that_expires_closes_its_sockets(console: OpenConsole) -> None:
    now_us, secret = time.time_ns() // 1_000, new_secret(SESSION_PREFIX)
    session = opened_session(await user_of(console.world.catalog, "olga"), secret, now_us)
    ends_us = now_us + 8_000_000
    await console.world.catalog.on_sessions(lambda rows: rows.add(replace(session, expires_us=ends_us)))
    async with ConsoleBrowser(console.app) as browser:
        browser.plant(SESSION_COOKIE, secret)
        async with console.page(browser, "/console/nodes/n4") as socket:
            sure = await ask_to_drain(socket)
            async with asyncio.timeout(60):
                while time.time_ns() // 1_000 < ends_us:
                    await asyncio.sleep(0.05)
            await socket.click(sure)
            await socket.wait(socket.is_over.is_set)
            print(f"closed {time.time() - ends_us / 1_000_000:.2f} s after the session has expired")
        assert "n4" not in console.services.views.drains()
        assert (await browser.open("/console/nodes")).status_code == 303


async def test_a_session_is_no_later_users_of_the_same_name(console: OpenConsole) -> None:
    """The server that has dropped the user ends its session at once, and a link sent to that user opens
    nothing."""
    await console.run("CREATE USER udo")
    await console.run("GRANT operator TO udo")
    link = await console.sessions.new_link(await user_of(console.world.catalog, "udo"))
    async with console.browser("udo") as browser, console.page(browser, "/console/nodes") as socket:
        for sql in ("DROP USER udo", "CREATE USER udo", "GRANT administrator TO udo"):
            await console.run(sql)
        assert (await browser.open("/console/users")).status_code == 303
        assert (await browser.log_in(link=link)).status_code == 401
        await socket.wait(socket.is_over.is_set)


def dialogs_in(socket: PageSocket) -> int:
    return sum(one.get("tag") == "q-card" for one in socket.elements.values())


async def test_an_event_after_the_logout_does_nothing(console: OpenConsole) -> None:
    async with console.browser("olga") as browser, console.page(browser, "/console/nodes/n4") as socket:
        sure = await ask_to_drain(socket)
        csrf = csrf_of(browser.cookies[SESSION_COOKIE])
        assert (await browser.send("/console/logout", csrf)).status_code == 200
        await socket.click(sure)
        begun = time.monotonic()
        await socket.wait(socket.is_over.is_set)
        print(f"closed {time.monotonic() - begun:.2f} s after the logout")
        assert "n4" not in console.services.views.drains()


async def test_the_logout_of_one_session_leaves_the_others(console: OpenConsole) -> None:
    async with (
        console.browser("olga") as first,
        console.browser("olga") as second,
        console.page(first, NODE) as ended,
        console.page(second, "/console/nodes/n3") as other,
    ):
        await first.send("/console/logout", csrf_of(first.cookies[SESSION_COOKIE]))
        await ended.wait(ended.is_over.is_set)
        drain = button_in(other.elements, "Drain")
        assert drain is not None
        await other.click(drain)
        await other.wait(lambda: dialogs_in(other) > 0)


@pytest.mark.parametrize(
    ("before", "sql"),
    [
        ("GRANT operator TO ulla", "REVOKE operator FROM ulla"),
        ("GRANT SEE ON SYSTEM TO ulla", "GRANT SEE ON ALL ZONES TO ulla"),
        ("GRANT operator TO ulla", "ALTER USER ulla NOLOGIN"),
        ("GRANT operator TO ulla", "DROP USER ulla"),
    ],
)
async def test_what_changes_rights_closes_the_sockets(console: OpenConsole, before: str, sql: str) -> None:
    await console.run("CREATE USER IF NOT EXISTS ulla LOGIN")
    await console.run(before)
    async with console.browser("ulla") as browser, console.page(browser, "/console/zones") as socket:
        begun = time.monotonic()
        await console.run(sql)
        await socket.wait(socket.is_over.is_set)
        print(f"closed {time.monotonic() - begun:.2f} s after {sql}")
        reloaded = [message for message in socket.received if "location.reload" in str(message["body"])]
        assert len(reloaded) == 1
    await console.run("DROP USER IF EXISTS ulla")


async def test_a_change_of_anothers_rights_leaves_a_page_open(console: OpenConsole) -> None:
    await console.run("CREATE USER otto")
    async with console.browser("olga") as browser, console.page(browser, "/console/nodes/n3") as socket:
        async with console.browser("otto") as other, console.page(other, NODE) as changed:
            await console.run("GRANT operator TO otto")
            await changed.wait(changed.is_over.is_set)
        drain = button_in(socket.elements, "Drain")
        assert drain is not None
        await socket.click(drain)
        await socket.wait(lambda: dialogs_in(socket) > 0)


async def test_a_socket_cannot_leave_the_watch_by_saying_so(console: OpenConsole) -> None:
    """Names of the library's own events, sent as events."""
    async with console.browser("olga") as browser:
        for name in ("connect", "disconnect"):
            async with console.page(browser, NODE) as socket:
                await socket.emit(name, {"asgi.scope": {"viewer": "forged"}})
                await browser.send("/console/logout", csrf_of(browser.cookies[SESSION_COOKIE]))
                await socket.wait(socket.is_over.is_set)
            link = await console.sessions.new_link(await user_of(console.world.catalog, "olga"))
            await browser.log_in(link=link)
