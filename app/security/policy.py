"""The table of routes: the privileges that each of them needs, and on what. Written by hand, and complete: a
server does not start with a route that has no row, or a row that has no route.

Privileges for statements are in ``app.security.statement_policy``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from app.edge.headers import CONSOLE, is_at
from catalog.core.authorisation import Privilege


class Subject(Enum):
    """The thing on which a privilege is needed."""

    SYSTEM = "SYSTEM"
    ALL_ZONES = "ALL ZONES"
    ZONE = "the zone that the path names"
    ZONE_ID = "the zone whose id is in the path"
    OPERATION = "the zone of the operation that the path names"
    QUERIED_ZONE = "the zone that the query names; nothing where it names none: rows are left out"


class Guard(Enum):
    """The login that a route needs besides privileges. ``OPEN``: none."""

    OPEN = "open"
    LOGIN = "login"


Need = tuple[Privilege, Subject]
Row = tuple[Guard, tuple[Need, ...]]


def _needs(*needs: Need) -> Row:
    return Guard.LOGIN, needs


_OPEN: Row = Guard.OPEN, ()
_LOGIN = _needs()
"""Row of a route that shows and changes only the user's own things, or checks each part by itself."""
SEE_SYSTEM = (Privilege.SEE, Subject.SYSTEM)
SEE_ALL_ZONES = (Privilege.SEE, Subject.ALL_ZONES)
_OPERATE_OPERATION = _needs((Privilege.OPERATE, Subject.OPERATION))
_SEE_ZONE = _needs((Privilege.SEE, Subject.ZONE))
_RECOVER_ZONE = _needs((Privilege.RECOVER, Subject.ZONE))
_STATEMENT = _LOGIN
"""Row of a route of statements. Each statement of a text is authorised by itself; those of other users are
hidden without OPERATE."""

_API = "/api/v1"
_ZONE = f"{_API}/zones/{{zone:segment}}"
_OPERATION = f"{_API}/operations/{{operation:segment}}"
_SQL = "/v1/statement"
_PAGE = f"{_SQL}/executing/{{statement_id:segment}}/{{token}}"
_STATEMENT_ID = f"{_API}/statements/{{statement_id:segment}}"

ROUTES: dict[tuple[str, str], Row] = {
    ("GET", "/livez"): _OPEN,
    ("GET", "/healthz"): _OPEN,
    ("GET", "/readyz"): _OPEN,
    # Its labels are the names of zones and nodes.
    ("GET", "/metrics"): _needs(SEE_SYSTEM, SEE_ALL_ZONES),
    ("GET", f"{_API}/metrics/targets"): _needs(SEE_SYSTEM),
    ("GET", "/v1/info"): _OPEN,
    ("HEAD", _SQL): _OPEN,
    ("GET", "/docs"): _needs(SEE_SYSTEM),
    ("GET", "/docs/oauth2-redirect"): _needs(SEE_SYSTEM),
    ("POST", f"{_API}/statements"): _STATEMENT,
    ("GET", _STATEMENT_ID): _STATEMENT,
    ("POST", f"{_STATEMENT_ID}/cancel"): _STATEMENT,
    ("DELETE", _STATEMENT_ID): _STATEMENT,
    ("GET", f"{_STATEMENT_ID}/results/{{n}}/rows"): _STATEMENT,
    ("POST", _SQL): _STATEMENT,
    ("GET", _PAGE): _STATEMENT,
    ("DELETE", _PAGE): _STATEMENT,
    ("DELETE", "/v1/query/{statement_id:segment}"): _STATEMENT,
    # Each statement of the plan is authorised as if it were run.
    ("POST", f"{_API}/plan"): _STATEMENT,
    ("GET", f"{_API}/zones"): _LOGIN,
    ("GET", _ZONE): _SEE_ZONE,
    ("GET", f"{_ZONE}/partitions"): _SEE_ZONE,
    ("GET", f"{_ZONE}/partitions/{{partition}}"): _SEE_ZONE,
    ("GET", f"{_ZONE}/partition-map"): _SEE_ZONE,
    ("GET", f"{_ZONE}/routing"): _SEE_ZONE,
    ("GET", f"{_API}/progress/{{zone_id}}"): _needs((Privilege.SEE, Subject.ZONE_ID)),
    ("PUT", f"{_ZONE}/kv/{{key:key}}"): _needs((Privilege.WRITE, Subject.ZONE)),
    ("DELETE", f"{_ZONE}/kv/{{key:key}}"): _needs((Privilege.WRITE, Subject.ZONE)),
    ("GET", f"{_ZONE}/kv/{{key:key}}"): _needs((Privilege.READ, Subject.ZONE)),
    ("POST", f"{_ZONE}/verify"): _needs((Privilege.READ, Subject.ZONE)),
    ("GET", f"{_ZONE}/recovery/states"): _SEE_ZONE,
    ("POST", f"{_ZONE}/recovery/reset"): _RECOVER_ZONE,
    ("POST", f"{_ZONE}/recovery/restart"): _RECOVER_ZONE,
    ("POST", f"{_ZONE}/recovery/reset-lost"): _RECOVER_ZONE,
    ("GET", f"{_API}/operations"): _needs((Privilege.SEE, Subject.QUERIED_ZONE)),
    ("GET", _OPERATION): _needs((Privilege.SEE, Subject.OPERATION)),
    ("POST", f"{_OPERATION}/pause"): _OPERATE_OPERATION,
    ("POST", f"{_OPERATION}/resume"): _OPERATE_OPERATION,
    ("POST", f"{_OPERATION}/cancel"): _OPERATE_OPERATION,
    ("POST", f"{_OPERATION}/partitions/cancel"): _OPERATE_OPERATION,
    ("POST", f"{_OPERATION}/finalise"): _OPERATE_OPERATION,
    # The zone's parameters of before come back, as by ALTER.
    ("POST", f"{_OPERATION}/reverse"): _needs(
        (Privilege.OPERATE, Subject.OPERATION), (Privilege.ALTER, Subject.OPERATION)
    ),
    ("GET", f"{_API}/nodes"): _needs(SEE_SYSTEM),
    ("PUT", f"{_API}/nodes/{{node:segment}}/drain"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    ("DELETE", f"{_API}/nodes/{{node:segment}}/drain"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    # They name zones.
    ("POST", f"{_API}/nodes/{{node:segment}}/removal"): _needs(
        (Privilege.OPERATE, Subject.SYSTEM), (Privilege.SEE, Subject.ALL_ZONES)
    ),
    ("GET", f"{_API}/nodes/{{node:segment}}/can-stop"): _needs(SEE_SYSTEM, (Privilege.SEE, Subject.ALL_ZONES)),
    ("GET", f"{_API}/rebalance/limits"): _needs(SEE_SYSTEM),
    ("PATCH", f"{_API}/rebalance/limits"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    ("GET", f"{_API}/alerts"): _needs(SEE_SYSTEM),
    ("GET", f"{_API}/alerts/silences"): _needs(SEE_SYSTEM),
    ("POST", f"{_API}/alerts/silences"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    ("DELETE", f"{_API}/alerts/silences/{{silence_id:segment}}"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    ("GET", f"{_API}/audit"): _needs((Privilege.AUDIT, Subject.SYSTEM)),
    ("GET", f"{_API}/log-levels"): _needs(SEE_SYSTEM),
    ("PUT", f"{_API}/log-levels/{{module:segment}}"): _needs((Privilege.ADMIN, Subject.SYSTEM)),
    ("DELETE", f"{_API}/log-levels/{{module:segment}}"): _needs((Privilege.ADMIN, Subject.SYSTEM)),
    ("GET", f"{_API}/metastore"): _needs(SEE_SYSTEM),
    ("POST", f"{_API}/metastore/adopt"): _needs((Privilege.RECOVER, Subject.SYSTEM)),
    ("GET", f"{_API}/upgrade"): _needs(SEE_SYSTEM),
    ("POST", f"{_API}/upgrade/finalise"): _needs((Privilege.ADMIN, Subject.SYSTEM)),
    ("GET", f"{_API}/whoami"): _LOGIN,
    ("POST", f"{_API}/console-links"): _LOGIN,
    ("GET", f"{_API}/tokens"): _LOGIN,
    ("POST", f"{_API}/tokens"): _LOGIN,
    ("DELETE", f"{_API}/tokens/{{token_id:segment}}"): _LOGIN,
}

SURFACES = frozenset({"/openapi.json", "/docs/files"})
"""Paths that are no routes of the API: files. They need SEE ON SYSTEM."""

LOGIN_ROUTES: dict[tuple[str, str], Row] = {
    ("GET", f"{CONSOLE}/login"): _OPEN,
    ("GET", f"{CONSOLE}/login.js"): _OPEN,
    ("GET", f"{CONSOLE}/login.css"): _OPEN,
    ("POST", f"{CONSOLE}/login"): _OPEN,
    ("POST", f"{CONSOLE}/logout"): _LOGIN,
}
"""Routes of the login page. All else below the console needs a session, its files and its sockets too."""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the console. ``module`` of ``app.console`` draws it; ``menu`` is its name in the menu; empty:
    it is not there."""

    module: str
    menu: str = ""
    needs: tuple[Need, ...] = ()


PAGES: dict[str, ConsolePage] = {
    # Each zone, its partitions and its operations are shown to users who may see the zone; statements are
    # authorised as such. Of the system the overview shows what SEE ON SYSTEM allows.
    "/": ConsolePage("overview_page", "Overview"),
    "/zones": ConsolePage("zones_page", "Zones"),
    "/zones/{zone:segment}": ConsolePage("zones_page"),
    "/zones/{zone:segment}/partitions/{number}": ConsolePage("map_page"),
    "/map": ConsolePage("map_page", "Map"),
    "/nodes": ConsolePage("nodes_page", "Nodes", (SEE_SYSTEM,)),
    "/nodes/{node:segment}": ConsolePage("nodes_page", needs=(SEE_SYSTEM,)),
    # Before the page of any operation, whose address would be read as its name.
    "/operations/begun": ConsolePage("operations_page"),
    "/operations": ConsolePage("operations_page", "Operations"),
    "/operations/{operation:segment}": ConsolePage("operations_page"),
    "/recovery": ConsolePage("recovery_page", "Recovery", (SEE_SYSTEM,)),
    "/alerts": ConsolePage("alerts_page", "Alerts", (SEE_SYSTEM,)),
    "/alerts/{name:segment}": ConsolePage("alerts_page", needs=(SEE_SYSTEM,)),
    "/rebalance": ConsolePage("rebalance_page", "Rebalance", (SEE_SYSTEM,)),
    # They compute with all zones.
    "/plan": ConsolePage("plan_page", "Plan", (SEE_SYSTEM, SEE_ALL_ZONES)),
    "/sql": ConsolePage("sql_page", "SQL"),
    "/what-if": ConsolePage("plan_page", "What-if", (SEE_SYSTEM, SEE_ALL_ZONES)),
    "/audit": ConsolePage("audit_page", "Audit", (SEE_SYSTEM, (Privilege.AUDIT, Subject.SYSTEM))),
    "/users": ConsolePage("users_page", "Users", (SEE_SYSTEM, (Privilege.ADMIN, Subject.SYSTEM))),
    # One's own.
    "/account": ConsolePage("users_page"),
}
"""All pages by their path below the console, in the order of the menu, with what each needs besides a session.
Earlier paths are matched first. A page shows the zones that its viewer may see; others do not exist for it."""


class PageControl(Enum):
    """An action of a page, or something that it shows beside its subject. Statements of the editor are
    authorised as statements."""

    DRAIN_NODE = "drain or undrain a node"
    CHECK_STOP = "check whether a node can stop"
    REMOVE_NODE = "remove a node that is gone for good"
    CHANGE_LIMITS = "set the limits, pause and resume"
    SILENCE_ALERTS = "silence alerts, and end a silence"
    REST_ZONE = "activate or deactivate a zone"
    CREATE_ZONE = "create a zone"
    ALTER_ZONE = "alter a zone"
    OPERATE_OPERATION = "pause, resume or cancel an operation"
    REVERSE_OPERATION = "reverse an operation"
    RECOVER_ZONE = "reset partitions of a zone"
    READ_STATEMENTS = "read the statements that changed the catalog"
    MANAGE_USERS = "change users, roles and grants; end sessions and tokens of others"
    END_OWN_LOGIN = "end an own session or token"


CONTROLS: dict[PageControl, tuple[Need, ...]] = {
    PageControl.DRAIN_NODE: ((Privilege.OPERATE, Subject.SYSTEM),),
    PageControl.CHECK_STOP: (SEE_SYSTEM, SEE_ALL_ZONES),
    PageControl.REMOVE_NODE: ((Privilege.OPERATE, Subject.SYSTEM), SEE_ALL_ZONES),
    PageControl.CHANGE_LIMITS: ((Privilege.OPERATE, Subject.SYSTEM),),
    PageControl.SILENCE_ALERTS: ((Privilege.OPERATE, Subject.SYSTEM),),
    PageControl.REST_ZONE: ((Privilege.OPERATE, Subject.ZONE),),
    PageControl.CREATE_ZONE: ((Privilege.CREATE, Subject.ALL_ZONES),),
    PageControl.ALTER_ZONE: ((Privilege.ALTER, Subject.ZONE),),
    PageControl.OPERATE_OPERATION: ((Privilege.OPERATE, Subject.ZONE),),
    PageControl.REVERSE_OPERATION: ((Privilege.OPERATE, Subject.ZONE), (Privilege.ALTER, Subject.ZONE)),
    PageControl.RECOVER_ZONE: ((Privilege.RECOVER, Subject.ZONE),),
    PageControl.READ_STATEMENTS: ((Privilege.AUDIT, Subject.SYSTEM),),
    PageControl.MANAGE_USERS: ((Privilege.ADMIN, Subject.SYSTEM),),
    PageControl.END_OWN_LOGIN: (),
}

SOCKET_EVENTS = frozenset({"connect", "handshake", "disconnect", "event", "javascript_response", "ack", "log"})
"""Events of the console's sockets. Each needs a valid session, and belongs to a page that was drawn for it; the
action of a control is authorised by the control."""


def check_console(pages: Iterable[str], socket_events: Iterable[str]) -> None:
    """Check the console's tables. Raises RuntimeError for a page, a control or a socket's event without a row,
    and for rows of nothing."""
    _check("the console's pages", PAGES, pages)
    _check("the console's controls", CONTROLS, PageControl)
    _check("the console's events of sockets", SOCKET_EVENTS, socket_events)


def check_complete(routes: Iterable[tuple[str, str]], surfaces: Iterable[str]) -> None:
    """Check the tables of routes and surfaces. ``routes``: method and path of each route; ``surfaces``: the
    other paths that are served. Raises RuntimeError where they differ."""
    _check("the routes", ROUTES, routes)
    known = SURFACES | {CONSOLE}
    _check("the other paths", known, known.union(surfaces))


def _check(what: str, table: Iterable[object], served: Iterable[object]) -> None:
    if different := set(table) ^ set(served):
        named = ", ".join(sorted(map(str, different)))
        raise RuntimeError(f"app.security.policy and {what} differ in: {named}")


def is_surface(path: str) -> bool:
    return any(is_at(surface, path) for surface in SURFACES)
