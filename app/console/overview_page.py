"""``/console``: health, what moves, what is blocked and by what, and the latest changes."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from app.api.alerts import shown_alerts
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, render
from app.console.frame import console_page, page_frame
from app.console.overview import health_bar, stuck, tiles, unsettled
from app.console.shared import Site
from app.console.viewer import may_use
from app.console.zone_states import zone_states
from app.security.policy import PageControl
from rebalance.core.alert_state import AlertState

CHANGES_SHOWN = 8


def register(site: Site) -> None:
    @console_page("/")
    async def overview(request: Request) -> None:
        with page_frame(site, request, "Overview", "", note="State of the whole installation.") as frame:
            health, fired = Fragment("panel"), Fragment("panel")
            with ui.element("div").classes("two"):
                moving, waiting = Fragment("panel"), Fragment("panel")
            changes = Fragment("panel")

            async def draw() -> None:
                catalog = await site.catalog()
                views = site.services.views
                states = zone_states(site.feed, views)
                held = {node for grid in site.feed.grids.values() for node in grid.nodes}
                alive = set(views.live_records())
                health.show(
                    render(
                        "overview_health",
                        tiles=tiles(await site.readiness(), len(alive), len(held | alive)),
                        health=health_bar(states),
                        partitions=sum(state.moves.total for state in states),
                        zones=len(states),
                        lost=sum(state.lost for state in states),
                    )
                )
                alerts = await shown_alerts(site.services)
                going_on = [alert for alert in alerts if alert["state"] != AlertState.RESOLVED.value]
                fired.show(render("overview_alerts", alerts=going_on))
                moving.show(render("overview_moves", zones=unsettled(states), total=len(states)))
                waiting.show(render("overview_causes", causes=stuck(states)))
                history = site.history(catalog.version)
                shown = render("overview_changes", events=history and history[:CHANGES_SHOWN])
                changes.show(shown if may_use(PageControl.READ_STATEMENTS) else EMPTY)

            await frame.live(draw, Topic.PARTITIONS, Topic.ZONES, Topic.NODES, Topic.STATEMENTS, Topic.ALERTS)
