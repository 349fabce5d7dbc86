"""Changes ask who makes them and why, and say what will be done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from nicegui import ui

from app.actor import acting
from app.console.browser import html
from app.console.controls import ButtonKind, button
from app.console.fragments import render
from app.console.frame import PageFrame, remember_name
from catalog.core.errors import StatementError

log = structlog.get_logger(__name__)

Act = Callable[[str, str], Awaitable[str]]
"""With a name and a reason; returns what to tell."""


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
        by = ui.input("Your name", value=frame.actor.name).props("outlined dense maxlength=100").classes("wide")
        by.enabled = not frame.actor.verified
        reason = ui.input("Reason").props("outlined dense maxlength=500").classes("wide")
        refusal = ui.label("").classes("refusal").props('role="alert"')
        refusal.visible = False

        def refuse(message: str) -> None:
            refusal.text = message
            refusal.visible = True

        async def go_on() -> None:
            name, why = (by.value or "").strip(), (reason.value or "").strip()
            if not name or not why:
                refuse(
                    "Both are needed: a name that can be asked, and a reason for those who read the history."
                )
                return
            sure.disable()
            try:
                with acting(frame.actor.named(name).because(why)):
                    told = await act(name, why)
            except StatementError as error:
                refuse(f"{error.message} {error.kind.value.action}")
                return
            finally:
                sure.enable()
            log.info("changed in the console", change=title, by=name, reason=why)
            frame.actor = frame.actor.named(name)
            remember_name(name)
            dialog.close()
            ui.notify(told, position="bottom")
            await frame.redraw()

        with ui.row().classes("buttons"):
            button("Cancel", dialog.close, ButtonKind.QUIET)
            sure = button(action, go_on, ButtonKind.DANGER if danger else ButtonKind.PRIMARY)
        reason.on("keydown.enter", go_on)
    dialog.on("hide", dialog.delete)
    dialog.open()
