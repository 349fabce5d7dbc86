"""Buttons, links and fields in the console's own colours, and the dialog in which a change is confirmed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

import structlog
from nicegui import ui
from nicegui.element import Element

from app.console.browser import html
from app.console.fragments import render
from app.console.frame import PageFrame, remember_name
from app.console.shared import Site
from app.requests.context import acting
from app.security.policy import PageControl
from catalog.core.errors import StatementError

log = structlog.get_logger(__name__)

Act = Callable[[str, str], Awaitable[str]]
"""Action with a name and a reason, which may be empty; returns what to tell."""
F = TypeVar("F", bound=Element)
CANCEL, KEEP = "Cancel", "Do not cancel"
"""Labels of the buttons that leave a dialog; the second where the dialog itself is about cancelling
something."""


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
    """Make a button without the framework's colours, which are too pale to be read on all of ours."""
    made = ui.button(text, on_click=act, color=None).props("no-caps").classes(kind.value)
    return made.props("flat" if kind in (ButtonKind.QUIET, ButtonKind.PLAIN) else "unelevated")


def text_field(
    label: str, value: str = "", *, placeholder: str = "", hint: str = "", width: str = "choice"
) -> ui.input:
    return _field(ui.input(label, value=value, placeholder=placeholder), hint, width)


def password_field(label: str) -> ui.input:
    """A new one: a password manager may make it, and does not fill in the own."""
    field = _field(ui.input(label, password=True), "", "wide")
    return field.props("autocomplete=new-password maxlength=1024")


def number_field(
    label: str, value: float | None = None, *, low: int = 1, high: int | None = None, placeholder: str = ""
) -> ui.number:
    """Make a field of whole numbers from ``low`` to ``high`` (None: without end)."""
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


@dataclass(frozen=True, slots=True)
class PageAction:
    """Action of a page on the zone, node or operation that it shows. ``question`` has a place for the name;
    ``act`` is one of ``actions``."""

    word: str
    question: str
    consequence: str
    act: Callable[[Site, str, str, str], Awaitable[str]]
    control: PageControl
    is_dangerous: bool = False

    def ask(self, frame: PageFrame, name: str) -> None:
        act = partial(self.act, frame.site, name)
        title = self.question.format(name)
        confirm(frame, title, self.consequence, self.word, act, danger=self.is_dangerous)


def _audit_fields(frame: PageFrame, *, is_required: bool) -> tuple[ui.input, ui.input]:
    """Make the fields for the author of a change, and its reason."""
    by = text_field("Your name", frame.actor.name, width="wide").props("maxlength=100")
    by.enabled = not frame.actor.verified
    reason = text_field("Reason (required)" if is_required else "Reason", width="wide")
    return by, reason.props("maxlength=500")


def confirm(
    frame: PageFrame,
    title: str,
    consequence: str,
    action: str,
    act: Act,
    *,
    danger: bool = False,
    more: Callable[[], None] | None = None,
    needs_reason: bool | None = None,
) -> None:
    """Opens a dialog. What ``act`` refuses (StatementError) is shown in it, and nothing is lost: Escape closes
    it, a click beside it does not. The first field that can be filled in has the focus.

    ``more`` builds further fields of it. ``needs_reason``: None: where the setting says so."""
    audit = frame.site.services.audit
    is_required = audit.requires_reason if needs_reason is None else needs_reason
    with ui.dialog().props("no-backdrop-dismiss") as dialog, ui.card().classes("ask") as card:
        dialog.props["aria-label"] = title
        html(render("heading", title=title))
        ui.label(consequence).classes("consequence")
        if more is not None:
            more()
        by, reason = _audit_fields(frame, is_required=is_required)
        refusal = ui.label("").classes("refusal").props('role="alert"')
        refusal.visible = False

        def refuse(message: str) -> None:
            refusal.text = message
            refusal.visible = True

        def held(is_held: bool) -> None:
            """Keep the dialog open while the change is being made: its outcome is shown here."""
            sure.enabled = keep.enabled = not is_held
            dialog.props.set_bool("persistent", is_held)

        async def go_on() -> None:
            # A field that is shown as fixed may arrive changed.
            stated = frame.actor.name if frame.actor.verified else by.value
            name, why = (stated or "").strip(), (reason.value or "").strip()
            if not name:
                refuse("A name is required: it is kept in the audit log.")
                return
            held(True)
            try:
                frame.site.services.require_metastore()
                if needs_reason is None:
                    audit.require_reason(why)
                with acting(frame.actor.named(name).because(why)):
                    outcome = await act(name, why)
            except StatementError as error:
                refuse(f"{error.message} {error.kind.value.action}")
                return
            finally:
                held(False)
            log.info("changed in the console", change=title, by=name, reason=why)
            frame.actor = frame.actor.named(name)
            remember_name(name)
            dialog.close()
            ui.notify(outcome, position="bottom")
            await frame.redraw()

        with ui.row().classes("buttons"):
            keep = button(KEEP if action == CANCEL else CANCEL, dialog.close, ButtonKind.QUIET)
            sure = button(action, go_on, ButtonKind.DANGER if danger else ButtonKind.PRIMARY)
        reason.on("keydown.enter", go_on)
    fields = (each for each in card.descendants() if isinstance(each, ui.input | ui.number | ui.select))
    next(field for field in fields if field.enabled).props("autofocus")
    dialog.on("hide", dialog.delete)
    dialog.open()
