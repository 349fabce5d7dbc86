"""``/console/zones``: all zones with their parameters, how even they are, and where they are on their way."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console.actions import limits
from app.console.browser import EMPTY, Fragment, html
from app.console.controls import action_link
from app.console.feed import Topic
from app.console.fragments import link, render
from app.console.frame import console_page, go, page_frame
from app.console.grids import COLUMN, live_grid, number_column, show_rows
from app.console.shared import NEW_ZONE, Site
from app.console.zone_states import ZoneState, skew_of, zone_state
from app.contract.zones import ZoneBody

YIELD_EVERY = 100

COLUMNS: list[dict[str, Any]] = [
    {**COLUMN, "field": "name", "headerName": "Zone", "flex": 2, "cellClass": "link"},
    {**COLUMN, "field": "state", "headerName": "State", "flex": 2},
    number_column("partitions", "Partitions"),
    {**COLUMN, "field": "replicas", "headerName": "Replicas", "type": "rightAligned", "flex": 1},
    number_column("quorum", "Quorum"),
    number_column("data_nodes", "Data nodes"),
    number_column("skew", "Skew"),
    {**COLUMN, "field": "algorithm", "headerName": "Placement", "flex": 1},
    {**COLUMN, "field": "profiles", "headerName": "Profiles", "flex": 1},
    {**COLUMN, "field": "pause", "headerName": "Pause", "flex": 1},
]


def zone_row(state: ZoneState, told: ZoneBody, skew: int, pause: str) -> dict[str, Any]:
    """``told`` is the API's description; ``skew``: replicas of the fullest data node minus the emptiest's."""
    moves = state.moves
    progress = "" if state.is_settled else f", {moves.done:,} of {moves.total:,} done"
    return {
        "name": state.zone.name,
        "state": f"{state.word}{progress}",
        "partitions": told["partitions"],
        "replicas": str(told["replicas"]),
        "quorum": told["quorum_size"],
        "data_nodes": len(told["data_nodes"]),
        "skew": skew,
        "algorithm": state.zone.algorithm.value,
        "profiles": ", ".join(told["storage_profiles"]),
        "pause": pause,
    }


async def _rows(site: Site, pauses: dict[str, str]) -> list[dict[str, Any]]:
    catalog, views, rows = await site.catalog(), site.services.views, []
    for at, zone in enumerate(catalog.zones):
        if at % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        grid, intent = site.feed.grids.get(zone.zone_id), site.feed.intents.get(zone.zone_id)
        if grid is None or intent is None:
            continue
        told = views.zone(zone, catalog.version)
        skew = skew_of(grid.loads(), told["data_nodes"])["replicas"].max_min
        state = zone_state(zone, grid, views.whole_wait(intent))
        rows.append(zone_row(state, told, skew, pauses.get(zone.name, "")))
    return rows


def register(site: Site) -> None:
    @console_page("/zones")
    async def zones(request: Request, q: str = "") -> None:
        with page_frame(site, request, "Zones", "zones") as frame:
            note = "Where data lives. Open one for its parameters, its skew and its history."
            html(render("title", title="Zones", note=note))
            with ui.row().classes("tools"):
                search = ui.input("Search", value=q).props("outlined dense clearable").classes("search")
                action_link("New zone in the SQL editor", link("sql", text=NEW_ZONE))
            empty = Fragment()
            grid = live_grid(COLUMNS, "Zones")
            grid.on("cellClicked", lambda event: go(link("zones", event.args["data"]["name"])), ["data"])
            grid.run_grid_method("setGridOption", "quickFilterText", q)

            def find() -> None:
                text = search.value or ""
                grid.run_grid_method("setGridOption", "quickFilterText", text)
                ui.navigate.history.replace(link("zones", q=text))

            search.on_value_change(find)

            async def draw() -> None:
                found, _ = await limits(site)
                paused = {each["zone"]: f"by {each['by']}" for each in found["zone_pauses"]}
                rows = await _rows(site, paused)
                grid.visible = bool(rows)
                target = link("sql", text=NEW_ZONE)
                empty.show(EMPTY if rows else render("empty", what="zone", example=NEW_ZONE, target=target))
                show_rows(grid, rows)

            await frame.live(draw, lambda: (site.feed.version, site.changes, site.feed.seen(Topic.LIMITS)))
