"""Limits on what one user can hold of the console on purpose: others have room beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from nicegui import Client

from app.console.guard import DRAWN_AT_ONCE, SOCKETS_MAX, UNSEEN_MAX
from tests.fixtures.bare_socket import BareSocket
from tests.fixtures.console_browser import ConsoleBrowser
from tests.fixtures.open_console import OpenConsole, open_console

pytestmark = pytest.mark.asyncio(loop_scope="module")
ACCOUNT = "/console/account"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenConsole]:
    async with open_console(tmp_path_factory.mktemp("bounds")) as opened:
        yield opened


async def test_pages_that_nobody_shows_are_forgotten(console: OpenConsole) -> None:
    # NiceGUI's list is the process's: consoles of other files may have left pages in it.
    others = set(Client.instances)
    async with console.browser("nora") as browser, console.page(browser, ACCOUNT) as shown:
        for _ in range(UNSEEN_MAX + 20):
            assert (await browser.open(ACCOUNT)).status_code == 200
        assert len(Client.instances.keys() - others) <= UNSEEN_MAX + DRAWN_AT_ONCE + 1
        assert shown.client_id in Client.instances


async def test_a_user_has_so_many_sockets_and_others_have_theirs(console: OpenConsole) -> None:
    """Sockets that never say which page they are of count as well. Up to SOCKETS_MAX open, the next one gets
    429."""
    async with console.browser("nora") as browser, console.browser("vera") as other, AsyncExitStack() as held:
        sockets = [await _socket(console, browser, held) for _ in range(SOCKETS_MAX)]
        assert [one.status for one in sockets] == [101] * SOCKETS_MAX
        assert (await _socket(console, browser, held)).status == 429
        assert (await _socket(console, other, held)).status == 101
        await sockets[0].close()
        assert (await _socket(console, browser, held)).status == 101


async def test_pages_of_one_user_that_are_drawn_do_not_keep_another_waiting(console: OpenConsole) -> None:
    async with console.browser("olga") as browser, console.browser("nora") as other:
        asked = [asyncio.create_task(browser.open("/console/zones")) for _ in range(20)]
        await asyncio.sleep(0)
        assert (await other.open(ACCOUNT)).status_code == 200
        before = sum(task.done() for task in asked)
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * len(asked)
    assert before <= len(asked) // 2


async def _socket(console: OpenConsole, browser: ConsoleBrowser, held: AsyncExitStack) -> BareSocket:
    socket = BareSocket(console.app, browser.cookies)
    held.push_async_callback(socket.close)
    await socket.begin()
    return socket
