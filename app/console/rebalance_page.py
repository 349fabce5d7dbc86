"""``/console/rebalance``: what moves, what holds it back, the limits, and pauses."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.confirm import confirm
from app.console.controls import Kind, button
from app.console.feed import Topic
from app.console.fragments import render
from app.console.frame import Fragment, Frame, console_page, page_frame
from app.console.overview import stuck, unsettled
from app.console.shared import Site
from app.console.zone_states import zone_states
from rebalance.core.admission import CAPS

WORDS = {
    "cluster_moves": ("Whole cluster", "partitions that move at once"),
    "zone_moves": ("Each zone", "partitions of a zone that move at once"),
    "donor_moves": ("Away from each node", "moves that a node gives copies for at once"),
    "receiver_moves": ("Onto each node", "moves that a node takes copies of at once"),
    "batch_size": ("Batch", "a zone's moves begin so many at a time"),
    "operation_s": ("Time of an operation", "seconds; it has failed then, and nothing more of it begins"),
    "one_operation": ("One operation at a time", "moves of the next one wait"),
}
MINUTES_MAX = 366 * 24 * 60


def changed_limits(
    shown: dict[str, Any], fields: dict[str, float | bool | None]
) -> dict[str, int | bool | None]:
    """What of the form differs from the limits; None takes a limit away."""
    asked = {
        name: value if value is None or isinstance(value, bool) else int(value)
        for name, value in fields.items()
    }
    return {name: value for name, value in asked.items() if value != shown.get(name)}


def _told(value: int | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "any number" if value is None else f"{value:,}"


class _Limits:
    """The form keeps what is being typed; what others change is shown above it."""

    def __init__(self, site: Site, frame: Frame) -> None:
        self._site, self._frame = site, frame
        self._limits: dict[str, Any] = {}
        self._tag = ""
        with ui.element("section").classes("panel"):
            ui.html(render("heading", title="Limits"), sanitize=False)
            ui.label("Empty: any number. What moves already goes on; what would begin beyond a limit waits.")
            with ui.element("div").classes("limits"):
                self._fields = {name: self._field(name) for name in (*CAPS, "operation_s")}
            self._one = ui.checkbox(WORDS["one_operation"][0])
            with ui.row().classes("buttons start"):
                button("Set limits", self._ask, Kind.PRIMARY)
                button("Undo", self._fill, Kind.QUIET)

    def _field(self, name: str) -> ui.number:
        title, hint = WORDS[name]
        return ui.number(title, min=1, precision=0, format="%d").props(
            f'outlined dense clearable hint="{hint}"'
        )

    def show(self, limits: dict[str, Any], tag: str) -> None:
        if tag != self._tag:
            self._limits, self._tag = limits, tag
            self._fill()

    def _fill(self) -> None:
        for name, field in self._fields.items():
            field.value = self._limits.get(name)
        self._one.value = bool(self._limits.get("one_operation"))

    def _ask(self) -> None:
        asked = {name: field.value for name, field in self._fields.items()}
        change = changed_limits(self._limits, {**asked, "one_operation": bool(self._one.value)})
        if not change:
            ui.notify("The form says what holds already.", position="bottom")
            return
        told = "; ".join(f"{WORDS[name][0]}: {_told(value)}" for name, value in change.items())
        tag = self._tag

        async def act(by: str, reason: str) -> str:
            await actions.change_limits(self._site, change, tag)
            return "The limits hold from now on."

        confirm(self._frame, "Set limits?", told, "Set limits", act)


class _Pause:
    """Of the whole cluster."""

    def __init__(self, site: Site, frame: Frame) -> None:
        self._site, self._frame, self._is_paused = site, frame, False
        with ui.element("section").classes("panel"):
            self._told = Fragment()
            with ui.row().classes("tools"):
                self._minutes = ui.number("Minutes", min=1, max=MINUTES_MAX, precision=0, format="%d")
                self._minutes.props('outlined dense clearable hint="empty: until somebody resumes"')
                self._minutes.classes("choice wide")
                self._button = button("Pause all moves", self._ask)

    def show(self, limits: dict[str, Any]) -> None:
        self._is_paused = limits["pause"] is not None
        self._minutes.visible = not self._is_paused
        self._button.text = "Resume" if self._is_paused else "Pause all moves"
        self._told.show(render("rebalance_pauses", pause=limits["pause"], zones=limits["zone_pauses"]))

    def _ask(self) -> None:
        site, minutes = self._site, self._minutes.value

        async def resume(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": None})
            return "Moves go on."

        async def hold(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": actions.pause(by, reason, minutes)})
            return "No move begins until somebody resumes, or the time is over."

        if self._is_paused:
            confirm(self._frame, "Resume moves?", "What waits may begin at once.", "Resume", resume)
        else:
            until = f"for {minutes:g} minutes" if minutes else "until somebody resumes"
            told = f"No move of any zone begins {until}; what moves goes on to its end. Reads and writes go on."
            confirm(self._frame, "Pause all moves?", told, "Pause", hold)


def register(site: Site) -> None:
    @console_page("/rebalance")
    async def rebalance(request: Request) -> None:
        with page_frame(site, request, "Rebalance", "rebalance") as frame:
            note = "What moves now, what holds it back, and how much may move at once."
            ui.html(render("title", title="Rebalance", note=note), sanitize=False)
            with ui.element("div").classes("two"):
                moving, waiting = Fragment("panel"), Fragment("panel")
            pause, limits = _Pause(site, frame), _Limits(site, frame)

            async def draw() -> None:
                states = zone_states(site.feed, site.services.views)
                moving.show(render("overview_moves", zones=unsettled(states), total=len(states)))
                waiting.show(render("overview_causes", causes=stuck(states)))
                found, tag = await actions.limits(site)
                pause.show(found)
                limits.show(found, tag)

            await frame.live(draw, lambda: (site.feed.version, site.feed.seen(Topic.LIMITS)))
