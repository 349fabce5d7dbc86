"""The catalog at one version, and what leads from one version to the next: values, nothing decided here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from catalog.core.authorisation import NO_GRANTS, Grant, Grants, Membership, User, UserRole
from catalog.core.messages import Command
from catalog.core.table import Table, TableId
from catalog.core.zone import Node, Zone, ZoneId
from catalog.core.zone_options import NodeFilters

K = TypeVar("K", int, str)
V = TypeVar("V")

FIRST_ZONE_ID = ZoneId(1)
FIRST_TABLE_ID = TableId(1)

Topology = tuple[Node, ...]
"""The nodes that are alive."""


@dataclass(frozen=True, slots=True)
class ZoneDefaults:
    """Defaults that a setting decides for what a statement leaves out."""

    partitions: int = 25


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Surroundings that a command is judged against besides the catalog."""

    topology: Topology
    defaults: ZoneDefaults
    filters: NodeFilters


class EntryKind(Enum):
    """Kind of change that one entry makes in the catalog."""

    WRITTEN = "written"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ZoneEntry:
    """One zone as a version leaves it; DROPPED keeps the last parameters."""

    kind: EntryKind
    zone: Zone


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table as a version leaves it; DROPPED keeps its last form."""

    kind: EntryKind
    table: Table


@dataclass(frozen=True, slots=True)
class DefaultZoneEntry:
    """Entry by which, from this version on, tables without a ZONE go to this zone."""

    zone_id: ZoneId


@dataclass(frozen=True, slots=True)
class UserEntry:
    """One user as a version leaves it; DROPPED takes its grants and memberships along."""

    kind: EntryKind
    user: User


@dataclass(frozen=True, slots=True)
class RoleEntry:
    """One role as a version leaves it; DROPPED takes its grants and memberships along."""

    kind: EntryKind
    role: UserRole


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """A grant that is there from this version on, or not any more."""

    kind: EntryKind
    grant: Grant


@dataclass(frozen=True, slots=True)
class MembershipEntry:
    """A membership that is there from this version on, or not any more."""

    kind: EntryKind
    membership: Membership


PrincipalEntry = UserEntry | RoleEntry | GrantEntry | MembershipEntry
CatalogEntry = ZoneEntry | TableEntry | DefaultZoneEntry | PrincipalEntry


@dataclass(frozen=True, slots=True)
class StatementWarning:
    """Warning about a statement that was applied."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The catalog at ``version``: the zones and tables that live, by id. Version 0 is the empty catalog.

    Invariants: names are unique, those of zones and those of tables apart; ``next_zone_id`` and
    ``next_table_id`` are above every id that was ever given; ``default_zone_id`` (None until there is a
    default zone) and every table's zone are among the zones.
    """

    version: int = 0
    zones: tuple[Zone, ...] = ()
    next_zone_id: ZoneId = FIRST_ZONE_ID
    tables: tuple[Table, ...] = ()
    next_table_id: TableId = FIRST_TABLE_ID
    default_zone_id: ZoneId | None = None
    zones_by_name: tuple[Zone, ...] | None = field(default=None, compare=False, repr=False)
    """The same zones sorted by name, None until somebody asks: carried from version to version, so that a
    statement costs the same with ten zones and with ten thousand."""
    grants: Grants = field(default=NO_GRANTS, compare=False)
    """Grants of the newest version; none for an earlier one, on which no caller is authorised."""

    def zone(self, name: str) -> Zone | None:
        by_name = self.zones_by_name
        if by_name is None:
            by_name = tuple(sorted(self.zones, key=_zone_name))
            object.__setattr__(self, "zones_by_name", by_name)
        return _find(by_name, name, _zone_name)

    def zone_with_id(self, zone_id: ZoneId | None) -> Zone | None:
        return None if zone_id is None else _find(self.zones, zone_id, _zone_id)

    def table(self, name: str) -> Table | None:
        return next((table for table in self.tables if table.name == name), None)

    def zone_of(self, table: Table) -> Zone:
        zone = self.zone_with_id(table.zone_id)
        assert zone is not None, "a table's zone is among the zones"
        return zone

    def tables_in(self, zone: Zone) -> tuple[Table, ...]:
        return tuple(table for table in self.tables if table.zone_id == zone.zone_id)

    @property
    def default_zone(self) -> Zone | None:
        return self.zone_with_id(self.default_zone_id)

    def with_lives(self, entries: tuple[CatalogEntry, ...], life: str) -> tuple[CatalogEntry, ...]:
        """``entries`` that follow this version, with ``life`` for each zone that they create."""
        return tuple(
            replace(entry, zone=replace(entry.zone, life=life))
            if isinstance(entry, ZoneEntry) and self.zone_with_id(entry.zone.zone_id) is None
            else entry
            for entry in entries
        )

    def above(self, held: ZoneId) -> CatalogSnapshot:
        """The same zones; new ones get ids above ``held``."""
        return self if held < self.next_zone_id else replace(self, next_zone_id=ZoneId(held + 1))

    def after(self, entries: tuple[CatalogEntry, ...]) -> CatalogSnapshot:
        """The next version. No entries: this one, for nothing differs."""
        if not entries:
            return self
        zones, by_name, tables = self.zones, self.zones_by_name, self.tables
        next_zone_id, next_table_id = self.next_zone_id, self.next_table_id
        default_zone_id, grants = self.default_zone_id, self.grants
        for entry in entries:
            if isinstance(entry, DefaultZoneEntry):
                default_zone_id = entry.zone_id
            elif isinstance(entry, PrincipalEntry):
                grants = grants_after(grants, entry)
            elif isinstance(entry, ZoneEntry):
                before = _find(zones, entry.zone.zone_id, _zone_id)
                after = entry.zone if entry.kind is EntryKind.WRITTEN else None
                next_zone_id = max(next_zone_id, ZoneId(entry.zone.zone_id + 1))
                zones = _spliced(zones, before, after, _zone_id)
                by_name = None if by_name is None else _spliced(by_name, before, after, _zone_name)
                grants = grants if after is not None else grants.without_zone(entry.zone.zone_id)
            else:
                known = _find(tables, entry.table.table_id, _table_id)
                kept = entry.table if entry.kind is EntryKind.WRITTEN else None
                next_table_id = max(next_table_id, TableId(entry.table.table_id + 1))
                tables = _spliced(tables, known, kept, _table_id)
        version = self.version + 1
        ids = zones, next_zone_id, tables, next_table_id, default_zone_id
        return CatalogSnapshot(version, *ids, by_name, grants.at(version))


def grants_after(grants: Grants, entry: PrincipalEntry) -> Grants:
    is_written = entry.kind is EntryKind.WRITTEN
    if isinstance(entry, UserEntry):
        return grants.with_user(entry.user) if is_written else grants.without(entry.user.principal)
    if isinstance(entry, RoleEntry):
        return grants.with_role(entry.role) if is_written else grants.without(entry.role.principal)
    if isinstance(entry, GrantEntry):
        return grants.with_grant(entry.grant, is_held=is_written)
    return grants.with_member(entry.membership, is_member=is_written)


def _zone_id(zone: Zone) -> int:
    return zone.zone_id


def _zone_name(zone: Zone) -> str:
    return zone.name


def _table_id(table: Table) -> int:
    return table.table_id


def _find(items: tuple[V, ...], key: K, key_of: Callable[[V], K]) -> V | None:
    """Find an item in ``items`` that are sorted by ``key_of``."""
    at = bisect_left(items, key, key=key_of)
    return items[at] if at < len(items) and key_of(items[at]) == key else None


def _spliced(
    items: tuple[V, ...], before: V | None, after: V | None, key_of: Callable[[V], Any]
) -> tuple[V, ...]:
    """``items`` with ``after`` in place of ``before``, still sorted."""
    if before is not None:
        at = bisect_left(items, key_of(before), key=key_of)
        items = items[:at] + items[at + 1 :]
    if after is not None:
        at = bisect_left(items, key_of(after), key=key_of)
        items = (*items[:at], after, *items[at:])
    return items


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a snapshot by a command.

    ``applied`` is false, and ``entries`` empty, for an IF [NOT] EXISTS that has nothing to do and for a change
    to what is already: no new version, so that a statement sent twice starts nothing (decision 12).

    ``before`` and ``after`` are the zone around the change; of a command on a table ``before`` is the table's
    zone, and ``after`` is set only when the table brought the default zone along. ``data_nodes`` are the live
    nodes that ``after`` may use and ``quorum`` its effective quorum size (explicit, else derived).
    """

    command: Command
    applied: bool
    effect: Mapping[str, Any]
    entries: tuple[CatalogEntry, ...] = ()
    before: Zone | None = None
    after: Zone | None = None
    data_nodes: tuple[str, ...] = ()
    quorum: int | None = None
    warnings: tuple[StatementWarning, ...] = ()

    @property
    def zone_id(self) -> ZoneId | None:
        zone = self.after or self.before
        return zone.zone_id if zone else None
