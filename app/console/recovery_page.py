"""``/console/recovery``: what has lost its majority, what a reset would keep and lose, the reset, and its end.

Two steps: a dry run is shown first; what it has shown, and no more, is what the second step asks the API for.
"""

from __future__ import annotations

from collections.abc import Hashable

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import Fragment, html
from app.console.confirm import confirm
from app.console.controls import Kind, button
from app.console.feed import Topic
from app.console.fragments import render
from app.console.frame import Frame, console_page, page_frame
from app.console.recovery_model import (
    DryRun,
    ZoneLoss,
    accepted_of,
    check_dead,
    consequence_of,
    dry_run,
    ranges_of,
    read_partitions,
    reset_row,
    zone_loss,
    zones_with_loss,
)
from app.console.shared import Site
from app.console.zone_states import zone_states
from catalog.core.errors import StatementError
from catalog.core.zone import ConsistencyMode, Zone

PARTITIONS_SHOWN = 100
OPERATIONS_SHOWN = 3


async def loss_of(site: Site, zone: Zone) -> ZoneLoss | None:
    """None: the zone has not been read yet. Raises StatementError."""
    grid = site.feed.grids.get(zone.zone_id)
    if grid is None or grid.move_counts().unread:
        return None
    numbers = grid.lost_numbers()
    shown = numbers[:PARTITIONS_SHOWN]
    states = await actions.partition_states(site, zone.name, shown) if shown else []
    return zone_loss(zone.name, grid.partitions, numbers, states, grid.causes)


class _Reset:
    """The two steps: a dry run, and the reset that does what it has shown."""

    def __init__(self, site: Site, frame: Frame, zone: Zone, partitions: str) -> None:
        self._site, self._frame, self._zone = site, frame, zone
        self._loss: ZoneLoss | None = None
        self._run: DryRun | None = None
        with ui.element("section").classes("panel"):
            html(render("recovery_steps"))
            with ui.row().classes("tools form"):
                self._partitions = ui.input("Partitions", value=partitions)
                self._partitions.props(
                    'outlined dense clearable hint="empty: all that have lost their majority"'
                )
                self._partitions.classes("choice wide")
                self._empty = ui.checkbox("Begin without data where no living node has a copy")
                self._button = button("Dry run", self.make, Kind.PRIMARY)
        self._partitions.on("keydown.enter", self.make)
        self._shown = Fragment("stacked")
        with ui.row().classes("tools") as self._tools:
            self._reset = button("Reset the partitions", self._ask, Kind.DANGER)
        self._tools.visible = False

    def show(self, loss: ZoneLoss | None) -> None:
        """``loss`` is what is lost now: a dry run that was made for something else is not to be run."""
        self._loss = loss
        self._button.enabled = loss is not None
        if self._run is not None and loss is not None:
            self._draw(self._run, loss)

    async def make(self) -> None:
        """The dry run. What the API refuses is shown in its place."""
        loss = self._loss
        if loss is None:
            return
        self._run = None
        self._tools.visible = False
        self._shown.show(render("loading", what="Asking every living copy how far it goes."))
        self._button.disable()
        try:
            request = {
                "partitions": read_partitions(self._partitions.value or "", self._zone.partitions),
                "empty": bool(self._empty.value),
            }
            answer = await actions.reset_partitions(self._site, self._zone.name, {**request, "dry_run": True})
        except StatementError as error:
            row = error.kind.value
            self._shown.show(render("problem", title=row.title, detail=error.message, action=row.action))
            return
        finally:
            self._button.enable()
        self._run = dry_run(request, answer, loss)
        self._draw(self._run, self._loss or loss)

    def _draw(self, run: DryRun, loss: ZoneLoss) -> None:
        is_stale = run.is_stale(loss)
        rows = run.rows[:PARTITIONS_SHOWN]
        self._shown.show(
            render("recovery_dry_run", run=run, rows=rows, is_stale=is_stale, zone=self._zone.name)
        )
        self._tools.visible = bool(run.resets) and not is_stale

    def _ask(self) -> None:
        run, zone = self._run, self._zone
        if run is None:
            return
        is_strong = zone.consistency_mode is ConsistencyMode.STRONG_CONSISTENCY
        numbers = [row.number for row in run.resets]
        names: list[ui.input] = []

        def name_dead() -> None:
            names.append(ui.input("Names of the dead nodes", placeholder=", ".join(run.dead)))
            names[0].props("outlined dense").classes("wide")

        async def act(by: str, reason: str) -> str:
            check_dead(names[0].value or "" if names else "", run.dead if is_strong else ())
            return await self._carry_out(run)

        confirm(
            self._frame,
            f"Reset {len(numbers):,} partition{'s' if len(numbers) != 1 else ''} of {zone.name}?",
            consequence_of(run, is_strong=is_strong),
            "Reset",
            act,
            danger=True,
            more=name_dead if is_strong and run.dead else None,
        )

    async def _carry_out(self, run: DryRun) -> str:
        """Exactly what was shown. Raises StatementError."""
        answer = await actions.reset_partitions(
            self._site, self._zone.name, {**run.request, "shown": accepted_of(run.answer)}
        )
        self._run = None
        self._tools.visible = False
        written = [reset["partition"] for reset in answer if reset["written"]]
        refused = [row for row in map(reset_row, answer) if row.refusal]
        self._shown.show(render("recovery_asked", written=ranges_of(written), refused=refused))
        return f"{len(written):,} of {len(answer):,} partitions are being reset."


class _ZoneRecovery:
    """The page of one zone: what is lost, the two steps, and the resets that were asked for."""

    def __init__(self, site: Site, frame: Frame, zone: Zone, partitions: str) -> None:
        self._site, self._zone = site, zone
        self._lost = Fragment("panel")
        self._reset = _Reset(site, frame, zone, partitions)
        self._resets = Fragment("stacked")

    def of(self) -> Hashable:
        feed = self._site.feed
        grid = feed.grids.get(self._zone.zone_id)
        topics = feed.seen(Topic.ZONES, Topic.NODES, Topic.OPERATIONS)
        return grid.version if grid is not None else -1, topics

    async def draw(self) -> None:
        site, zone = self._site, self._zone
        loss = await loss_of(site, zone)
        if loss is None:
            self._lost.show(render("loading", what="Reading the partitions of the zone."))
        else:
            self._lost.show(render("recovery_lost", loss=loss))
        self._reset.show(loss)
        self._resets.show(render("recovery_resets", resets=await self._shown_resets(), zone=zone.name))

    async def _shown_resets(self) -> list[actions.Json]:
        """Those that go on, and the newest one in any case."""
        summaries = await actions.resets(self._site, self._zone.name)
        chosen = [summary for at, summary in enumerate(summaries) if at == 0 or not summary["over"]]
        names = [summary["operation_id"] for summary in chosen[:OPERATIONS_SHOWN]]
        return [await actions.operation_now(self._site, name) for name in names]


def register(site: Site) -> None:
    @console_page("/recovery")
    async def recovery(request: Request, zone: str = "", partitions: str = "") -> None:
        if zone:
            with page_frame(site, request, f"Recovery of {zone}", "") as frame:
                zone_found = await site.services.zones.find(zone)
                html(render("recovery_head", zone=zone_found.name))
                view = _ZoneRecovery(site, frame, zone_found, partitions)
                await frame.live(view.draw, view.of)
            return
        with page_frame(site, request, "Recovery", "") as frame:
            note = "Partitions that have lost the majority of their voters, and the way back."
            html(render("title", title="Recovery", note=note))
            zones = Fragment("panel")

            async def draw() -> None:
                states = zone_states(site.feed, site.services.views)
                unread = sum(state.moves.unread for state in states)
                zones.show(render("recovery_zones", zones=zones_with_loss(states), unread=unread))

            await frame.live(draw, lambda: (site.feed.version, site.feed.seen(Topic.NODES)))
