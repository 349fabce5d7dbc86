"""``/console/users``: users, roles and grants with the statements that change them, sessions and tokens."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console import actions
from app.console.browser import html
from app.console.controls import button, choice_field, confirm, password_field, text_field
from app.console.feed import Topic
from app.console.fragments import render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.grids import number_column, pick_grid, plain_grid, show_rows, text_column
from app.console.login_grids import LoginGrids
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
from app.sql.views.view_rows import grant_rows, role_rows, user_rows
from catalog.core.snapshot import CatalogSnapshot

USER_COLUMNS = [
    text_column("name", "User"),
    text_column("source", "Source"),
    text_column("login", "Login"),
    text_column("password", "Password"),
    text_column("roles", "Roles", flex=2),
    number_column("changed", "Changed in version"),
]
ROLE_COLUMNS = [
    text_column("name", "Role"),
    text_column("kind", "Kind"),
    text_column("members", "Members", flex=3),
]
GRANT_COLUMNS = [
    text_column("grantee", "User or role"),
    text_column("privilege", "Privilege"),
    text_column("target", "On", flex=2),
]


class _Principals:
    def __init__(self, site: Site, frame: PageFrame) -> None:
        self._site, self._frame = site, frame
        self._grants: dict[str, dict[FormField, str]] = {}
        with self._section("Users", USER_FORMS):
            self._user_grid = plain_grid(USER_COLUMNS, "Users")
        with self._section("Roles", ROLE_FORMS):
            self._role_grid = plain_grid(ROLE_COLUMNS, "Roles")
        with self._section("Grants", GRANT_FORMS):
            ui.label("Select one to revoke it.")
            self._grant_grid = pick_grid(GRANT_COLUMNS, "Grants", self._revoke)

    async def draw(self) -> None:
        snapshot = await self._site.snapshot()
        show_rows(self._user_grid, [_user_row(*row) for row in user_rows(snapshot)])
        show_rows(self._role_grid, [_role_row(*row) for row in role_rows(snapshot)])
        self._grants = {}
        for grantee, _source, privilege, kind, zone, _zone_id in grant_rows(snapshot):
            target = target_text(str(kind), zone)
            values = {FormField.GRANTEE: grantee, FormField.PRIVILEGE: privilege, FormField.TARGET: target}
            self._grants[REVOKE.statement(values)] = values
        rows = [
            {
                "name": name,
                "grantee": values[FormField.GRANTEE],
                "privilege": values[FormField.PRIVILEGE],
                "target": values[FormField.TARGET],
            }
            for name, values in self._grants.items()
        ]
        show_rows(self._grant_grid, rows)

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


def _user_row(
    name: str, source: str, is_active: bool, has_password: bool, roles: str, _created: int, changed: int
) -> dict[str, Any]:
    return {
        "name": name,
        "source": source,
        "login": "allowed" if is_active else "forbidden",
        "password": "yes" if has_password else "no",
        "roles": roles,
        "changed": changed,
    }


def _role_row(name: str, is_ready: bool, members: str, _created: int) -> dict[str, Any]:
    return {"name": name, "kind": "built in" if is_ready else "own", "members": members}


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
