"""``/console/account``: who has logged in, with the own sessions and tokens."""

from __future__ import annotations

from fastapi import Request

from app.console.feed import Topic
from app.console.fragments import Fragment, render
from app.console.frame import console_page, page_frame
from app.console.login_grids import LoginGrids
from app.console.shared import Site
from app.console.viewer import current_viewer


def register(site: Site) -> None:
    @console_page("/account")
    async def account(request: Request) -> None:
        note = "The current login, and the user's other sessions and tokens."
        with page_frame(site, request, "Account", "account", note=note) as frame:
            viewer = current_viewer()
            if viewer is None:
                Fragment("panel").show(render("loading", what="This server does not require a login."))
                await frame.live()
                return
            facts, logins = Fragment("panel"), LoginGrids(site, frame, everybody=False)
            principal, roles = viewer.caller.principal, viewer.role_names
            facts.show(render("account_facts", name=principal.name, source=principal.source, roles=roles))
            await frame.live(logins.draw, Topic.STATEMENTS)
