"""Every page in Chromium as each ready role, as a user without one, and without a login: it shows what the
lists of the tests say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from tests.fixtures.console_pages import faults
from tests.fixtures.console_stage import WAIT_MS, Chromium
from tests.fixtures.login_stage import LoginStage, login_stage
from tests.fixtures.page_walk import (
    MADE_LATER,
    REFUSED,
    addresses,
    expected_controls,
    may_open,
)
from tests.fixtures.privilege_model import HELD

pytestmark = pytest.mark.timeout(1_200)

ADMINISTRATOR = "the-administrator"
NAVIGATED = (
    *("zones", "map", "nodes", "operations", "recovery", "alerts"),
    *("rebalance", "plan", "sql", "what-if", "audit", "users"),
)
CONTROLS = """() => [...document.querySelectorAll('.q-btn, a.action')]
  .filter((one) => one.checkVisibility()).map((one) => one.innerText.trim())"""

IN_EACH_RUN = "the-operator"
"""User of each run; ``tests/unit/console/test_role_pages.py`` walks as each of them without a browser."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginStage]:
    with login_stage(tmp_path_factory.mktemp("login-stage")) as opened:
        yield opened


@contextmanager
def opened_page(chromium: Chromium) -> Iterator[Page]:
    """Page of a browser without cookies. Fails when a script broke or the page's policy stopped something."""
    context = chromium.browser.new_context(ignore_https_errors=True, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    page, errors = context.new_page(), list[str]()

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            errors.append(message.text)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", note)
    yield page
    context.close()
    assert errors == []


@contextmanager
def logged_in(chromium: Chromium, stage: LoginStage, user: str) -> Iterator[Page]:
    with opened_page(chromium) as page:
        page.goto(stage.link(user))
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        yield page


def controls(page: Page, url: str) -> frozenset[str]:
    page.goto(url)
    page.wait_for_function("window.socket?.connected")
    return frozenset(page.evaluate(CONTROLS))


def operation_of(page: Page, stage: LoginStage) -> str:
    page.goto(f"{stage.url}operations?zone=ORDERS")
    address = page.locator("a[href*='/console/operations/']").first.get_attribute("href")
    assert address is not None
    return address.rpartition("/")[2]


@pytest.mark.thorough("unit/console/test_role_pages has each role and control")
@pytest.mark.parametrize(
    "user", [user if user == IN_EACH_RUN else pytest.param(user, marks=pytest.mark.soak) for user in HELD]
)
@pytest.mark.slow("each page in a browser")
def test_each_page_shows_each_role_its_controls(chromium: Chromium, stage: LoginStage, user: str) -> None:
    wrong: list[tuple[str, str, object]] = []
    with logged_in(chromium, stage, ADMINISTRATOR) as page:
        operation = operation_of(page, stage)
    with logged_in(chromium, stage, user) as page:
        for address in addresses():
            shown = controls(page, stage.url + address.format(operation=operation))
            if address in MADE_LATER and may_open(user, address):
                expect(page.get_by_role("heading", name=re.compile("replicas to copy"))).to_be_visible()
                shown = frozenset(page.evaluate(CONTROLS))
            refusal = page.get_by_text("A privilege is missing").count()
            if shown != expected_controls(user, address) or refusal != (shown == REFUSED):
                wrong.append((user, address, sorted(shown ^ expected_controls(user, address))))
        steps = (
            page.get_by_role("navigation")
            .get_by_role("link")
            .evaluate_all("links => links.map((link) => link.pathname.split('/')[2])")
        )
        if {step for step in steps if step} != {step for step in NAVIGATED if may_open(user, step)}:
            wrong.append((user, "navigation", steps))
    print(f"{len(addresses())} pairs of page and role")
    assert wrong == []


def test_nobody_is_shown_the_login_page_alone(chromium: Chromium, stage: LoginStage) -> None:
    with opened_page(chromium) as page:
        for address in addresses():
            page.goto(stage.url + address.format(operation="1-1"))
            expect(page.get_by_role("heading", name="Log in to Zonekeeper")).to_be_visible()
            assert page.get_by_role("button").all_inner_texts() == ["Log in"]


@pytest.mark.thorough("test_login_page and test_pages look at forms and grids")
@pytest.mark.parametrize("address", ["users", "account"])
def test_pages_of_logins_have_no_serious_fault(chromium: Chromium, stage: LoginStage, address: str) -> None:
    with logged_in(chromium, stage, ADMINISTRATOR) as page:
        for theme in ("light", "dark"):
            controls(page, stage.url + address)
            expect(page.get_by_role("region", name="Sessions").get_by_role("row").last).to_be_visible()
            page.get_by_title("Your account").click()
            expect(page.get_by_text("Roles: administrator")).to_be_visible()
            assert faults(page) == [], theme
            page.get_by_role("button", name="Switch between light and dark").click()


def test_a_user_is_made_and_dropped_in_dialogs(chromium: Chromium, stage: LoginStage) -> None:
    """Make and drop a user by keyboard as far as the fields go; the choices are those of the catalog."""
    with logged_in(chromium, stage, ADMINISTRATOR) as page:
        controls(page, f"{stage.url}users")
        page.get_by_role("button", name="New user").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill("Ida")
        expect(dialog.get_by_label("Password")).to_have_attribute("autocomplete", "new-password")
        expect(dialog.get_by_label("Password")).to_have_attribute("type", "password")
        dialog.get_by_label("Password").fill("a long enough password")
        # While it is being opened its colours are not there yet.
        assert [fault for fault in faults(page, ".ask") if not fault.startswith("color-contrast")] == []
        dialog.get_by_label("Reason").fill("a test")
        dialog.get_by_label("Reason").press("Enter")
        expect(page.get_by_text("CREATE USER ida PASSWORD '********'")).to_be_visible()
        expect(page.get_by_role("region", name="Users").get_by_role("gridcell", name="ida")).to_be_visible()
        page.get_by_role("button", name="Drop user").click()
        dialog.get_by_label("User", exact=True).click()
        page.get_by_role("option", name="ida").click()
        dialog.get_by_label("Reason").fill("a test")
        dialog.get_by_role("button", name="Drop user").click()
        expect(page.get_by_role("region", name="Users").get_by_role("gridcell", name="ida")).to_have_count(0)
