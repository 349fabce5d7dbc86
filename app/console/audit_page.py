"""``/console/audit``: who changed what, when, why and from where; what is searched is in the address."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.controls import button, text_field
from app.console.feed import Topic
from app.console.fragments import Fragment, link
from app.console.frame import console_page, go, page_frame
from app.console.shared import Site

FIELDS = {
    "subject": ("Target", "zone, table, node or operation"),
    "by": ("User", "name"),
    "action": ("Action", "DRAIN NODE"),
}


def register(site: Site) -> None:
    @console_page("/audit")
    async def audit(
        request: Request, subject: str = "", by: str = "", action: str = "", page: str | None = None
    ) -> None:
        search = {"subject": subject, "by": by, "action": action}
        note = "Every change: who made it, when, why and from where. Newest first."
        with page_frame(site, request, "Audit log", "audit", note=note) as frame:
            with ui.row().classes("tools"):
                fields = {
                    name: text_field(title, search[name], placeholder=hint, width="choice wide")
                    for name, (title, hint) in FIELDS.items()
                }

                def find() -> None:
                    go(link("audit", **{name: (field.value or "").strip() for name, field in fields.items()}))

                for field in fields.values():
                    field.props("clearable").on("keydown.enter", find)
                button("Search", find)
            table = Fragment("panel")

            async def draw() -> None:
                records, token = await actions.audit(site, search, page)
                older = link("audit", **search, page=token) if token else ""
                newest = link("audit", **search) if page else ""
                searched = any(search.values())
                table.draw("audit", records=records, older=older, newest=newest, searched=searched)

            await frame.live(draw, Topic.STATEMENTS)
