"""``/console/map``: a zone's partitions by nodes, from all down to one; what is shown is in the address."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from fastapi import Request
from nicegui import events, ui

from app.console.browser import EMPTY, Fragment, html, set_height
from app.console.cells import MoveCell
from app.console.controls import button
from app.console.feed import Topic
from app.console.fragments import link, render
from app.console.frame import console_page, go, page_frame
from app.console.grids import patch_cells, show_chart
from app.console.heat_map import (
    HeatMap,
    Shown,
    chart_options,
    chosen,
    columns_of,
    heat_map,
    legend,
    recounted,
    summary,
)
from app.console.shared import NEW_ZONE, Site
from app.console.zone_grid import Numbers, ZoneGrid
from catalog.core.zone import Zone

LISTED_MAX = 50
ROW_PX = 26
MANY_NODES_ROW_PX = 14
NODES_FEW = 30

CHOICES = {
    Shown.EVERY.value: "every partition",
    Shown.UNSETTLED.value: "not where they should be",
    Shown.MOVING.value: "moving",
    Shown.WAITING.value: "waiting",
    Shown.UNHEALTHY.value: "degraded or worse",
}


@dataclass(frozen=True, slots=True)
class Listed:
    number: int
    state: str
    cause: str


def unsettled_partitions(grid: ZoneGrid, numbers: Numbers) -> tuple[list[Listed], int]:
    """Those of ``numbers`` that are not done, the first of them, and how many there are."""
    found = numbers[grid.moves[numbers] > MoveCell.DONE]
    listed = [
        Listed(number, MoveCell(int(grid.moves[number])).name.lower(), grid.causes[number])
        for number in found[:LISTED_MAX].tolist()
    ]
    return listed, len(found)


def chart_height(nodes: int) -> int:
    """In pixels: every node's name can be read."""
    return 70 + max(nodes, 3) * (ROW_PX if nodes <= NODES_FEW else MANY_NODES_ROW_PX)


class _Map:
    """``first`` to ``last`` (None: the zone's end) of ``zone``."""

    def __init__(self, site: Site, zone: Zone, shown: Shown, first: int, last: int | None) -> None:
        self._site, self._zone, self._shown = site, zone, shown
        self._first, self._last = first, last
        self._found: HeatMap | None = None
        self._drawn: tuple[int, tuple[str, ...]] = -1, ()
        with ui.row().classes("tools"):
            names = sorted(each.zone.name for each in site.feed.intents.values()) or [zone.name]
            zones = ui.select(
                names, value=zone.name, label="Zone", on_change=lambda event: self._go(zone=event.value)
            )
            zones.props("outlined dense").classes("choice")
            which = ui.select(
                CHOICES, value=shown.value, label="Show", on_change=lambda event: self._go(show=event.value)
            )
            which.props("outlined dense").classes("choice wide")
            number = ui.number("Partition", min=0, max=zone.partitions - 1, precision=0, format="%d")
            number.props("outlined dense").classes("number").on(
                "keydown.enter", lambda: self._open(number.value)
            )
            button("Why is it there?", lambda: self._open(number.value))
        self._range = Fragment("range")
        with ui.element("section").classes("panel"):
            self._legend = Fragment()
            self._empty = Fragment()
            self._chart = ui.echart({}, on_point_click=self._clicked).classes("map")
            self._summary = ui.label("").classes("note")
        self._list = Fragment("panel")

    def _address(self, **changed: str | int | None) -> str:
        asked = {
            "zone": self._zone.name,
            "show": self._shown.value,
            "from_": self._first or None,
            "to": self._last,
        }
        if "zone" in changed:
            asked |= {"from_": None, "to": None}
        return link("map", **{**asked, **changed})

    def _go(self, **changed: str) -> None:
        go(self._address(**changed))

    def _open(self, number: float | None) -> None:
        if number is not None and 0 <= number < self._zone.partitions:
            go(link("zones", self._zone.name, "partitions", int(number)))

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        found = self._found
        if found is None:
            return
        at = int(event.value[0]) if isinstance(event.value, list) else len(found.ranges)
        if at >= len(found.ranges):
            return
        asked = found.ranges[at]
        if asked.first == asked.last:
            self._open(asked.first)
        else:
            go(self._address(from_=asked.first, to=asked.last))

    def of(self) -> Hashable:
        grid = self._site.feed.grids.get(self._zone.zone_id)
        return grid.version if grid is not None else -1, self._site.feed.seen(Topic.ZONES)

    async def draw(self) -> None:
        grid = self._site.feed.grids.get(self._zone.zone_id)
        if grid is None:
            self._empty.show(render("loading", what="The zone is being read."))
            return
        data_nodes = self._site.services.views.data_nodes(self._zone.zone_id)
        nodes = data_nodes.nodes if data_nodes is not None else ()
        before, self._drawn = self._drawn, (grid.version, nodes)
        if before == self._drawn:
            return
        numbers = chosen(grid, self._shown, self._first, self._last)
        if not await self._show_changed(grid, numbers, before):
            found = await asyncio.to_thread(heat_map, grid, numbers, nodes)
            if found != self._found:
                self._found = found
                self._show(found)
        listed, count = unsettled_partitions(grid, numbers)
        unread = int(np.count_nonzero(grid.moves[numbers] == MoveCell.UNREAD))
        self._list.show(render("map_list", listed=listed, count=count, zone=self._zone.name, unread=unread))

    async def _show_changed(
        self, grid: ZoneGrid, numbers: Numbers, before: tuple[int, tuple[str, ...]]
    ) -> bool:
        """Counts and sends the columns whose partitions have changed since; False: everything has to be."""
        found, (version, nodes) = self._found, before
        changed = grid.changed_since(version)
        # Of other choices the partitions themselves may be others.
        if found is None or changed is None or self._shown is not Shown.EVERY or nodes != self._drawn[1]:
            return False
        columns = columns_of(found, numbers, changed)
        anew = await asyncio.to_thread(recounted, found, grid, numbers, columns)
        if anew is None:
            return False
        if anew != found:
            self._found = anew
            self._summary.text = summary(anew)
            patch_cells(self._chart, chart_options(anew), columns.tolist())
        return True

    def _show(self, found: HeatMap) -> None:
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
                ranges=[] if found.is_single else found.ranges,
                address=lambda each: self._address(from_=each.first, to=each.last),
            )
        )
        self._empty.show(EMPTY if found.selected else render("nothing_here", shown=CHOICES[self._shown.value]))
        self._chart.visible = bool(found.selected and found.nodes)
        self._legend.show(render("map_legend", legend=legend(found)))
        self._summary.text = summary(found)
        set_height(self._chart, chart_height(len(found.nodes)))
        show_chart(self._chart, chart_options(found))


def register(site: Site) -> None:
    @console_page("/map")
    async def partition_map(
        request: Request, zone: str = "", show: str = Shown.EVERY.value, to: int | None = None
    ) -> None:
        first = request.query_params.get("from", "0")
        with page_frame(site, request, "Partition map", "map") as frame:
            note = "Who holds what, and how it is. Select a column to look closer, a partition to see why."
            html(render("title", title="Partition map", note=note))
            catalog = await site.catalog()
            if not zone and catalog.zones:
                zone = max(catalog.zones, key=lambda each: each.zone_id).name
            if not zone:
                html(render("empty", what="zone", example=NEW_ZONE, target=link("sql")))
                await frame.live(_nothing, lambda: site.feed.seen(Topic.ZONES))
                return
            found = await site.services.zones.find(zone)
            shown = Shown(show) if show in CHOICES else Shown.EVERY
            view = _Map(site, found, shown, int(first) if first.isdigit() else 0, to)
            await frame.live(view.draw, view.of)


async def _nothing() -> None:
    return
