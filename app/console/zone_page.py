"""``/console/zones/{zone}``: its parameters, where it is, how even it is, and the statements that made it."""

from __future__ import annotations

import re
from collections.abc import Hashable

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import Fragment
from app.console.charts import Bars, bar_options, copies_of
from app.console.confirm import confirm
from app.console.controls import action_link, button
from app.console.feed import Topic
from app.console.fragments import link, natural, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.grids import show_chart
from app.console.plan import quoted
from app.console.shared import ConsoleEvent, Site
from app.console.zone_grid import NodeLoad
from app.console.zone_states import ZoneState, skew_of, zone_state
from app.contract.zones import ZoneBody
from app.sql.explain import parameters_of
from catalog.core.zone import Zone
from parser.render import render_zone

HISTORY_SHOWN = 20


def named_in(events: tuple[ConsoleEvent, ...], zone: str) -> list[ConsoleEvent]:
    """Statements that name the zone, the newest first."""
    word = re.compile(rf"(?<![\w]){re.escape(zone)}(?![\w])", re.IGNORECASE)
    return [each for each in events if word.search(each.statement)][:HISTORY_SHOWN]


class _ZoneView:
    """The page of one zone, by the name that it was asked for."""

    def __init__(self, site: Site, frame: PageFrame, zone: Zone) -> None:
        self._site, self._frame, self._zone_id = site, frame, zone.zone_id
        self._name = name = zone.name
        self._head = Fragment()
        with ui.row().classes("tools"):
            action_link("Map of partitions", link("map", zone=name))
            action_link("Plan a change", link("plan", zone=name))
            action_link("What if nodes change?", link("what-if", zone=name))
            action_link("Recovery", link("recovery", zone=name))
            alter = f"ALTER ZONE {quoted(name)} SET (REPLICAS 3);"
            action_link("Alter in the SQL editor", link("sql", text=alter))
            self._pause = button("Pause moves", self._ask_pause)
        with ui.element("div").classes("two"):
            self._parameters, self._progress = Fragment("panel"), Fragment("panel")
        with ui.element("section").classes("panel"):
            self._skew = Fragment()
            self._chart = ui.echart(bar_options(Bars((), ()))).classes("chart")
        self._history = Fragment("panel")
        self._is_paused = False

    def of(self) -> Hashable:
        feed = self._site.feed
        grid = feed.grids.get(self._zone_id)
        return grid.version if grid is not None else -1, self._site.changes, feed.seen(Topic.LIMITS)

    async def draw(self) -> None:
        site = self._site
        zone = await site.services.zones.find(self._name)
        catalog = await site.catalog()
        told = site.services.views.zone(zone, catalog.version)
        grid, intent = site.feed.grids.get(zone.zone_id), site.feed.intents.get(zone.zone_id)
        found, _ = await actions.limits(site)
        pause = next((each for each in found["zone_pauses"] if each["zone_id"] == zone.zone_id), None)
        self._is_paused = pause is not None
        self._pause.text = "Resume moves" if pause else "Pause moves"
        self._head.show(
            render(
                "title",
                title=zone.name,
                note=f"Zone {zone.zone_id}, of catalog version {told['catalog_version']}.",
            )
        )
        data_nodes = site.services.views.data_nodes(zone.zone_id)
        parameters = parameters_of(zone, data_nodes)
        self._parameters.show(
            render("zone_parameters", parameters=parameters, ddl=render_zone(zone), told=told)
        )
        if grid is not None and intent is not None:
            state = zone_state(zone, grid, site.services.views.whole_wait(intent))
            self._progress.show(render("zone_progress", state=state, pause=pause, zone=zone.name))
            self._draw_skew(state, told)
        history = site.history(catalog.version)
        events = None if history is None else named_in(history, zone.name)
        self._history.show(render("zone_history", events=events, zone=zone.name))

    def _draw_skew(self, state: ZoneState, told: ZoneBody) -> None:
        loads = self._site.feed.grids[state.zone.zone_id].loads()
        skew = skew_of(loads, told["data_nodes"])
        self._skew.show(render("zone_skew", skew=skew, nodes=len(told["data_nodes"])))
        held_on = {name for name, load in loads.items() if load.replicas}
        names = tuple(sorted({*told["data_nodes"], *held_on}, key=natural))
        held = [(name, loads.get(name, NodeLoad())) for name in names]
        bars = copies_of([(name, load.voters, load.leaders, load.learners) for name, load in held])
        show_chart(self._chart, bar_options(bars))

    def _ask_pause(self) -> None:
        name, site = self._name, self._site

        async def resume(by: str, reason: str) -> str:
            await actions.change_limits(site, {"zone_pauses": {name: None}})
            return f"Moves of zone {name} go on."

        async def hold(by: str, reason: str) -> str:
            await actions.change_limits(site, {"zone_pauses": {name: actions.pause(by, reason, None)}})
            return f"Moves of zone {name} are paused."

        if self._is_paused:
            told = "What waits may begin at once, under the limits that hold."
            confirm(self._frame, f"Resume moves of {name}?", told, "Resume", resume)
        else:
            told = "No further partition of this zone begins to move; what moves goes on to its end."
            confirm(self._frame, f"Pause moves of {name}?", told, "Pause", hold)


def register(site: Site) -> None:
    @console_page("/zones/{zone:segment}")
    async def zone_of(request: Request, zone: str) -> None:
        with page_frame(site, request, zone, "zones") as frame:
            found = await site.services.zones.find(zone)
            view = _ZoneView(site, frame, found)
            await frame.live(view.draw, view.of)
