"""A store zone in Chromium: its map, its page, and a partition of which a copy is being filled."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.fixtures.console_pages import faults, settled
from tests.fixtures.console_stage import Chromium, Stage

DRAWN = "4 of 4 partitions on 3 nodes; 1 replicas joining, 0 down or broken"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kept(chromium: Chromium) -> Iterator[Stage]:
    stage = Stage.start("stored")
    yield stage
    stage.stop()


def test_its_copies_are_drawn_and_named(chromium: Chromium, kept: Stage) -> None:
    with chromium.visiting(kept.url) as visit:
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
