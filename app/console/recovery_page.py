"""``/console/recovery``: what has lost its majority, what a reset would keep and lose, the reset, and its end.

Two steps: a dry run is shown first; what it has shown, and no more, is what the second step asks the API for.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import ButtonKind, button, confirm, text_field
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, render
from app.console.frame import PageFrame, console_page, page_frame, problem_of
from app.console.plan import read_names
from app.console.recovery_model import (
    DryRun,
    ZoneLoss,
    consequence_of,
    dry_run,
    ranges_of,
    read_partitions,
    reset_row,
    zone_loss,
    zones_with_loss,
)
from app.console.shared import Site
from app.console.viewer import may_use
from app.console.zone_states import zone_states
from app.security.policy import PageControl
from catalog.core.errors import RefusedError, StatementError
from catalog.core.zone import Zone

PARTITIONS_SHOWN = 100
OPERATIONS_SHOWN = 3
ACTIVE = "recovery"
"""Name of the page, which is not a step of the navigation: the causes of a loss lead here."""


async def loss_of(site: Site, zone: Zone) -> ZoneLoss | None:
    """Return the zone's loss; None: the zone has not been read yet. Raises StatementError."""
    grid = site.feed.grids.get(zone.zone_id)
    if grid is None or grid.move_counts().unread:
        return None
    numbers = grid.lost_numbers()
    shown = numbers[:PARTITIONS_SHOWN]
    states = await actions.partition_states(site, zone.name, shown) if shown else []
    return zone_loss(zone.name, grid.partitions, numbers, states, grid.causes)


class _Reset:
    """The two steps: a dry run, and the reset that does what it has shown."""

    def __init__(self, site: Site, frame: PageFrame, zone: Zone, partitions: str) -> None:
        self._site, self._frame, self._zone = site, frame, zone
        self._loss: ZoneLoss | None = None
        self._run: DryRun | None = None
        with ui.element("section").classes("panel") as panel:
            panel.visible = may_use(PageControl.RECOVER_ZONE, zone.zone_id)
            html(render("recovery_steps"))
            with ui.row().classes("tools form"):
                self._partitions = text_field(
                    "Partitions", partitions, hint="default: all lost", width="choice wide"
                )
                self._source = text_field("Replica on node", hint="default: the best replica")
                self._empty = ui.checkbox("Start empty", on_change=self._fit)
                self._discarded = text_field(
                    "Replicas to discard", placeholder="n1, n2", hint="nodes whose replicas are given up"
                )
                self._button = button("Dry run", self.make, ButtonKind.PRIMARY)
        for field in (self._partitions, self._source, self._discarded):
            field.props("clearable").on("keydown.enter", self.make)
        self._fit()
        self._shown = Fragment("stacked")
        with ui.row().classes("tools") as self._tools:
            button("Reset partitions", self._ask, ButtonKind.DANGER)
        self._tools.visible = False
        self._copies = Fragment("stacked")

    def show(self, loss: ZoneLoss | None) -> None:
        """``loss`` is what is lost now: a dry run that was made for something else is not to be run."""
        self._loss = loss
        self._button.enabled = loss is not None
        if self._run is not None and loss is not None:
            self._draw(self._run, loss)

    def _fit(self) -> None:
        """A partition that starts empty has no replica that it starts from."""
        self._discarded.visible = bool(self._empty.value)
        self._source.visible = not self._empty.value

    async def make(self) -> None:
        """The dry run. What the API refuses is shown in its place."""
        loss = self._loss
        if loss is None:
            return
        self._forget()
        self._shown.draw("loading", what="Reading the log position of every living replica.")
        self._button.disable()
        try:
            numbers = read_partitions(self._partitions.value or "", self._zone.partitions)
            request = self._request()
            answer = await self._answer(request, numbers or loss.numbers)
        except StatementError as error:
            self._shown.show(problem_of(error))
            return
        finally:
            self._button.enable()
        self._run = dry_run(request, answer, numbers, loss)
        self._draw(self._run, self._loss or loss)

    def _forget(self) -> None:
        """The dry run that was shown."""
        self._run = None
        self._tools.visible = False
        self._copies.show(EMPTY)

    def _request(self) -> actions.Json:
        if not self._empty.value:
            return {"from": (self._source.value or "").strip()}
        return {"empty": True, "discard_copies": list(read_names(self._discarded.value or ""))}

    async def _answer(self, request: actions.Json, numbers: Sequence[int]) -> list[actions.Json]:
        """Return the answer for ``numbers``. Where the API refuses one of them it refuses all: then it is asked
        for the whole zone, which takes longer and also tells the replicas of those that cannot be reset.

        Raises StatementError."""
        site, zone = self._site, self._zone.name
        named = {**request, "dry_run": True, "partitions": list(numbers)}
        try:
            return await actions.reset_partitions(site, zone, named)
        except RefusedError:
            answer = await actions.reset_partitions(site, zone, {**named, "partitions": []})
            if not {reset["partition"] for reset in answer}.issuperset(numbers):
                raise
            return answer

    def _draw(self, run: DryRun, loss: ZoneLoss) -> None:
        is_stale = run.is_stale(loss)
        rows, total = run.rows[:PARTITIONS_SHOWN], len(run.rows)
        self._shown.draw("recovery_dry_run", run=run, is_stale=is_stale)
        self._copies.draw("recovery_copies", rows=rows, total=total, zone=self._zone.name)
        self._tools.visible = bool(run.resets) and not is_stale

    def _ask(self) -> None:
        run, zone = self._run, self._zone
        if run is None:
            return
        count = len(run.resets)
        fields: list[ui.input] = []

        def ask_names() -> None:
            placeholder = ", ".join(run.to_confirm)
            fields.append(text_field("Names of the dead nodes", placeholder=placeholder, width="wide"))

        async def act(by: str, reason: str) -> str:
            confirmed = read_names(fields[0].value or "") if fields else ()
            return await self._carry_out(run, confirmed)

        title = f"Reset {count:,} partition{'s' if count != 1 else ''} of {zone.name}?"
        more = ask_names if run.to_confirm else None
        confirm(self._frame, title, consequence_of(run), "Reset", act, danger=True, more=more)

    async def _carry_out(self, run: DryRun, confirmed: Sequence[str]) -> str:
        """Exactly what was shown. Raises StatementError."""
        request = run.request_of_reset(confirmed)
        answer = await actions.reset_partitions(self._site, self._zone.name, request)
        self._forget()
        written = [reset["partition"] for reset in answer if reset["written"]]
        refused = [row for row in map(reset_row, answer) if row.refusal]
        self._shown.draw("recovery_asked", written=ranges_of(written), refused=refused)
        return f"Resetting {len(written):,} of {len(answer):,} partitions."


class _ZoneRecovery:
    """The page of one zone: what is lost, the two steps, and the resets that were requested."""

    def __init__(self, site: Site, frame: PageFrame, zone: Zone, partitions: str) -> None:
        self._site, self._zone = site, zone
        self._lost = Fragment("panel")
        self._reset = _Reset(site, frame, zone, partitions)
        self._resets = Fragment("stacked")

    async def draw(self) -> None:
        site, zone = self._site, self._zone.name
        loss = await loss_of(site, self._zone)
        loading = render("loading", what="Reading the partitions of the zone.")
        self._lost.show(loading if loss is None else render("recovery_lost", loss=loss))
        self._reset.show(loss)
        self._resets.draw("recovery_resets", resets=await self._shown_resets(), zone=zone)

    async def _shown_resets(self) -> list[actions.Json]:
        """Return the resets in progress, and the newest one in any case."""
        summaries = await actions.operations(self._site, self._zone.name, kinds=["RESET"])
        shown = [summary for at, summary in enumerate(summaries) if at == 0 or not summary["over"]]
        names = [summary["operation_id"] for summary in shown[:OPERATIONS_SHOWN]]
        return [await actions.operation(self._site, name, plan=False) for name in names]


def register(site: Site) -> None:
    @console_page("/recovery")
    async def recovery(request: Request, zone: str = "", partitions: str = "") -> None:
        if zone:
            with page_frame(site, request, f"Recovery of {zone}", ACTIVE) as frame:
                owner = await site.zone(zone)
                html(render("recovery_head", zone=owner.name))
                view = _ZoneRecovery(site, frame, owner, partitions)
                await frame.live(view.draw, owner.zone_id, Topic.ZONES, Topic.NODES, Topic.OPERATIONS)
            return
        note = "Partitions that have lost the majority of their voters, and how to recover them."
        with page_frame(site, request, "Recovery", ACTIVE, note=note) as frame:
            zones = Fragment("panel")

            async def draw() -> None:
                states = zone_states(site.feed, site.services.views)
                unread = sum(state.moves.unread for state in states)
                zones.draw("recovery_zones", zones=zones_with_loss(states), unread=unread)

            await frame.live(draw, Topic.PARTITIONS, Topic.NODES)
