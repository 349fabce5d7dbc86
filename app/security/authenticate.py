"""The login of every request and every socket, behind the edge and before any route.

Routes that need no login are on a list, and show nothing that a stranger may not know. A password or token that
comes without TLS is refused, with the address that takes it: it may have been read on its way.

With X-Trino-Role a driver says which of the user's roles a statement is to have, as `system=ROLE{viewer}`. That
only takes away: roles that are not enabled do not count, and one that the user does not have is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import unquote_plus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.headers import CONSOLE, SQL_PROTOCOL, SQL_ROLE, SQL_USER, Fields, is_at
from app.requests.context import Login, logged_in
from app.security.access_view import AccessView
from app.security.console_login import SECURE_SCHEMES, ConsoleLogin
from app.security.login_check import LoginCheck, read_credential, refuse, uncached
from app.security.policy import SEE_SYSTEM, is_surface
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from catalog.core.authorisation import SYSTEM, Caller, Grants, Principal, Privilege, role
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

CATALOGS = frozenset({"system", "zonekeeper"})
"""Catalogs of the header whose roles are ours; those of others are passed over."""
_SELECTED = re.compile(r'(?:(ALL|NONE)|ROLE\{"?([^{}"]{1,63})"?\})', re.IGNORECASE)


def selected_roles(lines: Iterable[str]) -> frozenset[Principal] | None:
    """Roles that the header's ``lines`` enable; None: all. Raises RefusedError (INVALID_REQUEST)."""
    enabled: frozenset[Principal] | None = None
    for item in (part.strip() for line in lines for part in line.split(",")):
        if not item:
            continue
        catalog, equals, value = item.partition("=")
        selected = _SELECTED.fullmatch(unquote_plus(value).strip())
        if not equals or selected is None:
            message = f"X-Trino-Role is system=ALL, system=NONE or system=ROLE{{name}}, not {item[:80]!a}"
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        if catalog.strip().lower() not in CATALOGS:
            continue
        kind, name = selected.groups()
        if kind is None or kind.upper() == "NONE":
            chosen = frozenset[Principal]() if name is None else frozenset({role(name.lower())})
            enabled = chosen if enabled is None else enabled & chosen
    return enabled


def narrowed(caller: Caller, grants: Grants, enabled: frozenset[Principal] | None) -> Caller:
    """The caller with only the ``enabled`` roles; None: all. Raises RefusedError (PRIVILEGE_MISSING) for a role
    that the caller does not have."""
    if enabled is None:
        return caller
    foreign = sorted(one.name for one in enabled - caller.all_roles(grants))
    if foreign:
        message = f"{caller.principal} does not have the role {foreign[0]}"
        raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message)
    return replace(caller, enabled=enabled if caller.enabled is None else enabled & caller.enabled)


OPEN = frozenset(
    {("GET", path) for path in ("/livez", "/healthz", "/readyz", "/v1/info")} | {("HEAD", "/v1/statement")}
)
"""Methods and paths that need no login. ``/readyz`` says only whether the server is ready. Drivers probe
``/v1/info`` and HEAD ``/v1/statement`` first: they show the version, which all servers of a release share."""
CHALLENGES = ('Basic realm="Zonekeeper", charset="UTF-8"', 'Bearer realm="Zonekeeper"')
NO_CREDENTIAL = "log in with a user and password, or with a token: `zonectl login {url}`"


@dataclass(eq=False)
class Authentication:
    """ASGI application that logs each request in and passes it to ``app``. ``https_url``: the address at which
    passwords and tokens are accepted; empty: only a proxy knows it. ``sessions`` None: there is no console.
    ``watch``: ends reads of callers whose login or privilege has ended; None: no read takes long."""

    app: ASGIApp
    check: LoginCheck
    access: AccessView
    https_url: Callable[[Scope], str]
    sessions: SessionView | None = None
    watch: StandingWatch | None = None
    measures: Measures = NO_MEASURES

    def __post_init__(self) -> None:
        self._console_login = (
            ConsoleLogin(self.app, self.check, self.sessions, self.https_url)
            if self.sessions is not None
            else None
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self._console_login is not None and is_at(CONSOLE, scope["path"]):
            await self._console_login(scope, receive, send)
            return
        fields = Fields.of(scope)
        try:
            login = await self._login(scope, fields)
        except StatementError as error:
            if isinstance(error, RefusedError) or not _is_open(scope):
                self.measures.count(Metric.REFUSALS, error.kind.name)
                await _refuse(error, scope, receive, send)
                return
            login = None
        if login is None:
            await self.app(scope, receive, send)
            return
        with logged_in(login):
            await self._answer(scope, receive, send if is_surface(scope["path"]) else uncached(send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, under the watch where the request only reads: it may be cut at any moment. A
        long change calls the watch itself; so do statements of drivers, whose pages report the end in the
        protocol's own words."""
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if self.watch is None or not is_read or scope["path"].startswith(SQL_PROTOCOL):
            await self.app(scope, receive, send)
            return
        is_begun = False

        async def noted(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        async def answered() -> None:
            await self.app(scope, receive, noted)

        try:
            await self.watch.during(answered())
        except StatementError as error:
            # The connection of an answer that has begun is closed: its reader sees that it is not whole.
            if not is_begun:
                await _refuse(error, scope, receive, send)

    async def _login(self, scope: Scope, fields: Fields) -> Login | None:
        """The login that the request proves; None: it shows none, and needs none. Raises RefusedError and
        StoreError."""
        try:
            credential = read_credential(fields.all(b"authorization"))
        except ValueError as error:
            raise RefusedError(ErrorKind.UNAUTHENTICATED, str(error)) from error
        if credential is None:
            if _is_open(scope):
                return None
            url = self.https_url(scope) or "https://HOST"
            raise RefusedError(ErrorKind.UNAUTHENTICATED, NO_CREDENTIAL.format(url=url))
        if scope["scheme"] not in SECURE_SCHEMES:
            place = self.https_url(scope) or "the proxy's https address"
            message = f"passwords and tokens are accepted at {place} only"
            raise RefusedError(ErrorKind.CREDENTIAL_NOT_ENCRYPTED, message)
        client = scope.get("client")
        login = await self.check.login(credential, client[0] if client else "")
        if is_surface(scope["path"]):
            decision = login.caller.decide(await self.access.grants(), SEE_SYSTEM[0], SYSTEM)
            if not decision.is_allowed:
                raise RefusedError(ErrorKind.PRIVILEGE_MISSING, decision.reason)
        return await self._named(login, scope, fields)

    async def _named(self, login: Login, scope: Scope, fields: Fields) -> Login:
        """The login with the driver's headers. X-Trino-User is a claim: the user who has logged in decides, and
        may name another one with IMPERSONATE. X-Trino-Role takes roles away."""
        if not scope["path"].startswith(SQL_PROTOCOL):
            return login
        grants = await self.access.grants()
        enabled = selected_roles(fields.all(SQL_ROLE.lower().encode()))
        login = replace(login, caller=narrowed(login.caller, grants, enabled))
        stated = fields.first(SQL_USER.lower().encode()).strip()
        name = login.caller.principal.name
        if not stated or stated.lower() == name.lower():
            return login
        if not login.caller.may(grants, Privilege.IMPERSONATE, SYSTEM):
            message = f"{SQL_USER} names another user than {name}, which needs IMPERSONATE ON SYSTEM"
            raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message)
        return replace(login, acts_for=stated)


def _is_open(scope: Scope) -> bool:
    return scope["type"] == "http" and (scope["method"], scope["path"]) in OPEN


async def _refuse(error: StatementError, scope: Scope, receive: Receive, send: Send) -> None:
    is_open_question = error.kind is ErrorKind.UNAUTHENTICATED
    challenges = [(b"www-authenticate", text.encode()) for text in CHALLENGES if is_open_question]
    await refuse(error, scope, receive, send, challenges)
