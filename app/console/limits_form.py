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
from rebalance.core.admission import CAPS, COPY_RULES, RATES, RESET_RULES

WORDS = {
    "cluster_moves": ("Whole cluster", "partitions that move at once"),
    "zone_moves": ("Each zone", "partitions of a zone that move at once"),
    "donor_moves": ("Away from each node", "moves that a node gives copies for at once"),
    "receiver_moves": ("Onto each node", "moves that a node takes copies of at once"),
    "batch_size": ("Batch", "a zone's moves begin so many at a time"),
    "cluster_bytes_s": ("Bandwidth of the cluster", "bytes a second of copies that begin"),
    "node_bytes_s": ("Bandwidth of each node", "bytes a second, onto it and away from it"),
    "operation_s": ("Time of an operation", "seconds; it has failed then, and nothing more of it begins"),
    "copy_attempts": ("Attempts at a copy", "then its partition is told as failed; empty: 3"),
    "copy_s": ("Time of a copy", "seconds; it is begun again then; empty: ten days"),
    "joiner_s": ("Time of a joiner", "seconds that it may be gone; the move goes on without it; empty: 60"),
    "ha_reset_s": ("Automatic reset", "seconds without a majority, HIGH_AVAILABILITY zones; empty: 10"),
    "one_operation": ("One operation at a time", "moves of the next one wait"),
    "rebalancing": ("What moves data may be asked for", "where not, what moves already goes on"),
    "keep_copies": ("Keep copies", "of members that leave, until their operation is finalised"),
    "windows": ("Windows, UTC", "22:00-04:00; Sat,Sun 00:00-24:00; empty: always"),
}
NUMBERS = (*CAPS, *RATES, "operation_s", *COPY_RULES, *RESET_RULES)
SWITCHES = ("one_operation", "rebalancing", "keep_copies")
SEPARATOR = ";"
Value = int | bool | list[str] | None


def changed_limits(shown: dict[str, Any], fields: dict[str, float | bool | str | None]) -> dict[str, Value]:
    """What of the form differs from the limits; None takes a limit away. Windows are typed as one text."""
    asked = {name: _value(value) for name, value in fields.items()}
    return {name: value for name, value in asked.items() if value != shown.get(name)}


def _value(typed: float | bool | str | None) -> Value:
    if isinstance(typed, str):
        return [each.strip() for each in typed.split(SEPARATOR) if each.strip()]
    return typed if typed is None or isinstance(typed, bool) else int(typed)


def _told(value: Value) -> str:
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
        with ui.element("section").classes("panel"):
            html(render("heading", title="Limits"))
            ui.label("Empty: no limit. What moves already goes on; what would begin beyond a limit waits.")
            with ui.element("div").classes("limits"):
                self._numbers = {name: self._number(name) for name in NUMBERS}
                title, hint = WORDS["windows"]
                self._windows = ui.input(title).props("outlined dense clearable")
                self._windows.props["hint"] = hint
            self._switches = {name: ui.checkbox(", ".join(WORDS[name])) for name in SWITCHES}
            with ui.row().classes("buttons start"):
                button("Set limits", self._ask, ButtonKind.PRIMARY)
                button("Undo", self._fill, ButtonKind.QUIET)

    def _number(self, name: str) -> ui.number:
        title, hint = WORDS[name]
        field = ui.number(title, min=1, precision=0, format="%d").props("outlined dense clearable")
        field.props["hint"] = hint
        return field

    def show(self, limits: dict[str, Any], tag: str) -> None:
        if tag != self._tag:
            self._limits, self._tag = limits, tag
            self._fill()

    def _fill(self) -> None:
        for name, field in self._numbers.items():
            field.value = self._limits.get(name)
        for name, switch in self._switches.items():
            switch.value = bool(self._limits.get(name))
        self._windows.value = f"{SEPARATOR} ".join(self._limits.get("windows", ()))

    def _ask(self) -> None:
        numbers = {name: field.value for name, field in self._numbers.items()}
        switches = {name: bool(switch.value) for name, switch in self._switches.items()}
        change = changed_limits(self._limits, {**numbers, **switches, "windows": self._windows.value or ""})
        if not change:
            ui.notify("The form says what holds already.", position="bottom")
            return
        told = "; ".join(f"{WORDS[name][0]}: {_told(value)}" for name, value in change.items())
        tag = self._tag

        async def act(by: str, reason: str) -> str:
            await actions.change_limits(self._site, {**change, "reason": reason}, tag)
            return "The limits hold from now on."

        confirm(self._frame, "Set limits?", told, "Set limits", act)
