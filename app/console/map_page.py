"""``/console/map``: a zone's partitions by nodes, from all down to one; what is shown is in the address."""

from __future__ import annotations

import asyncio
from operator import attrgetter

import numpy as np
from fastapi import Request
from nicegui import events, ui

from app.console.browser import html, set_height
from app.console.controls import button, choice_field, number_field
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, render
from app.console.frame import console_page, go, page_frame
from app.console.grids import patch_cells, show_chart
from app.console.heat_map import (
    HeatMap,
    Shown,
    changed_columns,
    chart_options,
    chosen,
    heat_map,
    legend,
    summary,
)
from app.console.shared import Site, no_zone
from app.console.viewer import shown_cause
from app.console.zone_grid import MoveCell
from catalog.core.zone import Zone

LISTED_MAX = 50
ROW_PX = 26
MANY_NODES_ROW_PX = 14
NODES_FEW = 30

CHOICES = {
    Shown.EVERY.value: "all partitions",
    Shown.UNSETTLED.value: "not done",
    Shown.MOVING.value: "moving",
    Shown.WAITING.value: "waiting",
    Shown.UNHEALTHY.value: "degraded or worse",
}


class _Map:
    """``first`` to ``last`` (None: the zone's end) of ``zone``."""

    def __init__(self, site: Site, zone: Zone, shown: Shown, first: int, last: int | None) -> None:
        self._site, self._zone, self._shown = site, zone, shown
        self._first, self._last = first, last
        self._map: HeatMap | None = None
        self._drawn: tuple[int, tuple[str, ...]] = -1, ()
        with ui.row().classes("tools"):
            names = sorted(intent.zone.name for intent in site.feed.intents.values()) or [zone.name]
            zones = choice_field("Zone", names, zone.name)
            zones.on_value_change(lambda event: go(self._address(zone=event.value, from_=None, to=None)))
            which = choice_field("Show", CHOICES, shown.value, width="choice wide")
            which.on_value_change(lambda event: go(self._address(show=event.value)))
            number = number_field("Partition", low=0, high=zone.partitions - 1)
            number.on("keydown.enter", lambda: self._open(number.value))
            button("Explain placement", lambda: self._open(number.value))
        self._range = Fragment("range")
        with ui.element("section").classes("panel"):
            self._legend = Fragment()
            self._empty = Fragment()
            self._chart = ui.echart({}, on_point_click=self._clicked).classes("map")
            self._summary = ui.label("").classes("note")
        self._list = Fragment("panel")

    def _address(self, **changed: str | int | None) -> str:
        query = {"zone": self._zone.name, "show": self._shown.value, "from_": self._first or None}
        return link("map", **{**query, "to": self._last, **changed})

    def _open(self, number: float | None) -> None:
        if number is not None and 0 <= number < self._zone.partitions:
            go(link("zones", self._zone.name, "partitions", int(number)))

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        ranges = self._map.ranges if self._map is not None else ()
        at = int(event.value[0]) if isinstance(event.value, list) else len(ranges)
        if at >= len(ranges):
            return
        clicked = ranges[at]
        if clicked.first == clicked.last:
            self._open(clicked.first)
        else:
            go(self._address(from_=clicked.first, to=clicked.last))

    async def draw(self) -> None:
        grid = self._site.feed.grids.get(self._zone.zone_id)
        if grid is None:
            self._empty.show(render("loading", what="Reading the zone."))
            return
        data_nodes = self._site.services.views.data_nodes(self._zone.zone_id)
        nodes = data_nodes.nodes if data_nodes is not None else ()
        before, self._drawn = self._drawn, (grid.version, nodes)
        if before == self._drawn:
            return
        numbers = chosen(grid, self._shown, self._first, self._last)
        shown = self._map
        self._map = drawn = await asyncio.to_thread(heat_map, grid, numbers, nodes)
        columns = await asyncio.to_thread(changed_columns, shown, drawn)
        if columns is None:
            self._show(drawn)
        elif columns:
            self._summary.text = summary(drawn)
            patch_cells(self._chart, chart_options(drawn), columns)
        unsettled: list[int] = numbers[grid.moves[numbers] > MoveCell.DONE].tolist()
        listed = [
            (number, MoveCell(int(grid.moves[number])).name.lower(), shown_cause(grid.causes[number]))
            for number in unsettled[:LISTED_MAX]
        ]
        unread = int(np.count_nonzero(grid.moves[numbers] == MoveCell.UNREAD))
        facts = {"listed": listed, "count": len(unsettled), "unread": unread}
        self._list.show(render("map_list", zone=self._zone.name, **facts))

    def _show(self, drawn: HeatMap) -> None:
        end = self._zone.partitions - 1
        last = end if self._last is None else min(self._last, end)
        at_whole = self._first == 0 and last == end
        self._range.show(
            render(
                "map_range",
                zone=self._zone,
                first=self._first,
                last=last,
                whole="" if at_whole else self._address(from_=None, to=None),
                ranges=[] if drawn.is_single else drawn.ranges,
                address=lambda part: self._address(from_=part.first, to=part.last),
            )
        )
        self._empty.show(EMPTY if drawn.selected else render("nothing_here", shown=CHOICES[self._shown.value]))
        self._chart.visible = bool(drawn.selected and drawn.nodes)
        self._legend.show(render("map_legend", legend=legend(drawn)))
        self._summary.text = summary(drawn)
        # Every node's name can be read.
        row_px = ROW_PX if len(drawn.nodes) <= NODES_FEW else MANY_NODES_ROW_PX
        set_height(self._chart, 70 + max(len(drawn.nodes), 3) * row_px)
        show_chart(self._chart, chart_options(drawn))


def register(site: Site) -> None:
    @console_page("/map")
    async def partition_map(
        request: Request, zone: str = "", show: str = Shown.EVERY.value, to: int | None = None
    ) -> None:
        first = request.query_params.get("from", "0")
        note = "Replicas by node. Select a column to zoom in, a partition to explain its placement."
        with page_frame(site, request, "Partition map", "map", note=note) as frame:
            zones = (await site.catalog()).zones
            if not zone and not zones:
                html(no_zone())
                await frame.live()
                return
            shown = Shown(show) if show in CHOICES else Shown.EVERY
            owner = await site.zone(zone or max(zones, key=attrgetter("zone_id")).name)
            view = _Map(site, owner, shown, int(first) if first.isdigit() else 0, to)
            await frame.live(view.draw, owner.zone_id, Topic.ZONES)
