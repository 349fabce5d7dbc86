"""X-Trino-Role: which of its roles a driver wants to have for a statement, as `system=ROLE{viewer}`. Pure.

It narrows and never widens: what is not enabled is not counted, and what the user does not have is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import unquote_plus

from catalog.core.authorisation import Caller, Grants
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.principals import Principal, role

CATALOGS = frozenset({"system", "zonekeeper"})
"""Roles of other catalogs are none of ours."""
_SELECTED = re.compile(r'(?:(ALL|NONE)|ROLE\{"?([^{}"]{1,63})"?\})', re.IGNORECASE)


def selected_roles(lines: Iterable[str]) -> frozenset[Principal] | None:
    """Of the header's lines: the roles to be enabled; None: all. Raises RefusedError (INVALID_REQUEST)."""
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
    """Raises RefusedError (PRIVILEGE_MISSING) for a role that the caller does not have."""
    if enabled is None:
        return caller
    foreign = sorted(one.name for one in enabled - caller.all_roles(grants))
    if foreign:
        message = f"{caller.principal} does not have the role {foreign[0]}"
        raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message)
    return replace(caller, enabled=enabled if caller.enabled is None else enabled & caller.enabled)
