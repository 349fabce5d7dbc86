"""``/console/plan``: one button makes a plan and shows it, a second one runs it (VOL-009).
``/console/what-if``: nodes more or fewer, or other replicas, before anything is done."""

from __future__ import annotations

import asyncio

from fastapi import Request
from nicegui import ui

from app.console import actions, operations_page
from app.console.browser import html
from app.console.charts import Bars, bar_options
from app.console.controls import ButtonKind, button, choice_field, confirm, number_field, text_field
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, render
from app.console.frame import PageFrame, console_page, go, page_frame
from app.console.grids import bar_chart, show_chart
from app.console.plan import (
    Answer,
    PlanGoal,
    PlanPage,
    Question,
    Wish,
    compare,
    make_plan,
    plan_id_now,
    read_names,
)
from app.console.shared import Site
from app.console.viewer import may_use, require
from app.security.policy import PageControl
from app.sql.plan.change_plan import refuse_other

WISHES = {
    Wish.REPLICAS.value: "change the number of replicas",
    Wish.OUT.value: "drain nodes for good",
    Wish.IN.value: "take drained nodes back",
    Wish.EVEN.value: "spread a zone over all eligible nodes",
}
HINTS = {
    Wish.REPLICAS: "Replicas of one zone are added or removed; a derived quorum follows.",
    Wish.OUT: "Zones stop using the nodes; they serve their replicas until these have moved.",
    Wish.IN: "Ends the drain: zones use the nodes again, by their filters and timers.",
    Wish.EVEN: (
        "One zone uses every live node that its filter and profiles allow, at once. Its AUTO SCALE UP becomes "
        "0."
    ),
}


async def run_plan(site: Site, plan: PlanPage, by: str, reason: str) -> str:
    """The address to follow it at. Raises StatementError; nothing is run when the plan would be another now."""
    revision = site.services.mirror.revision
    if plan.goal.nodes:
        require(PageControl.DRAIN_NODE)
    if plan.statement:
        await site.services.sql.run_planned(plan.statement, str(plan.plan_id))
    else:
        refuse_other(plan.plan_id, plan_id_now(plan.goal, await site.snapshot()))
    for node in plan.goal.nodes:
        act = actions.drain if plan.goal.wish is Wish.OUT else actions.undrain
        await act(site, node, by, reason)
    zones = [moved.answer.zone for moved in plan.zones]
    # Of several zones, the list of operations that go on; nobody waits here for a controller to name them.
    return operations_page.address(zones[0], revision) if len(zones) == 1 else link("operations", show="open")


def _may_run(plan: PlanPage) -> bool:
    if plan.goal.wish.is_of_nodes:
        return may_use(PageControl.DRAIN_NODE)
    return all(may_use(PageControl.ALTER_ZONE, moved.zone_id) for moved in plan.zones)


class _Form:
    """Form of what the plan is for; its fields are those of the wish."""

    def __init__(self, goal: PlanGoal, zones: list[str]) -> None:
        with ui.element("section").classes("panel"), ui.row().classes("tools form"):
            self._wish = choice_field("Change", WISHES, goal.wish.value, width="choice broad")
            self._wish.on_value_change(self._fit)
            self._zone = choice_field("Zone", zones, goal.zone)
            self._replicas = number_field("Replicas", goal.replicas)
            self._nodes = text_field("Nodes", " ".join(goal.nodes), placeholder="n1, n2")
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

    def __init__(self, site: Site, frame: PageFrame, goal: PlanGoal) -> None:
        self._site, self._frame, self._goal = site, frame, goal
        self._plan: PlanPage | None = None
        self._summary = Fragment()
        with ui.row().classes("tools") as self._tools:
            button("Run the plan", self._ask, ButtonKind.PRIMARY)
        self._tools.visible = False
        self._units = Fragment("stacked")
        making = render("loading", what="Making the plan.")
        self._summary.show(making if goal.is_complete else render("plan_hint"))

    async def draw(self) -> None:
        if not self._goal.is_complete:
            return
        self._tools.visible = False
        self._plan = plan = await self._make()
        self._summary.draw("plan_summary", plan=plan, wish=self._goal.wish.value)
        self._units.draw("plan_units", plan=plan)
        self._tools.visible = bool(plan.zones) and _may_run(plan)

    async def _make(self) -> PlanPage:
        snapshot = await self._site.snapshot()
        try:
            return await asyncio.to_thread(make_plan, self._goal, snapshot)
        except Exception:
            self._summary.show(EMPTY)
            self._units.show(EMPTY)
            raise

    def _ask(self) -> None:
        plan = self._plan
        if plan is None:
            return

        async def act(by: str, reason: str) -> str:
            go(await run_plan(self._site, plan, by, reason))
            return "The plan is running."

        back = (
            "The operations can be paused and cancelled, and the drains reversed."
            if plan.goal.wish.is_of_nodes
            else "The operation can be paused, cancelled and reversed."
        )
        zones = ", ".join(moved.answer.zone for moved in plan.zones)
        moves = f"{plan.total('copied'):,} copies are made and {plan.total('ended'):,} end, in {zones}."
        consequence = f"{moves} Reads and writes go on. {back}"
        confirm(self._frame, "Run the plan?", consequence, "Run", act)


CHARTED_MAX = 120


def shares_chart(answer: Answer) -> Bars:
    """Replicas before and after, side by side."""
    shown = answer.nodes[:CHARTED_MAX]
    before = tuple(share.before[0] if share.before else 0 for share in shown)
    after = tuple(share.after[0] if share.after else 0 for share in shown)
    names = tuple(share.node for share in shown)
    return Bars(names, (("replicas now", before), ("replicas then", after)), side_by_side=True)


def register(site: Site) -> None:
    @console_page("/plan")
    async def plan(
        request: Request,
        wish: str = Wish.REPLICAS.value,
        zone: str = "",
        replicas: int | None = None,
        nodes: str = "",
    ) -> None:
        note = "Choose a change, see what it would move, then run it and follow the operation."
        with page_frame(site, request, "Plan", "plan", note=note, heading="Plan a rebalance") as frame:
            zones = sorted(known.name for known in (await site.catalog()).zones)
            chosen = Wish(wish) if wish in WISHES else Wish.REPLICAS
            goal = PlanGoal(chosen, zone, replicas, read_names(nodes))
            _Form(goal, zones)
            shown = _Shown(site, frame, goal)
            await frame.live(shown.draw, Topic.ZONES, Topic.NODES, Topic.LIMITS, later=True)

    @console_page("/what-if")
    async def what_if(
        request: Request, zone: str = "", add: str = "", remove: str = "", replicas: int | None = None
    ) -> None:
        note = "Preview what a change would move, and the balance of the zone after it. Nothing is changed."
        with page_frame(site, request, "What-if", "what-if", note=note, heading="What if?") as frame:
            names = sorted(known.name for known in (await site.catalog()).zones)
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
                    verdict.draw("what_if_hint", zones=names)
                    return
                owner, snapshot = await site.zone(zone), await site.snapshot()
                answer = await asyncio.to_thread(compare, owner, question, snapshot)
                if shown == [answer]:
                    return
                shown[:] = [answer]
                verdict.draw("what_if_verdict", answer=answer)
                shares.visible = True
                show_chart(chart, bar_options(shares_chart(answer)))
                details.draw("what_if_details", answer=answer)

            if zone and question != Question():
                verdict.draw("loading", what="Computing the placement.")
            await frame.live(draw, Topic.ZONES, Topic.NODES, later=True)
