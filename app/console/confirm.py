"""Changes ask who makes them and why, and say what will be done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog
from nicegui import ui

from app.actor import acting
from app.console.browser import html
from app.console.controls import ButtonKind, button, text_field
from app.console.fragments import render
from app.console.frame import PageFrame, remember_name
from app.console.shared import Site
from catalog.core.errors import StatementError

log = structlog.get_logger(__name__)

Act = Callable[[str, str], Awaitable[str]]
"""With a name and a reason; returns what to tell."""


@dataclass(frozen=True, slots=True)
class PageAction:
    """What a page can do to the zone, node or operation that it shows. ``question`` has a place for the name;
    ``act`` is one of ``actions``."""

    word: str
    question: str
    consequence: str
    act: Callable[[Site, str, str, str], Awaitable[str]]
    is_dangerous: bool = False

    def ask(self, frame: PageFrame, name: str) -> None:
        act = partial(self.act, frame.site, name)
        title = self.question.format(name)
        confirm(frame, title, self.consequence, self.word, act, danger=self.is_dangerous)


def confirm(
    frame: PageFrame,
    title: str,
    consequence: str,
    action: str,
    act: Act,
    *,
    danger: bool = False,
    more: Callable[[], None] | None = None,
) -> None:
    """Opens a dialog. What ``act`` refuses (StatementError) is shown in it, and nothing is lost.

    ``more`` builds further fields of it."""
    with ui.dialog().props("persistent") as dialog, ui.card().classes("ask"):
        dialog.props["aria-label"] = title
        html(render("heading", title=title))
        ui.label(consequence).classes("consequence")
        if more is not None:
            more()
        by = text_field("Your name", frame.actor.name, width="wide").props("maxlength=100")
        by.enabled = not frame.actor.verified
        reason = text_field("Reason", width="wide").props("maxlength=500")
        refusal = ui.label("").classes("refusal").props('role="alert"')
        refusal.visible = False

        def refuse(message: str) -> None:
            refusal.text = message
            refusal.visible = True

        async def go_on() -> None:
            name, why = (by.value or "").strip(), (reason.value or "").strip()
            if not name or not why:
                refuse("A name and a reason are required. Both are kept in the audit log.")
                return
            sure.disable()
            try:
                with acting(frame.actor.named(name).because(why)):
                    outcome = await act(name, why)
            except StatementError as error:
                refuse(f"{error.message} {error.kind.value.action}")
                return
            finally:
                sure.enable()
            log.info("changed in the console", change=title, by=name, reason=why)
            frame.actor = frame.actor.named(name)
            remember_name(name)
            dialog.close()
            ui.notify(outcome, position="bottom")
            await frame.redraw()

        with ui.row().classes("buttons"):
            button("Cancel", dialog.close, ButtonKind.QUIET)
            sure = button(action, go_on, ButtonKind.DANGER if danger else ButtonKind.PRIMARY)
        reason.on("keydown.enter", go_on)
    dialog.on("hide", dialog.delete)
    dialog.open()
