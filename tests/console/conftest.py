"""A real Chromium, and consoles for it to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.fixtures.console_stage import (
    CHROMIUM_FLAGS,
    START_MS,
    WAIT_MS,
    Stage,
    Theme,
    Visit,
    find_chromium,
    visiting,
)

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of a module: as long as Playwright runs there is an event loop, and other tests want their own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_FLAGS, timeout=START_MS
        )
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
    whole = Stage.start("empty")
    yield whole
    whole.stop()


@pytest.fixture
def visit(chromium: Browser, stage: Stage) -> Iterator[Visit]:
    with visiting(chromium, stage.url) as found:
        yield found


@pytest.fixture
def visit_of(chromium: Browser) -> Callable[..., object]:
    """For other addresses and themes: ``with visit_of(url, "dark") as visit``."""

    def opened(url: str, theme: Theme = "light") -> object:
        return visiting(chromium, url, theme)

    return opened
