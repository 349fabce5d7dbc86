"""``/console/operations``: every change that moves data, what it waits for; pause, cancel and reverse.

Of zones whose partitions are too many to be read for each look, the counts are those of the zone's arrays,
which are read as they change; the rest is the record's.

``/console/operations/begun`` is the operation of a change from the moment at which the change was made. A
controller names the operation with its placement, which may take a while: Spark starts, no controller leads, a
timer runs. Until then the page says what that waits for; then it becomes the operation's own."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import numpy as np
from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.controls import PageAction, action_link, button, choice_field
from app.console.feed import Topic
from app.console.fragments import Fragment, link
from app.console.frame import PageFrame, console_page, go, page_frame, replace_page
from app.console.shared import Site
from app.console.viewer import may_use, shown_cause
from app.console.zone_grid import MoveCell, Numbers, ZoneGrid
from app.contract.operations import OperationPlanBody, StateName
from app.security.policy import PageControl
from app.views.keyspace_views import KeyspaceViews
from app.views.operation_views import OperationViews, history_of
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import ZoneId
from rebalance.controllers.operation_control import not_found
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.readable import read
from rebalance.core.operations.operation import Operation, OperationKind, parse_operation_id

Json = dict[str, Any]

PARTITIONS_FEW = 2_000
"""Maximum number of partitions that are read one by one, as the API does."""
NUMBERS_SHOWN = 20
NEXT = Cause.PLANNED_NEXT.text()
"""Cause of a partition that is at rest where it was, and not yet where the operation wants it."""


def grid_of(site: Site, name: str) -> ZoneGrid | None:
    """The arrays that tell how far the operation is; None: the API has to be asked."""
    views = site.services.operation_views
    operation, _ = views.find(name) or (None, None)
    grid = site.feed.grids.get(operation.zone_id) if operation is not None else None
    if operation is None or grid is None or grid.partitions <= PARTITIONS_FEW or operation.is_over:
        return None
    of_whole_zone = operation.kind is not OperationKind.RESET and views.is_newest(operation)
    return grid if of_whole_zone else None


def summary_of(site: Site, name: str, grid: ZoneGrid) -> Json | None:
    """Return the operation as the API describes it, without the plan; None: it is not remembered any more. What
    was done stays done, as the record has it."""
    views = site.services.operation_views
    record = views.find(name)
    if record is None:
        return None
    summary = views.summary(*record, time.time_ns() // 1_000_000)
    progress = summary["progress"]
    # Arrays of an earlier target would count what has arrived there.
    arrived = int(np.count_nonzero(grid.arrived)) if grid.event == record[0].event_revision else 0
    partitions = {
        "total": max(progress["partitions"]["total"], grid.partitions),
        "done": max(progress["partitions"]["done"], arrived),
        "moving": int(np.count_nonzero(~grid.arrived & (grid.moves == MoveCell.MOVING))),
        "waiting": len(_waiting(grid)),
    }
    return {
        **summary,
        "history": history_of(record[0]),
        "progress": {**progress, "partitions": partitions},
        "waiting": waiting_of(grid),
    }


def waiting_of(grid: ZoneGrid) -> list[Json]:
    """Return what waits, by cause, the most frequent first."""
    numbers: dict[str, list[int]] = {}
    for number in _waiting(grid).tolist():
        numbers.setdefault(shown_cause(grid.causes[number]) or NEXT, []).append(number)
    causes = [
        {"cause": cause, "partitions": len(waiting), "numbers": waiting[:NUMBERS_SHOWN]}
        for cause, waiting in numbers.items()
    ]
    return sorted(causes, key=lambda row: (-row["partitions"], row["cause"]))


def _waiting(grid: ZoneGrid) -> Numbers:
    return np.flatnonzero(~grid.arrived & ((grid.moves == MoveCell.WAITING) | (grid.moves == MoveCell.DONE)))


async def plan_of(site: Site, name: str) -> OperationPlanBody | None:
    """Return the plan, in a thread: sizes of all partitions are read for it."""
    keys, keyspace = site.services.mirror.copy(), site.services.views.keyspace
    ownership = site.services.views.ownership

    def plan() -> OperationPlanBody | None:
        views = OperationViews(keys, keyspace, KeyspaceViews(keys, keyspace, ownership=lambda: ownership))
        record = views.find(name)
        return None if record is None else views.plan(record[0])

    return await asyncio.to_thread(plan)


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
        self._head.draw("operation_head", operation=body)
        self._progress.draw("operation_progress", operation=body)
        self._facts.draw("operation_facts", operation=body)
        self._waiting.draw("operation_waiting", waiting=body["waiting"], zone=body["zone"])
        if grid is None:
            self._plan.draw("operation_plan", plan=body["plan"])
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
                self._plan.draw("loading", what="Reading the plan.")
            self._planning = asyncio.create_task(self._show_plan())

    async def _show_plan(self) -> None:
        self._plan.draw("operation_plan", plan=await plan_of(self._site, self._name))


def address(zone: str, revision: int) -> str:
    """Return the address of the first operation of ``zone`` that is younger than the metastore's
    ``revision``."""
    return link("operations", "begun", zone=zone, after=revision)


def begun(site: Site, zone_id: ZoneId, after: int) -> str:
    """The operation's name; empty: it is not there yet."""
    services = site.services
    items = services.mirror.below(services.views.keyspace.zone_operations(zone_id))
    newer = (item for item in items if item.create_revision > after)
    first = min(newer, key=lambda item: item.create_revision, default=None)
    operation = read(first, Operation.decode)
    return operation.operation_id if isinstance(operation, Operation) else ""


def wait_of(site: Site, zone_id: ZoneId, catalog: CatalogSnapshot) -> str:
    """Return what naming it waits for; empty: the zone's data nodes are what they were."""
    intent = site.feed.intents.get(zone_id)
    committed = next((zone for zone in catalog.zones if zone.zone_id == zone_id), None)
    if intent is None or (intent.version < catalog.version and intent.zone != committed):
        return Cause.INTENT_NOT_PUBLISHED.text()
    return shown_cause(site.services.views.whole_wait(intent))


def register(site: Site) -> None:
    @console_page("/operations/begun")
    async def operation_begun(request: Request, zone: str, after: int) -> None:
        with page_frame(site, request, "Operation", "operations") as frame:
            target = await site.zone(zone)
            head = Fragment()
            note = "The change is committed. Its moves are being computed."
            head.draw("title", title=f"Operation of {target.name}", note=note)
            waiting = Fragment("panel")
            action_link("All operations of the zone", link("operations", zone=target.name))

            async def draw() -> None:
                name = begun(site, target.zone_id, after)
                if name:
                    replace_page(link("operations", name))
                    return
                limits, _ = await actions.limits(site)
                own = [pause for pause in limits["zone_pauses"] if pause["zone_id"] == target.zone_id]
                pause = limits["pause"] or next(iter(own), None)
                cause = wait_of(site, target.zone_id, await site.catalog())
                waiting.draw("operation_begun", cause=cause, pause=pause)

            await frame.live(draw, Topic.ZONES, Topic.NODES, Topic.LIMITS, Topic.OPERATIONS)

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
                table.draw("operations", operations=bodies)

            await frame.live(draw, Topic.OPERATIONS, Topic.ZONES)

    @console_page("/operations/{operation:segment}")
    async def operation_of(request: Request, operation: str) -> None:
        with page_frame(site, request, f"Operation {operation}", "operations") as frame:
            view = _Detail(site, frame, operation)
            zone_ids = (parse_operation_id(operation) or ())[:1]
            await frame.live(view.draw, *zone_ids, Topic.OPERATIONS, Topic.LIMITS)
