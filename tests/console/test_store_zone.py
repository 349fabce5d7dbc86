"""A store zone in Chromium: its map, its page, and a partition of which a copy is being filled."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.fixtures.console_pages import confirm, faults, settled
from tests.fixtures.console_stage import Chromium, Stage, Visit

DRAWN = "4 of 4 partitions on 3 nodes; 3 replicas joining, 1 down or broken"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kept(chromium: Chromium) -> Iterator[Stage]:
    stage = Stage.start("stored")
    yield stage
    stage.stop()


def test_its_copies_are_drawn_and_named(chromium: Chromium, kept: Stage) -> None:
    with chromium.visiting(kept) as visit:
        page = visit.open("zones/KEPT/partitions/0")
        copies = page.get_by_role("table").filter(has_text="backup")
        expect(copies.get_by_role("row")).to_have_count(4)
        expect(copies).to_contain_text("primary")
        expect(copies).to_contain_text("catching up")
        expect(page.get_by_text("FILLING: n").first).to_be_visible()
        assert not faults(page)
        page = visit.open("zones/KEPT")
        expect(page.get_by_text("FILLING: n").first).to_be_visible()
        page = visit.open("map?zone=KEPT")
        settled(page)
        expect(page.locator(".nicegui-echart").first).to_have_attribute("aria-label", re.compile(DRAWN))


def test_its_lost_partitions_are_reset_once_that_is_confirmed(chromium: Chromium, kept: Stage) -> None:
    """No server of the stage carries it out: the page says that it was requested."""
    with chromium.visiting(kept) as visit:
        page = visit.open("zones/KEPT")
        expect(page.get_by_text("1 partition is lost: no in-sync replica is left")).to_be_visible()
        expect(page.get_by_text("PARTITION_LOST: n").first).to_be_visible()
        expect(page.get_by_role("main").get_by_role("link", name="Recovery", exact=True)).to_have_count(0)
        assert not faults(page)
        page.get_by_role("button", name="Reset lost partitions").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Start their nodes first if possible")
        confirm(page, "Reset lost partitions", "its disk is gone")
        shown = page.locator(".q-notification").first
        expect(shown).to_contain_text("0 of 1 lost partitions are owned again: exchange")


def test_it_rests_and_works_again(chromium: Chromium, kept: Stage) -> None:
    with chromium.visiting(kept) as visit:
        page = visit.open("zones/KEPT")
        page.get_by_role("button", name="Deactivate zone").click()
        expect(page.get_by_role("dialog")).to_contain_text("Requests are refused (ZONE_DEACTIVATED)")
        confirm(page, "Deactivate", "a quiet week")
        expect(page.get_by_text("The zone is deactivated: requests are refused")).to_be_visible()
        page.get_by_role("button", name="Activate zone").click()
        confirm(page, "Activate", "work again")
        expect(page.get_by_role("button", name="Deactivate zone")).to_be_visible()
        expect(page.get_by_text("The zone is deactivated")).to_have_count(0)
        audit = visit.open("audit?subject=KEPT")
        for action in ("deactivate zone", "activate zone", "reset lost partitions"):
            expect(audit.get_by_text(action, exact=True).first).to_be_visible()


def test_a_zone_of_groups_neither_rests_nor_resets(visit: Visit) -> None:
    page = visit.open("zones/ORDERS")
    expect(page.get_by_role("main").get_by_role("link", name="Recovery", exact=True)).to_be_visible()
    for name in ("Deactivate zone", "Reset lost partitions"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
