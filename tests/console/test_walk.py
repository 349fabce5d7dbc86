"""One walk through the console of a real installation: etcd, nodes with real groups, and no Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from app.security.administrator import LOCAL_ADMIN
from tests.e2e.installation import Installation, without_spark
from tests.fixtures.console_pages import click_a_cell, confirm, settled, type_into_editor
from tests.fixtures.console_stage import Chromium, Visit

CONVERGED_MS = 240_000
ZONE = "CREATE ZONE shop (PARTITIONS 4, REPLICAS 1) STORAGE PROFILES ['default']"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("console")
    whole = Installation(directory / "data", environment=without_spark(directory))
    whole.start()
    yield whole
    whole.stop()


@pytest.mark.thorough("test_pages marks errors, plans and pauses; test_recovery runs what was shown")
@pytest.mark.row("VOL-009")
@pytest.mark.timeout(1_800)
def test_the_walk(chromium: Chromium, installation: Installation) -> None:
    """A zone is created in the editor after an error was marked, a plan is made, shown and run by two buttons
    (VOL-009), held by a pause and watched to its end; then asked for reasons, compared, and reversed."""
    access = installation.access
    with chromium.visiting(f"{access.url}/console/", link=access.console_link()) as visit:
        _create(visit)
        _run_a_plan_that_is_held(visit)
        _let_it_go(visit)
        operation = visit.page.url.removeprefix(visit.url)
        _drill_down(visit)
        _compare(visit)
        _reverse(visit, operation)
        _read_the_audit(visit)


def _create(visit: Visit) -> None:
    page = visit.open("sql")
    type_into_editor(page, ZONE.replace("REPLICAS", "REPLICAZ"))
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("line 1, column 33")
    expect(page.locator(".cm-wrong")).to_have_text("REPLICAZ")
    type_into_editor(page, ZONE)
    page.get_by_role("button", name="Run").click()
    confirm(page, "Run", "a shop")
    expect(page.get_by_role("heading", name="Result 1")).to_be_visible()
    visit.open("zones/SHOP")
    expect(page.get_by_role("heading", name="Progress settled")).to_be_visible(timeout=CONVERGED_MS)


def _run_a_plan_that_is_held(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Pause moves").click()
    confirm(page, "Pause", "look first")
    visit.open("plan?zone=SHOP")
    page.get_by_label("Replicas").fill("3")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("heading", name="8 replicas to copy, 0 to remove")).to_be_visible()
    units = page.get_by_role("table")
    expect(units.get_by_role("row")).to_have_count(4)
    expect(units).to_contain_text("additional replica")
    expect(page.get_by_label("The statement that the plan runs")).to_contain_text("REPLICAS 3")
    page.get_by_role("button", name="Run the plan").click()
    confirm(page, "Run", "more copies")
    expect(page.get_by_role("heading", name=re.compile("^Operation 1-"))).to_be_visible()
    expect(page.get_by_text(f"requested by {LOCAL_ADMIN}")).to_be_visible()
    expect(page.get_by_role("table").first).to_contain_text("PAUSED", timeout=CONVERGED_MS)


def _let_it_go(visit: Visit) -> None:
    """Resumed, then watched to its end on one page that is never loaded again."""
    page = visit.page
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="Resume", exact=True).click()
    confirm(page, "Resume", "seen enough")
    expect(page.get_by_role("heading", name="Progress done")).to_be_visible(timeout=CONVERGED_MS)
    expect(page.locator(".figure")).to_contain_text("4 of 4 partitions are done")
    assert page.evaluate("window.sameDocument")


def _drill_down(visit: Visit) -> None:
    """Go from all zones over one and its map to the reasons why each node has a partition."""
    page = visit.open("zones")
    page.get_by_role("gridcell", name="SHOP").click()
    page.get_by_role("link", name="Partition map").click()
    settled(page)
    expect(page.get_by_text("Every partition shown is done.")).to_be_visible()
    click_a_cell(page)
    expect(page.get_by_role("heading", name=re.compile("Partition [0-3]"))).to_be_visible()
    reasons = page.get_by_role("table").first
    expect(reasons).to_contain_text("it leads the group")
    expect(reasons.get_by_role("row")).to_have_count(4)


def _compare(visit: Visit) -> None:
    page = visit.open("what-if?zone=SHOP")
    page.get_by_label("Nodes to remove").fill("n1")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="No replica would be copied, 4 would be removed")).to_be_visible()


def _reverse(visit: Visit, operation: str) -> None:
    page = visit.open(operation)
    page.get_by_role("button", name="Reverse", exact=True).click()
    confirm(page, "Reverse", "too many")
    visit.open("zones/SHOP")
    expect(page.locator("dl").first).to_contain_text("Replicas1", timeout=CONVERGED_MS)
    expect(page.get_by_role("heading", name="Progress settled")).to_be_visible(timeout=CONVERGED_MS)


def _read_the_audit(visit: Visit) -> None:
    page = visit.open(f"audit?by={LOCAL_ADMIN}")
    table = page.get_by_role("table")
    for reason in ("look first", "seen enough", "too many"):
        expect(table).to_contain_text(reason)
    history = visit.open("zones/SHOP").get_by_role("table").last
    expect(history.get_by_role("row").filter(has_text="more copies")).to_contain_text(LOCAL_ADMIN)
