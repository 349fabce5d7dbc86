"""The console with 65,000 partitions on 100 nodes: the first view, an update, and what an open page costs.

The server runs in a process of its own, over a metastore in memory; Chromium is on the same machine.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator

import psutil
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.fixtures.console_stage import Chromium, Stage

REPEATS = 5
WATCHED_S = 20
FORGOTTEN_MS = 25_000
"""A page that was left is given up then."""
PAGES = {
    "overview": "",
    "zones": "zones",
    "zone": "zones/LARGE",
    "map": "map?zone=LARGE",
    "partition": "zones/LARGE/partitions/5",
    "nodes": "nodes",
    "node": "nodes/node-005",
    "operations": "operations",
    "rebalance": "rebalance",
    "plan": "plan",
    "SQL": "sql",
    "what-if": "what-if",
    "audit": "audit",
}
WATCHED = ("map", "overview", "zone", "nodes", "partition")
RESTED_S = 6.0
"""Seconds after which a server's work in the background is done."""
READ_MS = 180_000

DRAWN = """() => {
  const charts = [...document.querySelectorAll('.nicegui-echart')].filter((each) => each.offsetHeight);
  return document.querySelector('h1') && charts.every((each) => each.querySelector('canvas'));
}"""


@pytest.fixture(scope="module")
def large() -> Iterator[Stage]:
    stage = Stage.start("large", has_login=False)
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        browser = Chromium.launch(playwright)
        yield browser
        browser.close()


def seconds_to_view(page: Page, url: str) -> float:
    begun = time.perf_counter()
    page.goto(url)
    page.wait_for_function(DRAWN)
    return time.perf_counter() - begun


def told(what: str, seconds: list[float]) -> None:
    print(f"{what:<52} {statistics.median(seconds) * 1000:8.0f} ms median, {max(seconds) * 1000:8.0f} max")


def test_console(large: Stage, browser: Chromium) -> None:
    with browser.visiting(large) as visit:
        page = visit.page
        time.sleep(RESTED_S)
        print(
            f"\nthe very first view of a server that has just started: {seconds_to_view(page, visit.url):.2f} s"
        )
        begun = time.perf_counter()
        told("map, its partitions not read yet", [seconds_to_view(page, f"{visit.url}map?zone=LARGE")])
        expect(page.get_by_role("status")).to_contain_text("live", timeout=READ_MS)
        print(f"all partitions read after: {time.perf_counter() - begun:.1f} s")
        for name, path in PAGES.items():
            told(f"{name}: first view", [seconds_to_view(page, visit.url + path) for _ in range(REPEATS)])
        _updates(large, page, visit.url)
        _cost(large, page)


def _updates(large: Stage, page: Page, url: str) -> None:
    """Report times from the write until the page shows its revision: it looks four times a second, and draws
    once."""
    for count in (1, 100):
        page.goto(f"{url}map?zone=LARGE")
        page.wait_for_function(DRAWN)
        took = []
        for _ in range(REPEATS):
            before = _revision(page)
            begun = time.perf_counter()
            large.tell(f"touch {count}")
            page.wait_for_function(f"({SHOWN})() > {before}", polling=20)
            took.append(time.perf_counter() - begun)
            page.wait_for_timeout(1_500)
        told(f"map: update of {count} partitions", took)


SHOWN = "() => Number(document.querySelector('[role=status]').innerText.replace(/[^0-9]/g, '') || 0)"


def _revision(page: Page) -> int:
    return int(re.sub(r"\D", "", page.get_by_role("status").inner_text()) or 0)


def _cost(large: Stage, page: Page) -> None:
    """Processor time of the server, of which a part is the metastore that runs in it."""
    page.goto("about:blank")
    page.wait_for_timeout(FORGOTTEN_MS)
    share = _share(large, page, 10)
    print(f"{'server with no page open, 10 partitions change each second':<62} {share:5.1f} % of a core")
    for name in WATCHED:
        page.goto(large.url + PAGES[name])
        page.wait_for_function(DRAWN)
        for what, touched in (("nothing changes", 0), ("10 partitions change each second", 10)):
            page.wait_for_timeout(3_000)
            what = f"server with the {name} open, {what}"
            print(f"{what:<62} {_share(large, page, touched):5.1f} % of a core")
    memory = psutil.Process(large.process.pid).memory_info().rss / 1e6
    print(f"{'resident memory of the server':<62} {memory:5.0f} MB")


def _share(large: Stage, page: Page, touched: int) -> float:
    """Server's share of a core in percent, over some seconds."""
    server = psutil.Process(large.process.pid)
    before, begun = sum(server.cpu_times()[:2]), time.perf_counter()
    for _ in range(WATCHED_S):
        if touched:
            large.tell(f"touch {touched}")
        page.wait_for_timeout(1_000)
    return 100 * (sum(server.cpu_times()[:2]) - before) / (time.perf_counter() - begun)
