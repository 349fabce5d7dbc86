"""``/console/audit``: who changed what, when, why and from where; what is searched is in the address."""

from __future__ import annotations

from collections.abc import Hashable

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import Fragment, html
from app.console.controls import button
from app.console.feed import Topic
from app.console.fragments import link, render
from app.console.frame import console_page, go, page_frame
from app.console.shared import Site

FIELDS = {
    "subject": ("Of what", "a zone, table, node or operation"),
    "by": ("By whom", "a name"),
    "action": ("What was done", "as DRAIN NODE"),
}


def register(site: Site) -> None:
    @console_page("/audit")
    async def audit(
        request: Request, subject: str = "", by: str = "", action: str = "", page: str | None = None
    ) -> None:
        asked = {"subject": subject, "by": by, "action": action}
        with page_frame(site, request, "Audit", "audit") as frame:
            note = "Who changed what, when, why, and which way the request came. The newest is first."
            html(render("title", title="Audit", note=note))
            with ui.row().classes("tools"):
                fields = {
                    name: ui.input(title, value=asked[name], placeholder=hint).props("outlined dense clearable")
                    for name, (title, hint) in FIELDS.items()
                }

                def search() -> None:
                    go(link("audit", **{name: (field.value or "").strip() for name, field in fields.items()}))

                for field in fields.values():
                    field.classes("choice wide").on("keydown.enter", search)
                button("Search", search)
            table = Fragment("panel")

            def of() -> Hashable:
                # What is written down follows the change that it is about.
                topics = site.feed.seen(Topic.NODES, Topic.LIMITS, Topic.OPERATIONS)
                return site.changes, topics

            async def draw() -> None:
                records, token = await actions.audit(site, action, subject, by, page)
                older = link("audit", **asked, page=token) if token else ""
                newest = link("audit", **asked) if page else ""
                table.show(
                    render("audit", records=records, older=older, newest=newest, searched=any(asked.values()))
                )

            await frame.live(draw, of)
