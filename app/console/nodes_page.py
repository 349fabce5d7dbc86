"""``/console/nodes``: what each node holds, whether it can stop, and drains."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import EMPTY, Fragment, html
from app.console.charts import Bars, bar_options, copies_of
from app.console.confirm import confirm
from app.console.controls import button
from app.console.feed import Topic
from app.console.fragments import link, render
from app.console.frame import PageFrame, console_page, go, page_frame
from app.console.grids import COLUMN, live_grid, number_column, show_chart, show_rows
from app.console.nodes_model import node_rows
from app.console.plan import Wish
from app.console.shared import Site
from app.console.zone_states import node_loads

CHARTED_MAX = 120
LEVELS = ("name", "voters", "leaders", "learners")

COLUMNS: list[dict[str, Any]] = [
    {**COLUMN, "field": "name", "headerName": "Node", "cellClass": "link", "flex": 1},
    {**COLUMN, "field": "state", "headerName": "State", "flex": 1},
    number_column("replicas", "Replicas"),
    number_column("leaders", "Leads"),
    number_column("joining", "Joining"),
    number_column("troubled", "In trouble"),
    number_column("limit", "Limit"),
    number_column("filled", "Filled %"),
    number_column("weight", "Weight"),
    {**COLUMN, "field": "domain", "headerName": "Domain", "flex": 1},
    {**COLUMN, "field": "profiles", "headerName": "Profiles", "flex": 1},
    {**COLUMN, "field": "attributes", "headerName": "Attributes", "flex": 3},
]


async def _rows(site: Site) -> list[dict[str, Any]]:
    loads = await asyncio.to_thread(node_loads, dict(site.feed.grids))
    views = site.services.views
    return node_rows(views.live_records(), views.drains(), loads)


class _NodePanel:
    """One node: what would be lost if it stopped, and its drain."""

    def __init__(self, site: Site, frame: PageFrame, name: str) -> None:
        self._site, self._frame, self._name = site, frame, name
        self._is_leaving = False
        self._panel = Fragment("panel")
        with ui.row().classes("tools"):
            self._button = button("Drain", self._ask)
            button("Can it stop now?", self._check)
            self._planned = Fragment()
        self._losses = Fragment()

    def show(self, row: dict[str, Any] | None) -> None:
        drain = self._site.services.views.drains().get(self._name)
        self._is_leaving = drain is not None
        self._button.text = "Take it back" if drain else "Drain"
        self._button.enabled = row is not None
        wish, text = (Wish.IN, "Plan its return") if drain else (Wish.OUT, "Plan its leaving")
        self._planned.show(render("action", text=text, url=link("plan", wish=wish.value, nodes=self._name)))
        self._panel.show(render("node", name=self._name, row=row, drain=drain))

    async def _check(self) -> None:
        self._losses.show(render("loading", what="Looking at every member of the node."))
        found = await actions.stop_check(self._site, self._name)
        self._losses.show(render("node_stop", found=found))

    def _ask(self) -> None:
        name, site = self._name, self._site

        async def drain(by: str, reason: str) -> str:
            found = await actions.drain(site, name, by, reason)
            return f"{name} is leaving; {found['members']} members have to move."

        async def undrain(by: str, reason: str) -> str:
            await actions.undrain(site, name)
            return f"{name} is not leaving any more."

        if self._is_leaving:
            told = "Zones take it back as a node that joined, by their timers."
            confirm(self._frame, f"Take {name} back?", told, "Take it back", undrain)
        else:
            told = (
                "At once it is a data node of no zone. It serves what it holds until that has moved, and stays "
                "drained when it restarts."
            )
            confirm(self._frame, f"Drain {name}?", told, "Drain", drain, danger=True)


def register(site: Site) -> None:
    @console_page("/nodes")
    async def nodes(request: Request) -> None:
        with page_frame(site, request, "Nodes", "nodes") as frame:
            note = "What each node holds of all zones. Open one to drain it, or to see what would be lost."
            html(render("title", title="Nodes", note=note))
            empty = Fragment()
            with ui.element("section").classes("panel"):
                heading = Fragment()
                chart = ui.echart(bar_options(Bars((), ()))).classes("chart")
            grid = live_grid(COLUMNS, "Nodes")
            grid.on("cellClicked", lambda event: go(link("nodes", event.args["data"]["name"])), ["data"])

            async def draw() -> None:
                rows = await _rows(site)
                heading.show(render("heading", title="Replicas of each node"))
                empty.show(EMPTY if rows else render("loading", what="No node has registered yet."))
                show_rows(grid, rows)
                held = [tuple(row[level] for level in LEVELS) for row in rows[:CHARTED_MAX]]
                options = bar_options(copies_of(held))
                show_chart(chart, options)

            await frame.live(draw, lambda: (site.feed.version, site.feed.seen(Topic.NODES)))

    @console_page("/nodes/{node:segment}")
    async def node_of(request: Request, node: str) -> None:
        with page_frame(site, request, node, "nodes") as frame:
            html(render("title", title=node, note="A node, with all that it holds."))
            panel = _NodePanel(site, frame, node)

            async def draw() -> None:
                rows = await _rows(site)
                panel.show(next((row for row in rows if row["name"] == node), None))

            await frame.live(draw, lambda: (site.feed.version, site.feed.seen(Topic.NODES)))
