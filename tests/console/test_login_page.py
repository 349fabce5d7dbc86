"""The login page in Chromium, as keyboards, password managers and those who read it with help use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.console_pages import faults
from tests.fixtures.console_stage import WAIT_MS, Chromium, Theme
from tests.fixtures.login_stage import LoginStage, login_stage

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginStage]:
    with login_stage(tmp_path_factory.mktemp("login-page")) as opened:
        yield opened


@contextmanager
def login_page(
    chromium: Chromium, stage: LoginStage, theme: Theme = "light", width: int = 1_000
) -> Iterator[Page]:
    """Fails when a script of it broke."""
    size = {"width": width, "height": 700}
    context = chromium.browser.new_context(ignore_https_errors=True, color_scheme=theme, viewport=size)
    context.set_default_timeout(WAIT_MS)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(stage.url)
    yield page
    context.close()
    assert errors == []


@pytest.mark.parametrize(
    "theme", ["light", pytest.param("dark", marks=pytest.mark.thorough("test_pages has both themes"))]
)
def test_it_has_no_serious_fault(chromium: Chromium, stage: LoginStage, theme: Theme) -> None:
    """Labels, contrast, language, landmarks: before a login fails and after."""
    with login_page(chromium, stage, theme) as page:
        assert faults(page) == []
        page.get_by_label("User").fill("nobody")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert").first).to_contain_text("not right")
        assert faults(page) == []


def test_the_keyboard_alone_fills_and_sends_the_form(chromium: Chromium, stage: LoginStage) -> None:
    """Fill and send the login form without a mouse: after a refusal the focus is where the password is typed
    anew."""
    with login_page(chromium, stage) as page:
        user, password = page.get_by_label("User"), page.get_by_label("Password")
        expect(user).to_be_focused()
        page.keyboard.type("the-viewer")
        page.keyboard.press("Tab")
        expect(password).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Log in")).to_be_focused()
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").first).to_contain_text("not right")
        expect(password).to_be_focused()
        expect(password).to_have_accessible_description("the user or the password is not right")


def test_password_managers_know_the_fields(chromium: Chromium, stage: LoginStage) -> None:
    with login_page(chromium, stage) as page:
        expect(page.get_by_label("User")).to_have_attribute("autocomplete", "username")
        password = page.get_by_label("Password")
        expect(password).to_have_attribute("autocomplete", "current-password")
        expect(password).to_have_attribute("type", "password")
        assert page.evaluate("document.querySelectorAll('form').length") == 1


def test_a_refusal_does_not_say_whether_there_is_the_user(chromium: Chromium, stage: LoginStage) -> None:
    texts = set()
    for user in ("the-viewer", "nobody-of-this-name"):
        with login_page(chromium, stage) as page:
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill("wrong")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert").first).not_to_be_empty()
            texts.add(page.get_by_role("main").inner_text())
    assert len(texts) == 1


def test_a_narrow_screen_shows_all_of_it(chromium: Chromium, stage: LoginStage) -> None:
    with login_page(chromium, stage, width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        expect(page.get_by_role("button", name="Log in")).to_be_in_viewport()
