"""The caller of a request: read from its headers, kept for all that the request does, and authorised before the
route runs. The table has the needs of each route; the one function of the catalog decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem_response
from app.api.services import Services
from app.edge.headers import SQL_USER
from app.metrics.request_meter import note_route
from app.requests.context import acting, current_login, current_request_id
from app.security.policy import ROUTES, Guard, Subject, check_complete
from app.views.routing import zone_not_found
from catalog.core.audit import NAME_MAX, Actor, Channel
from catalog.core.authorisation import ALL_ZONES, SYSTEM, GrantObject, Permission, zone_object
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.operation_control import checked_id, not_found

STATED = "Zonekeeper-By"
"""Header with the name of the user for whom a client asks, percent-encoded."""
WHY = "Zonekeeper-Reason"
"""Header with the reason, percent-encoded: for requests whose body has no field for it."""
VIA = "Zonekeeper-Via"
"""Header with ``cli`` or ``console``; without it the channel is REST."""


class ActorMiddleware:
    """Middleware that notes the actor of a request, after the login. ``verified_header``: the header that a
    proxy in front sets to a name which it has checked; the proxy must remove it from requests of clients.
    Empty: there is no such proxy, and no name is verified."""

    def __init__(self, app: ASGIApp, verified_header: str = "") -> None:
        self._app = app
        self._verified_header = verified_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            reason = unquote(Headers(scope=scope).get(WHY, ""), errors="strict")
            actor = replace(self._actor(scope).because(reason), request_id=current_request_id())
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
        """The actor that the login and the headers name. Raises UnicodeDecodeError."""
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


def _shown(name: str) -> str:
    """The name without characters that could hide it in a log or a terminal."""
    return "".join(character for character in name if character.isprintable())[:NAME_MAX]


async def authorise(request: Request) -> None:
    """Authorise a request; a dependency of every route. Raises RefusedError: PRIVILEGE_MISSING, or for a thing
    that the caller may not see the route's error for one that does not exist."""
    note_route(request.scope)
    services: Services = request.app.state.services
    if services is None or services.access is None:
        return
    guard, needs = ROUTES[request.method, request.scope["route"].path]
    if guard is Guard.OPEN:
        return
    login = current_login()
    if login is None:
        raise RefusedError(ErrorKind.UNAUTHENTICATED, "log in with a user and password, or with a token")
    grants = await services.access.grants()
    for privilege, subject in needs:
        if subject is Subject.QUERIED_ZONE and "zone" not in request.query_params:
            continue
        target, hidden = await _target(subject, request, services)
        decision = login.caller.decide(grants, privilege, target)
        if decision.access is Permission.HIDDEN:
            raise hidden
        if not decision.is_allowed:
            raise RefusedError(ErrorKind.PRIVILEGE_MISSING, decision.reason)


async def _target(subject: Subject, request: Request, services: Services) -> tuple[GrantObject, RefusedError]:
    """The object on which a privilege is needed, and the error for one that does not exist."""
    parameters = request.path_params
    missing = RefusedError(ErrorKind.ADDRESS_NOT_FOUND, request.url.path)
    match subject:
        case Subject.SYSTEM:
            return SYSTEM, missing
        case Subject.ALL_ZONES:
            return ALL_ZONES, missing
        case Subject.ZONE:
            return await _named_zone(parameters["zone"], services)
        case Subject.QUERIED_ZONE:
            return await _named_zone(request.query_params["zone"], services)
        case Subject.ZONE_ID:
            text = parameters["zone_id"]
            if not text.isdecimal() or len(text) > 18:
                raise RefusedError(ErrorKind.INVALID_REQUEST, "a zone's id is a number")
            never = RefusedError(ErrorKind.ZONE_NOT_FOUND, f"there was never a zone with id {text}")
            return zone_object(ZoneId(int(text))), never
        case Subject.OPERATION:
            name = checked_id(parameters["operation"])
            return zone_object(ZoneId(int(name.partition("-")[0]))), not_found(name)


async def _named_zone(name: str, services: Services) -> tuple[GrantObject, RefusedError]:
    zone = await services.zone(name)
    return zone_object(zone.zone_id), zone_not_found(name)


def routes_of(app: FastAPI | APIRouter) -> Iterator[Any]:
    """Yield all routes of the application, those of its routers included."""
    for route in app.routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from routes_of(inner)


def check_routes(app: FastAPI) -> None:
    """Check the table of routes. Raises RuntimeError, which names routes without a row, and rows without a
    route."""
    guarded, surfaces = [], []
    for route in routes_of(app):
        if isinstance(route, APIRoute):
            guarded += [(method, route.path) for method in route.methods or ()]
        else:
            surfaces.append(route.path)
    check_complete(guarded, surfaces)
