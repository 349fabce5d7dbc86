"""The table of routes: which privilege, on what, each of them needs. Written by hand, and complete: a route
without a row, and a row without a route, stop the start.

What statements need is in ``app.security.statement_policy``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from catalog.core.principals import Privilege


class Subject(Enum):
    """On what a privilege is needed."""

    SYSTEM = "SYSTEM"
    ALL_ZONES = "ALL ZONES"
    ZONE = "the zone that the path names"
    ZONE_ID = "the zone whose id is in the path"
    OPERATION = "the zone of the operation that the path names"
    QUERIED_ZONE = "the zone that the query names; ALL ZONES where it names none"


class Guard(Enum):
    """What is needed besides privileges. ``OPEN``: nothing, not even a login."""

    OPEN = "open"
    LOGIN = "login"


Need = tuple[Privilege, Subject]
Row = tuple[Guard, tuple[Need, ...]]


def _open() -> Row:
    return Guard.OPEN, ()


def _login() -> Row:
    """The route itself shows and changes only what is the user's own, or asks again about each part."""
    return Guard.LOGIN, ()


def _needs(*needs: Need) -> Row:
    return Guard.LOGIN, needs


SEE_SYSTEM = (Privilege.SEE, Subject.SYSTEM)
_OPERATE_OPERATION = _needs((Privilege.OPERATE, Subject.OPERATION))
_SEE_ZONE = _needs((Privilege.SEE, Subject.ZONE))
_RECOVER_ZONE = _needs((Privilege.RECOVER, Subject.ZONE))
_STATEMENT = _login()
"""Each statement of the text is authorised by itself; those of others are not there for who may not operate."""

_API = "/api/v1"
_ZONE = f"{_API}/zones/{{zone:segment}}"
_OPERATION = f"{_API}/operations/{{operation:segment}}"
_SQL = "/v1/statement"
_PAGE = f"{_SQL}/executing/{{statement_id:segment}}/{{token}}"
_STATEMENT_ID = f"{_API}/statements/{{statement_id:segment}}"

ROUTES: dict[tuple[str, str], Row] = {
    ("GET", "/healthz"): _open(),
    ("GET", "/readyz"): _open(),
    ("GET", "/v1/info"): _open(),
    ("HEAD", _SQL): _open(),
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
    ("POST", f"{_API}/plan"): _needs(
        *((privilege, Subject.ALL_ZONES) for privilege in (Privilege.CREATE, Privilege.ALTER, Privilege.DROP))
    ),
    ("GET", f"{_API}/zones"): _login(),
    ("GET", _ZONE): _SEE_ZONE,
    ("GET", f"{_ZONE}/partitions"): _SEE_ZONE,
    ("GET", f"{_ZONE}/partitions/{{partition}}"): _SEE_ZONE,
    ("GET", f"{_ZONE}/partition-map"): _SEE_ZONE,
    ("GET", f"{_ZONE}/routing"): _SEE_ZONE,
    ("GET", f"{_API}/progress/{{zone_id}}"): _needs((Privilege.SEE, Subject.ZONE_ID)),
    ("PUT", f"{_ZONE}/kv/{{key:key}}"): _needs((Privilege.WRITE, Subject.ZONE)),
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
    # It names zones.
    ("GET", f"{_API}/nodes/{{node:segment}}/can-stop"): _needs(SEE_SYSTEM, (Privilege.SEE, Subject.ALL_ZONES)),
    ("GET", f"{_API}/rebalance/limits"): _needs(SEE_SYSTEM),
    ("PATCH", f"{_API}/rebalance/limits"): _needs((Privilege.OPERATE, Subject.SYSTEM)),
    ("GET", f"{_API}/audit"): _needs((Privilege.AUDIT, Subject.SYSTEM)),
    ("GET", f"{_API}/metastore"): _needs(SEE_SYSTEM),
    ("POST", f"{_API}/metastore/adopt"): _needs((Privilege.RECOVER, Subject.SYSTEM)),
    ("GET", f"{_API}/whoami"): _login(),
    ("GET", f"{_API}/tokens"): _login(),
    ("POST", f"{_API}/tokens"): _login(),
    ("DELETE", f"{_API}/tokens/{{token_id:segment}}"): _login(),
}

SURFACES = frozenset({"/openapi.json", "/docs/files", "/console"})
"""What is no route of the API: files and pages. They need SEE ON SYSTEM, and the console is not served where
users log in, because its sockets have no session yet."""


def check_complete(routes: Iterable[tuple[str, str]], surfaces: Iterable[str]) -> None:
    """``routes``: method and path of each route; ``surfaces``: paths of what else is served. Raises
    RuntimeError."""
    served = set(routes)
    without_row = sorted(served - ROUTES.keys())
    without_route = sorted(ROUTES.keys() - served)
    unknown = sorted(set(surfaces) - SURFACES)
    if without_row or without_route or unknown:
        message = f"rows are missing for {without_row} and {unknown}, and routes for {without_route}"
        raise RuntimeError(f"app.security.policy: {message}")


def is_surface(path: str) -> bool:
    return any(path == surface or path.startswith(f"{surface}/") for surface in SURFACES)
