"""``/console/zones``: all zones with their parameters, their skew, and how far each has been rebalanced."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console.actions import limits
from app.console.controls import action_link, text_field
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link
from app.console.frame import console_page, page_frame
from app.console.grids import grid_columns, grid_row, live_grid, number_column, show_rows, text_column
from app.console.shared import NEW_ZONE, Site, no_zone
from app.console.viewer import may_use
from app.console.zone_states import ZoneState, skew_of, zone_state
from app.contract.zones import ZoneBody
from app.security.policy import PageControl

YIELD_EVERY = 100

COLUMNS: list[dict[str, Any]] = [
    text_column("name", "Zone", flex=2),
    text_column("state", "State", flex=2),
    *grid_columns(ZoneBody, "partitions", "replicas", "quorum_size"),
    number_column("data_nodes", "Data nodes"),
    number_column("skew", "Skew"),
    *grid_columns(ZoneBody, "distribution_algorithm", "consistency_mode", "storage_profiles"),
    text_column("pause", "Paused"),
]


def zone_row(state: ZoneState, body: ZoneBody, skew: int, pause: str) -> dict[str, Any]:
    """``body`` is the API's description; ``skew``: replicas of the fullest data node minus the emptiest's."""
    moves = state.moves
    progress = "" if state.is_settled else f", {moves.done:,} of {moves.total:,} done"
    return {
        **grid_row(ZoneBody, body),
        "state": f"{state.word}{progress}",
        "data_nodes": len(body["data_nodes"]),
        "skew": skew,
        "pause": pause,
    }


async def _rows(site: Site, pauses: dict[str, str]) -> list[dict[str, Any]]:
    catalog, views, rows = await site.catalog(), site.services.views, []
    grids, intents = site.feed.grids, site.feed.intents
    for at, zone in enumerate(catalog.zones):
        if at % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        grid, intent = grids.get(zone.zone_id), intents.get(zone.zone_id)
        if grid is None or intent is None:
            continue
        body = views.zone(zone, catalog)
        skew = skew_of(grid.loads(), body["data_nodes"])["replicas"].max_min
        state = zone_state(zone, grid, views.whole_wait(intent))
        rows.append(zone_row(state, body, skew, pauses.get(zone.name, "")))
    return rows


def register(site: Site) -> None:
    @console_page("/zones")
    async def zones(request: Request, q: str = "") -> None:
        note = "Select a zone for its parameters, its skew and its history."
        with page_frame(site, request, "Zones", "zones", note=note) as frame:
            with ui.row().classes("tools"):
                search = text_field("Search", q, width="search").props("clearable")
                if may_use(PageControl.CREATE_ZONE):
                    action_link("New zone in the SQL editor", link("sql", text=NEW_ZONE))
            empty = Fragment()
            grid = live_grid(COLUMNS, "Zones", "zones")
            grid.run_grid_method("setGridOption", "quickFilterText", q)

            def find() -> None:
                text = search.value or ""
                grid.run_grid_method("setGridOption", "quickFilterText", text)
                ui.navigate.history.replace(link("zones", q=text))

            search.on_value_change(find)

            async def draw() -> None:
                limits_now, _ = await limits(site)
                rows = await _rows(site, {p["zone"]: f"by {p['by']}" for p in limits_now["zone_pauses"]})
                grid.visible = bool(rows)
                empty.show(EMPTY if rows else no_zone())
                show_rows(grid, rows)

            await frame.live(draw, Topic.PARTITIONS, Topic.ZONES, Topic.LIMITS, Topic.STATEMENTS)
