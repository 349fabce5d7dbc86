"""``/console/plan``: one button makes a plan and shows it, a second one runs it (VOL-009)."""

from __future__ import annotations

import asyncio

from fastapi import Request
from nicegui import ui

from app.console.browser import html
from app.console.controls import ButtonKind, button, confirm
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, render
from app.console.frame import PageFrame, console_page, go, page_frame
from app.console.plan import Asked, PlanPage, Wish, make_plan
from app.console.plan_run import run_plan
from app.console.shared import Site
from app.console.what_if import read_names

WISHES = {
    Wish.REPLICAS.value: "another number of replicas",
    Wish.OUT.value: "nodes out, for good",
    Wish.IN.value: "nodes that were leaving back in",
    Wish.EVEN.value: "even out over all nodes that fit",
}
HINTS = {
    Wish.REPLICAS: "Of one zone: copies are added or removed, and a quorum that is derived follows.",
    Wish.OUT: "The nodes are drained: at once no zone uses them, and they serve until all has moved away.",
    Wish.IN: "The drain is taken back: zones use the nodes again, by their filters and timers.",
    Wish.EVEN: (
        "Of one zone: every living node that its filter and profiles allow is used at once. Its AUTO SCALE UP "
        "is 0 from then on."
    ),
}


class _Form:
    """What the plan is for; its fields are those of the wish."""

    def __init__(self, asked: Asked, zones: list[str]) -> None:
        with ui.element("section").classes("panel"), ui.row().classes("tools form"):
            self._wish = ui.select(WISHES, value=asked.wish.value, label="What", on_change=self._fit)
            self._wish.props("outlined dense").classes("choice broad")
            chosen = asked.zone if asked.zone in zones else next(iter(zones), None)
            self._zone = ui.select(zones, value=chosen, label="Zone")
            self._zone.props("outlined dense").classes("choice")
            self._replicas = ui.number("Replicas", value=asked.replicas, min=1, precision=0, format="%d")
            self._replicas.props("outlined dense").classes("number")
            self._nodes = ui.input("Nodes", value=" ".join(asked.nodes), placeholder="n1, n2")
            self._nodes.props("outlined dense").classes("choice")
            button("Make the plan", self.ask, ButtonKind.PRIMARY)
        self._hint = ui.label("").classes("note")
        for field in (self._replicas, self._nodes):
            field.on("keydown.enter", self.ask)
        self._fit()

    def _fit(self) -> None:
        wish = Wish(self._wish.value)
        self._zone.visible = not wish.is_of_nodes
        self._replicas.visible = wish is Wish.REPLICAS
        self._nodes.visible = wish.is_of_nodes
        self._hint.text = HINTS[wish]

    def ask(self) -> None:
        wish = Wish(self._wish.value)
        nodes = " ".join(read_names(self._nodes.value or "")) if wish.is_of_nodes else None
        go(
            link(
                "plan",
                wish=wish.value,
                zone=None if wish.is_of_nodes else self._zone.value,
                replicas=int(self._replicas.value) if wish is Wish.REPLICAS and self._replicas.value else None,
                nodes=nodes,
            )
        )


class _Shown:
    """The newest plan, made anew while the page is open whenever zones or nodes have changed."""

    def __init__(self, site: Site, frame: PageFrame, asked: Asked) -> None:
        self._site, self._frame, self._asked = site, frame, asked
        self._plan: PlanPage | None = None
        self._told = Fragment()
        with ui.row().classes("tools") as self._tools:
            button("Run the plan", self._ask, ButtonKind.PRIMARY)
        self._tools.visible = False
        self._units = Fragment("stacked")
        making = render("loading", what="Making the plan.")
        self._told.show(making if asked.is_complete else render("plan_hint"))

    async def draw(self) -> None:
        if not self._asked.is_complete:
            return
        self._tools.visible = False
        self._plan = plan = await self._make()
        self._told.show(render("plan_summary", plan=plan, wish=self._asked.wish.value))
        self._units.show(render("plan_units", plan=plan))
        self._tools.visible = bool(plan.zones)

    async def _make(self) -> PlanPage:
        snapshot = await self._site.snapshot()
        try:
            return await asyncio.to_thread(make_plan, self._asked, snapshot)
        except Exception:
            self._told.show(EMPTY)
            self._units.show(EMPTY)
            raise

    def _ask(self) -> None:
        plan = self._plan
        if plan is None:
            return

        async def act(by: str, reason: str) -> str:
            go(await run_plan(self._site, plan, by, reason))
            return "The plan runs."

        back = (
            "Operations can be paused and cancelled, and the nodes' drains turned round."
            if plan.asked.wish.is_of_nodes
            else "The operation can be paused, cancelled and reversed."
        )
        zones = ", ".join(each.answer.zone for each in plan.zones)
        moves = f"{plan.copied:,} copies are made and {plan.ended:,} end, in {zones}."
        consequence = f"{moves} Reads and writes go on. {back}"
        confirm(self._frame, "Run the plan?", consequence, "Run", act)


def register(site: Site) -> None:
    @console_page("/plan")
    async def plan(
        request: Request,
        wish: str = Wish.REPLICAS.value,
        zone: str = "",
        replicas: int | None = None,
        nodes: str = "",
    ) -> None:
        with page_frame(site, request, "Plan", "plan") as frame:
            note = "Say what should change, see what would move, then run it and follow the operation."
            html(render("title", title="Plan a rebalance", note=note))
            zones = sorted(each.name for each in (await site.catalog()).zones)
            chosen = Wish(wish) if wish in WISHES else Wish.REPLICAS
            asked = Asked(chosen, zone, replicas, read_names(nodes))
            _Form(asked, zones)
            shown = _Shown(site, frame, asked)
            await frame.live(shown.draw, Topic.ZONES, Topic.NODES, Topic.LIMITS, later=True)
