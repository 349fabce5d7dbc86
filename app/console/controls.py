"""Buttons, links and fields in the console's own colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from nicegui import ui
from nicegui.element import Element

from app.console.browser import html
from app.console.fragments import render

F = TypeVar("F", bound=Element)


class ButtonKind(StrEnum):
    """PRIMARY: what the page is for; DANGER: what is hard to take back."""

    PRIMARY = "primary"
    PLAIN = "plain"
    QUIET = "quiet"
    DANGER = "danger"


def action_link(text: str, url: str) -> None:
    """A link that looks like a button. NiceGUI's own would put the console's path before ``url`` once more."""
    html(render("action", text=text, url=url))


def button(
    text: str, act: Callable[[], Awaitable[None]] | Callable[[], None], kind: ButtonKind = ButtonKind.PLAIN
) -> ui.button:
    """Without the framework's colours, which are too pale to be read on all of ours."""
    made = ui.button(text, on_click=act, color=None).props("no-caps").classes(kind.value)
    return made.props("flat" if kind in (ButtonKind.QUIET, ButtonKind.PLAIN) else "unelevated")


def text_field(
    label: str, value: str = "", *, placeholder: str = "", hint: str = "", width: str = "choice"
) -> ui.input:
    return _field(ui.input(label, value=value, placeholder=placeholder), hint, width)


def number_field(
    label: str, value: float | None = None, *, low: int = 1, high: int | None = None, placeholder: str = ""
) -> ui.number:
    """Of whole numbers from ``low`` to ``high`` (None: without end)."""
    field = ui.number(label, value=value, min=low, max=high, precision=0, format="%d", placeholder=placeholder)
    return _field(field, "", "number")


def choice_field(
    label: str, options: Mapping[str, str] | Sequence[str], value: str | None, *, width: str = "choice"
) -> ui.select:
    """``options``: values, with their texts if they are a mapping. Any other ``value`` means the first."""
    known = value if value in options else next(iter(options), None)
    options = dict(options) if isinstance(options, Mapping) else list(options)
    return _field(ui.select(options, value=known, label=label), "", width)


def _field(field: F, hint: str, width: str) -> F:
    if hint:
        field.props["hint"] = hint
    return field.props("outlined dense").classes(width)
