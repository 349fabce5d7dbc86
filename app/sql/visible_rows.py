"""What a caller may ask, and which rows of the answer it may see: before any query engine has them, so that no
count and no sum tells of a zone that is hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.actor import current_caller
from app.alerts.shown_alerts import seen_alerts
from app.security.statement_policy import (
    EXPLAIN_PARTITION,
    QUESTIONS,
    SHOWS_MORE,
    VIEWS,
    Need,
    authorise_call,
    only_zones,
    require,
)
from app.sql.principal_views import GRANTS
from app.sql.view_registry import SCHEMA, ZONE_ID, Row, SystemView
from app.sql.view_snapshot import SystemSnapshot
from catalog.core.access_tokens import scope_text
from catalog.core.authorisation import Caller, Grants, Held
from catalog.core.principals import ALL_ZONES, SYSTEM, ObjectKind, Principal, Privilege, zone_object
from catalog.core.versions import CatalogSnapshot
from parser.calls import Call
from parser.queries import ExplainPartition, Show, Statement


def check_question(statement: Statement, catalog: CatalogSnapshot, caller: Caller) -> None:
    """Of what neither changes the catalog nor is a query. Raises RefusedError (PRIVILEGE_MISSING)."""
    if isinstance(statement, Call):
        authorise_call(catalog, statement, caller)
    elif isinstance(statement, Show):
        require(caller, catalog, QUESTIONS[statement.kind], None)


def needs_of(views: Iterable[SystemView]) -> tuple[Need, ...]:
    """What a query of these views needs; nothing where rows alone are left out."""
    needs = (VIEWS[name] for name in names_of(views))
    return tuple(need for need in needs if need is not None)


def names_of(views: Iterable[SystemView]) -> Iterator[str]:
    """Of the views that are about the installation."""
    return (view.name for view in views if view.schema == SCHEMA)


def asked_for(statement: Statement) -> tuple[str, ...]:
    """What SHOW or EXPLAIN were asked for, by its name in the table of privileges."""
    if isinstance(statement, Show):
        return (statement.kind.value,)
    return (EXPLAIN_PARTITION,) if isinstance(statement, ExplainPartition) else ()


def visible(snapshot: SystemSnapshot, caller: Caller | None) -> SystemSnapshot:
    """The snapshot with the zones, users and queries that the caller may see. None: all of it."""
    if caller is None:
        return snapshot
    catalog = snapshot.catalog
    grants = catalog.grants
    seen = caller.seen_zones(grants, [zone.zone_id for zone in catalog.zones])
    queries = snapshot.queries
    if not caller.may(grants, Privilege.OPERATE, SYSTEM):
        queries = tuple(entry for entry in queries if entry.client.is_within(caller))
    if seen is not None:
        catalog = only_zones(catalog, [zone for zone in catalog.zones if zone.zone_id in seen])
    if not caller.may(grants, Privilege.ADMIN, SYSTEM):
        catalog = replace(catalog, grants=_own(grants, caller))
    zones = None if seen is None else {zone.name: zone.zone_id for zone in catalog.zones}
    alerts = tuple(seen_alerts(snapshot.alerts, zones))
    sees_system = caller.may(grants, Privilege.SEE, SYSTEM)
    return replace(
        snapshot, catalog=catalog, queries=queries, alerts=alerts, seen=seen, sees_system=sees_system
    )


def visible_rows(view: SystemView, snapshot: SystemSnapshot) -> Iterator[Row]:
    """The rows of the view without those of zones that are not seen, also of zones that are gone."""
    seen, names = snapshot.seen, [column.name for column in view.columns]
    if seen is None:
        yield from view.rows(snapshot)
        return
    zone_at = names.index(ZONE_ID) if ZONE_ID in names else None
    hidden = {at for at, column in enumerate(view.columns) if column.sums}
    for row in view.rows(snapshot):
        zone_id = None if zone_at is None else row[zone_at]
        if zone_at is None or zone_id in seen or (zone_id is None and view.name == GRANTS):
            yield tuple(None if at in hidden else cell for at, cell in enumerate(row)) if hidden else row


def sight(snapshot: SystemSnapshot, asked: Iterable[str]) -> str:
    """What an answer shows, as ``access_tokens.scope_text``: whoever reads it later needs that.

    ``snapshot``: as ``visible`` has left it for the caller. ``asked``: names of views, or ``asked_for``."""
    caller = current_caller()
    if caller is None:
        return ""
    see = frozenset({Privilege.SEE})
    zones = (ALL_ZONES,) if snapshot.seen is None else map(zone_object, snapshot.seen)
    shown: Held = dict.fromkeys(zones, see)
    on_system = frozenset(_on_system(asked, caller, snapshot.catalog.grants))
    return scope_text({**shown, SYSTEM: on_system} if on_system else shown)


def _on_system(asked: Iterable[str], caller: Caller, grants: Grants) -> Iterator[Privilege]:
    """The caller was asked for what the answer needed; what shows more of it counts where it was held."""
    for name in asked:
        need = VIEWS.get(name)
        if need is not None and need.on is ObjectKind.SYSTEM:
            yield need.privilege
        more = SHOWS_MORE.get(name)
        if more is not None and caller.may(grants, more, SYSTEM):
            yield more


def _own(grants: Grants, caller: Caller) -> Grants:
    """The caller itself, its roles, and what is granted to either."""
    me = caller.principal
    roles = {*grants.roles_of.get(me, ()), *caller.roles}

    def is_mine(principal: Principal) -> bool:
        return principal == me or principal in roles

    return Grants(
        grants.version,
        {key: user for key, user in grants.users.items() if is_mine(key)},
        {key: role for key, role in grants.roles.items() if is_mine(key)},
        {key: members for key, members in grants.roles_of.items() if key == me},
        {key: held for key, held in grants.held.items() if is_mine(key)},
    )
