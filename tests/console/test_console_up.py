"""The console of a real installation: etcd, Spark, nodes with real groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Visit, visiting
from tests.console.test_pages import type_into_editor
from tests.e2e.installation import Installation

CONVERGED_MS = 120_000


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    whole = Installation(tmp_path_factory.mktemp("console") / "data")
    whole.start()
    yield whole
    whole.stop()


def run_statement(page: Page, text: str, reason: str) -> None:
    """Ends when the result is shown."""
    type_into_editor(page, text)
    page.get_by_role("button", name="Run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("ada")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name="Run").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("heading", name="Result 1")).to_be_visible()


def set_pause(page: Page, button: str, reason: str) -> None:
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("ada")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=re.compile("^(Pause|Resume)$")).click()
    expect(dialog).to_be_hidden()


@pytest.mark.timeout(600)
def test_a_zone_from_its_statement_to_its_last_move(chromium: Browser, installation: Installation) -> None:
    """Created in the editor, watched to its end, held by a pause and let go, and asked for its reasons."""
    with visiting(chromium, f"{installation.url}/console/") as visit:
        page = visit.open("sql")
        zone = "CREATE ZONE shop (PARTITIONS 4, REPLICAS 1) STORAGE PROFILES ['default']"
        run_statement(page, zone, "a shop")
        visit.open("zones/SHOP")
        expect(page.get_by_role("heading", name="Where it is settled")).to_be_visible(timeout=CONVERGED_MS)
        visit.open("rebalance")
        set_pause(page, "Pause all moves", "look first")
        visit.open("sql")
        run_statement(page, "ALTER ZONE shop SET (REPLICAS 3)", "more copies")
        visit.open("rebalance")
        expect(page.locator(".causes")).to_contain_text("PAUSED", timeout=CONVERGED_MS)
        set_pause(page, "Resume", "looked")
        _watch_to_the_end(visit, page)
        visit.open("zones/SHOP/partitions/0")
        expect(page.get_by_role("table").first).to_contain_text("it leads the group")
        history = visit.open("zones/SHOP").get_by_role("table").last
        expect(history).to_contain_text("ada: more copies")


def _watch_to_the_end(visit: Visit, page: Page) -> None:
    """On one page, which is never loaded again."""
    visit.open("zones/SHOP")
    page.evaluate("window.sameDocument = true")
    expect(page.get_by_role("heading", name="Where it is settled")).to_be_visible(timeout=CONVERGED_MS)
    expect(page.locator(".figure")).to_contain_text("4 of 4 partitions are done")
    assert page.evaluate("window.sameDocument")
