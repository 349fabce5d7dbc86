"""``/console/what-if``: nodes more or fewer, or other replicas, before anything is done."""

from __future__ import annotations

import asyncio

from fastapi import Request
from nicegui import ui

from app.console.browser import html
from app.console.charts import Bars, bar_options
from app.console.controls import ButtonKind, button, choice_field, number_field, text_field
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import console_page, go, page_frame
from app.console.grids import bar_chart, show_chart
from app.console.plan import Answer, Question, compare, read_names
from app.console.shared import Site

CHARTED_MAX = 120


def shares_chart(answer: Answer) -> Bars:
    """Replicas before and after, side by side."""
    shown = answer.nodes[:CHARTED_MAX]
    before = tuple(share.before[0] if share.before else 0 for share in shown)
    after = tuple(share.after[0] if share.after else 0 for share in shown)
    names = tuple(share.node for share in shown)
    return Bars(names, (("replicas now", before), ("replicas then", after)), side_by_side=True)


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
                which = choice_field("Zone", names, zone)
                more = text_field("Nodes to add", add, placeholder="n8, n9", width="")
                less = text_field("Nodes to remove", remove, placeholder="n1", width="")
                count = number_field("Replicas", replicas, placeholder="as now")

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
                chart = bar_chart()
            details = Fragment()
            shares.visible = False
            shown: list[Answer] = []

            async def draw() -> None:
                if not zone or question == Question():
                    verdict.show(render("what_if_hint", zones=names))
                    return
                owner, snapshot = await site.zone(zone), await site.snapshot()
                answer = await asyncio.to_thread(compare, owner, question, snapshot)
                if shown == [answer]:
                    return
                shown[:] = [answer]
                verdict.show(render("what_if_verdict", answer=answer))
                shares.visible = True
                show_chart(chart, bar_options(shares_chart(answer)))
                details.show(render("what_if_details", answer=answer))

            if zone and question != Question():
                verdict.show(render("loading", what="Computing the placement."))
            await frame.live(draw, Topic.ZONES, Topic.NODES, later=True)
