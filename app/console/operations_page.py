"""``/console/operations``: every change that moves data, what it waits for; pause, cancel and reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import Fragment, html
from app.console.confirm import confirm
from app.console.controls import button
from app.console.feed import Topic
from app.console.fragments import link, render
from app.console.frame import PageFrame, console_page, go, page_frame
from app.console.operation_model import grid_of, plan_of, told_by
from app.console.shared import Site
from app.contract.operations import StateName
from rebalance.controllers.operation_control import not_found
from rebalance.core.operation import parse_operation_id

OPEN_STATES: tuple[StateName, ...] = ("WAITING", "RUNNING", "PAUSED")
CHOICES = {"all": "all that are remembered", "open": "those that go on"}
REVERSIBLE = ("RUNNING", "WAITING", "PAUSED", "DONE", "CANCELLED", "FAILED")

Act = Callable[[Site, str, str, str], Awaitable[str]]

_ACTIONS: dict[str, tuple[str, str, Act, bool]] = {
    "pause": (
        "Pause",
        "Nothing more of it begins; what moves goes on to its end. It is a pause of its zone.",
        actions.pause_operation,
        False,
    ),
    "resume": ("Resume", "What waits may begin, under the limits that hold.", actions.resume_operation, False),
    "cancel": (
        "Cancel",
        "What has not begun stays where it is. What has begun goes back as long as no voter of before was "
        "removed, and else on to its end. The catalog keeps what was asked for, so a later change of the zone "
        "moves the rest.",
        actions.cancel_operation,
        True,
    ),
    "reverse": (
        "Reverse",
        "Back to the assignment before it, as an operation of its own and a new catalog version.",
        actions.reverse_operation,
        True,
    ),
}
"""Word, what it does, function, whether it is dangerous."""


def possible(operation: dict[str, Any]) -> tuple[str, ...]:
    """The actions that make sense; the API has the last word."""
    state = operation["state"]
    found = {
        "pause": state in ("WAITING", "RUNNING"),
        "resume": state == "PAUSED",
        "cancel": state in OPEN_STATES,
        "reverse": state in REVERSIBLE,
    }
    return tuple(name for name, is_possible in found.items() if is_possible)


class _Detail:
    def __init__(self, site: Site, frame: PageFrame, name: str) -> None:
        self._site, self._frame, self._name = site, frame, name
        self._head = Fragment()
        with ui.row().classes("tools"):
            self._buttons = {each: self._button(each) for each in _ACTIONS}
        with ui.element("div").classes("two"):
            self._progress, self._facts = Fragment("panel"), Fragment("panel")
        self._waiting, self._plan = Fragment("panel"), Fragment("panel")
        self._planned_for: tuple[int, ...] = ()
        self._planning: asyncio.Task[None] | None = None

    def _button(self, action: str) -> ui.button:
        word = _ACTIONS[action][0]
        made = button(word, lambda: self._ask(action))
        made.visible = False
        return made

    async def draw(self) -> None:
        site, name = self._site, self._name
        grid = grid_of(site, name)
        told = told_by(site, name, grid) if grid is not None else await actions.operation(site, name)
        if told is None:
            raise not_found(name)
        self._head.show(render("operation_head", told=told))
        self._progress.show(render("operation_progress", told=told))
        self._facts.show(render("operation_facts", told=told))
        self._waiting.show(render("operation_waiting", told=told))
        if grid is None:
            self._plan.show(render("operation_plan", plan=told["plan"]))
        else:
            self._plan_later()
        for action, made in self._buttons.items():
            made.visible = action in possible(told)

    def _plan_later(self) -> None:
        """When the page is shown; anew when limits cut it otherwise."""
        limits = self._site.feed.seen(Topic.LIMITS)
        if self._planned_for != limits:
            self._planned_for = limits
            if self._planning is None:
                self._plan.show(render("loading", what="The plan is being read."))
            self._planning = asyncio.create_task(self._show_plan())

    async def _show_plan(self) -> None:
        self._plan.show(render("operation_plan", plan=await plan_of(self._site, self._name)))

    def _ask(self, action: str) -> None:
        word, consequence, act, danger = _ACTIONS[action]

        async def go_on(by: str, reason: str) -> str:
            return await act(self._site, self._name, by, reason)

        confirm(self._frame, f"{word} operation {self._name}?", consequence, word, go_on, danger=danger)


def register(site: Site) -> None:
    @console_page("/operations")
    async def operations(request: Request, zone: str = "", show: str = "all") -> None:
        with page_frame(site, request, "Operations", "operations") as frame:
            note = "Every change that moves data: who asked, how far it is, and how it ended."
            html(render("title", title="Operations", note=note))
            with ui.row().classes("tools"):
                catalog = await site.catalog()
                names = {"": "every zone", **{each.name: each.name for each in catalog.zones}}
                which = ui.select(names, value=zone if zone in names else "", label="Zone")
                which.props("outlined dense").classes("choice")
                shown = ui.select(CHOICES, value=show if show in CHOICES else "all", label="Show")
                shown.props("outlined dense").classes("choice wide")

                def move() -> None:
                    go(link("operations", zone=which.value, show=shown.value))

                which.on_value_change(move)
                shown.on_value_change(move)
            table = Fragment("panel")

            async def draw() -> None:
                states: tuple[StateName, ...] = OPEN_STATES if show == "open" else ()
                found = await actions.operations(site, zone or None, states)
                table.show(render("operations", operations=found))

            await frame.live(draw, lambda: site.feed.seen(Topic.OPERATIONS, Topic.ZONES))

    @console_page("/operations/{operation:segment}")
    async def operation_of(request: Request, operation: str) -> None:
        with page_frame(site, request, f"Operation {operation}", "operations") as frame:
            view = _Detail(site, frame, operation)
            parsed = parse_operation_id(operation)

            def of() -> Hashable:
                grid = site.feed.grids.get(parsed[0]) if parsed is not None else None
                topics = site.feed.seen(Topic.OPERATIONS, Topic.LIMITS)
                return grid.version if grid is not None else -1, topics

            await frame.live(view.draw, of)
