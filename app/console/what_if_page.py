"""``/console/what-if``: nodes more or fewer, or other replicas, before anything is done."""

from __future__ import annotations

import asyncio

from fastapi import Request
from nicegui import ui

from app.console.browser import html
from app.console.charts import Bars, bar_options
from app.console.controls import ButtonKind, button
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import console_page, go, page_frame
from app.console.grids import show_chart
from app.console.plan import Answer, Question, compare, read_names
from app.console.shared import Site
from catalog.core.zone import Zone

CHARTED_MAX = 120


def shares_chart(answer: Answer) -> Bars:
    """Replicas before and after, side by side."""
    shown = answer.nodes[:CHARTED_MAX]
    before = tuple(share.before[0] if share.before else 0 for share in shown)
    after = tuple(share.after[0] if share.after else 0 for share in shown)
    names = tuple(share.node for share in shown)
    return Bars(names, (("replicas now", before), ("replicas then", after)), side_by_side=True)


async def _compared(site: Site, zone: Zone, question: Question) -> Answer:
    snapshot = await site.snapshot()
    return await asyncio.to_thread(compare, zone, question, snapshot)


def register(site: Site) -> None:
    @console_page("/what-if")
    async def what_if(
        request: Request, zone: str = "", add: str = "", remove: str = "", replicas: int | None = None
    ) -> None:
        with page_frame(site, request, "What-if", "what-if") as frame:
            note = "Preview what a change would move, and the balance of the zone after it. Nothing is changed."
            html(render("title", title="What if?", note=note))
            catalog = await site.catalog()
            names = sorted(known.name for known in catalog.zones)
            with ui.element("section").classes("panel"), ui.row().classes("tools form"):
                which = ui.select(names, value=zone if zone in names else next(iter(names), None), label="Zone")
                which.props("outlined dense").classes("choice")
                more = ui.input("Nodes to add", value=add, placeholder="n8, n9").props("outlined dense")
                less = ui.input("Nodes to remove", value=remove, placeholder="n1").props("outlined dense")
                count = ui.number(
                    "Replicas", value=replicas, min=1, precision=0, format="%d", placeholder="as now"
                )
                count.props("outlined dense").classes("number")

                def ask() -> None:
                    replicas = int(count.value) if count.value else None
                    go(link("what-if", zone=which.value, add=more.value, remove=less.value, replicas=replicas))

                button("Compare", ask, ButtonKind.PRIMARY)
                for field in (more, less, count):
                    field.on("keydown.enter", ask)
            question = Question(read_names(add), read_names(remove), replicas)
            verdict = Fragment()
            with ui.element("section").classes("panel") as shares:
                html(render("heading", title="Replicas of each node"))
                chart = ui.echart(bar_options(Bars((), ()))).classes("chart")
            details = Fragment()
            shares.visible = False
            shown: list[Answer] = []

            async def draw() -> None:
                if not zone or question == Question():
                    verdict.show(render("what_if_hint", zones=names))
                    return
                answer = await _compared(site, await site.zone(zone), question)
                if shown == [answer]:
                    return
                shown[:] = [answer]
                verdict.show(render("what_if_verdict", answer=answer))
                shares.visible = True
                options = bar_options(shares_chart(answer))
                show_chart(chart, options)
                details.show(render("what_if_details", answer=answer))

            if zone and question != Question():
                verdict.show(render("loading", what="Computing the placement."))
            await frame.live(draw, Topic.ZONES, Topic.NODES, later=True)
