"""Open pages follow alerts from begin to end, and one is silenced by who may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.core.audit import AuditFilter
from tests.fixtures.console_socket import PageSocket, button_in, field_in
from tests.fixtures.open_console import open_console

QUIET = "No alert fires or is pending."
DOWN = "/console/alerts/NodeDown"


def badge(count: int) -> str:
    return f">{count} pending</a>"


@pytest.mark.timeout(300)
async def test_open_pages_show_when_an_alert_begins_and_ends(tmp_path: Path) -> None:
    """The overview, the page of alerts, and the badge of a page that shows none. Nothing else happens but that
    a node comes back: the scene's is down from the beginning."""
    async with (
        open_console(tmp_path) as console,
        console.browser("olga") as browser,
        console.page(browser, "/console/") as overview,
        console.page(browser, "/console/alerts") as alerts,
        console.page(browser, "/console/zones") as other,
    ):
        assert QUIET in overview.text()
        assert "pending</a>" not in other.text()
        begun = badge(await console.judged("NodeDown"))
        for page in (overview, alerts):
            await page.wait(lambda page=page: DOWN in page.text())
        for page in (overview, other):
            await page.wait(lambda page=page: begun in page.text())
        await console.world.set_nodes(*console.world.nodes)
        await console.judged("NodeDown", is_so=False)
        await console.judged("PartitionDegraded", is_so=False)
        for page in (overview, alerts):
            await page.wait(lambda page=page: DOWN not in page.text())
        await overview.wait(lambda: QUIET in overview.text())
        for page in (overview, other):
            await page.wait(lambda page=page: "pending</a>" not in page.text())


@pytest.mark.timeout(300)
async def test_an_operator_silences_an_alert_on_its_page(tmp_path: Path) -> None:
    """A silenced alert stays in the lists and counts in no badge; users see no silences of zones hidden from
    them."""
    async with (
        open_console(tmp_path) as console,
        console.browser("olga") as operator,
        console.browser("vera") as viewer,
        console.page(operator, "/console/alerts") as page,
        console.page(operator, "/console/") as overview,
        console.page(viewer, "/console/alerts") as seen,
    ):
        begun = badge(await console.judged("NodeDown"))
        await overview.wait(lambda: begun in overview.text())
        await confirmed(page, "Silence alerts", "Silence", "Reason (required)", "new disks")
        (silence,) = console.services.alerts.silences.now()
        assert (silence.subject, silence.by, silence.reason) == ("NodeDown node=n7", "olga", "new disks")
        assert silence.until_ms - silence.since_ms == 2 * 3_600_000
        await seen.wait(lambda: "Silenced until" in seen.text())
        await overview.wait(lambda: begun not in overview.text() and ", silenced" in overview.text())
        hidden = replace(silence, name="", labels=(("zone", "SESSIONS"),), reason="hidden work")
        await console.services.alerts.silences.begin(hidden)
        await page.wait(lambda: "hidden work" in page.text())
        assert "new disks" in seen.text()
        assert [word for word in ("hidden work", "SESSIONS") if word in seen.text()] == []
        assert button_in(seen.elements, "Silence alerts") is button_in(seen.elements, "End a silence") is None
        await confirmed(page, "End a silence", "End", "Reason", "disks are in")
        assert [one.reason for one in console.services.alerts.silences.now()] == ["hidden work"]
        assert await console.services.alerts.silences.end(hidden.silence_id, lambda _: True)
        await overview.wait(lambda: begun in overview.text())
        for one in (page, seen):
            await one.wait(lambda one=one: "Silenced until" not in one.text())
        records = await console.world.catalog.audit(AuditFilter(by="olga"), 5)
        assert [record.entry.action for record in records] == ["UNSILENCE ALERTS", "SILENCE ALERTS"]


async def confirmed(page: PageSocket, button: str, word: str, label: str, reason: str) -> None:
    """A dialog, as it is proposed."""
    before, told = set(page.elements), len(page.notices)
    number = button_in(page.elements, button)
    assert number is not None
    await page.click(number)
    dialog = await page.dialog(before)
    await page.type_into(field_in(dialog, label), reason)
    sure = button_in(dialog, word)
    assert sure is not None
    await page.click(sure)
    await page.wait(lambda: len(page.notices) > told)
