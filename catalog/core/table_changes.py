"""Changes made by each command on tables. Order of the checks: names, columns and their types, primary key,
colocation, profile's text; then existence of the table; then the zone and its profile.

A table that already exists hides a missing zone (IF NOT EXISTS looks no further), nothing before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AddColumns,
    ColumnClause,
    CreateTable,
    DropColumns,
    DropTable,
    Name,
    ProfileName,
    TableCommand,
)
from catalog.core.names import check_name, check_new_name, check_visible
from catalog.core.table import Column, Table, TableId, type_problem, type_text
from catalog.core.versions import (
    CatalogEntry,
    CatalogSnapshot,
    Change,
    DefaultZoneEntry,
    EntryKind,
    Surroundings,
    TableEntry,
    ZoneEntry,
)
from catalog.core.zone import Zone
from catalog.core.zone_changes import (
    DEFAULT_PROFILES,
    applied,
    check_profiles,
    data_nodes_of,
    effective_quorum,
    missing_zone,
    new_zone,
    nothing,
    zone_params,
)

DEFAULT_ZONE_NAME = "Default"


def create_table(snapshot: CatalogSnapshot, command: CreateTable, surroundings: Surroundings) -> Change:
    """The table, and with the first one that names no zone the default zone, in one version."""
    _check_create(command)
    existing = snapshot.table(command.name.text)
    if existing:
        if command.if_not_exists:
            return nothing(command, snapshot.zone_with_id(existing.zone_id))
        message = f"table {existing.name} already exists"
        raise RefusedError(ErrorKind.TABLE_ALREADY_EXISTS, message, command.name.position)
    zone = _zone_for(snapshot, command)
    made = None if zone else _default_zone(snapshot, command, surroundings)
    home = zone or made
    assert home is not None
    table = _table(snapshot.next_table_id, command, home)
    effect: dict[str, Any] = {
        "op": "create_table",
        "table": table.name,
        "zone": home.name,
        "storage_profile": table.storage_profile,
        "colocation": list(table.colocation),
    }
    entries: tuple[CatalogEntry, ...] = (TableEntry(EntryKind.WRITTEN, table),)
    if made is None:
        return Change(command=command, applied=True, effect=effect, entries=entries, before=home)
    data_nodes = data_nodes_of(made, surroundings.topology, surroundings.filters)
    quorum = effective_quorum(made, data_nodes)
    return Change(
        command=command,
        applied=True,
        effect={**effect, "created_default_zone": zone_params(made, quorum)},
        entries=(ZoneEntry(EntryKind.WRITTEN, made), DefaultZoneEntry(made.zone_id), *entries),
        after=made,
        data_nodes=data_nodes,
        quorum=quorum,
    )


def add_columns(snapshot: CatalogSnapshot, command: AddColumns) -> Change:
    check_name(command.name, "a table")
    _check_columns(command.columns)
    table = snapshot.table(command.name.text)
    if table is None:
        return _missing(command, command.if_exists)
    taken = {column.name for column in table.columns}
    for column in command.columns:
        if column.name.text in taken:
            message = f"table {table.name} has a column {column.name.text} already"
            raise RefusedError(ErrorKind.TABLE_COLUMN_DUPLICATE, message, column.name.position)
    added = tuple(_column(column) for column in command.columns)
    return _altered(snapshot, command, replace(table, columns=table.columns + added))


def drop_columns(snapshot: CatalogSnapshot, command: DropColumns) -> Change:
    check_name(command.name, "a table")
    _check_distinct(command.columns, "dropped")
    table = snapshot.table(command.name.text)
    if table is None:
        return _missing(command, command.if_exists)
    for name in command.columns:
        if name.text not in {column.name for column in table.columns}:
            raise _unknown_column(name)
        if name.text in table.primary_key:
            message = f"column {name.text} is part of the primary key of table {table.name}"
            raise RefusedError(ErrorKind.TABLE_COLUMN_IN_KEY, message, name.position)
    gone = {name.text for name in command.columns}
    left = tuple(column for column in table.columns if column.name not in gone)
    return _altered(snapshot, command, replace(table, columns=left))


def drop_table(snapshot: CatalogSnapshot, command: DropTable) -> Change:
    check_name(command.name, "a table")
    table = snapshot.table(command.name.text)
    if table is None:
        return _missing(command, command.if_exists)
    effect = {"op": "drop_table", "table": table.name}
    return applied(command, effect, TableEntry(EntryKind.DROPPED, table), snapshot.zone_of(table))


def _check_create(command: CreateTable) -> None:
    check_new_name(command.name, "a table")
    if command.zone:
        check_name(command.zone)
    _check_columns(command.columns)
    key = _primary_key(command)
    known = {column.name.text for column in command.columns}
    _check_distinct(key, "in the primary key")
    for name in key:
        if name.text not in known:
            raise _unknown_column(name)
    for number, name in enumerate(command.colocation or ()):
        if name.text not in {part.text for part in key}:
            message = f"colocation column {name.text} is not part of the primary key"
            raise RefusedError(ErrorKind.TABLE_COLOCATION_INVALID, message, name.position)
        if name in (command.colocation or ())[:number]:
            message = f"colocation column {name.text} is given twice"
            raise RefusedError(ErrorKind.TABLE_COLOCATION_INVALID, message, name.position)
    if command.profile and not command.profile.text:
        message = "a storage profile has a name that is not blank"
        raise RefusedError(ErrorKind.STORAGE_PROFILES_EMPTY, message, command.profile.position)
    if command.profile:
        check_visible(command.profile.text, "the storage profile's name", command.profile.position)


def _check_columns(columns: Sequence[ColumnClause]) -> None:
    for column in columns:
        check_new_name(column.name, "a column")
    _check_distinct([column.name for column in columns], "given")
    for column in columns:
        problem = type_problem(column.type.name, column.type.arguments, column.type.written)
        if problem:
            raise RefusedError(ErrorKind.TABLE_COLUMN_TYPE, problem, column.type.position)


def _check_distinct(names: Sequence[Name], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            message = f"column {name.text} is {where} twice"
            raise RefusedError(ErrorKind.TABLE_COLUMN_DUPLICATE, message, name.position)
        seen.add(name.text)


def _primary_key(command: CreateTable) -> tuple[Name, ...]:
    if not command.primary_keys:
        message = f"table {command.name.text} needs a PRIMARY KEY: it determines the partition of a row"
        raise RefusedError(ErrorKind.TABLE_PRIMARY_KEY_INVALID, message, command.name.position)
    if len(command.primary_keys) > 1:
        message = "a table has one PRIMARY KEY; for several columns, write PRIMARY KEY (a, b)"
        raise RefusedError(ErrorKind.TABLE_PRIMARY_KEY_INVALID, message, command.primary_keys[1][0].position)
    return command.primary_keys[0]


def _zone_for(snapshot: CatalogSnapshot, command: CreateTable) -> Zone | None:
    """The zone that is there; None when the default zone has to be made."""
    if command.zone is None:
        return snapshot.default_zone
    zone = snapshot.zone(command.zone.text)
    if zone is None:
        raise missing_zone(command.zone)
    return zone


def _default_zone(snapshot: CatalogSnapshot, command: CreateTable, surroundings: Surroundings) -> Zone:
    position = command.name.position
    if snapshot.zone(DEFAULT_ZONE_NAME):
        message = (
            f"the table names no zone and there is no default zone; {DEFAULT_ZONE_NAME} would be made, but a "
            f'zone of that name exists: name a ZONE, or ALTER ZONE "{DEFAULT_ZONE_NAME}" SET DEFAULT'
        )
        raise RefusedError(ErrorKind.ZONE_ALREADY_EXISTS, message, position)
    check_profiles(tuple(ProfileName(name, position) for name in DEFAULT_PROFILES), surroundings.topology)
    return new_zone(snapshot.next_zone_id, DEFAULT_ZONE_NAME, {}, surroundings)


def _table(table_id: TableId, command: CreateTable, zone: Zone) -> Table:
    profile, position = zone.storage_profiles[0], command.name.position
    if command.profile:
        profile, position = command.profile.text, command.profile.position
    if profile not in zone.storage_profiles:
        message = (
            f"zone {zone.name} has no storage profile '{profile}'; it has {', '.join(zone.storage_profiles)}"
        )
        raise RefusedError(ErrorKind.TABLE_STORAGE_PROFILE, message, position)
    key = tuple(name.text for name in _primary_key(command))
    colocation = tuple(name.text for name in command.colocation or ()) or key
    columns = tuple(_column(column) for column in command.columns)
    columns = tuple(replace(column, nullable=column.nullable and column.name not in key) for column in columns)
    return Table(table_id, command.name.text, zone.zone_id, profile, columns, key, colocation)


def _column(clause: ColumnClause) -> Column:
    text = type_text(clause.type.name, clause.type.arguments)
    return Column(clause.name.text, text, clause.nullable, clause.default)


def _altered(snapshot: CatalogSnapshot, command: TableCommand, table: Table) -> Change:
    columns = [column.name for column in table.columns]
    effect = {"op": "alter_table", "table": table.name, "columns": columns}
    return applied(command, effect, TableEntry(EntryKind.WRITTEN, table), snapshot.zone_of(table))


def _unknown_column(name: Name) -> RefusedError:
    return RefusedError(ErrorKind.TABLE_COLUMN_NOT_FOUND, f"there is no column {name.text}", name.position)


def _missing(command: TableCommand, allowed: bool) -> Change:
    if allowed:
        return nothing(command, None)
    message = f"table {command.name.text} does not exist"
    raise RefusedError(ErrorKind.TABLE_NOT_FOUND, message, command.name.position)
