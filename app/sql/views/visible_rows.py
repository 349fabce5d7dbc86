"""Rules for what a caller may ask, and which rows of the answer it may see. They are applied before any query
engine has the rows, so that no count and no sum reveals a hidden zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from app.alerts.shown_alerts import seen_alerts
from app.security.statement_policy import (
    EXPLAIN_PARTITION,
    QUESTIONS,
    SHOWS_MORE,
    VIEWS,
    Need,
    only_zones,
    require,
)
from app.sql.views.view_registry import SCHEMA, ZONE_ID, Row, SystemView
from app.sql.views.view_rows import GRANTS
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    Grants,
    Held,
    ObjectKind,
    Principal,
    Privilege,
    zone_object,
)
from catalog.core.credentials import scope_text
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import ZoneId
from parser.queries import ExplainPartition, Show, Statement

Asked = Mapping[str, Need | None]
"""Questions of SHOW, EXPLAIN or a query, by their names in the tables of privileges, and what each needs; None
where rows alone are left out."""


def asked_by(statement: Statement) -> Asked:
    """Questions of a statement that is no change, no CALL and no query."""
    if isinstance(statement, Show):
        return {statement.kind.value: QUESTIONS[statement.kind]}
    return {EXPLAIN_PARTITION: None} if isinstance(statement, ExplainPartition) else {}


def asked_of(views: Iterable[SystemView]) -> Asked:
    """Questions of a query, one for each of its views that are about the installation."""
    return {view.name: VIEWS[view.name] for view in views if view.schema == SCHEMA}


@dataclass(frozen=True)
class Permit:
    """``caller`` may have what is ``asked``, on the grants of ``catalog``. None: no login is required. Raises
    RefusedError (PRIVILEGE_MISSING) where it may not."""

    catalog: CatalogSnapshot
    caller: Caller | None
    asked: Asked

    def __post_init__(self) -> None:
        if self.caller is not None:
            for need in self.asked.values():
                require(self.caller, self.catalog, need, None)

    @cached_property
    def seen(self) -> frozenset[ZoneId] | None:
        """The zones that the caller may see; None: all, also those that are gone."""
        if self.caller is None:
            return None
        return self.caller.seen_zones(self.catalog.grants, (zone.zone_id for zone in self.catalog.zones))

    def visible(self, snapshot: SystemSnapshot) -> SystemSnapshot:
        """The snapshot of ``catalog`` with the zones, users and queries that the caller may see."""
        caller, seen, catalog, grants = self.caller, self.seen, self.catalog, self.catalog.grants
        if caller is None:
            return snapshot
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

    @property
    def shown(self) -> str:
        """Scope of what an answer shows, as ``credentials.scope_text`` writes it: a later reader of the answer
        needs it. Privileges that show more (``SHOWS_MORE``) are in it where the caller holds them."""
        caller, grants = self.caller, self.catalog.grants
        if caller is None:
            return ""
        see = frozenset({Privilege.SEE})
        zones = (ALL_ZONES,) if self.seen is None else map(zone_object, self.seen)
        held: Held = dict.fromkeys(zones, see)
        needed = {need.privilege for need in self.asked.values() if need and need.on is ObjectKind.SYSTEM}
        more = {SHOWS_MORE[name] for name in self.asked if name in SHOWS_MORE}
        on_system = frozenset(needed | {one for one in more if caller.may(grants, one, SYSTEM)})
        return scope_text({**held, SYSTEM: on_system} if on_system else held)


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
