"""Names that look like markup, props or scripts are text, on every page and in all that a page asks."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.console.scenes import NASTY_NODE, NASTY_PERSON, NASTY_ZONES, STORED_ZONES
from tests.fixtures.console_pages import (
    CELL,
    answer_and_leave,
    assert_nothing_is_injected,
    settled,
    type_into_editor,
)
from tests.fixtures.console_stage import Chromium, Stage, Visit

pytestmark = pytest.mark.timeout(600)

ZONES = (*NASTY_ZONES, *STORED_ZONES)
IN_ADDRESSES = ZONES[:-1]
"""A line break in a path is refused by the router before any page is asked."""
NODE = f"n1{NASTY_NODE}"
PAGES = (
    "",
    "zones",
    "operations",
    "rebalance",
    "nodes",
    "audit",
    "recovery",
    "sql?text=" + quote("SELECT 1 AS ':x'"),
)
OF_A_ZONE = (
    "zones/{zone}",
    "zones/{zone}/partitions/0",
    "map?zone={zone}",
    "operations?zone={zone}",
    "plan?zone={zone}&replicas=3",
    "what-if?zone={zone}&replicas=3",
    "audit?subject={zone}",
    "recovery?zone={zone}",
)


@pytest.fixture(scope="module")
def named_stage() -> Iterator[Stage]:
    # Where nobody logs in anybody may have any name.
    whole = Stage.start("names", has_login=False)
    yield whole
    whole.stop()


@pytest.fixture
def named(chromium: Chromium, named_stage: Stage) -> Iterator[Visit]:
    """Fails afterwards when a script of a name ran: it opens a dialog."""
    with chromium.visiting(named_stage) as found:
        yield found


def heading(page: Page) -> str:
    """Exactly, with what does not show."""
    return str(page.get_by_role("heading", level=1).evaluate("(each) => each.textContent"))


@pytest.mark.thorough("test_pages_of_a_zone_take_no_name_for_markup, and unit/console/test_scripts for HTML")
@pytest.mark.parametrize("path", PAGES)
def test_pages_of_everything_take_no_name_for_markup(named: Visit, path: str) -> None:
    page = named.open(path)
    settled(page)
    if path == "zones":
        for zone in NASTY_ZONES:
            expect(page.get_by_text(zone, exact=True).first).to_be_visible()
    if path == "rebalance":
        expect(page.get_by_role("row", name=NASTY_ZONES[1])).to_contain_text(NASTY_PERSON)
    assert_nothing_is_injected(page)


@pytest.mark.parametrize("zone", IN_ADDRESSES, ids=("props", "tags", "scripts", "bidi"))
def test_pages_of_a_zone_take_no_name_for_markup(named: Visit, zone: str) -> None:
    for path in OF_A_ZONE:
        page = named.open(path.format(zone=quote(zone, safe="")))
        settled(page)
        if path == "zones/{zone}":
            assert heading(page) == zone
            assert page.title() == f"{' '.join(zone.split())} · Zonekeeper"
        assert_nothing_is_injected(page)


def test_tooltips_take_no_name_for_markup(named: Visit) -> None:
    page = named.open("map?zone=" + quote(ZONES[0]))
    x, y = page.wait_for_function(CELL).json_value()
    page.mouse.move(x, y)
    expect(page.locator(".map")).to_contain_text(NASTY_NODE)
    assert_nothing_is_injected(page)
    page = named.open("nodes")
    settled(page)
    box = page.locator(".chart").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".chart")).to_contain_text(NASTY_NODE)
    assert_nothing_is_injected(page)


def answer(page: Page, word: str) -> None:
    """The dialog's own button, with a name and a reason that look like markup, too."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert_nothing_is_injected(page)
    dialog.get_by_label("Your name").fill(NASTY_PERSON)
    dialog.get_by_label("Reason").fill(NASTY_PERSON)
    dialog.get_by_role("button", name=word, exact=True).click()
    expect(dialog).to_be_hidden()
    assert_nothing_is_injected(page)


@pytest.mark.parametrize("zone", [NASTY_ZONES[0], NASTY_ZONES[2], STORED_ZONES[0]])
def test_a_zone_is_paused_and_resumed_by_its_name(named: Visit, zone: str) -> None:
    page = named.open(f"zones/{quote(zone, safe='')}")
    page.get_by_role("button", name="Pause moves").click()
    title = f"Pause moves of {zone}?"
    dialog = page.get_by_role("dialog")
    assert dialog.get_attribute("aria-label") == title
    assert dialog.get_by_role("heading").evaluate("(each) => each.textContent") == title
    answer(page, "Pause")
    expect(page.get_by_text(f"Moves are paused by {NASTY_PERSON}")).to_be_visible()
    page.get_by_role("button", name="Resume moves").click()
    answer(page, "Resume")
    expect(page.get_by_role("button", name="Pause moves")).to_be_visible()


def test_a_node_is_drained_by_its_name(named: Visit) -> None:
    page = named.open(f"nodes/{quote(NODE, safe='')}")
    assert heading(page) == NODE
    for word in ("Drain", "Undrain"):
        page.get_by_role("button", name=word, exact=True).click()
        answer(page, word)
        expect(page.locator(".q-notification").first).to_contain_text(NODE)


def test_a_reason_that_is_required_is_marked_and_asked_for(named: Visit, named_stage: Stage) -> None:
    """Mark a required reason and ask for it; without login a name is required, too, and has the focus."""
    named_stage.tell("require reasons")
    page = named.open("rebalance")
    page.get_by_role("button", name="Pause all moves").click()
    dialog = page.get_by_role("dialog")
    name, reason = dialog.get_by_label("Your name"), dialog.get_by_label("Reason (required)")
    expect(name).to_be_focused()
    name.fill("")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_role("alert")).to_contain_text("A name is required")
    name.fill(NASTY_PERSON)
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Say why, in one line: nothing was changed.")
    reason.fill("new disks")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("new disks")).to_be_visible()
    named_stage.tell("require nothing")
    page.get_by_role("button", name="Resume", exact=True).click()
    answer(page, "Resume")
    expect(page.get_by_role("button", name="Pause all moves")).to_be_visible()


def test_a_plan_is_run_while_all_moves_are_paused(named: Visit, named_stage: Stage) -> None:
    """Go from the plan to its operation at once: the page says what it waits for before a controller has seen
    it."""
    zone = NASTY_ZONES[1]
    page = named.open("rebalance")
    page.get_by_role("button", name="Pause all moves").click()
    answer(page, "Pause")
    named.open(f"plan?zone={quote(zone)}&replicas=3")
    page.get_by_role("button", name="Run the plan").click()
    answer_and_leave(page, "Run")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Operation of {zone}")
    expect(page.get_by_text("INTENT_NOT_PUBLISHED")).to_be_visible()
    expect(page.get_by_text("moves are paused by")).to_contain_text(NASTY_PERSON)
    assert_nothing_is_injected(page)
    named_stage.tell("reconcile")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Operation 2-")
    expect(page.get_by_role("table").first).to_contain_text(f"PAUSED: by {NASTY_PERSON}: {NASTY_PERSON}")
    assert_nothing_is_injected(page)
    page.go_back()
    expect(page.get_by_role("button", name="Make the plan")).to_be_visible()


def test_every_zone_can_be_dropped_by_its_name(named: Visit) -> None:
    """The last test of its stage. A line break in a name is one in the statement, too."""
    page = named.open("sql")
    for zone in ZONES:
        type_into_editor(page, 'DROP ZONE "' + zone.replace('"', '""') + '"')
        page.get_by_role("button", name="Run", exact=True).click()
        answer(page, "Run")
        assert_nothing_is_injected(page)
    type_into_editor(page, "SELECT count(*) AS left_over FROM zones")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".ag-root-wrapper").get_by_role("gridcell")).to_have_text("0")
