"""Grids of sessions and tokens, in which one is picked to be ended: on the page of users, and on one's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import confirm
from app.console.fragments import render, when
from app.console.frame import PageFrame
from app.console.grids import pick_grid, show_rows, text_column
from app.console.shared import Site

End = Callable[[Site, str, str, str], Awaitable[str]]


class LoginGrids:
    """``everybody``: of all users, which needs ADMIN; else the viewer's own."""

    def __init__(self, site: Site, frame: PageFrame, *, everybody: bool) -> None:
        self._site, self._frame, self._everybody = site, frame, everybody
        owner = [text_column("owner", "User")] if everybody else []
        with ui.element("section").classes("panel stacked"):
            html(render("heading", title="Sessions"))
            ui.label("Sessions of the console. Select one to end it.")
            times = [text_column(name, title) for name, title in (("created", "Begun"), ("used", "Last used"))]
            columns = [text_column("name", "Session"), *owner, *times, text_column("ends", "Ends"), _NOTE]
            ask = partial(self._ask, "End session", "Its pages are closed within 2 s.", actions.end_session)
            self._sessions = pick_grid(columns, "Sessions", ask)
        with ui.element("section").classes("panel stacked"):
            html(render("heading", title="Tokens"))
            ui.label("Tokens of programs and commands. Select one to revoke it.")
            columns = [text_column("name", "Token"), *owner, text_column("scope", "Scope", flex=2)]
            columns += [text_column("created", "Created"), text_column("ends", "Expires"), _NOTE]
            ask = partial(
                self._ask, "Revoke token", "Every server refuses it within 2 s.", actions.revoke_token
            )
            self._tokens = pick_grid(columns, "Tokens", ask)

    async def draw(self) -> None:
        sessions = await actions.sessions(self._site, everybody=self._everybody)
        rows = [
            {
                "name": session["session_id"],
                "owner": session["owner"],
                "created": session["created_at"],
                "used": session["used_at"],
                "ends": session["ends_at"],
                "note": "this one" if session["is_own"] else "",
            }
            for session in sessions
        ]
        show_rows(self._sessions, rows)
        tokens = await actions.tokens(self._site, everybody=self._everybody)
        rows = [
            {
                "name": token["token_id"],
                "owner": token["owner"],
                "scope": token["scope"] or "all that its owner may",
                "created": when(token["created_at"]),
                "ends": when(token["expires_at"]),
                "note": "" if token["valid"] else "revoked" if token["revoked_at"] else "expired",
            }
            for token in tokens
        ]
        show_rows(self._tokens, rows)

    def _ask(self, word: str, consequence: str, end: End, name: str) -> None:
        act = partial(end, self._site, name)
        title = f"{word} {name}?"
        confirm(self._frame, title, consequence, word, act, danger=True, needs_reason=False)


_NOTE = text_column("note", "Note")
