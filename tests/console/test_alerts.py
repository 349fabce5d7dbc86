"""Alerts in Chromium, by who has logged in: open pages follow them, and one is silenced by keyboard."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.console_pages import faults, settled, tab_to
from tests.fixtures.console_stage import WAIT_MS, Chromium, Stage

pytestmark = pytest.mark.timeout(600)

QUIET = "No alert fires or is pending."


@pytest.fixture(scope="module")
def judged_stage() -> Iterator[Stage]:
    """Stage of this module, whose alerts are judged when a test says so, and fire at once."""
    whole = Stage.start("small")
    yield whole
    whole.stop()


def judged(stage: Stage, page: Page, node: str, *, fires: bool) -> None:
    """Judge until the open page shows that the alert of the node fires, or that it does not."""
    panel = page.locator(".panel").filter(has=page.get_by_role("heading", name="Alerts"))
    alert = panel.get_by_text(f"node {node} is down")
    deadline = time.monotonic() + WAIT_MS / 1_000
    while (alert.count() == 1) is not fires:
        assert time.monotonic() < deadline, panel.inner_text()
        stage.tell("judge")
        page.wait_for_timeout(100)


@pytest.mark.thorough("unit/console/test_alerts_shown has open pages follow an alert")
def test_the_open_overview_follows_an_alert_from_its_begin_to_its_end(
    chromium: Chromium, judged_stage: Stage
) -> None:
    """The page is opened once. Of all that it shows only alerts change by judging."""
    with chromium.visiting(judged_stage) as visit:
        page = visit.open("")
        expect(page.get_by_text(QUIET)).to_be_visible()
        page.evaluate("window.openedOnce = true")
        judged(judged_stage, page, "n7", fires=True)
        expect(page.locator("header").get_by_role("link", name=re.compile(r"^\d+ alerts?$"))).to_be_visible()
        judged_stage.tell("up")
        judged(judged_stage, page, "n7", fires=False)
        judged_stage.tell("down n4")
        judged(judged_stage, page, "n4", fires=True)
        assert page.evaluate("window.openedOnce")
        page.get_by_role("link", name="all alerts").click()
        ended = page.locator(".panel").filter(has=page.get_by_role("heading", name=re.compile("^Ended")))
        expect(ended.get_by_role("row", name=re.compile("node n7 is down"))).to_be_visible()


def test_an_alert_is_silenced_and_told_again_by_keyboard(chromium: Chromium, judged_stage: Stage) -> None:
    judged_stage.tell("down n4")
    with chromium.visiting(judged_stage) as visit:
        page = visit.open("")
        judged(judged_stage, page, "n4", fires=True)
        badge = page.locator("header").get_by_role("link", name=re.compile(r"^\d+ alerts?$"))
        firing = int(badge.inner_text().split()[0])
        page = visit.open("alerts")
        settled(page)
        assert faults(page) == []
        tab_to(page, "Silence alerts")
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("Alerts")).to_have_value(re.compile("node=n4"))
        assert [each for each in faults(page, ".ask") if not each.startswith("color-contrast")] == []
        tab_to(page, "Reason (required)")
        page.keyboard.type("new disks")
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        row = page.get_by_role("row", name=re.compile("NodeDown node=n4"))
        expect(row).to_contain_text("new disks")
        left = "^$" if firing == 1 else rf"^{firing - 1} alerts?$"
        expect(badge).to_have_count(0) if firing == 1 else expect(badge).to_have_text(re.compile(left))
        tab_to(page, "End a silence")
        page.keyboard.press("Enter")
        tab_to(page, "Reason")
        page.keyboard.type("disks are in")
        page.keyboard.press("Enter")
        expect(row).to_have_count(0)
        expect(badge).to_have_text(re.compile(rf"^{firing} alerts?$"))
