"""Open pages of users who have logged in: their server restarts, is out of reach, or gives way to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page, expect

from rebalance.core.keyspace.keys import Keyspace
from tests.e2e.installation import wait_for
from tests.fixtures.console_stage import WAIT_MS, Chromium
from tests.fixtures.databases import new_postgres
from tests.fixtures.detour import Detour, detour
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import SecureServer, password_of, serving_securely

KEYSPACE = Keyspace("test-lost-connections/")
USERS = ("the-administrator", "the-viewer")
PATHS = ("", "zones", "operations?show=open")
ALIVE_S, PACES = 5.0, 4
"""Seconds in which pages are alive after the server answers again; and, on a busy machine, the multiple of the
time that it takes to load the pages by hand from a server that is as new."""
LIVE = "window.socket?.connected && document.querySelector('[role=status]')?.innerText.includes('live')"

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def catalog_url(postgres_server: str) -> str:
    """URL of a catalog that several servers may share."""
    return new_postgres(postgres_server)


@pytest.fixture(scope="module")
def server(
    etcd_server: Etcd, catalog_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("lost-connections")
    with serving_securely(directory, etcd_server, KEYSPACE, catalog_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def way(server: SecureServer) -> Iterator[Detour]:
    with detour(server.https_port) as made:
        yield made


@pytest.fixture(scope="module")
def pages(chromium: Chromium, server: SecureServer, way: Detour) -> Iterator[list[Page]]:
    """Six, of two users, as they are left open."""
    address = f"https://127.0.0.1:{way.port}/console"
    with ExitStack() as contexts:
        opened = []
        for user in USERS:
            context = chromium.browser.new_context(ignore_https_errors=True)
            contexts.callback(context.close)
            context.set_default_timeout(WAIT_MS)
            for path in PATHS:
                page = context.new_page()
                page.goto(f"{address}/{path}")
                if path == PATHS[0]:
                    page.get_by_label("User").fill(user)
                    page.get_by_label("Password").fill(password_of(user))
                    page.get_by_role("button", name="Log in").click()
                expect(page.get_by_role("button", name="Log out")).to_be_visible()
                opened.append(page)
        yield opened


def kept(server: SecureServer, page: Page) -> bool:
    """True if the server still keeps the page, asked as the page itself would ask."""
    number = page.evaluate("window.clientId")
    address = f"https://127.0.0.1:{server.https_port}/console/_nicegui/kept/{number}"
    return bool(page.context.request.get(address).status == 204)


@contextmanager
def seen_again(pages: list[Page]) -> Iterator[Callable[[], float]]:
    """Yield a function to be called once the server answers: it gives the seconds until the last page is live,
    and another document than it was."""
    addresses = [page.url for page in pages]
    for page in pages:
        page.wait_for_function(LIVE)
        page.evaluate("window.isOld = true")

    def seconds() -> float:
        since = time.monotonic()
        for page in pages:
            try:
                page.wait_for_function(f"!window.isOld && {LIVE}")
            except Error as error:
                shown = page.evaluate("[location.href, !!window.isOld, document.body?.innerText]")
                raise AssertionError(shown) from error
        return time.monotonic() - since

    yield seconds
    assert [page.url for page in pages] == addresses
    for page in pages:
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        expect(page.get_by_text("Connection lost")).to_be_hidden()


def are_cut_off(pages: list[Page]) -> None:
    for page in pages:
        expect(page.get_by_text("Connection lost")).to_be_visible()


@pytest.mark.thorough("test_pages_go_on_at_another_server_that_runs_beside_theirs loses the connection, too")
def test_pages_are_live_after_their_server_was_killed_and_is_back(
    server: SecureServer, pages: list[Page]
) -> None:
    with seen_again(pages) as seconds:
        server.kill()
        are_cut_off(pages)
        server.start()
        took = seconds()
    with seen_again(pages) as seconds:
        server.kill()
        server.start()
        for page in pages:
            page.evaluate("setTimeout(() => location.reload())")
        pace = seconds()
    print(f"six pages were live {took:.1f} s after the server's first answer; loaded by hand in {pace:.1f} s")
    assert took < max(ALIVE_S, PACES * pace)


@pytest.mark.thorough("after a kill in test_pages_are_live_after_their_server_was_killed_and_is_back")
def test_pages_that_were_cut_off_for_longer_than_the_server_keeps_them(
    way: Detour, server: SecureServer, pages: list[Page]
) -> None:
    """Cut pages off for longer than the server keeps them, as those of a laptop that slept."""
    with seen_again(pages) as seconds:
        way.cut()
        are_cut_off(pages)
        wait_for(
            "pages that the server has forgotten", lambda: not any(kept(server, page) for page in pages), 300
        )
        way.lead(server.https_port)
        took = seconds()
    print(f"six pages were live {took:.1f} s after the way was open")


def test_pages_go_on_at_another_server_that_runs_beside_theirs(
    way: Detour, server: SecureServer, pages: list[Page], etcd_server: Etcd, catalog_url: str, tmp_path: Path
) -> None:
    """Put two servers behind one address, as behind a proxy: connections that are open stay where they are, and
    the page that seeks its server is answered by one that has not drawn it."""
    other = SecureServer(tmp_path, etcd_server, KEYSPACE, catalog_url, {})
    try:
        other.start()
        with seen_again(pages) as seconds:
            way.lead(other.https_port)
            assert all(kept(server, page) for page in pages)
            assert not any(kept(other, page) for page in pages)
            server.kill()
            took = seconds()
        assert all(kept(other, page) for page in pages)
        print(f"six pages were live at the other server {took:.1f} s after theirs was killed")
    finally:
        other.stop()
