"""``/console``: health, what moves, what is blocked and by what, and the latest changes.

Who may not see the system is shown the same of the zones that they see.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from nicegui import ui

from app.api.alerts import shown_alerts
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, render
from app.console.frame import console_page, page_frame
from app.console.shared import Site
from app.console.viewer import may_use, sees_system
from app.console.zone_states import Tile, health_bar, stuck, tiles, unsettled, zone_states
from app.core.alerts import AlertState
from app.security.policy import PageControl

CHANGES_SHOWN = 8


class _Overview:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._health, self._fired = Fragment("panel"), Fragment("panel")
        with ui.element("div").classes("two"):
            self._moving, self._waiting = Fragment("panel"), Fragment("panel")
        self._changes = Fragment("panel")

    async def draw(self) -> None:
        states = zone_states(self._site.feed, self._site.services.views)
        self._health.draw(
            "overview_health",
            tiles=await self._tiles() if sees_system() else (),
            health=health_bar(states),
            partitions=sum(state.moves.total for state in states),
            zones=len(states),
            lost=sum(state.lost for state in states),
        )
        if sees_system():
            alerts = await shown_alerts(self._site.services)
            going_on = [alert for alert in alerts if alert["state"] != AlertState.RESOLVED.value]
            self._fired.draw("overview_alerts", alerts=going_on)
        may_create = may_use(PageControl.CREATE_ZONE)
        zones, total = unsettled(states), len(states)
        self._moving.draw("overview_moves", zones=zones, total=total, may_create=may_create)
        self._waiting.draw("overview_causes", causes=stuck(states))
        history = self._site.history((await self._site.catalog()).version)
        shown = render("overview_changes", events=history and history[:CHANGES_SHOWN])
        self._changes.show(shown if may_use(PageControl.READ_STATEMENTS) else EMPTY)

    async def _tiles(self) -> Sequence[Tile]:
        views = self._site.services.views
        held = {node for grid in self._site.feed.grids.values() for node in grid.nodes}
        alive = set(views.live_records())
        return tiles(await self._site.readiness(), len(alive), len(held | alive))


def register(site: Site) -> None:
    @console_page("/")
    async def overview(request: Request) -> None:
        note = "State of the whole installation." if sees_system() else "State of the zones that you may see."
        with page_frame(site, request, "Overview", "", note=note) as frame:
            topics = (Topic.PARTITIONS, Topic.ZONES, Topic.NODES, Topic.STATEMENTS, Topic.ALERTS)
            await frame.live(_Overview(site).draw, *topics)
