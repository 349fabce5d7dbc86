"""Every page and every control as each ready role, drawn and at the socket: as the lists of the tests say."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType

import pytest
import pytest_asyncio

from app.console import actions
from app.console.feed import PartitionFeed
from app.console.operations_page import waiting_of
from app.console.shared import Site
from app.console.viewer import Viewer, viewing
from app.console.zone_grid import HealthCell, MoveCell, PartitionReading, ZoneGrid
from app.console.zone_states import zone_state
from app.requests.context import acting
from app.security.console_login import SESSION_COOKIE
from catalog.core.audit import Actor, AuditFilter, Channel
from catalog.core.errors import StatementError
from tests.fixtures.console_browser import ConsoleBrowser
from tests.fixtures.console_socket import SentPage
from tests.fixtures.open_console import OpenConsole, open_console
from tests.fixtures.page_walk import (
    EVERYWHERE,
    MADE_LATER,
    REFUSED,
    USERS,
    addresses,
    expected_controls,
    may_open,
    shown_controls,
)
from tests.fixtures.privilege_model import HELD, Verdict, expected

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

ADMINISTRATOR = "the-administrator"
Deed = Callable[[Site, str], Awaitable[object]]
"""Action on a site, with the id of an operation."""
DEEDS: dict[Callable[..., object], tuple[str, Deed]] = {
    actions.drain: ("OPERATE ON SYSTEM", lambda site, _: actions.drain(site, "nowhere", "x", "why")),
    actions.remove_node: (
        "OPERATE ON SYSTEM; SEE ON ALL_ZONES",
        lambda site, _: actions.remove_node(site, "nowhere", "x", "why"),
    ),
    actions.undrain: ("OPERATE ON SYSTEM", lambda site, _: actions.undrain(site, "nowhere", "x", "why")),
    actions.stop_check: ("SEE ON SYSTEM; SEE ON ALL_ZONES", lambda site, _: actions.stop_check(site, "n2")),
    actions.change_limits: ("OPERATE ON SYSTEM", lambda site, _: actions.change_limits(site, {"unknown": 1})),
    actions.silence_alerts: (
        "OPERATE ON SYSTEM",
        lambda site, _: actions.silence_alerts(site, ("Nothing", ()), 60, "x", "why"),
    ),
    actions.end_silence: ("OPERATE ON SYSTEM", lambda site, _: actions.end_silence(site, "none", "x", "why")),
    actions.pause_zone: (
        "SEE ON ZONE; OPERATE ON SYSTEM",
        lambda site, _: actions.pause_zone(site, "ORDERS", "x", "why"),
    ),
    actions.resume_zone: (
        "SEE ON ZONE; OPERATE ON SYSTEM",
        lambda site, _: actions.resume_zone(site, "ORDERS", "x", "why"),
    ),
    actions.activate_zone: (
        "OPERATE ON ZONE",
        lambda site, _: actions.activate_zone(site, "ORDERS", "x", "why"),
    ),
    actions.deactivate_zone: (
        "OPERATE ON ZONE",
        lambda site, _: actions.deactivate_zone(site, "ORDERS", "x", "why"),
    ),
    actions.reset_lost_partitions: (
        "RECOVER ON ZONE",
        lambda site, _: actions.reset_lost_partitions(site, "ORDERS", "x", "why"),
    ),
    actions.reset_partitions: (
        "RECOVER ON ZONE",
        lambda site, _: actions.reset_partitions(site, "ORDERS", {"dry_run": True}),
    ),
    actions.pause_operation: (
        "OPERATE ON ZONE",
        lambda site, name: actions.pause_operation(site, name, "", ""),
    ),
    actions.resume_operation: (
        "OPERATE ON ZONE",
        lambda site, name: actions.resume_operation(site, name, "", ""),
    ),
    actions.cancel_operation: (
        "OPERATE ON ZONE",
        lambda site, name: actions.cancel_operation(site, name, "", ""),
    ),
    actions.reverse_operation: (
        "OPERATE ON ZONE; ALTER ON ZONE",
        lambda site, name: actions.reverse_operation(site, name, "", ""),
    ),
    actions.audit: (
        "AUDIT ON SYSTEM",
        lambda site, _: actions.audit(site, {"subject": "", "by": "", "action": ""}, None),
    ),
    actions.partition_states: ("SEE ON ZONE", lambda site, _: actions.partition_states(site, "ORDERS", [0])),
    actions.operations: ("SEE ON ZONE", lambda site, _: actions.operations(site, "ORDERS")),
    actions.operation: ("SEE ON ZONE", lambda site, name: actions.operation(site, name)),
    # Of the pauses, those of zones that one sees.
    actions.limits: ("LOGIN", lambda site, _: actions.limits(site)),
    actions.tokens: ("ADMIN ON SYSTEM", lambda site, _: actions.tokens(site, everybody=True)),
    actions.sessions: ("ADMIN ON SYSTEM", lambda site, _: actions.sessions(site, everybody=True)),
    # Another's is not there.
    actions.revoke_token: ("LOGIN", lambda site, _: actions.revoke_token(site, "none", "x", "why")),
    actions.end_session: ("LOGIN", lambda site, _: actions.end_session(site, "none", "x", "why")),
    actions.run_statement: (
        "ADMIN ON SYSTEM",
        lambda site, _: actions.run_statement(site, "DROP USER nobody"),
    ),
}
"""Actions that pages ask for, each with the privilege that it needs. One that would change a zone or a node is
refused for something else after that."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenConsole]:
    async with open_console(tmp_path_factory.mktemp("roles")) as opened:
        for sql in USERS:
            await opened.run(sql)
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operation(console: OpenConsole) -> str:
    """One that goes on, of the zone ORDERS."""
    async with console.browser(ADMINISTRATOR) as browser:
        listed = (await browser.open("/console/operations?zone=ORDERS")).text
    zone_id = (await console.services.zones.find("ORDERS")).zone_id
    match = re.search(rf"operations/({zone_id}-\d+)", listed)
    assert match is not None
    return match[1]


async def shown(console: OpenConsole, browser: ConsoleBrowser, address: str, path: str) -> frozenset[str]:
    """Controls of a page, with those that it makes later, where it does."""
    async with console.page(browser, f"/console/{path}") as socket:
        first = shown_controls(socket.elements)
        if address in MADE_LATER and first != REFUSED:
            await socket.wait(lambda: "replicas to copy" in str(socket.elements))
        return shown_controls(socket.elements)


async def test_every_control_of_every_page_as_each_role(console: OpenConsole, operation: str) -> None:
    wrong, pairs, labels = [], 0, 0
    for user in HELD:
        async with console.browser(user) as browser:
            for address in addresses():
                controls = await shown(console, browser, address, address.format(operation=operation))
                pairs += 1
                labels += len(controls)
                if controls != expected_controls(user, address):
                    wrong.append((user, address, sorted(controls ^ expected_controls(user, address))))
    print(f"{pairs} pairs of page and role, {labels} controls shown")
    assert wrong == []
    assert pairs == len(HELD) * len(addresses())


async def test_hidden_buttons_and_those_of_other_pages_do_nothing(console: OpenConsole, operation: str) -> None:
    """Events are sent for each button of the administrator's page, and for those of the own page that are not
    shown."""
    before = await state(console)
    forged, opened = 0, []
    async with console.browser(ADMINISTRATOR) as administrator:
        for user in HELD.keys() - {ADMINISTRATOR}:
            async with console.browser(user) as browser:
                for address in addresses():
                    path = f"/console/{address.format(operation=operation)}"
                    foreign = SentPage.of((await administrator.open(path)).text).elements
                    async with console.page(browser, path) as socket:
                        may_press = expected_controls(user, address)
                        own = dict(socket.elements)
                        for number, element in {**foreign, **own}.items():
                            label = element.get("props", {}).get("label")
                            if element.get("tag") == "q-btn" and label not in may_press | EVERYWHERE:
                                await socket.forge(number, element)
                                forged += 1
                        if any(one.get("tag") == "q-card" for one in socket.elements.values()):
                            opened.append((user, address))
    print(f"{forged} forged events")
    assert forged > 100
    assert opened == []
    assert await state(console) == before


async def state(console: OpenConsole) -> object:
    """State that a control could change: the catalog's version, drains, and the number of the newest audit
    record."""
    catalog = await console.world.catalog.snapshot()
    views = console.services.views
    audited = await console.world.catalog.audit(AuditFilter(), 1)
    return catalog.version, views.drains(), [record.number for record in audited]


async def test_every_deed_as_each_role(console: OpenConsole, operation: str) -> None:
    wrong, pairs = [], 0
    site = Site(console.services, PartitionFeed(console.services.mirror, console.services.views.keyspace))
    for user in HELD:
        async with console.browser(user) as browser:
            viewer = await viewer_of(console, browser, user)
            for function, (needs, deed) in DEEDS.items():
                pairs += 1
                with viewing(viewer), acting(viewer.actor.because("a test")):
                    seen = await verdict(deed(site, operation))
                model = expected(HELD[user], needs, "ORDERS", {"ORDERS"})
                if seen is not model:
                    wrong.append((user, function.__name__, seen, model))
    print(f"{pairs} pairs of deed and role")
    assert wrong == []


async def verdict(done: Awaitable[object]) -> Verdict:
    try:
        await done
    except StatementError as error:
        hidden = {"ZONE_NOT_FOUND", "OPERATION_NOT_FOUND"}
        if error.kind.name == "PRIVILEGE_MISSING":
            return Verdict.MISSING
        return Verdict.HIDDEN if error.kind.name in hidden else Verdict.ALLOWED
    return Verdict.ALLOWED


async def viewer_of(console: OpenConsole, browser: ConsoleBrowser, user: str) -> Viewer:
    login = await console.sessions.login(browser.cookies[SESSION_COOKIE])
    actor = Actor(user, True, Channel.CONSOLE, caller=login.caller)
    return Viewer(login, await console.sessions.access.grants(), actor)


def deeds_in(module: ModuleType) -> set[object]:
    functions = inspect.getmembers(module, inspect.iscoroutinefunction)
    return {one for name, one in functions if one.__module__ == module.__name__ and not name.startswith("_")}


async def test_every_deed_and_every_page_is_walked() -> None:
    assert deeds_in(actions) == set(DEEDS)
    assert all(may_open(ADMINISTRATOR, address) for address in addresses())


async def test_causes_tell_nothing_of_zones_that_are_hidden(console: OpenConsole) -> None:
    """Causes are read once, for all pages: a user who sees not all zones gets each cause without its sums."""
    grid, causes = ZoneGrid(3), ("NODE_CAP: n1 4/4 as donor", "NODE_CAP: n2 4/4 as donor", "BATCH: 2 move")
    readings = [PartitionReading((), MoveCell.WAITING, HealthCell.AVAILABLE, cause) for cause in causes]
    grid.place(range(3), readings)
    zone = await console.services.zones.find("ORDERS")
    whole = "OPERATION_RUNS: 9-1 goes first, one at a time"
    for sql in ("CREATE USER paul", "GRANT SEE ON SYSTEM TO paul", "GRANT SEE ON ZONE orders TO paul"):
        await console.run(sql)
    shown = {}
    for user in ("paul", ADMINISTRATOR):
        async with console.browser(user) as browser:
            with viewing(await viewer_of(console, browser, user)):
                listed = [row["cause"] for row in waiting_of(grid)]
                counted = zone_state(zone, grid, "").causes, zone_state(zone, grid, whole).causes
        shown[user] = sorted(listed), sorted(counted[0]), counted[1]
    assert shown[ADMINISTRATOR] == (sorted(causes), sorted((cause, 1) for cause in causes), ((whole, 3),))
    masked = [("BATCH: 2 move", 1), ("NODE_CAP", 2)]
    assert shown["paul"] == ([cause for cause, _ in masked], masked, (("OPERATION_RUNS", 3),))
