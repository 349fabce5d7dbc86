"""``/console/rebalance``: what moves, what holds it back, pauses, and the limits: numbers, switches, and the
windows in which moves may begin.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import ButtonKind, button, confirm
from app.console.feed import Topic
from app.console.fragments import Fragment, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.shared import Site
from app.console.viewer import may_use
from app.console.zone_states import stuck, unsettled, zone_states
from app.security.policy import PageControl
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, LimitKind, LimitOption

SEPARATOR = ";"
Value = int | bool | list[str] | None


def changed_limits(shown: dict[str, Any], fields: dict[str, float | bool | str | None]) -> dict[str, Value]:
    """Return what of the form differs from the limits; None takes a limit away. Windows are typed as one
    text."""
    values = {name: _value(typed) for name, typed in fields.items()}
    return {name: value for name, value in values.items() if value != shown.get(name)}


def _value(typed: float | bool | str | None) -> Value:
    if isinstance(typed, str):
        return [window.strip() for window in typed.split(SEPARATOR) if window.strip()]
    return typed if typed is None or isinstance(typed, bool) else int(typed)


def _text(value: Value) -> str:
    if isinstance(value, list):
        return f"{SEPARATOR} ".join(value) or "always"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "no limit" if value is None else f"{value:,}"


class LimitsForm:
    """Keeps what is being typed; what others change is shown above it."""

    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame = site, frame
        self._limits: dict[str, Any] = {}
        self._tag = ""
        self._fields: dict[str, ui.number | ui.input | ui.checkbox] = {}
        switches = [option for option in LIMIT_OPTIONS if option.kind is LimitKind.SWITCH]
        with ui.element("section").classes("panel"):
            html(render("heading", title="Limits"))
            ui.label("Empty: not limited. Running moves go on; a move that would exceed a limit waits.")
            with ui.element("div").classes("limits"):
                self._fields |= {
                    option.name: _field(option) for option in LIMIT_OPTIONS if option not in switches
                }
            self._fields |= {option.name: ui.checkbox(option.sentence) for option in switches}
            if may_use(PageControl.CHANGE_LIMITS):
                with ui.row().classes("buttons start"):
                    button("Set limits", self._ask, ButtonKind.PRIMARY)
                    button("Undo", self._fill, ButtonKind.QUIET)

    def show(self, limits: dict[str, Any], tag: str) -> None:
        if tag != self._tag:
            self._limits, self._tag = limits, tag
            self._fill()

    def _fill(self) -> None:
        for option in LIMIT_OPTIONS:
            value: Any = self._limits.get(option.name, option.unset)
            is_windows = option.kind is LimitKind.WINDOWS
            self._fields[option.name].value = f"{SEPARATOR} ".join(value) if is_windows else value

    def _ask(self) -> None:
        fields = {option.name: self._fields[option.name].value for option in LIMIT_OPTIONS}
        change = changed_limits(self._limits, {**fields, "windows": fields["windows"] or ""})
        if not change:
            ui.notify("The limits are already set like this.", position="bottom")
            return
        titles = {option.name: option.title for option in LIMIT_OPTIONS}
        summary = "; ".join(f"{titles[name]}: {_text(value)}" for name, value in change.items())
        tag = self._tag

        async def act(by: str, reason: str) -> str:
            await actions.change_limits(self._site, {**change, "reason": reason}, tag)
            return "The limits are set."

        confirm(self._frame, "Set limits?", summary, "Set limits", act)


def _field(option: LimitOption) -> ui.number | ui.input:
    hint = f"{option.text}; empty: {option.otherwise}"
    if option.kind is LimitKind.WINDOWS:
        field: ui.number | ui.input = ui.input(option.title)
        hint = f"{hint}; several are separated by {SEPARATOR}"
    else:
        field = ui.number(option.title, min=option.lowest or 1, precision=0, format="%d")
        hint = hint.replace(";", f", in {option.kind.value};", 1) if option.kind is LimitKind.SECONDS else hint
    field.props("outlined dense clearable hide-bottom-space").props["hint"] = hint
    return field


MINUTES_MAX = 366 * 24 * 60


class _Pause:
    """Pause of the whole cluster."""

    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame, self._is_paused = site, frame, False
        with ui.element("section").classes("panel"):
            self._pauses = Fragment()
            with ui.row().classes("tools"):
                self._minutes = ui.number("Minutes", min=1, max=MINUTES_MAX, precision=0, format="%d")
                self._minutes.props('outlined dense clearable hint="empty: until resumed"')
                self._minutes.classes("choice wide")
                self._button = button("Pause all moves", self._ask)
            self._may_change = self._button.visible = may_use(PageControl.CHANGE_LIMITS)

    def show(self, limits: dict[str, Any]) -> None:
        self._is_paused = limits["pause"] is not None
        self._minutes.visible = self._may_change and not self._is_paused
        self._button.text = "Resume" if self._is_paused else "Pause all moves"
        self._pauses.draw("rebalance_pauses", pause=limits["pause"], zones=limits["zone_pauses"])

    def _ask(self) -> None:
        site, minutes = self._site, self._minutes.value

        async def resume(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": None, "reason": reason})
            return "Moves begin again."

        async def hold(by: str, reason: str) -> str:
            await actions.change_limits(site, {"pause": actions.pause(by, reason, minutes)})
            return "No move starts until the pause ends."

        if self._is_paused:
            confirm(self._frame, "Resume moves?", "Waiting moves may begin at once.", "Resume", resume)
        else:
            until = f"for {minutes:g} minutes" if minutes else "until resumed"
            consequence = (
                f"No move of any zone begins {until}; running moves finish. Reads and writes continue."
            )
            confirm(self._frame, "Pause all moves?", consequence, "Pause", hold)


def register(site: Site) -> None:
    @console_page("/rebalance")
    async def rebalance(request: Request) -> None:
        note = "Partitions that move or wait, pauses, and the limits of moves."
        with page_frame(site, request, "Rebalance", "rebalance", note=note) as frame:
            with ui.element("div").classes("two"):
                moving, waiting = Fragment("panel"), Fragment("panel")
            pause, limits = _Pause(site, frame), LimitsForm(site, frame)

            async def draw() -> None:
                states = zone_states(site.feed, site.services.views)
                may_create = may_use(PageControl.CREATE_ZONE)
                moves = {"zones": unsettled(states), "total": len(states), "may_create": may_create}
                moving.draw("overview_moves", **moves)
                waiting.draw("overview_causes", causes=stuck(states))
                values, tag = await actions.limits(site)
                pause.show(values)
                limits.show(values, tag)

            await frame.live(draw, Topic.PARTITIONS, Topic.LIMITS)
