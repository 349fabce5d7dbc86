"""The frame of every page: navigation, state of the connection, theme, errors, and the page's one timer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import structlog
from fastapi import Request
from nicegui import ui

from app.actor import current_actor
from app.console.fragments import CSS, link, render
from app.console.mount import PATH
from app.console.shared import Site
from catalog.core.audit import Actor, Channel
from catalog.core.errors import StatementError

log = structlog.get_logger(__name__)

TICK_S = 1.0
RESPONSE_S = 30.0
THEME_COOKIE = "zonekeeper-theme"
NAME_COOKIE = "zonekeeper-name"
YEAR_S = 31_536_000

NAVIGATION = (
    ("Overview", ""),
    ("Zones", "zones"),
    ("Map", "map"),
    ("Nodes", "nodes"),
    ("Operations", "operations"),
    ("Rebalance", "rebalance"),
    ("SQL", "sql"),
    ("What-if", "what-if"),
)

_TOGGLE_THEME = f"""() => {{
  const theme = document.body.classList.contains('body--dark') ? 'light' : 'dark';
  document.cookie = `{THEME_COOKIE}=${{theme}};path={PATH};max-age={YEAR_S};samesite=strict`;
  location.reload();
}}"""


@dataclass
class Frame:
    """A page under construction. ``draw`` redraws what changes; it may raise StatementError."""

    site: Site
    actor: Actor
    """Who looks, as a proxy has checked or as they said last time."""
    _status: ui.html
    _problem: ui.html
    _shown: Hashable = None
    _missing: str = ""
    _draw: Callable[[], Awaitable[None]] | None = field(default=None)

    async def live(self, draw: Callable[[], Awaitable[None]], *, later: bool = False) -> None:
        """Draws now, and again whenever something has changed, as long as the page is open. ``later``: the page
        is shown first, for a drawing that takes long."""
        self._draw = draw
        self.site.feed.watch()
        if not later:
            await self.redraw()
        ui.timer(TICK_S, self._tick, immediate=later)

    def miss(self, error: StatementError) -> None:
        """The page shows the error and its frame alone."""
        self._missing = _told(error)
        self._problem.set_content(self._missing)
        ui.timer(TICK_S, self._tick)

    async def redraw(self) -> None:
        """Shows what is refused or broken in place of what cannot be shown."""
        problem = self._missing
        try:
            self.site.services.require_metastore()
            if self._draw is not None:
                await self._draw()
        except StatementError as error:
            problem = _told(error)
        except Exception as error:
            log.exception("a page of the console cannot be drawn")
            detail = f"{type(error).__name__}: see the server's log"
            problem = render("problem", title="The page cannot be drawn", detail=detail, action="Reload it.")
        self._problem.set_content(problem)
        self._status.set_content(await self._status_line())

    async def _tick(self) -> None:
        self.site.feed.watch()
        readiness = await self.site.readiness()
        revision = (self.site.revision, *readiness.values())
        if revision != self._shown:
            self._shown = revision
            await self.redraw()

    async def _status_line(self) -> str:
        readiness = await self.site.readiness()
        feed = self.site.feed
        return render(
            "status",
            ready=bool(readiness["ready"]),
            revision=self.site.services.mirror.revision,
            unread=feed.unread,
            trouble=[
                f"{store}: {readiness[store]}" for store in ("catalog", "metastore") if readiness[store] != "ok"
            ],
        )


@contextmanager
def page_frame(site: Site, request: Request, title: str, active: str) -> Iterator[Frame]:
    """``active``: the page's step in NAVIGATION. What is built inside stands in the page's main part."""
    ui.page_title(f"{title} · Zonekeeper")
    ui.add_css(CSS.read_text())
    theme = request.cookies.get(THEME_COOKIE)
    if theme in ("light", "dark"):
        ui.dark_mode(theme == "dark")
    with ui.header(bordered=False).classes("bar"):
        ui.html(render("brand", home=link()), sanitize=False, tag="div").classes("brand")
        pages = [(name, link(step) if step else link(""), step == active) for name, step in NAVIGATION]
        ui.html(render("navigation", pages=pages), sanitize=False, tag="nav").props('aria-label="Pages"')
        status = ui.html("", sanitize=False).classes("status").props('role="status"')
        button = ui.button("Theme", color=None).props("flat dense no-caps").classes("theme")
        button.props('aria-label="Switch between light and dark"').on("click", js_handler=_TOGGLE_THEME)
    with ui.element("div").classes("page") as main:
        ui.skip_link("Skip to the page", target=main)
        problem = ui.html("", sanitize=False).props('role="alert"').classes("problem-place")
        frame = Frame(site, _actor_of(request), status, problem)
        try:
            yield frame
        except StatementError as error:
            # What the address asks for is not there: the page says so, with its frame.
            frame.miss(error)


def _actor_of(request: Request) -> Actor:
    found = current_actor()
    actor = Actor(found.name, found.verified, Channel.CONSOLE, found.address)
    return actor.named(unquote(request.cookies.get(NAME_COOKIE, "")))


def _told(error: StatementError) -> str:
    row = error.kind.value
    return render("problem", title=row.title, detail=error.message, action=row.action)


def console_page(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``ui.page`` that has the time to be drawn on a machine that is very busy."""
    return ui.page(path, response_timeout=RESPONSE_S)


class Fragment:
    """HTML that is sent again only when it has changed."""

    def __init__(self, classes: str = "") -> None:
        self._html = ui.html("", sanitize=False).classes(classes)
        self._content = ""

    def show(self, content: str) -> None:
        if content != self._content:
            self._content = content
            self._html.set_content(content)


def remember_name(name: str) -> None:
    """The browser keeps it for the next form."""
    cookie = f"{NAME_COOKIE}={quote(name, safe='')};path={PATH};max-age={YEAR_S};samesite=strict"
    ui.run_javascript(f"document.cookie = {json.dumps(cookie)}")


def go(url: str) -> None:
    """To another address of the console; the browser's back button leads back."""
    ui.run_javascript(f"window.location.href = {json.dumps(url)}")
