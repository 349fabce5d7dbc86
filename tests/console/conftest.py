"""A real Chromium, and consoles for it to look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.fixtures.console_stage import WAIT_MS, Chromium, Stage, Visit

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """Browser of one module: as long as Playwright runs there is an event loop, and other tests want their
    own."""
    with sync_playwright() as playwright:
        browser = Chromium.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The small scene, shared by a module: tests change what others do not look at."""
    whole = Stage.start("small")
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def empty_stage() -> Iterator[Stage]:
    """Stage without zones, on which no user logs in."""
    whole = Stage.start("empty", has_login=False)
    yield whole
    whole.stop()


@pytest.fixture
def visit(chromium: Chromium, stage: Stage) -> Iterator[Visit]:
    with chromium.visiting(stage) as visit:
        yield visit
