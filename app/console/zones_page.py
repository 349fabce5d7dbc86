"""``/console/zones``: all zones with their parameters, their skew, and how far each has been rebalanced; of one
zone its progress, too, and the statements that made it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.actions import limits
from app.console.charts import bar_options, copies_of
from app.console.controls import ButtonKind, PageAction, action_link, button, text_field
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, natural, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.grids import (
    bar_chart,
    details,
    grid_columns,
    grid_row,
    live_grid,
    number_column,
    show_chart,
    show_rows,
    text_column,
)
from app.console.plan import quoted
from app.console.shared import NEW_ZONE, ConsoleEvent, Site, no_zone
from app.console.viewer import may_use, page_refusal
from app.console.zone_grid import NodeLoad, ZoneGrid
from app.console.zone_states import ZoneState, skew_of, zone_state
from app.contract.zones import ZoneBody
from app.security.policy import PageControl
from catalog.core.zone import Zone
from parser.render import render_zone

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


HISTORY_SHOWN = 20
PAUSE = PageAction(
    "Pause",
    "Pause moves of {}?",
    "No further partition of this zone starts to move. Moves that are running finish.",
    actions.pause_zone,
    PageControl.CHANGE_LIMITS,
)
RESUME = PageAction(
    "Resume",
    "Resume moves of {}?",
    "Waiting moves can start at once, within the limits.",
    actions.resume_zone,
    PageControl.CHANGE_LIMITS,
)
ACTIVATE = PageAction(
    "Activate",
    "Activate {}?",
    "Its store servers open the zone's files, and requests are served again.",
    actions.activate_zone,
    PageControl.REST_ZONE,
)
DEACTIVATE = PageAction(
    "Deactivate",
    "Deactivate {}?",
    "Requests are refused (ZONE_DEACTIVATED) until the zone is activated. Its files stay as they are.",
    actions.deactivate_zone,
    PageControl.REST_ZONE,
    is_dangerous=True,
)
RESET_LOST = PageAction(
    "Reset lost partitions",
    "Reset the lost partitions of {}?",
    "In-sync replicas that are back own their partitions again, with every acknowledged write. If there is "
    "none, the replica with the most data takes over, and writes that only the lost replicas have are lost. "
    "Start their nodes "
    "first if possible.",
    actions.reset_lost_partitions,
    PageControl.RECOVER_ZONE,
    is_dangerous=True,
)


def named_in(events: tuple[ConsoleEvent, ...], zone: str) -> list[ConsoleEvent]:
    """Statements that name the zone, the newest first."""
    word = re.compile(rf"(?<![\w]){re.escape(zone)}(?![\w])", re.IGNORECASE)
    return [event for event in events if word.search(event.statement)][:HISTORY_SHOWN]


class _ZoneView:
    """The page of one zone, by the name that it was asked for."""

    def __init__(self, site: Site, frame: PageFrame, zone: Zone) -> None:
        self._site, self._name, self._action, self._rest = site, zone.name, PAUSE, DEACTIVATE
        self._head = Fragment()
        alter = f"ALTER ZONE {quoted(zone.name)} SET (REPLICAS 3);"
        with ui.row().classes("tools"):
            action_link("Partition map", link("map", zone=zone.name))
            if page_refusal("/plan") is None:
                action_link("Plan a change", link("plan", zone=zone.name))
                action_link("What if nodes change?", link("what-if", zone=zone.name))
            if page_refusal("/recovery") is None and not site.services.views.is_store(zone.zone_id):
                action_link("Recovery", link("recovery", zone=zone.name))
            if may_use(PageControl.ALTER_ZONE, zone.zone_id):
                action_link("Alter in the SQL editor", link("sql", text=alter))
            self._button = button("Pause moves", lambda: self._action.ask(frame, zone.name))
            self._rest_button = button("Deactivate zone", lambda: self._rest.ask(frame, zone.name))
            self._reset_button = button(
                RESET_LOST.word, lambda: RESET_LOST.ask(frame, zone.name), ButtonKind.DANGER
            )
        self._rest_button.visible = self._reset_button.visible = False
        self._button.visible = may_use(PAUSE.control)
        with ui.element("div").classes("two"):
            self._parameters, self._progress = Fragment("panel"), Fragment("panel")
        with ui.element("section").classes("panel"):
            self._skew = Fragment()
            self._chart = bar_chart()
        self._history = Fragment("panel")

    async def draw(self) -> None:
        site, views = self._site, self._site.services.views
        zone = await site.zone(self._name)
        catalog = await site.catalog()
        body = views.zone(zone, catalog)
        limits, _ = await actions.limits(site)
        pause = next((row for row in limits["zone_pauses"] if row["zone_id"] == zone.zone_id), None)
        self._action = RESUME if pause else PAUSE
        self._button.text = f"{self._action.word} moves"
        ownership = views.ownership
        is_resting, lost = ownership.is_resting(zone.zone_id), ownership.lost_partitions(zone.zone_id)
        self._rest = ACTIVATE if is_resting else DEACTIVATE
        self._rest_button.text = f"{self._rest.word} zone"
        self._rest_button.visible = ownership.has(zone.zone_id) and may_use(DEACTIVATE.control, zone.zone_id)
        self._reset_button.visible = lost > 0 and may_use(RESET_LOST.control, zone.zone_id)
        note = f"Zone {zone.zone_id}, catalog version {body['catalog_version']}."
        self._head.draw("title", title=zone.name, note=note)
        parameters = details(ZoneBody, body, "data_nodes")
        self._parameters.draw(
            "zone_parameters", parameters=parameters, ddl=render_zone(zone), nodes=body["data_nodes"]
        )
        grid, intent = site.feed.grids.get(zone.zone_id), site.feed.intents.get(zone.zone_id)
        if grid is not None and intent is not None:
            state = zone_state(zone, grid, views.whole_wait(intent))
            held = {"pause": pause, "is_resting": is_resting, "lost_partitions": lost}
            self._progress.draw("zone_progress", state=state, zone=zone.name, **held)
            self._draw_skew(grid, body["data_nodes"])
        history = site.history(catalog.version)
        events = None if history is None else named_in(history, zone.name)
        may_read = may_use(PageControl.READ_STATEMENTS)
        self._history.show(render("zone_history", events=events, zone=zone.name) if may_read else EMPTY)

    def _draw_skew(self, grid: ZoneGrid, data_nodes: list[str]) -> None:
        loads = grid.loads()
        self._skew.draw("zone_skew", skew=skew_of(loads, data_nodes), nodes=len(data_nodes))
        holders = {name for name, load in loads.items() if load.replicas}
        names = sorted({*data_nodes, *holders}, key=natural)
        rows: list[dict[str, Any]] = [{"name": name, **asdict(loads.get(name, NodeLoad()))} for name in names]
        show_chart(self._chart, bar_options(copies_of(rows)))


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

    @console_page("/zones/{zone:segment}")
    async def zone_of(request: Request, zone: str) -> None:
        with page_frame(site, request, zone, "zones") as frame:
            owner = await site.zone(zone)
            view = _ZoneView(site, frame, owner)
            await frame.live(view.draw, owner.zone_id, Topic.ZONES, Topic.STATEMENTS, Topic.LIMITS)
