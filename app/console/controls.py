"""Buttons in the console's own colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from nicegui import ui

from app.console.browser import html
from app.console.fragments import render


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
