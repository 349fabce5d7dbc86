"""13,000 partitions on 100 nodes, and in the long run 65,000: pages read as well as those of eight, and follow
what changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.console.scenes import LARGE_PARTITIONS, WIDE_PARTITIONS
from tests.e2e.installation import wait_for
from tests.fixtures.console_pages import faults, settled
from tests.fixtures.console_stage import Chromium, Stage, Theme
from tests.fixtures.slices import in_every_run

READ_MS = 300_000
PAGES = (
    "",
    "zones",
    "zones/LARGE",
    "map?zone=LARGE",
    "zones/LARGE/partitions/{last}",
    "nodes",
    "nodes/node-099",
)

CELLS = """() => {
  const node = document.querySelector('.nicegui-echart');
  const chart = getElement(Number(node.id.slice(1))).chart;
  return chart.getOption().series[0].data.map((cell) => cell.join()).sort();
}"""


SIZES = {"wide": WIDE_PARTITIONS, "large": LARGE_PARTITIONS}
LOOKS = [(scene, theme) for scene in SIZES for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[str, Stage]]:
    """Stages by their scenes; each is started once."""
    stages: dict[str, Stage] = {}
    yield stages
    for stage in stages.values():
        stage.stop()


@pytest.fixture
def large(request: pytest.FixtureRequest, stages: dict[str, Stage]) -> Stage:
    """Stage of the scene that the test's parameter names."""
    if request.param not in stages:
        stages[request.param] = Stage.start(request.param)
    return stages[request.param]


@pytest.mark.thorough("test_pages looks at every page of small zones")
@pytest.mark.slow("every element of seven large pages is looked at")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("large", "theme"), in_every_run(LOOKS, [("wide", "light")]), indirect=["large"])
def test_large_zones_have_no_serious_fault(chromium: Chromium, large: Stage, theme: Theme) -> None:
    with chromium.visiting(large, theme) as visit:
        for path in PAGES:
            page = visit.open(path.format(last=SIZES[large.scene] - 1), READ_MS)
            settled(page)
            assert faults(page) == [], path


@pytest.mark.thorough("test_pages follows a change on the map without reloading")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("large", in_every_run(SIZES, ["wide"]), indirect=True)
def test_what_is_sent_of_a_map_makes_it_what_a_new_page_shows(chromium: Chromium, large: Stage) -> None:
    """A page that was sent the changes of a map shows what a new page does."""
    with chromium.visiting(large) as visit, chromium.visiting(large) as another:
        page = visit.open("map?zone=LARGE", READ_MS)
        settled(page)
        before = page.evaluate(CELLS)
        large.tell("touch 20")
        cells = f"JSON.stringify(({CELLS})())"
        page.wait_for_function(f"(before) => {cells} !== before", arg=_text(page, before), timeout=READ_MS)
        new = another.open("map?zone=LARGE", READ_MS)
        settled(new)

        def same() -> bool:
            return bool(page.evaluate(CELLS) == new.evaluate(CELLS))

        # What came in the moment of a drawing follows with the next one.
        wait_for("the same cells on both pages", same, READ_MS / 1_000, 1.0)
        assert len(page.evaluate(CELLS)) == len(before)


def _text(page: Page, cells: list[str]) -> str:
    """Cells as text, as the browser writes it."""
    return str(page.evaluate("(cells) => JSON.stringify(cells)", cells))
