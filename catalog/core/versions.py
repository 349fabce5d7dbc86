"""The catalog at one version, and what leads from one version to the next: values, nothing decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from catalog.core.messages import Command
from catalog.core.node_filter import NodeFilters
from catalog.core.table import Table, TableId
from catalog.core.zone import Node, Zone, ZoneId

K = TypeVar("K")
V = TypeVar("V")

FIRST_ZONE_ID = ZoneId(1)
FIRST_TABLE_ID = TableId(1)

Topology = tuple[Node, ...]
"""The nodes that are alive."""


@dataclass(frozen=True, slots=True)
class ZoneDefaults:
    """What a statement leaves out and a setting decides."""

    partitions: int = 25


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command is judged against besides the catalog."""

    topology: Topology
    defaults: ZoneDefaults
    filters: NodeFilters


class EntryKind(Enum):
    """What one entry does to the catalog."""

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
    """From this version on tables without a ZONE go to this zone."""

    zone_id: ZoneId


CatalogEntry = ZoneEntry | TableEntry | DefaultZoneEntry


@dataclass(frozen=True, slots=True)
class StatementWarning:
    """Something a person should know although the statement was applied."""

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

    def zone(self, name: str) -> Zone | None:
        return next((zone for zone in self.zones if zone.name == name), None)

    def table(self, name: str) -> Table | None:
        return next((table for table in self.tables if table.name == name), None)

    def zone_of(self, table: Table) -> Zone:
        return next(zone for zone in self.zones if zone.zone_id == table.zone_id)

    def tables_in(self, zone: Zone) -> tuple[Table, ...]:
        return tuple(table for table in self.tables if table.zone_id == zone.zone_id)

    @property
    def default_zone(self) -> Zone | None:
        return next((zone for zone in self.zones if zone.zone_id == self.default_zone_id), None)

    def after(self, entries: tuple[CatalogEntry, ...]) -> CatalogSnapshot:
        """The next version. No entries: this one, for nothing differs."""
        if not entries:
            return self
        zones = {zone.zone_id: zone for zone in self.zones}
        tables = {table.table_id: table for table in self.tables}
        result = replace(self, version=self.version + 1)
        for entry in entries:
            if isinstance(entry, DefaultZoneEntry):
                result = replace(result, default_zone_id=entry.zone_id)
            elif isinstance(entry, ZoneEntry):
                zone_id = entry.zone.zone_id
                result = replace(result, next_zone_id=max(result.next_zone_id, ZoneId(zone_id + 1)))
                _put(zones, zone_id, entry.kind, entry.zone)
            else:
                table_id = entry.table.table_id
                result = replace(result, next_table_id=max(result.next_table_id, TableId(table_id + 1)))
                _put(tables, table_id, entry.kind, entry.table)
        return replace(
            result,
            zones=tuple(zones[zone_id] for zone_id in sorted(zones)),
            tables=tuple(tables[table_id] for table_id in sorted(tables)),
        )


def _put(items: dict[K, V], key: K, kind: EntryKind, item: V) -> None:
    if kind is EntryKind.WRITTEN:
        items[key] = item
    else:
        del items[key]


@dataclass(frozen=True, slots=True)
class Change:
    """What a command does to a snapshot.

    ``applied`` is false only for an IF [NOT] EXISTS, or a default zone set again, that had nothing to do.
    ``entries`` is empty then, and also for an ALTER that asks for what the zone is already: applied, but no new
    version, so that a statement sent twice starts nothing (decision 12).

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
