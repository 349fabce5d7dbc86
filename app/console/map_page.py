"""``/console/map``: a zone's partitions by nodes, from all down to one; what is shown is in the address. One
partition has a page of its own: where it is, why it is there, and what it waits for."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import Any

import numpy as np
from fastapi import Request
from nicegui import events, ui

from app.api.zones import get_partition
from app.console.actions import body
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
from app.console.plan import quoted
from app.console.shared import Site, no_zone
from app.console.viewer import page_refusal, shown_cause
from app.console.zone_grid import MoveCell, has_lost_majority
from app.sql.statements.results import ResultSet
from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import PartitionId

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
            self._empty.draw("loading", what="Reading the zone.")
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
        self._list.draw("map_list", zone=self._zone.name, **facts)

    def _show(self, drawn: HeatMap) -> None:
        end = self._zone.partitions - 1
        last = end if self._last is None else min(self._last, end)
        at_whole = self._first == 0 and last == end
        self._range.draw(
            "map_range",
            zone=self._zone,
            first=self._first,
            last=last,
            whole="" if at_whole else self._address(from_=None, to=None),
            ranges=[] if drawn.is_single else drawn.ranges,
            address=lambda part: self._address(from_=part.first, to=part.last),
        )
        self._empty.show(EMPTY if drawn.selected else render("nothing_here", shown=CHOICES[self._shown.value]))
        self._chart.visible = bool(drawn.selected and drawn.nodes)
        self._legend.draw("map_legend", legend=legend(drawn))
        self._summary.text = summary(drawn)
        # Every node's name can be read.
        row_px = ROW_PX if len(drawn.nodes) <= NODES_FEW else MANY_NODES_ROW_PX
        set_height(self._chart, 70 + max(len(drawn.nodes), 3) * row_px)
        show_chart(self._chart, chart_options(drawn))


def reasons(answer: ResultSet) -> list[dict[str, Any]]:
    """Rows of EXPLAIN PARTITION by column name, in lower case."""
    names = [column.name.lower() for column in answer.columns]
    return [dict(zip(names, row, strict=True)) for row in answer.rows]


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

    @console_page("/zones/{zone:segment}/partitions/{number}")
    async def partition(request: Request, zone: str, number: int) -> None:
        with page_frame(site, request, f"{zone} partition {number}", "map") as frame:
            head = Fragment()
            with ui.element("div").classes("two"):
                state, phases = Fragment("panel"), Fragment("panel")
            why, members, failures = Fragment("panel"), Fragment("panel"), Fragment("panel")

            async def draw() -> None:
                owner = await site.zone(zone)
                document = body(await get_partition(owner.name, number, site.services))
                rows = reasons(await site.ask(f"EXPLAIN PARTITION {quoted(owner.name)}.{number}"))
                head.draw("partition_head", zone=owner, number=number)
                view, _ = site.services.views.view(partition_id, None)
                lost = has_lost_majority(view, site.services.views.alive())
                is_led = lost and page_refusal("/recovery") is None
                recovery = link("recovery", zone=owner.name, partitions=number) if is_led else ""
                state.draw("partition_state", partition=document, recovery=recovery)
                phases.draw("partition_phases", phases=document["phases"])
                why.draw("partition_reasons", rows=rows)
                members.draw("partition_members", members=document["members"], copies=document["copies"])
                failures.draw("partition_failures", failures=document["failures"])

            partition_id = PartitionId((await site.zone(zone)).zone_id, number)
            await frame.live(draw, partition_id, Topic.ZONES, Topic.NODES, Topic.LIMITS)
