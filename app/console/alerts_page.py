"""``/console/alerts``: what fires, what is about to, what ended lately, silences; and the runbook's page of
each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fastapi import Request
from nicegui import ui

from app.alerts.alert_rows import BY_NAME, runbook_page
from app.api.alerts import shown_alerts, shown_silences
from app.console import actions
from app.console.controls import action_link, button, choice_field, confirm
from app.console.feed import Topic
from app.console.fragments import Fragment, link
from app.console.frame import PageFrame, console_page, page_frame
from app.console.shared import Site
from app.console.viewer import may_use
from app.contract.health import AlertBody, SilenceBody
from app.core.alerts import ENDED_MAX, AlertState, silenced_text
from app.security.policy import PageControl
from catalog.core.errors import ErrorKind, RefusedError

NOTE = (
    "Current problems, since when, and what to do. A pending alert fires once its condition has held for "
    "its time."
)
PARTS = (
    (AlertState.FIRING, "Firing", "No alert fires.", "Fires since"),
    (AlertState.PENDING, "Pending", "No alert is pending.", "Holds since"),
    (AlertState.RESOLVED, f"Ended, the last {ENDED_MAX}", "No alert has ended yet.", "Fired at"),
)
LENGTHS = {
    **{str(hours * 3_600): f"{hours} hour{'' if hours == 1 else 's'}" for hours in (1, 2, 4, 8)},
    **{str(days * 86_400): f"{days} day{'' if days == 1 else 's'}" for days in (1, 3, 7)},
}
"""Lengths of a silence, by seconds."""
CONSEQUENCE = (
    "These alerts are not sent until the time is over. Lists show them as silenced; readiness and the rules "
    "for Prometheus do not change."
)


def silence_choices(alerts: Iterable[AlertBody]) -> dict[str, actions.Silenced]:
    """Return what can be silenced, by its text: each alert that is going on, and then all of a name."""
    going_on = (alert for alert in alerts if alert["state"] != AlertState.RESOLVED.value)
    single = {
        silenced_text(alert["name"], alert["labels"]): (alert["name"], tuple(alert["labels"].items()))
        for alert in going_on
        if alert["labels"]
    }
    return {**single, **{f"every {name}": (name, ()) for name in sorted(BY_NAME)}}


class _Silences:
    """Buttons, and the list of those that hold."""

    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame = site, frame
        self._silences: dict[str, str] = {}
        self._may_change = may_use(PageControl.SILENCE_ALERTS)
        with ui.row().classes("tools"):
            self._begin = button("Silence alerts", self._ask)
            self._end = button("End a silence", self._ask_to_end)
        self._begin.visible = self._may_change
        self._panel = Fragment("panel")

    async def draw(self) -> None:
        silences: list[SilenceBody] = await shown_silences(self._site.services)
        rows = [
            {**silence, "subject": silenced_text(silence["alert"], silence["labels"])} for silence in silences
        ]
        self._silences = {str(row["silence_id"]): f"{row['subject']}, until {row['until']}" for row in rows}
        self._end.visible = self._may_change and bool(rows)
        self._panel.draw("silences", silences=rows)

    async def _ask(self) -> None:
        choices = silence_choices(await shown_alerts(self._site.services))
        fields: list[ui.select] = []

        def build() -> None:
            fields.append(choice_field("Alerts", list(choices), None, width="wide"))
            fields.append(choice_field("For", LENGTHS, "7200", width="wide"))

        async def act(by: str, reason: str) -> str:
            chosen, for_s = (str(field.value) for field in fields)
            if chosen not in choices or for_s not in LENGTHS:
                raise RefusedError(ErrorKind.INVALID_REQUEST, "choose alerts and a time")
            return await actions.silence_alerts(self._site, choices[chosen], int(for_s), by, reason)

        confirm(self._frame, "Silence alerts", CONSEQUENCE, "Silence", act, more=build, needs_reason=True)

    def _ask_to_end(self) -> None:
        fields: list[ui.select] = []

        def build() -> None:
            fields.append(choice_field("Silence", self._silences, None, width="wide"))

        async def act(by: str, reason: str) -> str:
            return await actions.end_silence(self._site, str(fields[0].value), by, reason)

        confirm(self._frame, "End a silence", "Alerts that still fire are sent again.", "End", act, more=build)


def register(site: Site) -> None:
    @console_page("/alerts")
    async def alerts(request: Request) -> None:
        with page_frame(site, request, "Alerts", "alerts", note=NOTE) as frame:
            silences = _Silences(site, frame)
            panels = [Fragment("panel") for _ in PARTS]

            async def draw() -> None:
                await silences.draw()
                for panel, (state, title, nothing, since) in zip(panels, PARTS, strict=True):
                    shown = await shown_alerts(site.services, state)
                    is_over = state is AlertState.RESOLVED
                    words = {"title": title, "nothing": nothing, "since": since}
                    panel.draw("alerts", alerts=shown, is_over=is_over, is_good=not is_over, **words)

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
            Fragment("panel").draw("runbook", text=text.partition("\n")[2].strip())
            action_link("All alerts", link("alerts"))
            await frame.live()
