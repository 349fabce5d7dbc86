"""``/console/rebalance``: what moves, what holds it back, the limits, and pauses."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import button, confirm
from app.console.feed import Topic
from app.console.fragments import Fragment, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.limits_form import LimitsForm
from app.console.overview import stuck, unsettled
from app.console.shared import Site
from app.console.viewer import may_use
from app.console.zone_states import zone_states
from app.security.policy import PageControl

MINUTES_MAX = 366 * 24 * 60


class _Pause:
    """Pause of the whole cluster."""

    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame, self._is_paused = site, frame, False
        with ui.element("section").classes("panel"):
            self._pauses = Fragment()
            with ui.row().classes("tools"):
                self._minutes = ui.number("Minutes", min=1, max=MINUTES_MAX, precision=0, format="%d")
                self._minutes.props('outlined dense clearable hint="empty: until resumed"')
                self._minutes.classes("choice wide")
                self._button = button("Pause all moves", self._ask)
            self._may_change = self._button.visible = may_use(PageControl.CHANGE_LIMITS)

    def show(self, limits: dict[str, Any]) -> None:
        self._is_paused = limits["pause"] is not None
        self._minutes.visible = self._may_change and not self._is_paused
        self._button.text = "Resume" if self._is_paused else "Pause all moves"
        self._pauses.show(render("rebalance_pauses", pause=limits["pause"], zones=limits["zone_pauses"]))

    def _ask(self) -> None:
        site, minutes = self._site, self._minutes.value

        async def resume(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": None, "reason": reason})
            return "Moves begin again."

        async def hold(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": actions.pause(by, reason, minutes)})
            return "No move starts until the pause ends."

        if self._is_paused:
            confirm(self._frame, "Resume moves?", "Waiting moves may begin at once.", "Resume", resume)
        else:
            until = f"for {minutes:g} minutes" if minutes else "until resumed"
            consequence = (
                f"No move of any zone begins {until}; running moves finish. Reads and writes continue."
            )
            confirm(self._frame, "Pause all moves?", consequence, "Pause", hold)


def register(site: Site) -> None:
    @console_page("/rebalance")
    async def rebalance(request: Request) -> None:
        with page_frame(site, request, "Rebalance", "rebalance") as frame:
            note = "Partitions that move or wait, pauses, and the limits of moves."
            html(render("title", title="Rebalance", note=note))
            with ui.element("div").classes("two"):
                moving, waiting = Fragment("panel"), Fragment("panel")
            pause, limits = _Pause(site, frame), LimitsForm(site, frame)

            async def draw() -> None:
                states = zone_states(site.feed, site.services.views)
                may_create = may_use(PageControl.CREATE_ZONE)
                moves = {"zones": unsettled(states), "total": len(states), "may_create": may_create}
                moving.show(render("overview_moves", **moves))
                waiting.show(render("overview_causes", causes=stuck(states)))
                values, tag = await actions.limits(site)
                pause.show(values)
                limits.show(values, tag)

            await frame.live(draw, Topic.PARTITIONS, Topic.LIMITS)
