"""A real page of another origin in Chromium, and one whose name is made to mean the server's address: neither
changes or reads anything of a real ``zonectl serve``, nor opens or frames its console."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, CDPSession, Page, Request, Route, expect, sync_playwright

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.console_stage import (
    CHROMIUM_FLAGS,
    START_MS,
    WAIT_MS,
    Visit,
    find_chromium,
    is_dropped,
    load,
)
from tests.fixtures.databases import new_database
from tests.fixtures.etcd_server import Etcd

pytestmark = pytest.mark.timeout(600)

FOREIGN_NAME = "evil.test"
FENCE_OFF = "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"
PAGE = b"<!doctype html><title>elsewhere</title><p>elsewhere"
SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport="

TRY_FETCH = """async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return answer.type === 'opaque' ? 'opaque' : `${answer.status} ${await answer.text()}`;
  } catch (error) {
    return `${error}`;
  }
}"""
TRY_SOCKET = """(url) => new Promise((resolve) => {
  const socket = new WebSocket(url);
  socket.onmessage = (event) => resolve(`message ${event.data}`);
  socket.onopen = () => resolve('open');
  socket.onerror = () => resolve('refused');
})"""
TRY_FORM = """([url, type, name, value]) => {
  const form = Object.assign(document.createElement('form'), {action: url, method: 'POST', enctype: type});
  form.append(Object.assign(document.createElement('input'), {name, value}));
  document.body.append(form);
  form.submit();
}"""
TRY_FRAME = """(url) => new Promise((resolve) => {
  const frame = document.createElement('iframe');
  frame.onload = () => resolve(null);
  frame.src = url;
  document.body.append(frame);
})"""


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    directory: Path = tmp_path_factory.mktemp("origins")
    url = new_database(request, "sqlite", directory)
    with serving(directory, etcd_server, Keyspace("test-origins/"), url) as servers:
        yield servers[0]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """The port of a server of nothing but a page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield listening.server_address[1]
        listening.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Browser for which the foreign name is an address of this machine."""
    with sync_playwright() as playwright:
        # The check of addresses is one more fence, which not every browser has.
        flags = [*CHROMIUM_FLAGS, f"--host-resolver-rules=MAP {FOREIGN_NAME} 127.0.0.1", FENCE_OFF]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags, timeout=START_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """One for all attacks: each begins on another address."""
    return browser.new_page()


@dataclass
class Attack:
    """A page, and what the server has answered to it: the page itself may not see that."""

    page: Page
    url: str
    """The server's, as the page calls it."""
    network: CDPSession
    dropped: list[str] = field(default_factory=list)
    """Addresses that were not asked because a network of the machine changed."""
    sent: dict[str, str] = field(default_factory=dict)
    """Addresses by the browser's number of the request."""
    answers: list[tuple[str, int]] = field(default_factory=list)

    @property
    def statuses(self) -> list[int]:
        """Statuses of the server's answers alone, as the page's own host answers, too."""
        return [status for number, status in self.answers if self.sent.get(number, "").startswith(self.url)]

    def fetch(self, path: str, **options: Any) -> str:
        """Send a request from the page and return what the page sees of its answer; one that did not go out is
        sent again."""
        while True:
            self.dropped.clear()
            answer = str(self.page.evaluate(TRY_FETCH, [f"{self.url}{path}", options]))
            if not self.dropped:
                return answer

    def note_failure(self, request: Request) -> None:
        if is_dropped(request):
            self.dropped.append(request.url)

    def end(self) -> None:
        self.page.remove_listener("requestfailed", self.note_failure)
        self.network.detach()

    def refused(self) -> bool:
        """Every request since the last look; there is one, of which the browser tells a little later."""
        deadline = time.monotonic() + WAIT_MS / 1000
        while not self.statuses and time.monotonic() < deadline:
            self.page.wait_for_timeout(20)
        statuses = self.statuses
        self.answers.clear()
        return bool(statuses) and set(statuses) == {403}


def attack_from(page: Page, address: str, url: str) -> Attack:
    page.set_default_timeout(WAIT_MS)
    load(page, address)
    # Of all answers, those included that the browser keeps from the page.
    network = page.context.new_cdp_session(page)
    attack = Attack(page, url, network)
    page.on("requestfailed", attack.note_failure)
    network.send("Network.enable")
    network.on(
        "Network.requestWillBeSent",
        lambda event: attack.sent.update({event["requestId"]: event["request"]["url"]}),
    )
    network.on(
        "Network.responseReceivedExtraInfo",
        lambda event: attack.answers.append((event["requestId"], event["statusCode"])),
    )
    return attack


@pytest.fixture(params=["127.0.0.1", "localhost", FOREIGN_NAME])
def foreign(request: pytest.FixtureRequest, page: Page, server: ApiServer, elsewhere: int) -> Iterator[Attack]:
    """A page of another port, of another name of this machine, and of a stranger's."""
    attack = attack_from(page, f"http://{request.param}:{elsewhere}/", server.url)
    yield attack
    attack.end()


@pytest.fixture
def rebound(page: Page, server: ApiServer) -> Iterator[Attack]:
    """A page that came from a stranger's server, whose name means this server's address from then on: the
    browser takes both for one origin."""
    url = f"http://{FOREIGN_NAME}:{server.port}"

    def before(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body=PAGE)

    page.route(f"{url}/start", before)
    attack = attack_from(page, f"{url}/start", url)
    page.unroute_all()
    yield attack
    attack.end()


@pytest.fixture
def zone(server: ApiServer) -> Iterator[str]:
    """One to lose; afterwards everything must be as it was."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        if not client.get("/api/v1/zones").json()["zones"]:
            client.post("/api/v1/statements", json={"sql": "CREATE ZONE prey"}).raise_for_status()
        paths = ("/api/v1/zones", "/api/v1/audit", "/api/v1/rebalance/limits", "/api/v1/nodes")
        before = [client.get(path).json() for path in paths]
        epoch = client.get("/api/v1/metastore").json()["epoch"]
        yield "prey"
        assert [client.get(path).json() for path in paths] == before
        assert client.get("/api/v1/metastore").json()["epoch"] == epoch


def test_a_foreign_page_sends_nothing_that_is_done(foreign: Attack, zone: str) -> None:
    blind = {"method": "POST", "mode": "no-cors", "credentials": "include"}
    for path, body in (
        ("/v1/statement", f"DROP ZONE {zone}"),
        ("/api/v1/statements", f'{{"sql": "DROP ZONE {zone}"}}'),
        ("/api/v1/metastore/adopt", '{"epoch": 1, "kind": "", "reason": ""}'),
        ("/api/v1/metastore/adopt", ""),
        (f"/api/v1/zones/{zone}/recovery/reset", "{}"),
        (f"{SOCKET}polling", "40"),
    ):
        assert foreign.fetch(path, **blind, body=body) == "opaque", path
        assert foreign.refused(), path
    # With the headers that a program sends the browser asks first whether it may.
    for headers in ({"Content-Type": "application/json"}, {"X-Trino-User": "ada"}):
        seen = foreign.fetch("/v1/statement", method="POST", headers=headers, body=f"DROP ZONE {zone}")
        assert "Failed to fetch" in seen
    assert "Failed to fetch" in foreign.fetch("/api/v1/nodes/n1/drain", method="DELETE")


def test_a_foreign_form_is_refused(foreign: Attack, zone: str) -> None:
    start = foreign.page.url
    for path, kind, text in (
        ("/v1/statement", "text/plain", f"DROP ZONE {zone} --"),
        ("/api/v1/statements", "text/plain", f'{{"sql": "DROP ZONE {zone}", "x": "'),
        ("/api/v1/metastore/adopt", "application/x-www-form-urlencoded", "epoch"),
        ("/api/v1/metastore/adopt", "multipart/form-data", "epoch"),
    ):
        load(foreign.page, start)
        with foreign.page.expect_navigation() as sent:
            foreign.page.evaluate(TRY_FORM, [f"{foreign.url}{path}", kind, text, '"}'])
        assert sent.value.status == 403, path
        expect(foreign.page.locator("body")).to_contain_text("ORIGIN_REFUSED")


def test_a_foreign_page_reads_nothing(foreign: Attack, zone: str) -> None:
    for path in ("/api/v1/zones", "/v1/info", "/openapi.json", "/console/", f"{SOCKET}polling"):
        assert "Failed to fetch" in foreign.fetch(path, mode="cors"), path
        assert foreign.refused(), path
        foreign.fetch(path, mode="no-cors")
        assert foreign.refused(), path


def test_a_foreign_page_opens_no_console(foreign: Attack, zone: str) -> None:
    address = f"{foreign.url.replace('http', 'ws')}{SOCKET}websocket"
    assert foreign.page.evaluate(TRY_SOCKET, address) == "refused"
    foreign.page.evaluate(TRY_FRAME, f"{foreign.url}/console/")
    framed = foreign.page.frames[1]
    assert framed.get_by_role("navigation").count() == 0
    assert "chrome-error" in framed.url


def test_a_rebound_name_is_not_the_server(rebound: Attack, zone: str) -> None:
    """The page may send and read what it likes of its own origin."""
    assert rebound.page.url.startswith(rebound.url)
    for path, options in (
        ("/api/v1/zones", {}),
        ("/console/", {}),
        (f"{SOCKET}polling", {}),
        ("/v1/statement", {"method": "POST", "headers": {"X-Trino-User": "a"}, "body": f"DROP ZONE {zone}"}),
        (
            "/api/v1/metastore/adopt",
            {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": "{}"},
        ),
    ):
        seen = rebound.fetch(path, **options)
        assert seen.startswith("403 "), path
        assert "HOST_REFUSED" in seen
        assert zone.upper() not in seen
        assert rebound.refused(), path
    address = f"{rebound.url.replace('http', 'ws')}{SOCKET}websocket"
    assert rebound.page.evaluate(TRY_SOCKET, address) == "refused"


def test_the_servers_own_page_does_all_of_it(page: Page, server: ApiServer) -> None:
    """Do all of it on the server's own page, to show that what is refused above is refused for its origin."""
    own = attack_from(page, f"{server.url}/console/", server.url)
    visit = Visit(page, f"{server.url}/console/")
    page.on("requestfailed", visit.note_failure)
    visit.open("")
    page.remove_listener("requestfailed", visit.note_failure)
    assert own.fetch("/api/v1/zones").startswith("200 ")
    seen = own.fetch("/v1/statement", method="POST", headers={"X-Trino-User": "ada"}, body="SHOW ZONES")
    assert seen.startswith("200 ")
    json = {"Content-Type": "application/json"}
    seen = own.fetch(
        "/api/v1/statements", method="POST", headers=json, body='{"sql": "CREATE ZONE own; DROP ZONE own"}'
    )
    assert seen.startswith("200 ")
    address = f"{server.url.replace('http', 'ws')}{SOCKET}websocket"
    assert own.page.evaluate(TRY_SOCKET, address) != "refused"
    own.end()


def test_the_documentation_works_under_its_policy(browser: Browser, server: ApiServer) -> None:
    """Open the documentation under its policy, without anything from elsewhere."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    complaints: list[str] = []
    outside: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: outside.append(request.url))
    load(page, f"{server.url}/docs")
    expect(page.get_by_text("Run a statement or a script")).to_be_visible()
    assert complaints == []
    assert [each for each in outside if not each.startswith((server.url, "data:"))] == []
    page.context.close()
