"""``/console/operations``: every change that moves data, what it waits for; pause, cancel and reverse."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.controls import PageAction, button, choice_field
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import PageFrame, console_page, go, page_frame
from app.console.operation_model import grid_of, plan_of, summary_of
from app.console.shared import Site
from app.console.viewer import may_use
from app.contract.operations import StateName
from app.security.policy import PageControl
from rebalance.controllers.operation_control import not_found
from rebalance.core.operations.operation import parse_operation_id

OPEN_STATES: tuple[StateName, ...] = ("WAITING", "RUNNING", "PAUSED")
CHOICES = {"all": "all", "open": "in progress"}

ACTIONS: dict[PageAction, tuple[StateName, ...]] = {
    PageAction(
        "Pause",
        "Pause operation {}?",
        "No further move of it starts; moves that are running finish. This pauses all moves of its zone.",
        actions.pause_operation,
        PageControl.OPERATE_OPERATION,
    ): ("WAITING", "RUNNING"),
    PageAction(
        "Resume",
        "Resume operation {}?",
        "Waiting moves can start, within the limits.",
        actions.resume_operation,
        PageControl.OPERATE_OPERATION,
    ): ("PAUSED",),
    PageAction(
        "Cancel",
        "Cancel operation {}?",
        "Moves that have not started are withdrawn. Moves that have started go back as long as none of their "
        "former voters has been removed; the others finish. The catalog keeps the change, so a later change of "
        "the zone moves the rest.",
        actions.cancel_operation,
        PageControl.OPERATE_OPERATION,
        is_dangerous=True,
    ): OPEN_STATES,
    PageAction(
        "Reverse",
        "Reverse operation {}?",
        "Requests the assignment from before it, as an operation and a catalog version of its own.",
        actions.reverse_operation,
        PageControl.REVERSE_OPERATION,
        is_dangerous=True,
    ): (*OPEN_STATES, "DONE", "CANCELLED", "FAILED"),
}
"""The states in which each makes sense; the API has the last word."""


class _Detail:
    def __init__(self, site: Site, frame: PageFrame, name: str) -> None:
        self._site, self._name = site, name
        self._head = Fragment()
        with ui.row().classes("tools"):
            self._buttons = {
                action: button(action.word, partial(action.ask, frame, name)) for action in ACTIONS
            }
        for made in self._buttons.values():
            made.visible = False
        with ui.element("div").classes("two"):
            self._progress, self._facts = Fragment("panel"), Fragment("panel")
        self._waiting, self._plan = Fragment("panel"), Fragment("panel")
        self._planned_for: tuple[object, ...] = ()
        self._planning: asyncio.Task[None] | None = None

    async def draw(self) -> None:
        site, name = self._site, self._name
        grid = grid_of(site, name)
        body = summary_of(site, name, grid) if grid is not None else await actions.operation(site, name)
        if body is None:
            raise not_found(name)
        self._head.show(render("operation_head", operation=body))
        self._progress.show(render("operation_progress", operation=body))
        self._facts.show(render("operation_facts", operation=body))
        self._waiting.show(render("operation_waiting", waiting=body["waiting"], zone=body["zone"]))
        if grid is None:
            self._plan.show(render("operation_plan", plan=body["plan"]))
        else:
            self._plan_later()
        zone_id, _ = parse_operation_id(name) or (None, 0)
        for action, made in self._buttons.items():
            made.visible = body["state"] in ACTIONS[action] and may_use(action.control, zone_id)

    def _plan_later(self) -> None:
        """Draw the plan when the page is shown; anew when limits cut it otherwise."""
        limits = self._site.feed.seen(Topic.LIMITS)
        if self._planned_for != limits:
            self._planned_for = limits
            if self._planning is None:
                self._plan.show(render("loading", what="Reading the plan."))
            self._planning = asyncio.create_task(self._show_plan())

    async def _show_plan(self) -> None:
        self._plan.show(render("operation_plan", plan=await plan_of(self._site, self._name)))


def register(site: Site) -> None:
    @console_page("/operations")
    async def operations(request: Request, zone: str = "", show: str = "all") -> None:
        note = "Every change that moves data: who requested it, its progress and its outcome."
        with page_frame(site, request, "Operations", "operations", note=note) as frame:
            with ui.row().classes("tools"):
                zones = (await site.catalog()).zones
                names = {"": "all"} | {owner.name: owner.name for owner in zones}
                which = choice_field("Zone", names, zone)
                shown = choice_field("Show", CHOICES, show, width="choice wide")

                def move() -> None:
                    go(link("operations", zone=which.value, show=shown.value))

                which.on_value_change(move)
                shown.on_value_change(move)
            table = Fragment("panel")

            async def draw() -> None:
                states = list(OPEN_STATES) if show == "open" else None
                bodies: list[dict[str, Any]] = await actions.operations(site, zone or None, states)
                table.show(render("operations", operations=bodies))

            await frame.live(draw, Topic.OPERATIONS, Topic.ZONES)

    @console_page("/operations/{operation:segment}")
    async def operation_of(request: Request, operation: str) -> None:
        with page_frame(site, request, f"Operation {operation}", "operations") as frame:
            view = _Detail(site, frame, operation)
            zone_ids = (parse_operation_id(operation) or ())[:1]
            await frame.live(view.draw, *zone_ids, Topic.OPERATIONS, Topic.LIMITS)
