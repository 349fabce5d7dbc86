"""65,000 partitions on 100 nodes: pages read as well as those of eight, and follow what changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Stage, Theme, visiting
from tests.console.test_pages import faults, settled

READ_MS = 300_000
PAGES = (
    "",
    "zones",
    "zones/LARGE",
    "map?zone=LARGE",
    "zones/LARGE/partitions/64999",
    "nodes",
    "nodes/node-099",
)

CELLS = """() => {
  const node = document.querySelector('.nicegui-echart');
  const chart = getElement(Number(node.id.slice(1))).chart;
  return chart.getOption().series[0].data.map((cell) => cell.join()).sort();
}"""


@pytest.fixture(scope="module")
def large() -> Iterator[Stage]:
    stage = Stage.start("large")
    yield stage
    stage.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_large_zones_have_no_serious_fault(chromium: Browser, large: Stage, theme: Theme) -> None:
    with visiting(chromium, large.url, theme) as visit:
        for path in PAGES:
            page = visit.open(path, READ_MS)
            settled(page)
            assert faults(page) == [], path


@pytest.mark.timeout(900)
def test_what_is_sent_of_a_map_makes_it_what_a_new_page_shows(chromium: Browser, large: Stage) -> None:
    """Only columns that changed are sent; together with the rest they are the whole."""
    with visiting(chromium, large.url) as visit:
        page = visit.open("map?zone=LARGE", READ_MS)
        settled(page)
        before = page.evaluate(CELLS)
        large.tell("touch 20")
        page.wait_for_function(f"(before) => JSON.stringify(({CELLS})()) !== before", arg=_text(page, before))
        expect(page.get_by_role("status")).to_contain_text("live")
        after = page.evaluate(CELLS)
        assert len(after) == len(before)
        visit.open("map?zone=LARGE", READ_MS)
        settled(page)
        assert page.evaluate(CELLS) == after


def _text(page: Page, cells: list[str]) -> str:
    """As the browser writes it."""
    return str(page.evaluate("(cells) => JSON.stringify(cells)", cells))
