"""The frame of every page: navigation, state of the connection, theme, errors, and the page's one timer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from urllib.parse import quote, unquote

import structlog
from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from app.alerts.alert_rows import Severity
from app.api.alerts import shown_alerts
from app.console.browser import call, fill, html, look_for_server
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, render, style_sheet, utc
from app.console.shared import Site
from app.console.viewer import current_viewer, page_refusal, sees_system, viewing
from app.core.alerts import AlertState
from app.edge.headers import CONSOLE as PATH
from app.requests.context import current_actor
from app.security.console_login import session_secret
from app.security.policy import PAGES
from catalog.core.audit import Actor, Channel
from catalog.core.credentials import csrf_of
from catalog.core.errors import StatementError
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId

log = structlog.get_logger(__name__)

TICK_S = 0.25
"""A page looks so often whether it has something new to show."""
REDRAW_S = 1.0
"""Seconds between two drawings: readers are no faster."""
PACE, REDRAW_S_MAX = 4.0, 10.0
"""A drawing that takes long is made so many times more seldom, up to so many seconds."""
RESPONSE_S = 30.0
THEME_COOKIE = "zonekeeper-theme"
NAME_COOKIE = "zonekeeper-name"
YEAR_S = 31_536_000

_LOG_OUT = """async () => {
  const csrf = document.querySelector('[data-csrf]').dataset.csrf;
  await fetch('/console/logout', {
    method: 'POST',
    credentials: 'same-origin',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({csrf}),
  });
  location.replace('/console/login');
}"""

_TOGGLE_THEME = f"""() => {{
  const theme = document.body.classList.contains('body--dark') ? 'light' : 'dark';
  document.cookie = `{THEME_COOKIE}=${{theme}};path={PATH};max-age={YEAR_S};samesite=strict`;
  location.reload();
}}"""


@dataclass
class PageFrame:
    """A page under construction. ``draw`` redraws what changes; it may raise StatementError."""

    site: Site
    actor: Actor
    """Actor at the page, as a proxy has checked or as they said last time."""
    _status: ui.html
    _badge: Fragment
    _notices: Fragment
    _problem: ui.html
    _missing: Markup = EMPTY
    _draw: Callable[[], Awaitable[None]] | None = None
    _parts: tuple[Topic | ZoneId | PartitionId, ...] = ()
    _shown: Hashable = None
    _status_shown: Hashable = None
    _due_at: float = 0.0

    async def live(
        self,
        draw: Callable[[], Awaitable[None]] | None = None,
        *parts: Topic | ZoneId | PartitionId,
        later: bool = False,
    ) -> None:
        """Draws now, and again whenever one of ``parts`` has changed (``PartitionFeed.seen``), as long as the
        page is open; None: nothing of it changes. ``later``: the page is shown first, for a drawing that takes
        long."""
        self._draw, self._parts = draw, parts
        self.site.feed.watch()
        if not later:
            await self.redraw()
        ui.timer(TICK_S, self._tick, immediate=later)

    def miss(self, error: StatementError) -> None:
        """The page shows the error and its frame alone."""
        self._missing = problem_of(error)
        fill(self._problem, self._missing)
        ui.timer(TICK_S, self._tick)

    async def redraw(self) -> None:
        """Shows what is refused or broken in place of what cannot be shown."""
        begun = time.monotonic()
        self._shown = await self._newest()
        problem = self._missing
        try:
            self.site.services.require_metastore()
            if self._draw is not None:
                await self._draw()
        except StatementError as error:
            problem = problem_of(error)
        except Exception as error:
            log.exception("a page of the console cannot be drawn")
            detail = f"{type(error).__name__}: see the server's log"
            problem = render("problem", title="The page cannot be drawn", detail=detail, action="Reload it.")
        fill(self._problem, problem)
        await self._show_status()
        now = time.monotonic()
        self._due_at = now + min(max(REDRAW_S, PACE * (now - begun)), REDRAW_S_MAX)

    async def _newest(self) -> Hashable:
        """Return what the page would be drawn from now."""
        readiness = await self.site.readiness()
        self.site.look_at_alerts()
        silence = await self.site.silence()
        is_loaded = self.site.services.mirror.is_loaded
        return self.site.feed.seen(*self._parts), is_loaded, silence is None, *_lasting(readiness)

    async def _tick(self) -> None:
        self.site.feed.watch()
        if time.monotonic() < self._due_at:
            return
        try:
            viewer = await self.site.viewer()
        except StatementError:
            # The session is over, or nobody can tell: nothing more is shown.
            return
        with nullcontext() if viewer is None else viewing(viewer):
            if await self._newest() != self._shown:
                await self.redraw()
            else:
                await self._show_status()

    async def _show_status(self) -> None:
        readiness = await self.site.readiness()
        silence = await self.site.silence()
        feed, revision = self.site.feed, self.site.services.mirror.revision
        # What is remembered is what is shown, however much comes while alerts are asked for.
        unread = feed.unread
        as_of = f"{utc(silence.since_ms * 1_000)} UTC" if silence is not None else ""
        shown = (revision, unread, feed.seen(Topic.ALERTS), as_of, *_lasting(readiness))
        if shown == self._status_shown:
            return
        self._status_shown = shown
        self._due_at = time.monotonic() + REDRAW_S
        ready, sees = bool(readiness["ready"]), sees_system()
        if sees:
            self._badge.show(await _badge(self.site))
        states = {store: readiness[store] for store in ("catalog", "metastore") if sees}
        stores = {store: state for store, state in states.items() if state != "ok"}
        counts = {"revision": revision if sees else None, "unread": unread if sees else 0}
        fill(self._status, render("status", ready=ready, as_of=as_of, stores=stores, **counts))
        told = {"unprotected": "unprotected", "recovered": "recovered_administrators", "upgrade": "upgrade"}
        notices = {name: readiness[key] if sees else () for name, key in told.items()}
        self._notices.show(render("notices", as_of=as_of, **notices))


async def _badge(site: Site) -> Markup:
    """Return the badge of every page: how many alerts fire or are pending and are not silenced."""
    alerts = [alert for alert in await shown_alerts(site.services) if alert["silence"] is None]
    firing = [alert for alert in alerts if alert["state"] == AlertState.FIRING.value]
    pending = [alert for alert in alerts if alert["state"] == AlertState.PENDING.value]
    is_page = any(alert["severity"] == Severity.PAGE.value for alert in firing)
    return render("badge", firing=len(firing), pending=len(pending), is_page=is_page)


def _lasting(readiness: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the readiness without ages, which differ in each answer."""
    return tuple(value for name, value in readiness.items() if name not in ("queue", "degraded"))


@contextmanager
def page_frame(
    site: Site, request: Request, title: str, active: str, *, note: str = "", heading: str = ""
) -> Iterator[PageFrame]:
    """Draw a page around what is built inside, below a heading (``heading``, else ``title``) with ``note``;
    without a note the page has a head of its own. ``active``: the page's path in the menu without its slash."""
    ui.page_title(f"{title} · Zonekeeper")
    ui.add_css(style_sheet())
    look_for_server()
    theme = request.cookies.get(THEME_COOKIE)
    if theme in ("light", "dark"):
        ui.dark_mode(theme == "dark")
    with ui.header(bordered=False).classes("bar"):
        html(render("brand", home=link())).classes("brand")
        _navigation(active)
        badge = Fragment("badge-place")
        status = html().classes("status").props('role="status"')
        button = ui.button("◐", color=None).props("flat dense no-caps").classes("theme")
        button.props('aria-label="Switch between light and dark" title="Light or dark"').on(
            "click", js_handler=_TOGGLE_THEME
        )
        _account(request)
    with ui.element("div").classes("page") as main:
        ui.skip_link("Skip to the page", target=main)
        notices = Fragment("notices-place")
        problem = html().props('role="alert"').classes("problem-place")
        frame = PageFrame(site, _actor_of(request), status, badge, notices, problem)
        if note:
            html(render("title", title=heading or title, note=note))
        try:
            yield frame
        except StatementError as error:
            # What the address asks for is not there: the page says so, with its frame.
            frame.miss(error)


def _navigation(active: str) -> None:
    pages = [
        (page.menu, link(path.removeprefix("/")), path == f"/{active}")
        for path, page in PAGES.items()
        if page.menu and (page_refusal(path) is None or path == f"/{active}")
    ]
    html(render("navigation", pages=pages), tag="nav").props('aria-label="Pages"')


def _account(request: Request) -> None:
    """Show the user of the session, and the way out."""
    viewer = current_viewer()
    if viewer is None:
        return
    csrf = csrf_of(session_secret(request.scope))
    ends = utc(viewer.login.expires_us or 0)
    html(render("account", user=viewer.actor.name, roles=viewer.role_names, ends=ends, csrf=csrf))
    button = ui.button("Log out", color=None).props("flat dense no-caps").classes("theme")
    button.on("click", js_handler=_LOG_OUT)


def _actor_of(request: Request) -> Actor:
    viewer = current_viewer()
    if viewer is not None:
        return viewer.actor
    actor = replace(current_actor(), channel=Channel.CONSOLE, reason="")
    return actor.named(unquote(request.cookies.get(NAME_COOKIE, "")))


def problem_of(error: StatementError) -> Markup:
    """Return the text that a page shows in place of what was refused."""
    row = error.kind.value
    return render("problem", title=row.title, detail=error.message, action=row.action)


def console_page(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``ui.page`` that has the time to be drawn on a machine that is very busy, for viewers who may see it."""

    def made(draw: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
        @wraps(draw)
        async def drawn(request: Request, **parameters: Any) -> None:
            refusal = page_refusal(path)
            if refusal is None:
                await draw(request, **parameters)
                return
            ui.page_title("Zonekeeper")
            ui.add_css(style_sheet())
            look_for_server()
            with ui.header(bordered=False).classes("bar"):
                html(render("brand", home=link())).classes("brand")
                _navigation("")
                _account(request)
            with ui.element("div").classes("page"):
                html(problem_of(refusal)).props('role="alert"')

        return ui.page(path, response_timeout=RESPONSE_S)(drawn)

    return made


def remember_name(name: str) -> None:
    """The browser keeps it for the next form."""
    cookie = f"{NAME_COOKIE}={quote(name, safe='')};path={PATH};max-age={YEAR_S};samesite=strict"
    call("(cookie) => { document.cookie = cookie; }", cookie)


def go(url: str) -> None:
    """Go to another address of the console; the browser's back button leads back."""
    call("(url) => { window.location.href = url; }", url)


def replace_page(url: str) -> None:
    """Go to the address that this one stood for; the browser's back button does not lead here."""
    call("(url) => { window.location.replace(url); }", url)
