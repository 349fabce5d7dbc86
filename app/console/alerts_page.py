"""``/console/alerts``: what fires, what is about to, what ended lately; and the runbook's page of each."""

from __future__ import annotations

import asyncio

from fastapi import Request

from app.alerts.runbook import runbook_page
from app.api.alerts import shown_alerts
from app.console.controls import action_link
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import console_page, page_frame
from app.console.shared import Site
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.core.alert_state import ENDED_MAX, AlertState

NOTE = "What is wrong now, since when, and what to do. A pending alert fires when it has held for long."
PARTS = (
    (AlertState.FIRING, "Firing", "No alert fires.", "Fires since"),
    (AlertState.PENDING, "Pending", "No alert is pending.", "Holds since"),
    (AlertState.RESOLVED, f"Ended, the last {ENDED_MAX}", "No alert has ended yet.", "Fired at"),
)


def register(site: Site) -> None:
    @console_page("/alerts")
    async def alerts(request: Request) -> None:
        with page_frame(site, request, "Alerts", "alerts", note=NOTE) as frame:
            panels = [Fragment("panel") for _ in PARTS]

            async def draw() -> None:
                for panel, (state, title, nothing, since) in zip(panels, PARTS, strict=True):
                    shown = await shown_alerts(site.services, state)
                    is_over = state is AlertState.RESOLVED
                    words = {"title": title, "nothing": nothing, "since": since}
                    panel.show(render("alerts", alerts=shown, is_over=is_over, is_good=not is_over, **words))

            await frame.live(draw, Topic.ALERTS)

    @console_page("/alerts/{name:segment}")
    async def runbook(request: Request, name: str) -> None:
        note = "Page of the runbook: what the alert means, how to confirm it, and what to do."
        with page_frame(site, request, name, "alerts", note=note) as frame:
            try:
                text = await asyncio.to_thread(runbook_page, name)
            except OSError as error:
                message = f"the runbook is not installed with this server: {error}"
                raise RefusedError(ErrorKind.INVALID_REQUEST, message) from error
            if text is None:
                raise RefusedError(ErrorKind.INVALID_REQUEST, f"there is no alert {name}")
            Fragment("panel").show(render("runbook", text=text.partition("\n")[2].strip()))
            action_link("All alerts", link("alerts"))
            await frame.live()
