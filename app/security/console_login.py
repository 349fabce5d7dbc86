"""The login to the console: its login page, its logout, and the session that all else of the console needs.

A session is proved by a cookie alone, and only the console reads the cookie. So no page of another site can
make a browser call the API.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import structlog
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.headers import ALWAYS, CONSOLE, JSON, Fields
from app.requests.context import Login, logged_in
from app.security.login_check import (
    LinkCredential,
    LoginCheck,
    PasswordCredential,
    is_navigation,
    refuse,
    uncached,
)
from app.security.policy import LOGIN_ROUTES, Guard
from app.security.session_view import SessionView
from app.security.token_secrets import SECRET_BYTES
from catalog.core.credentials import csrf_of, digest_of
from catalog.core.errors import ErrorKind, RefusedError, StatementError

log = structlog.get_logger(__name__)

SESSION_COOKIE = "__Host-zonekeeper-session"
LOGIN_COOKIE = "__Host-zonekeeper-login"
"""Cookie of a browser with the login page: a login is accepted from a page that this browser was given."""
ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite"
LOGIN, LOGOUT = f"{CONSOLE}/login", f"{CONSOLE}/logout"
SOCKETS = f"{CONSOLE}/_nicegui_ws"
FILES = f"{CONSOLE}/_nicegui/"
PAGE_POLICY = f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; {ALWAYS}"
FOLDER = Path(__file__).with_name("login_page")
SECURE_SCHEMES = frozenset({"https", "wss"})
TEXT_MAX = 4_096
BODY_BYTES_MAX = 64 << 10
"""Longest body from a stranger: megabytes would hold up the event loop while they are parsed."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(eq=False)
class ConsoleLogin:
    """ASGI application that passes requests with a session to ``app``, with the login in the scope as
    ``login``. ``https_url``: empty where only a proxy knows it."""

    app: ASGIApp
    check: LoginCheck
    sessions: SessionView
    https_url: Callable[[Scope], str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == CONSOLE:
            await RedirectResponse(f"{CONSOLE}/")(scope, receive, send)
            return
        if not scope["path"].startswith(FILES):
            send = uncached(send)
        try:
            if scope["scheme"] in SECURE_SCHEMES:
                await self._secure(scope, receive, send)
            else:
                await self._plain(scope, receive, send)
        except StatementError as error:
            await refuse(error, scope, receive, send)

    async def _plain(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect a page to the https address; raises RefusedError for all else."""
        url = self.https_url(scope)
        if not url or scope["type"] != "http" or scope["method"] != "GET":
            place = url or "the proxy's https address"
            raise RefusedError(ErrorKind.CREDENTIAL_NOT_ENCRYPTED, f"the console is at {place}{CONSOLE}/ only")
        await RedirectResponse(f"{url}{_address(scope)}", 307)(scope, receive, send)

    async def _secure(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that came by TLS. Raises StatementError."""
        cookies = _cookies(Fields.of(scope))
        row = LOGIN_ROUTES.get((scope.get("method", ""), scope["path"]))
        if row is not None and row[0] is Guard.OPEN:
            response = await self._open(scope, receive, cookies)
            await response(scope, receive, send)
            return
        try:
            login = await self.sessions.login(cookies.get(SESSION_COOKIE, ""))
        except RefusedError:
            if not is_navigation(scope):
                raise
            await RedirectResponse(f"{LOGIN}?next={quote(_address(scope), safe='')}", 303)(scope, receive, send)
            return
        if row is not None:
            response = await self._log_out(scope, receive, login)
            await response(scope, receive, send)
            return
        await self._pass(login, scope, receive, send)

    async def _pass(self, login: Login, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the console. Raises RefusedError and StoreError."""
        if scope["type"] == "http":
            if scope["path"].startswith(SOCKETS):
                # Polling would have each request carry another cookie than the one that opened the connection.
                raise RefusedError(ErrorKind.INVALID_REQUEST, "the console's connection is a WebSocket")
            if not scope["path"].startswith(FILES):
                await self.sessions.note_use(login)
        with logged_in(login):
            await self.app({**scope, "login": login}, receive, send)

    async def _open(self, scope: Scope, receive: Receive, cookies: dict[str, str]) -> Response:
        """Answer a request that needs no session. Raises StatementError."""
        if scope["method"] == "POST":
            return await self._log_in(scope, receive, cookies)
        if scope["path"] == LOGIN:
            return _login_page(cookies.get(LOGIN_COOKIE, ""))
        text, media_type = _file(scope["path"].rpartition("/")[2])
        return Response(text, media_type=media_type)

    async def _log_in(self, scope: Scope, receive: Receive, cookies: dict[str, str]) -> Response:
        """Check the user's proof and open a session. Raises StatementError."""
        sent, known = await _body(scope, receive), cookies.get(LOGIN_COOKIE, "")
        if not known or not hmac.compare_digest(digest_of(sent.get("csrf", "")), digest_of(csrf_of(known))):
            raise RefusedError(ErrorKind.ORIGIN_REFUSED, "the login page is out of date: reload it")
        client = scope.get("client")
        address = client[0] if client else ""
        if "link" in sent:
            login = await self.check.login(LinkCredential(sent["link"]), address)
        else:
            proof = PasswordCredential(sent.get("user", ""), sent.get("password", ""))
            login = await self.check.login(proof, address)
        owner = login.caller.principal
        # Never the browser's own: whoever has put a cookie into it would be logged in, too.
        secret = await self.sessions.open(login, cookies.get(SESSION_COOKIE, ""))
        log.info("logged in to the console", user=str(owner), address=address)
        response = JSONResponse({"user": owner.name})
        response.headers.append("set-cookie", f"{SESSION_COOKIE}={secret}; {ATTRIBUTES}=Lax")
        response.headers.append("set-cookie", f"{LOGIN_COOKIE}=; Max-Age=0; {ATTRIBUTES}=Strict")
        return response

    async def _log_out(self, scope: Scope, receive: Receive, login: Login) -> Response:
        """End the session. Raises StatementError."""
        await self.sessions.end(login, (await _body(scope, receive)).get("csrf", ""))
        response = JSONResponse({})
        response.headers.append("set-cookie", f"{SESSION_COOKIE}=; Max-Age=0; {ATTRIBUTES}=Lax")
        return response


def session_secret(scope: Scope) -> str:
    """Secret of the session of the browser that sent the request; empty: it has none."""
    return _cookies(Fields.of(scope)).get(SESSION_COOKIE, "")


def _login_page(known: str) -> Response:
    """Draw the login page. ``known``: the value of this browser's cookie, which stays, so that its other login
    pages remain valid."""
    if not _SECRET.fullmatch(known):
        known = secrets.token_urlsafe(SECRET_BYTES)
    page, media_type = _file("login.html")
    headers = {"Content-Security-Policy": PAGE_POLICY}
    response = Response(page.replace("{{csrf}}", csrf_of(known)), media_type=media_type, headers=headers)
    response.headers.append("set-cookie", f"{LOGIN_COOKIE}={known}; {ATTRIBUTES}=Strict")
    return response


@lru_cache
def _file(name: str) -> tuple[str, str]:
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    return (FOLDER / name).read_text(), types[name.rpartition(".")[2]]


async def _body(scope: Scope, receive: Receive) -> dict[str, str]:
    """Read the body's texts by name. Raises RefusedError (INVALID_REQUEST)."""
    media_type = Fields.of(scope).media_type
    message: Message = await receive()
    body = message.get("body", b"")
    try:
        document = json.loads(body) if media_type == JSON and len(body) <= BODY_BYTES_MAX else None
    except (ValueError, RecursionError):
        document = None
    is_text = isinstance(document, dict) and all(
        isinstance(value, str) and len(value) <= TEXT_MAX for value in document.values()
    )
    if not isinstance(document, dict) or not is_text:
        raise RefusedError(ErrorKind.INVALID_REQUEST, "the body is a short JSON object of texts")
    return document


def _cookies(fields: Fields) -> dict[str, str]:
    """Cookies by name."""
    cookies: dict[str, str] = {}
    for line in fields.all(b"cookie"):
        for part in line.split(";"):
            name, equals, value = part.strip().partition("=")
            if equals and name not in cookies:
                cookies[name] = value.strip('"')
    return cookies


def _address(scope: Scope) -> str:
    """Path and query as they were sent. They begin with the console's path, and so lead to this server."""
    query = scope["query_string"].decode("latin-1")
    path = quote(scope["path"], safe="/:@!$&'()*+,;=~")
    return f"{path}?{query}" if query else path
