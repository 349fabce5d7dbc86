"""Reads who asks from a request's headers, for everything that the request does."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem_response
from app.edge.fields import SQL_USER
from app.requests.actor import acting
from app.requests.login import current_login
from app.requests.request_id import current_request_id
from catalog.core.audit import NAME_MAX, Actor, Channel
from catalog.core.errors import ErrorKind, RefusedError

STATED = "Zonekeeper-By"
"""A client says who it asks for, percent-encoded."""
WHY = "Zonekeeper-Reason"
"""And why, percent-encoded: for requests whose body has no place for it."""
VIA = "Zonekeeper-Via"
"""``cli`` or ``console``; without it, REST."""


class ActorMiddleware:
    """Who has logged in is known by then. ``verified_header``: the one that a proxy in front sets to a name
    which it has checked; the proxy must remove it from what clients send. Empty: there is no such proxy, and no
    name is verified."""

    def __init__(self, app: ASGIApp, verified_header: str = "") -> None:
        self._app = app
        self._verified_header = verified_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            actor = self._actor(scope).because(_reason(scope))
            actor = replace(actor, request_id=current_request_id())
        except UnicodeDecodeError:
            message = f"the headers {STATED} and {WHY} are UTF-8, percent-encoded"
            await problem_response(RefusedError(ErrorKind.TEXT_NOT_UTF8, message))(scope, receive, send)
            return
        except RefusedError as error:
            await problem_response(error)(scope, receive, send)
            return
        with acting(actor):
            await self._app(scope, receive, send)

    def _actor(self, scope: Scope) -> Actor:
        """Raises UnicodeDecodeError."""
        headers, client = Headers(scope=scope), scope.get("client")
        address, login = client[0] if client else "", current_login()
        sql_user = headers.get(SQL_USER)
        channels = {"cli": Channel.CLI, "console": Channel.CONSOLE}
        channel = channels.get(headers.get(VIA, ""), Channel.SQL if sql_user else Channel.REST)
        if login is not None:
            return Actor(_shown(login.shown_name), True, channel, address, caller=login.caller)
        checked = headers.get(self._verified_header) if self._verified_header else None
        if checked:
            return Actor(_shown(checked), True, channel, address)
        stated = sql_user if sql_user is not None else unquote(headers.get(STATED, ""), errors="strict")
        return Actor(_shown(stated), False, channel, address)


def _reason(scope: Scope) -> str:
    """Raises UnicodeDecodeError."""
    return unquote(Headers(scope=scope).get(WHY, ""), errors="strict")


def _shown(name: str) -> str:
    """Without what could hide a name in a log or a terminal."""
    return "".join(character for character in name if character.isprintable())[:NAME_MAX]
