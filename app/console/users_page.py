"""``/console/users``: users, roles and grants with the statements that change them, sessions and tokens; and
``/console/account``: who has logged in, with the own sessions and tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import button, choice_field, confirm, password_field, text_field
from app.console.feed import Topic
from app.console.fragments import Fragment, render, utc, when
from app.console.frame import PageFrame, console_page, page_frame
from app.console.grids import (
    grid_columns,
    grid_row,
    pick_grid,
    plain_grid,
    show_rows,
    text_column,
)
from app.console.principal_forms import (
    GRANT_FORMS,
    REVOKE,
    ROLE_FORMS,
    TYPED,
    USER_FORMS,
    FormField,
    StatementForm,
    choices,
    target_text,
)
from app.console.shared import Site
from app.console.viewer import current_viewer
from app.contract.columns import body_of
from app.contract.logins import GrantRow, RoleRow, UserRow
from app.sql.views.view_rows import grants, roles, users
from catalog.core.snapshot import CatalogSnapshot

USER_COLUMNS = [
    *grid_columns(UserRow, "name", "source"),
    text_column("login", "Login"),
    *grid_columns(UserRow, "password", "roles", "changed_version", roles=2),
]
ROLE_COLUMNS = [
    *grid_columns(RoleRow, "name"),
    text_column("kind", "Kind"),
    *grid_columns(RoleRow, "members", members=3),
]
GRANT_COLUMNS = [*grid_columns(GrantRow, "grantee", "privilege"), text_column("target", "On", flex=2)]


class _Principals:
    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame = site, frame
        self._grants: dict[str, dict[str, Any]] = {}
        with self._section("Users", USER_FORMS):
            self._user_grid = plain_grid(USER_COLUMNS, "Users")
        with self._section("Roles", ROLE_FORMS):
            self._role_grid = plain_grid(ROLE_COLUMNS, "Roles")
        with self._section("Grants", GRANT_FORMS):
            ui.label("Select one to revoke it.")
            self._grant_grid = pick_grid(GRANT_COLUMNS, "Grants", self._revoke)

    async def draw(self) -> None:
        snapshot = await self._site.snapshot()
        show_rows(self._user_grid, [_user_row(body_of(UserRow, facts)) for facts in users(snapshot)])
        show_rows(self._role_grid, [_role_row(body_of(RoleRow, facts)) for facts in roles(snapshot)])
        self._grants = {}
        for grant in (body_of(GrantRow, facts) for facts in grants(snapshot)):
            grantee, target = grant["grantee"], target_text(grant["object"], grant["zone"])
            given = {
                FormField.GRANTEE: grantee,
                FormField.PRIVILEGE: grant["privilege"],
                FormField.TARGET: target,
            }
            name = REVOKE.statement(given)
            self._grants[name] = {**grid_row(GrantRow, grant), "name": name, "target": target}
        show_rows(self._grant_grid, list(self._grants.values()))

    def _section(self, title: str, forms: Iterable[StatementForm]) -> ui.element:
        section = ui.element("section").classes("panel stacked")
        with section:
            html(render("heading", title=title))
            with ui.row().classes("tools"):
                for form in forms:
                    button(form.word, partial(self._ask, form))
        return section

    async def _ask(self, form: StatementForm) -> None:
        catalog = await self._site.catalog()
        fields: dict[FormField, Any] = {}

        def build() -> None:
            fields.update({field: _field(field, catalog) for field in form.fields})

        async def act(_by: str, _reason: str) -> str:
            values = {field: str(element.value or "") for field, element in fields.items()}
            return await actions.run_statement(self._site, form.statement(values))

        confirm(self._frame, form.word, form.consequence, form.word, act, danger=form.is_dangerous, more=build)

    def _revoke(self, statement: str) -> None:
        if statement not in self._grants:
            return

        async def act(_by: str, _reason: str) -> str:
            return await actions.run_statement(self._site, statement)

        confirm(self._frame, f"{statement}?", REVOKE.consequence, REVOKE.word, act, danger=True)


def _field(field: FormField, catalog: CatalogSnapshot) -> Any:
    if field is FormField.PASSWORD:
        return password_field(field.value)
    if field in TYPED:
        return text_field(field.value, width="wide").props("autocomplete=off maxlength=128")
    return choice_field(field.value, choices(field, catalog), None, width="wide")


def _user_row(user: UserRow) -> dict[str, Any]:
    return {**grid_row(UserRow, user), "login": "allowed" if user["is_active"] else "forbidden"}


def _role_row(one: RoleRow) -> dict[str, Any]:
    return {**grid_row(RoleRow, one), "kind": "built in" if one["is_ready"] else "own"}


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
        viewer = current_viewer()
        rows = [
            {
                "name": session.session_id,
                "owner": session.owner.name,
                "created": utc(session.created_us),
                "used": utc(session.used_us),
                "ends": utc(session.ends_us),
                "note": "this one" if viewer is not None and session.digest == viewer.session else "",
            }
            for session in await actions.sessions(self._site, everybody=self._everybody)
        ]
        show_rows(self._sessions, rows)
        rows = [
            {
                "name": token["token_id"],
                "owner": token["owner"],
                "scope": token["scope"] or "all that its owner may",
                "created": when(token["created_at"]),
                "ends": when(token["expires_at"]),
                "note": "" if token["valid"] else "revoked" if token["revoked_at"] else "expired",
            }
            for token in await actions.tokens(self._site, everybody=self._everybody)
        ]
        show_rows(self._tokens, rows)

    def _ask(self, word: str, consequence: str, end: End, name: str) -> None:
        act = partial(end, self._site, name)
        title = f"{word} {name}?"
        confirm(self._frame, title, consequence, word, act, danger=True, needs_reason=False)


_NOTE = text_column("note", "Note")


def register(site: Site) -> None:
    @console_page("/users")
    async def users(request: Request) -> None:
        note = "Users, roles and what is granted to them; sessions and tokens. Each button runs one statement."
        with page_frame(site, request, "Users", "users", note=note) as frame:
            principals, logins = _Principals(site, frame), LoginGrids(site, frame, everybody=True)

            async def draw() -> None:
                await principals.draw()
                await logins.draw()

            await frame.live(draw, Topic.STATEMENTS)

    @console_page("/account")
    async def account(request: Request) -> None:
        note = "The current login, and the user's other sessions and tokens."
        with page_frame(site, request, "Account", "account", note=note) as frame:
            viewer = current_viewer()
            if viewer is None:
                Fragment("panel").draw("loading", what="This server does not require a login.")
                await frame.live()
                return
            facts, logins = Fragment("panel"), LoginGrids(site, frame, everybody=False)
            principal, roles = viewer.caller.principal, viewer.role_names
            facts.draw("account_facts", name=principal.name, source=principal.source, roles=roles)
            await frame.live(logins.draw, Topic.STATEMENTS)
