"""A real browser at the console of a real ``zonectl serve``: logins, links, logouts, and what a REVOKE
does to an open page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.security.console_login import SESSION_COOKIE
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.console_stage import WAIT_MS, Chromium
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import SecureServer, password_of, serving_securely

ADMIN, VIEWER, OPERATOR = "the-administrator", "the-viewer", "the-operator"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("console-login")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-console-login/"), url) as opened:
        yield opened


@pytest.fixture
def context(chromium: Chromium) -> Iterator[BrowserContext]:
    """A browser without cookies, which takes the test's authority for a good one."""
    opened = chromium.browser.new_context(ignore_https_errors=True)
    opened.set_default_timeout(WAIT_MS)
    yield opened
    opened.close()


def log_in(
    page: Page, server: SecureServer, user: str, password: str | None = None, path: str = "zones"
) -> None:
    page.goto(f"{server.url}/console/{path}")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password_of(user) if password is None else password)
    page.get_by_role("button", name="Log in").click()


def expect_open(page: Page, user: str) -> None:
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    expect(page.get_by_text(user, exact=True)).to_be_visible()
    page.wait_for_function("window.socket?.connected")


def run(server: SecureServer, sql: str) -> httpx.Response:
    with server.client(ADMIN) as client:
        return client.post("/api/v1/statements", json={"sql": sql}).raise_for_status()


def test_a_user_logs_in_looks_and_logs_out(server: SecureServer, context: BrowserContext) -> None:
    page = context.new_page()
    log_in(page, server, VIEWER, "a wrong password")
    expect(page.get_by_role("alert").first).to_contain_text("not right")
    page.get_by_label("Password").fill(password_of(VIEWER))
    page.get_by_role("button", name="Log in").click()
    expect_open(page, VIEWER)
    assert page.url == f"{server.url}/console/zones"
    assert "__Host" not in page.evaluate("document.cookie")
    (session,) = [cookie for cookie in context.cookies() if cookie["name"] == SESSION_COOKIE]
    assert (session["httpOnly"], session["secure"], session["sameSite"]) == (True, True, "Lax")
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.goto(f"{server.url}/console/nodes")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert password_of(VIEWER) not in server.log_text
    assert session["value"] not in server.log_text


def test_a_link_logs_in_once_and_leaves_no_trace(server: SecureServer, context: BrowserContext) -> None:
    with server.client(OPERATOR) as client:
        path = client.post("/api/v1/console-links", json={}).raise_for_status().json()["path"]
    sent: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: sent.append(request.url))
    page.goto(f"{server.url}{path}")
    expect_open(page, OPERATOR)
    secret = path.partition("#")[2]
    assert secret not in page.url
    assert [url for url in sent if secret in url.partition("#")[0]] == []
    assert secret not in server.log_text
    context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"{server.url}{path}")
    expect(page.get_by_role("alert").first).to_contain_text("was used")


def test_a_link_logs_in_where_the_login_page_is_shown_already(
    server: SecureServer, context: BrowserContext
) -> None:
    """The browser loads nothing then."""
    page = context.new_page()
    page.goto(f"{server.url}/console/login")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    with server.client(OPERATOR) as client:
        path = client.post("/api/v1/console-links", json={}).raise_for_status().json()["path"]
    page.goto(f"{server.url}{path}")
    expect_open(page, OPERATOR)
    assert path.partition("#")[2] not in page.url


def test_a_page_is_drawn_anew_when_rights_change(server: SecureServer, context: BrowserContext) -> None:
    run(server, "CREATE USER carla WITH PASSWORD 'carla has a long password'; GRANT viewer TO carla")
    page = context.new_page()
    log_in(page, server, "carla", "carla has a long password", path="nodes")
    expect_open(page, "carla")
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    run(server, "GRANT AUDIT ON SYSTEM TO carla")
    expect(page.get_by_role("link", name="Audit")).to_be_visible()
    expect_open(page, "carla")
    run(server, "REVOKE viewer FROM carla")
    expect(page.get_by_text("A privilege is missing")).to_be_visible()
    run(server, "DROP USER carla")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_page_without_its_socket_sees_the_end_of_its_session(
    server: SecureServer, context: BrowserContext
) -> None:
    """Log a page out at the end of its session though, without a socket, it gets no message of that."""
    run(server, "CREATE USER dora WITH PASSWORD 'dora has a long password'; GRANT viewer TO dora")
    page = context.new_page()
    page.route_web_socket("**/_nicegui_ws/**", lambda socket: socket.close())
    log_in(page, server, "dora", "dora has a long password")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    run(server, "DROP USER dora")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_change_of_the_console_is_audited_with_its_user(
    server: SecureServer, context: BrowserContext
) -> None:
    page = context.new_page()
    log_in(page, server, OPERATOR, path="rebalance")
    expect_open(page, OPERATOR)
    page.get_by_role("button", name="Pause all moves").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Your name")).to_have_value(OPERATOR)
    expect(dialog.get_by_label("Your name")).to_be_disabled()
    dialog.get_by_label("Reason").fill("a test")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    with server.client(ADMIN) as client:
        record = client.get("/api/v1/audit", params={"action": "CHANGE LIMITS"}).json()["records"][0]
    shown = (record["by"], record["verified"], record["channel"], record["reason"])
    assert shown == (OPERATOR, True, "CONSOLE", "a test")
