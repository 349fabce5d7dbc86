"""Alerts in open pages. They are judged beside the keyspace, so that nothing else has pages drawn anew; pages
also say as of when the keyspace is."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.alerts.alert_rows import ALERT_ROWS, runbook_page
from app.views.mirror_freshness import MetastoreSilence
from tests.fixtures.open_console import open_console

QUIET = "No alert fires or is pending."
SILENT = "The metastore has been silent since then"
PAGES = (
    *("zones/ORDERS", "zones/ORDERS/partitions/0", "map", "nodes", "nodes/n1"),
    *("operations", "recovery", "rebalance", "sql"),
)


@pytest.mark.timeout(300)
async def test_open_pages_show_an_alert_once_it_is_judged(tmp_path: Path) -> None:
    """The overview, the page of alerts, and the badge of a page that shows none. Nothing else happens: the
    scene's node is down from the beginning. Then the metastore is silent: all pages say as of when they are,
    also to who sees one zone only."""
    silence: list[MetastoreSilence | None] = [None]

    async def told() -> MetastoreSilence | None:
        return silence[0]

    async with (
        open_console(tmp_path, told) as console,
        console.browser("olga") as browser,
        console.page(browser, "/console/") as overview,
        console.page(browser, "/console/alerts") as alerts,
        console.page(browser, "/console/zones") as other,
    ):
        assert QUIET in overview.text()
        assert "pending</a>" not in other.text()
        await console.judged("NodeDown")
        await overview.wait(lambda: "NodeDown" in overview.text())
        await alerts.wait(lambda: "/console/alerts/NodeDown" in alerts.text())
        await overview.wait(lambda: "pending</a>" in overview.text())
        await other.wait(lambda: "pending</a>" in other.text())
        sockets = (overview, alerts, other)
        assert not any(SILENT in socket.text() for socket in sockets)
        silence[0] = MetastoreSilence(1_700_000_000_000)
        for socket in sockets:
            await socket.wait(lambda socket=socket: SILENT in socket.text())
            assert "as of 2023-11-14 22:13:20 UTC" in socket.text()
        for page in PAGES:
            assert SILENT in (await browser.open(f"/console/{page}")).text, page
        async with console.browser("vera") as vera:
            assert SILENT in (await vera.open("/console/zones/ORDERS")).text
        silence[0] = None
        for socket in sockets:
            await socket.wait(lambda socket=socket: SILENT not in socket.text())


def test_each_alert_has_its_page() -> None:
    assert all("## What to do" in (runbook_page(row.name) or "") for row in ALERT_ROWS)
    assert runbook_page("../README") is None
