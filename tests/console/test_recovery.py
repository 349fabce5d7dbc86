"""The recovery page in Chromium: from the cause to what is lost, a dry run, the reset of what it showed, and
its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from app.security.administrator import LOCAL_ADMIN
from tests.console.scenes import NASTY_NODE, NASTY_PERSON, NASTY_ZONES
from tests.fixtures.console_pages import answer_and_leave, assert_nothing_is_injected, faults, settled, tab_to
from tests.fixtures.console_stage import Chromium, Stage, Theme
from tests.fixtures.slices import in_every_run

pytestmark = pytest.mark.timeout(600)

DEAD = "n1, n2"
LOST_PAGES = ("", "zones/ORDERS", "recovery", "recovery?zone=REFERENCE", "recovery?zone=LEDGER")


@pytest.fixture(scope="module")
def lost_stage() -> Iterator[Stage]:
    """Shared: tests that change what is lost come last, each in a zone of its own."""
    whole = Stage.start("lost")
    yield whole
    whole.stop()


@pytest.fixture
def own_stage() -> Iterator[Stage]:
    """Stage of one test, which loses what the others look at."""
    whole = Stage.start("lost")
    yield whole
    whole.stop()


def make_dry_run(page: Page) -> None:
    """Make a dry run, and wait until its answer is shown."""
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("heading", name=re.compile("of .* can be reset"))).to_be_visible()
    # The framework's, which shows that a request runs.
    expect(page.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.thorough("test_pages_have_no_serious_fault has grids, dialogs and forms")
@pytest.mark.parametrize("theme", in_every_run(("light", "dark"), ["light"]))
@pytest.mark.parametrize("path", LOST_PAGES)
def test_pages_of_a_loss_have_no_serious_fault(
    chromium: Chromium, lost_stage: Stage, path: str, theme: Theme
) -> None:
    """Check pages of a loss with the dry run and its last question, where there is one."""
    with chromium.visiting(lost_stage, theme) as visit:
        page = visit.open(path)
        settled(page)
        assert faults(page) == []
        if path.endswith("REFERENCE"):
            make_dry_run(page)
            assert faults(page) == []
            page.get_by_role("button", name="Reset partitions").click()
            expect(page.get_by_role("dialog")).to_be_visible()
            # It takes the shade behind the dialog for what its buttons stand on.
            assert [each for each in faults(page, ".ask") if not each.startswith("color-contrast")] == []


def test_each_cause_of_a_loss_leads_to_its_recovery(chromium: Chromium, lost_stage: Stage) -> None:
    """Lead from the overview by zone, from a zone, and from a partition to the recovery of that partition
    alone."""
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("")
        causes = page.locator(".panel").filter(has_text="Blocked by")
        expect(causes.get_by_role("link", name="recovery of CACHE")).to_be_visible()
        expect(causes.get_by_role("link", name="recovery of LEDGER")).to_have_count(0)
        page.locator(".panel").filter(has_text="Health").get_by_role("link", name="recovery").click()
        zones = page.get_by_role("table")
        expect(zones.get_by_role("row", name=re.compile("^CACHE"))).to_contain_text("NO_MAJORITY: n1, n2")
        expect(zones.get_by_role("row", name=re.compile("^LEDGER"))).to_have_count(0)
        zones.get_by_role("link", name="ORDERS").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Recovery of ORDERS")
        first = page.get_by_role("table").get_by_role("row").nth(1)
        expect(first).to_contain_text("1 of 3")
        number = first.get_by_role("rowheader").inner_text()
        first.get_by_role("link").click()
        page.get_by_role("link", name="recovery of this partition").click()
        expect(page.get_by_role("textbox", name="Partitions")).to_have_value(number)
        visit.open("zones/LEDGER/partitions/0")
        expect(page.get_by_role("heading", name="Partition 0")).to_be_visible()
        expect(page.get_by_role("link", name="recovery of this partition")).to_have_count(0)


def test_a_zone_without_a_loss_says_so_and_resets_nothing(chromium: Chromium, lost_stage: Stage) -> None:
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=LEDGER")
        expect(page.get_by_text("every group of the zone has a majority")).to_be_visible()
        page.get_by_role("button", name="Dry run").click()
        problem = page.locator(".problem").filter(has_text="every partition of zone LEDGER has a majority")
        expect(problem).to_be_visible()
        expect(page.get_by_role("button", name="Reset partitions")).to_be_hidden()


@pytest.mark.parametrize(
    ("typed", "words"), [("x", '"x" is not a partition'), ("0-6", "the zone has partitions 0 to 5")]
)
def test_partitions_that_are_not_there_are_refused(
    chromium: Chromium, lost_stage: Stage, typed: str, words: str
) -> None:
    with chromium.visiting(lost_stage) as visit:
        page = visit.open(f"recovery?zone=ORDERS&partitions={typed}")
        page.get_by_role("button", name="Dry run").click()
        expect(page.locator(".problem")).to_contain_text(words)


@pytest.mark.row("R2")
def test_every_copy_is_shown_with_what_it_has(chromium: Chromium, lost_stage: Stage) -> None:
    """R2: voters and learners by data revision; one that is not the best is used where it is named."""
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=REFERENCE")
        make_dry_run(page)
        copies = page.locator(".panel").filter(has_text="survivor").first.get_by_role("table")
        for title in (
            "Replica on",
            "Kind",
            "Data revision",
            "Generation",
            "Committed log entries",
            "State",
            "Use",
        ):
            expect(copies.get_by_role("columnheader", name=title)).to_be_visible()
        best, other = copies.get_by_role("row").nth(1), copies.get_by_role("row").nth(2)
        for text in ("voter", "4,120", "4,131 of 4,133", "running", "the survivor"):
            expect(best).to_contain_text(text)
        for text in ("learner", "4,117", "candidate"):
            expect(other).to_contain_text(text)
        node = other.get_by_role("rowheader").inner_text()
        page.get_by_label("Replica on node").fill(node)
        make_dry_run(page)
        named = copies.get_by_role("row", name=re.compile(f"^{node} learner"))
        expect(named).to_contain_text("the survivor")
        expect(page.get_by_text("3 entries").first).to_be_visible()


@pytest.mark.row("R5")
def test_a_partition_begins_without_data_only_when_its_copies_are_given_up(
    chromium: Chromium, lost_stage: Stage
) -> None:
    """R5: the dry run names the copies that live; once they are given up, it says that everything is lost."""
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=CACHE")
        page.get_by_role("checkbox", name="Start empty").click()
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("heading", name="No partition can be reset")).to_be_visible()
        expect(page.get_by_text("COPIES_LEFT: n3").first).to_be_visible()
        expect(page.get_by_role("button", name="Reset partitions")).to_be_hidden()
        page.get_by_label("Replicas to discard").fill("n3")
        make_dry_run(page)
        expect(page.get_by_text("everything").first).to_be_visible()
        page.get_by_role("button", name="Reset partitions").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("2 of them start empty: all of their data is lost.")
        dialog.get_by_role("button", name="Cancel").click()


def test_a_highly_available_zone_asks_for_no_names(chromium: Chromium, lost_stage: Stage) -> None:
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=CACHE&partitions=1")
        make_dry_run(page)
        expect(page.get_by_role("heading", name="1 of 1 partitions can be reset")).to_be_visible()
        page.get_by_role("button", name="Reset partitions").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("Your name")).to_be_visible()
        expect(dialog.get_by_label("Names of the dead nodes")).to_have_count(0)
        dialog.get_by_label("Reason").fill("both are gone")
        dialog.get_by_role("button", name="Reset", exact=True).click()
        expect(page.get_by_text("Requested: partitions 1.")).to_be_visible()


@pytest.mark.row("R1")
def test_a_loss_is_recovered_by_keyboard_and_watched_to_its_end(chromium: Chromium, lost_stage: Stage) -> None:
    """R1: a zone of STRONG_CONSISTENCY is reset once the dead nodes are named; then it is followed on the same
    page until every group has its replicas again."""
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=ORDERS")
        lost = page.get_by_role("table").first.get_by_role("row")
        expect(lost.nth(1)).to_contain_text("1 of 3")
        count = lost.count() - 1
        expect(page.get_by_role("button", name="Dry run")).to_be_enabled()
        tab_to(page, "Dry run")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=re.compile("can be reset"))).to_be_visible()
        expect(page.get_by_text("the survivor").first).to_be_visible()
        tab_to(page, "Reset partitions")
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"Assumed dead: {DEAD}")
        tab_to(page, "Names of the dead nodes")
        page.keyboard.type("n1")
        tab_to(page, "Reason")
        page.keyboard.type("the rack burnt down")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("n1, n2")
        dialog.get_by_label("Names of the dead nodes").fill("n2 n1")
        dialog.get_by_role("button", name="Reset", exact=True).click()
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("heading", name="Reset requested")).to_be_visible()
        watched = page.locator(".panel").filter(has_text=f"requested by {LOCAL_ADMIN}: the rack burnt down")
        expect(watched).to_contain_text(f"0 of {count} partitions have been recovered")
        expect(page.get_by_text("founded anew on").first).to_be_visible()
        assert faults(page, ".page") == []
        page.evaluate("window.sameDocument = true")
        lost_stage.tell("found ORDERS")
        expect(watched).to_contain_text(f"{count} of {count} partitions have been recovered")
        expect(page.get_by_text("every group of the zone has a majority")).to_be_visible()
        assert page.evaluate("window.sameDocument")
        table = visit.open(f"audit?by={LOCAL_ADMIN}").get_by_role("table")
        expect(table).to_contain_text("the rack burnt down")


def test_what_has_changed_behind_the_last_question_is_refused(chromium: Chromium, lost_stage: Stage) -> None:
    """The page has asked already when the node of the best copy goes: its loss was not confirmed, and once it
    is, another copy would be used than the one that was shown."""
    with chromium.visiting(lost_stage) as visit:
        page = visit.open("recovery?zone=REFERENCE")
        make_dry_run(page)
        copies = page.locator(".panel").filter(has_text="survivor").first.get_by_role("table")
        best = copies.get_by_role("row").nth(1).get_by_role("rowheader").inner_text()
        page.get_by_role("button", name="Reset partitions").click()
        lost_stage.tell(f"down {best}")
        # It is drawn anew behind the dialog.
        expect(page.get_by_text("The state has changed since this dry run.")).to_be_attached()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Names of the dead nodes").fill(DEAD)
        dialog.get_by_label("Reason").fill("too late")
        dialog.get_by_role("button", name="Reset", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(f"confirm exactly {DEAD}, {best}")
        dialog.get_by_label("Names of the dead nodes").fill(f"{DEAD}, {best}")
        dialog.get_by_role("button", name="Reset", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("do another dry run")
        visit.open("operations?zone=REFERENCE")
        expect(page.get_by_role("table")).to_be_visible()
        expect(page.get_by_text("too late")).to_have_count(0)


def test_a_dry_run_that_is_out_of_date_cannot_be_run(chromium: Chromium, own_stage: Stage) -> None:
    """Another node goes: what was shown says so, and has to be made again."""
    with chromium.visiting(own_stage) as visit:
        page = visit.open("recovery?zone=ORDERS")
        make_dry_run(page)
        reset = page.get_by_role("button", name="Reset partitions")
        expect(reset).to_be_visible()
        own_stage.tell("down n3")
        expect(page.get_by_text("The state has changed since this dry run.")).to_be_visible()
        expect(reset).to_be_hidden()
        make_dry_run(page)
        expect(page.get_by_text("The state has changed since")).to_have_count(0)
        expect(page.get_by_text("n1, n2, n3").first).to_be_visible()


@pytest.mark.thorough("test_names has them on the other pages")
def test_names_of_a_loss_are_text(chromium: Chromium) -> None:
    """Zones, nodes and people, from the list over the dry run and the dialog to the end."""
    stage = Stage.start("lost-names", has_login=False)
    try:
        with chromium.visiting(stage) as visit:
            page = visit.open("recovery")
            expect(page.get_by_role("link", name=NASTY_ZONES[1], exact=True)).to_be_visible()
            assert_nothing_is_injected(page)
            visit.open(f"recovery?zone={quote(NASTY_ZONES[0])}")
            expect(page.get_by_role("heading", level=1)).to_contain_text(NASTY_ZONES[0])
            make_dry_run(page)
            assert_nothing_is_injected(page)
            page.get_by_role("button", name="Reset partitions").click()
            dialog = page.get_by_role("dialog")
            names = f"n1{NASTY_NODE}, n2{NASTY_NODE}"
            expect(dialog).to_contain_text(names)
            dialog.get_by_label("Names of the dead nodes").fill(names)
            assert_nothing_is_injected(page)
            answer_and_leave(page, "Reset")
            expect(page.get_by_text(f"requested by {NASTY_PERSON}")).to_be_visible()
            expect(page.get_by_text("founded anew on").first).to_contain_text(NASTY_NODE)
            assert_nothing_is_injected(page)
    finally:
        stage.stop()
