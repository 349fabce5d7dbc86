"""The console where users log in: each sees and does what was granted, and a socket is its session's alone."""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from app.console import actions
from app.console.feed import PartitionFeed
from app.console.fragments import render
from app.console.shared import Site
from app.console.viewer import Viewer, may_use, renewed, viewing
from app.console.zone_states import node_loads
from app.requests.context import Login, Proof
from app.security.console_login import SESSION_COOKIE
from app.security.policy import PageControl
from app.security.token_secrets import new_secret
from catalog.core.audit import Actor, AuditFilter, Channel
from catalog.core.authorisation import Caller
from catalog.core.credentials import LIFETIME_US, TokenRequest, csrf_of, issue, scope_of
from catalog.core.errors import RefusedError
from tests.fixtures.access_world import bearer
from tests.fixtures.console_browser import LOGIN_PATH, ConsoleBrowser
from tests.fixtures.console_socket import PageSocket, SentPage, button_in, field_in
from tests.fixtures.known_users import user_of
from tests.fixtures.open_console import OpenConsole, open_console

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIDDEN = ("SESSIONS", "REFERENCE", "TELEMETRY")
"""Zones that vera does not see; she sees ORDERS."""
NODE = "/console/nodes/n2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenConsole]:
    async with open_console(tmp_path_factory.mktemp("console")) as opened:
        yield opened


async def text_of(browser: ConsoleBrowser, path: str) -> str:
    answer = await browser.open(path)
    assert answer.status_code == 200, path
    return html.unescape(html.unescape(answer.text.replace("\\", "")))


async def ask_to_drain(socket: PageSocket) -> None:
    """Up to the last question."""
    drain = button_in(socket.elements, "Drain")
    assert drain is not None
    before = set(socket.elements)
    await socket.click(drain)
    await socket.wait(lambda: any(one.get("tag") == "q-card" for one in new_since(socket, before)))
    await socket.type_into(field_in(socket.elements, "Reason"), "new disks")


def new_since(socket: PageSocket, before: set[str]) -> list[dict[str, object]]:
    return [element for number, element in socket.elements.items() if number not in before]


def sure_in(socket: PageSocket) -> int:
    """The button of the dialog, which is made after the page's."""
    named = [
        int(number)
        for number, element in socket.elements.items()
        if element.get("tag") == "q-btn" and element["props"].get("label") == "Drain"
    ]
    return max(named)


@pytest.mark.parametrize(
    "path",
    ["", "zones", "map", "operations", "nodes", "nodes/n2", "rebalance", "recovery", "zones/ORDERS", "sql"],
)
async def test_pages_show_the_zones_that_one_sees(console: OpenConsole, path: str) -> None:
    async with console.browser("vera") as browser:
        text = await text_of(browser, f"/console/{path}")
        assert "cannot be drawn" not in text
        assert [zone for zone in HIDDEN if zone in text] == []


async def test_the_shared_arrays_are_each_viewers_own_part(console: OpenConsole) -> None:
    feed = site_of(console).feed
    running = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(60):
            while len(feed.grids) < 1 + len(HIDDEN) or feed.unread:
                feed.watch()
                await asyncio.sleep(0.05)
        zone_id = (await console.services.zones.find("ORDERS")).zone_id
        held = sum(load.replicas for load in node_loads(feed.grids).values())
        with viewing(await viewer_of(console, "vera")):
            assert set(feed.grids) == set(feed.intents) == {zone_id}
            assert 0 < sum(load.replicas for load in node_loads(feed.grids).values()) < held
            # In what the page begins, too.
            assert await asyncio.create_task(keys_of(feed)) == {zone_id}
        with viewing(await viewer_of(console, "nora")):
            assert not feed.grids
            assert not feed.intents
        with viewing(await viewer_of(console, "olga")):
            assert len(feed.grids) == len(feed.intents) == 1 + len(HIDDEN)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def keys_of(feed: PartitionFeed) -> set[int]:
    return set(feed.grids)


async def test_a_viewer_is_renewed_with_the_grants_of_now(console: OpenConsole) -> None:
    """Each event and each timer of an open page renews its viewer; after a logout that is refused."""
    await console.run("CREATE USER rosa")
    async with console.browser("rosa") as browser:
        login = await console.sessions.login(browser.cookies[SESSION_COOKIE])
        before = Viewer(login, await console.sessions.access.grants(), Actor("rosa", True))
        await console.run("GRANT operator TO rosa")
        async with asyncio.timeout(60):
            while (await renewed(before, console.sessions)).rights == before.rights:
                await asyncio.sleep(0.05)
        with viewing(await renewed(before, console.sessions)):
            assert may_use(PageControl.DRAIN_NODE)
        with viewing(before):
            assert not may_use(PageControl.DRAIN_NODE)
        await browser.send("/console/logout", csrf_of(browser.cookies[SESSION_COOKIE]))
        with pytest.raises(RefusedError):
            await renewed(before, console.sessions)


async def test_whoever_sees_all_zones_is_shown_them(console: OpenConsole) -> None:
    async with console.browser("olga") as browser:
        text = await text_of(browser, "/console/zones")
        assert all(zone in text for zone in ("ORDERS", *HIDDEN))


@pytest.mark.parametrize(
    "path",
    [
        "zones/{}",
        "zones/{}/partitions/1",
        "map?zone={}",
        "recovery?zone={}",
        "operations?zone={}",
        "operations/begun?zone={}&after=0",
    ],
)
async def test_a_zone_that_one_does_not_see_is_not_there(console: OpenConsole, path: str) -> None:
    async with console.browser("vera") as browser:
        for name in ("SESSIONS", "NOWHERE"):
            assert f'zone "{name}" does not exist' in await text_of(browser, f"/console/{path.format(name)}")


async def test_an_operation_of_a_hidden_zone_is_not_there(console: OpenConsole) -> None:
    async with console.browser("olga") as operator, console.browser("vera") as viewer:
        zone = await console.services.zones.find("TELEMETRY")
        listed = await text_of(operator, "/console/operations?zone=TELEMETRY")
        name = next(f"{zone.zone_id}-{n}" for n in range(10_000) if f'operations/{zone.zone_id}-{n}"' in listed)
        assert "there is no operation" not in await text_of(operator, f"/console/operations/{name}")
        assert f"there is no operation {name}" in await text_of(viewer, f"/console/operations/{name}")


async def test_a_page_that_one_may_not_see_says_what_is_missing(console: OpenConsole) -> None:
    async with console.browser("vera") as browser:
        for path in ("audit", "plan", "what-if"):
            assert "A privilege is missing" in await text_of(browser, f"/console/{path}")
        text = await text_of(browser, "/console/zones")
        assert '"/console/nodes"' in text
        assert [path for path in ("audit", "plan", "what-if") if f'"/console/{path}"' in text] == []
    async with console.browser("nora") as browser:
        for path in ("nodes", "recovery", "alerts"):
            assert "needs SEE ON SYSTEM" in await text_of(browser, f"/console/{path}")


async def test_controls_that_one_may_not_use_are_not_shown(console: OpenConsole) -> None:
    shown = {
        "nodes/n2": ("Drain", "Check whether it can stop"),
        "zones/ORDERS": ("Pause moves",),
        "rebalance": ("Pause all moves", "Set limits"),
    }
    async with console.browser("olga") as operator, console.browser("vera") as viewer:
        for path, labels in shown.items():
            pages = [SentPage.of((await one.open(f"/console/{path}")).text) for one in (operator, viewer)]
            for label in labels:
                assert [page.button(label) is not None for page in pages] == [True, False], label
        assert "CREATE ZONE orders" not in await text_of(viewer, "/console/zones/ORDERS")
        # It is down: there is nothing that it could serve until it has moved.
        dead = await operator.open("/console/nodes/n7")
        assert SentPage.of(dead.text).button("Drain") is None
        assert "zonectl node drain n7" in dead.text
        assert "Plan the drain" not in dead.text
        assert "Plan the drain" not in (await viewer.open("/console/nodes/n2")).text
        assert "Alter in the SQL editor" not in await text_of(viewer, "/console/zones/ORDERS")


Deed = Callable[[Site], Awaitable[object]]
DEEDS: dict[str, Deed] = {
    "drain": lambda site: actions.drain(site, "n2", "vera", "why"),
    "undrain": lambda site: actions.undrain(site, "n8", "vera", "why"),
    "stop check": lambda site: actions.stop_check(site, "n2"),
    "limits": lambda site: actions.change_limits(site, {"cluster_moves": 1, "reason": "why"}),
    "silence": lambda site: actions.silence_alerts(site, ("NodeDown", ()), 60, "vera", "why"),
    "end silence": lambda site: actions.end_silence(site, "5a3c0c62d6f1b8e4", "vera", "why"),
    "pause zone": lambda site: actions.pause_zone(site, "ORDERS", "vera", "why"),
    "resume zone": lambda site: actions.resume_zone(site, "ORDERS", "vera", "why"),
    "activate": lambda site: actions.activate_zone(site, "ORDERS", "vera", "why"),
    "deactivate": lambda site: actions.deactivate_zone(site, "ORDERS", "vera", "why"),
    "reset lost": lambda site: actions.reset_lost_partitions(site, "ORDERS", "vera", "why"),
    "reset": lambda site: actions.reset_partitions(site, "ORDERS", {"dry_run": True}),
    "audit": lambda site: actions.audit(site, {"subject": "", "by": "", "action": ""}, None),
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_what_a_control_asks_for_is_authorised_again(console: OpenConsole, deed: str) -> None:
    """A page that was forged asks for what its viewer may not do."""
    with viewing(await viewer_of(console, "vera")), pytest.raises(RefusedError) as refused:
        await DEEDS[deed](site_of(console))
    assert refused.value.kind.name == "PRIVILEGE_MISSING"


@pytest.mark.parametrize(
    "act",
    [
        actions.pause_operation,
        actions.resume_operation,
        actions.cancel_operation,
        actions.reverse_operation,
    ],
)
@pytest.mark.parametrize(
    ("zone", "name"), [("ORDERS", "PRIVILEGE_MISSING"), ("SESSIONS", "OPERATION_NOT_FOUND")]
)
async def test_operations_are_authorised_by_their_zone(
    console: OpenConsole, act: Callable[[Site, str, str, str], Awaitable[str]], zone: str, name: str
) -> None:
    zone_id = (await console.services.zones.find(zone)).zone_id
    with viewing(await viewer_of(console, "vera")), pytest.raises(RefusedError) as refused:
        await act(site_of(console), f"{zone_id}-1", "vera", "why")
    assert refused.value.kind.name == name


def site_of(console: OpenConsole) -> Site:
    return Site(console.services, PartitionFeed(console.services.mirror, console.services.views.keyspace))


async def viewer_of(console: OpenConsole, name: str) -> Viewer:
    caller = Caller(await user_of(console.world.catalog, name))
    grants = await console.sessions.access.grants()
    return Viewer(Login(caller, Proof.SESSION), grants, Actor(name, True, Channel.CONSOLE, caller=caller))


async def test_a_change_is_of_who_has_logged_in(console: OpenConsole) -> None:
    """The actor of a change is the user who has logged in, whatever the field of the name was made to say."""
    async with console.browser("olga") as browser, console.page(browser, NODE) as socket:
        await ask_to_drain(socket)
        await socket.type_into(field_in(socket.elements, "Your name"), "somebody else")
        await socket.click(sure_in(socket))
        # Told when all of it is done.
        await socket.wait(lambda: any(message["name"] == "notify" for message in socket.received))
        assert console.services.views.drains()["n2"].by == "olga"
    (record,) = await console.world.catalog.audit(AuditFilter(action="DRAIN NODE", subject="n2"), 5)
    actor = record.entry.actor
    assert (actor.name, actor.verified, actor.channel.name) == ("olga", True, "CONSOLE")
    assert actor.address == "192.0.2.1"


async def test_another_users_page_takes_no_event(console: OpenConsole) -> None:
    """A user who has learned the id of another's page cannot speak for it with a socket of the own page."""
    path = "/console/nodes/n3"
    async with (
        console.browser("olga") as browser,
        console.browser("vera") as other,
        console.page(browser, path) as socket,
        console.page(other, path) as foreign,
    ):
        drain, client_id = button_in(socket.elements, "Drain"), socket.client_id
        assert drain is not None
        foreign.elements |= socket.elements
        for _ in range(3):
            await foreign.click(drain, client_id=client_id)
            await foreign.emit("ack", {"client_id": client_id, "next_message_id": 10_000})
            await foreign.emit("handshake", {"client_id": client_id, "tab_id": "x", "document_id": "x"})
        # The own page answers still, and shows one dialog: its own.
        await socket.click(drain)
        await socket.wait(lambda: dialogs_in(socket) > 0)
        assert dialogs_in(socket) == 1
        assert dialogs_in(foreign) == 0


def dialogs_in(socket: PageSocket) -> int:
    return sum(one.get("tag") == "q-card" for one in socket.elements.values())


async def test_a_socket_is_not_opened_for_a_page_of_another_session(console: OpenConsole) -> None:
    """Refused for a page of another user, and for one of another login of the same user."""
    async with console.browser("olga") as browser, console.browser("vera") as other:
        page = SentPage.of((await browser.open(NODE)).text)
        own = SentPage.of((await other.open(NODE)).text)
        async with console.browser("olga") as again:
            for cookies in (other.cookies, again.cookies):
                socket = await PageSocket.opened(console.app, cookies, page)
                assert not socket.is_open
                await socket.close()
        socket = await PageSocket.opened(console.app, other.cookies, own, client_id=page.client_id)
        assert not socket.is_open
        await socket.close()
        socket = await PageSocket.opened(console.app, browser.cookies, page)
        assert socket.is_open
        await socket.close()


async def test_a_socket_needs_a_session_and_the_own_origin(console: OpenConsole) -> None:
    async with console.browser("olga") as browser:
        page = SentPage.of((await browser.open(NODE)).text)
        for cookies, origin in (
            ({}, ""),
            ({SESSION_COOKIE: "zks_made-up"}, ""),
            (browser.cookies, "https://elsewhere.example"),
            (browser.cookies, "null"),
        ):
            socket = await PageSocket.opened(console.app, cookies, page, origin=origin)
            assert not socket.is_open
            await socket.close()
        polled = await browser.http.get("/console/_nicegui_ws/socket.io/?EIO=4&transport=polling")
        assert polled.status_code == 400


async def test_a_link_of_the_api_opens_the_console_once(console: OpenConsole) -> None:
    secret, scoped, short = await tokens_of(console, "olga")
    async with ConsoleBrowser(console.app) as browser:
        answers = [
            await browser.http.post("/api/v1/console-links", json={}, headers=bearer(token))
            for token in (secret, scoped, short)
        ]
        assert [answer.status_code for answer in answers] == [201, 403, 403]
        assert {answer.json()["name"] for answer in answers[1:]} == {"TOKEN_TOO_BROAD"}
        assert answers[0].headers["cache-control"] == "no-store"
        path, _, link = answers[0].json()["path"].partition("#")
        assert path == LOGIN_PATH
        assert (await browser.log_in(link=link)).json() == {"user": "olga"}
        assert (await browser.log_in(link=link)).status_code == 401
    (record, *_) = await console.world.catalog.audit(AuditFilter(action="CREATE CONSOLE LINK"), 5)
    assert (record.entry.actor.name, record.entry.subject) == ("olga", "olga")
    assert link not in str(record)


async def tokens_of(console: OpenConsole, user: str) -> tuple[str, str, str]:
    """One with all that the user may, one with a scope, and one that ends before a session would."""
    now_us = time.time_ns() // 1_000
    requests = (TokenRequest(), TokenRequest(scope_of("SEE ON ALL ZONES")), TokenRequest(None, LIFETIME_US))
    secrets = tuple(new_secret() for _ in requests)
    owner = await user_of(console.world.catalog, user)
    for secret, request in zip(secrets, requests, strict=True):
        await console.world.catalog.add_token(issue(request, owner, secret, now_us))
    return secrets[0], secrets[1], secrets[2]


async def test_names_of_users_are_escaped() -> None:
    """Names of the catalog's users have no such characters; an issuer's may."""
    name = '"><img src=x onerror=alert(1)>'
    shown = render("account", user=name, roles=[name], ends="2026-01-01", csrf="'\"><b>")
    assert "<img" not in shown
    assert "<b>" not in shown


async def test_a_page_is_kept_for_the_session_that_it_was_drawn_for(console: OpenConsole) -> None:
    """A page that is not kept is loaded anew. The answer is 410 alike for an unknown page, for one of another
    session, and for one whose user has lost the role; 204 says that it is kept."""
    await console.run("CREATE USER kim")
    await console.run("GRANT viewer TO kim")
    async with console.browser("kim") as browser, console.browser("olga") as other:
        page = SentPage.of((await browser.open("/console/zones")).text)
        kept = f"/console/_nicegui/kept/{page.client_id}"
        assert (await browser.open(kept)).status_code == 204
        assert (await other.open(kept)).status_code == 410
        assert (await browser.open("/console/_nicegui/kept/unknown")).status_code == 410
        await console.run("REVOKE viewer FROM kim")
        async with asyncio.timeout(60):
            while (await browser.open(kept)).status_code == 204:
                await asyncio.sleep(0.05)
        assert (await browser.open(kept)).status_code == 410
    await console.run("DROP USER kim")


async def test_a_user_of_one_zone_sees_it_its_partitions_and_operations(console: OpenConsole) -> None:
    """And the SQL page; nothing of other zones, and not the system."""
    await console.run("CREATE USER zoe")
    await console.run("GRANT SEE ON ZONE orders TO zoe")
    own = ("zones", "zones/ORDERS", "zones/ORDERS/partitions/3", "map?zone=ORDERS", "operations", "sql")
    async with console.browser("zoe") as browser:
        for path in own:
            page = await text_of(browser, f"/console/{path}")
            assert "A privilege is missing" not in page, path
            assert path == "sql" or "ORDERS" in page, path
            assert not [zone for zone in HIDDEN if zone in page], path
        assert 'zone "SESSIONS" does not exist' in await text_of(browser, "/console/zones/SESSIONS")
        for path in ("nodes", "rebalance", "alerts", "recovery", "plan"):
            assert "A privilege is missing" in await text_of(browser, f"/console/{path}"), path
        overview = await text_of(browser, "/console/")
        assert "needs SEE ON SYSTEM" not in overview
        for shown in (
            "State of the zones that you may see",
            "partitions in <strong>1</strong> zones",
            "ORDERS",
        ):
            assert shown in overview, shown
        of_the_system = (
            "Metastore",
            "Controller",
            "Spark",
            "controller-1",
            "8 alive",
            "Alerts",
            "Recent changes",
        )
        assert [fact for fact in (*HIDDEN, *of_the_system) if fact in overview] == []
    async with console.browser("nora") as browser:
        assert "There is no zone that you may see." in await text_of(browser, "/console/")
    await console.run("DROP USER zoe")
