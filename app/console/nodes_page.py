"""``/console/nodes``: what each node holds, whether it can stop, and drains."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.charts import bar_options, copies_of
from app.console.controls import PageAction, button
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, natural, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.grids import (
    bar_chart,
    grid_columns,
    grid_row,
    live_grid,
    number_column,
    show_chart,
    show_rows,
    text_column,
)
from app.console.plan import Wish
from app.console.shared import Site
from app.console.viewer import may_use, page_refusal, sees_all_zones
from app.console.zone_grid import NodeLoad, ZoneGrid
from app.console.zone_states import node_loads
from app.contract.columns import Facts, body_of
from app.contract.nodes import NodeBody
from app.security.policy import PageControl
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.drain import Drain

Row = dict[str, Any]

DOWN = "down"


def node_rows(
    live: Mapping[str, NodeRecord],
    drains: Mapping[str, Drain],
    loads: Mapping[str, NodeLoad],
    copies: Mapping[str, int],
) -> list[Row]:
    """One for each node that lives, is drained, or is missed: it still has copies. ``copies``: how many of them
    are of store zones, which no limit of members counts."""
    missed = {name for name, load in loads.items() if load.replicas}
    return [
        node_row(name, live.get(name), drains.get(name), loads.get(name, NodeLoad()), copies.get(name, 0))
        for name in sorted({*live, *drains, *missed}, key=natural)
    ]


def node_row(name: str, record: NodeRecord | None, drain: Drain | None, load: NodeLoad, copies: int = 0) -> Row:
    limit = record.node.member_limit if record is not None else None
    members = max(load.replicas - copies, 0)
    values = {"name": name, "alive": record is not None, "members": members, "copies": copies, "drain": None}
    return {
        **grid_row(NodeBody, body_of(NodeBody, Facts(record, values))),
        "state": _state(record, drain, load),
        **asdict(load),
        "filled": round(100 * members / limit) if limit else None,
    }


def holdings(grids: Mapping[str, ZoneGrid], name: str) -> list[tuple[str, NodeLoad]]:
    """Return what the node holds of each zone, also while it is down. ``grids`` by the name of the zone."""
    loads = ((zone, grid.loads().get(name, NodeLoad())) for zone, grid in sorted(grids.items()))
    return [(zone, load) for zone, load in loads if load.replicas]


def _state(record: NodeRecord | None, drain: Drain | None, load: NodeLoad) -> str:
    if drain is not None:
        return "drained" if not load.replicas else "draining" if record is not None else "draining, down"
    return "alive" if record is not None else DOWN


CHARTED_MAX = 120

COLUMNS = [
    *grid_columns(NodeBody, "name"),
    text_column("state", "State"),
    number_column("replicas", "Replicas"),
    number_column("leaders", "Leaders"),
    number_column("joining", "Joining"),
    number_column("troubled", "Unhealthy"),
    number_column("filled", "Used %"),
    *grid_columns(NodeBody, "member_limit", "weight", "failure_domain", "profiles", "attributes", attributes=3),
]
DRAIN = PageAction(
    "Drain",
    "Drain {}?",
    "The node stops being a data node of any zone at once. It serves its replicas until they have moved, and "
    "stays drained across restarts.",
    actions.drain,
    PageControl.DRAIN_NODE,
    is_dangerous=True,
)
UNDRAIN = PageAction(
    "Undrain",
    "Undrain {}?",
    "Zones use the node again as if it had just joined, subject to their timers.",
    actions.undrain,
    PageControl.DRAIN_NODE,
)
REMOVE = PageAction(
    "Remove",
    "Remove {} for good?",
    "Its replicas are rebuilt on other nodes; once nothing is left, its records are deleted. Its directory is "
    "not used again: the node can only come back as a new one.",
    actions.remove_node,
    PageControl.REMOVE_NODE,
    is_dangerous=True,
)


async def _rows(site: Site) -> list[dict[str, Any]]:
    loads = await asyncio.to_thread(node_loads, dict(site.feed.grids))
    views = site.services.views
    # Of all zones: whoever does not see them all gets none of it.
    copies = views.store_copies() if sees_all_zones() else {}
    return node_rows(views.live_records(), views.drains(), loads, copies)


class _NodePanel:
    """One node: what would be lost if it stopped, its drain, and its removal."""

    def __init__(self, site: Site, frame: PageFrame, name: str) -> None:
        self._site, self._name, self._action = site, name, DRAIN
        self._panel = Fragment("panel")
        with ui.row().classes("tools"):
            self._button = button(DRAIN.word, lambda: self._action.ask(frame, name))
            self._removal = button(REMOVE.word, lambda: REMOVE.ask(frame, name))
            self._button.visible = self._removal.visible = False
            if may_use(PageControl.CHECK_STOP):
                button("Check whether it can stop", self._check)
            self._planned = Fragment()
        self._losses = Fragment()

    async def draw(self) -> None:
        row = next((row for row in await _rows(self._site) if row["name"] == self._name), None)
        drain = self._site.services.views.drains().get(self._name)
        self._action = UNDRAIN if drain else DRAIN
        self._button.text = self._action.word
        # A node that is down serves nothing until it has moved.
        is_shown = drain is not None or (row is not None and row["state"] != DOWN)
        self._button.visible = is_shown and may_use(DRAIN.control)
        is_alive = self._name in self._site.services.views.alive()
        self._removal.visible = row is not None and not is_alive and may_use(REMOVE.control)
        wish, text = (Wish.IN, "Plan the undrain") if drain else (Wish.OUT, "Plan the drain")
        url = link("plan", wish=wish.value, nodes=self._name)
        may_plan = is_shown and page_refusal("/plan") is None
        self._planned.show(render("action", text=text, url=url) if may_plan else EMPTY)
        feed = self._site.feed
        zones = {intent.zone.name: feed.grids[key] for key, intent in feed.intents.items() if key in feed.grids}
        held = await asyncio.to_thread(holdings, zones, self._name)
        self._panel.draw("node", name=self._name, row=row, drain=drain, held=held)

    async def _check(self) -> None:
        self._losses.draw("loading", what="Checking every member on the node.")
        check = await actions.stop_check(self._site, self._name)
        self._losses.draw("node_stop", check=check)


def register(site: Site) -> None:
    @console_page("/nodes")
    async def nodes(request: Request) -> None:
        note = (
            "The replicas of each node, over all zones. Select a node to drain it or to check whether it can "
            "stop."
        )
        with page_frame(site, request, "Nodes", "nodes", note=note) as frame:
            empty = Fragment()
            with ui.element("section").classes("panel"):
                heading = Fragment()
                chart = bar_chart()
            grid = live_grid(COLUMNS, "Nodes", "nodes")

            async def draw() -> None:
                rows = await _rows(site)
                heading.draw("heading", title="Replicas by node")
                empty.show(EMPTY if rows else render("loading", what="No node has registered yet."))
                show_rows(grid, rows)
                show_chart(chart, bar_options(copies_of(rows[:CHARTED_MAX])))

            await frame.live(draw, Topic.PARTITIONS, Topic.NODES)

    @console_page("/nodes/{node:segment}")
    async def node_of(request: Request, node: str) -> None:
        with page_frame(site, request, node, "nodes", note="A node and its replicas.") as frame:
            await frame.live(_NodePanel(site, frame, node).draw, Topic.PARTITIONS, Topic.NODES)
