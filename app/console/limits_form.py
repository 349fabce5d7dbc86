"""The form of the limits: numbers, switches, and the windows in which moves may begin."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import ButtonKind, button, confirm
from app.console.fragments import render
from app.console.frame import PageFrame
from app.console.shared import Site
from app.console.viewer import may_use
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
