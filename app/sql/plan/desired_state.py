"""Zones and tables as a set of DDL files wants them, and the statements that lead there from the live catalog.

The files are the whole truth of what they create: an option that they leave out has its default. Their
statements are run as one sequence, in which nothing is used before it is made, on a catalog with nothing but
the default zone and the zones that the files use without creating them; what stands there in the end is
desired. Planning compares definitions and knows no history, so a plan that was carried out is followed by an
empty one.

What the engine cannot change (partitions, storage profiles, a table's zone or key, ...) is a conflict: it is
reported, and nothing is changed at all.

Which file comes first says nothing: a statement that names a zone or a table comes behind the one that makes
it, wherever that is written. Where no name decides, files count in the order of their names, and statements as
they are written; so the same files give the same sequence in whatever order they are handed over.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from app.sql.plan.forecast import judged, rules_of
from catalog.core.errors import ErrorKind, ParseError, RefusedError, StatementError
from catalog.core.messages import (
    AddColumns,
    AlterZone,
    CreateTable,
    CreateZone,
    DropColumns,
    DropTable,
    DropZone,
    Name,
    OptionClause,
    OptionValue,
    PrincipalCommand,
    RenameZone,
    SchemaCommand,
    SetDefaultZone,
    TableCommand,
    ZoneOption,
)
from catalog.core.snapshot import CatalogSnapshot, Topology, ZoneDefaults
from catalog.core.table import Column, Table
from catalog.core.zone import Zone
from catalog.core.zone_options import ZONE_OPTIONS, ZoneOptionRow, option_text, value_of
from parser.render import clauses_of, render, render_table, render_zone
from parser.script import split_script
from parser.text import DEFAULT_LIMITS, NEVER, OWN_TEXT, ScriptLimits, StopFlag
from parser.to_command import parse_each


@dataclass(frozen=True, slots=True)
class DdlFile:
    name: str
    text: str


class DdlFileError(Exception):
    """Error in a file; ``cause``: the error, with its position in ``file``."""

    def __init__(self, file: DdlFile, cause: StatementError) -> None:
        super().__init__(f"{file.name}: {cause.message}")
        self.file = file
        self.cause = cause


@dataclass(frozen=True, slots=True)
class FileCommand:
    """A statement of a file."""

    file: DdlFile
    command: SchemaCommand


_Thing = tuple[bool, str]
"""A table, or else a zone; and its name."""


def read_files(
    files: Sequence[DdlFile], limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER
) -> tuple[FileCommand, ...]:
    """All statements of the files, at least one. ``limits`` hold for the files together.

    Raises DdlFileError for the first that does not parse, and ReadingStoppedError.
    """
    size, tokens = 0, 0
    read: list[FileCommand] = []
    for file in sorted(files, key=lambda file: (file.name, file.text)):
        size += len(file.text.encode(errors="surrogatepass"))
        _check(file, size, limits.text_bytes_max, "bytes")
        try:
            for command, piece in parse_each(file.text, limits, stop):
                tokens += len(piece.tokens)
                if isinstance(command, PrincipalCommand):
                    message = (
                        "DDL files declare zones and tables: send statements on users and grants by themselves"
                    )
                    raise ParseError(ErrorKind.STATEMENT_NOT_SUPPORTED, message, command.position)
                if not isinstance(command, ParseError):
                    read.append(FileCommand(file, command))
                elif piece.text or next(split_script(file.text, OWN_TEXT), None) is not None:
                    raise command
        except ParseError as error:
            raise DdlFileError(file, error) from error
        _check(file, len(read), limits.statements_max, "statements")
        _check(file, tokens, limits.tokens_max, "tokens (words, numbers, signs)")
    if not read:
        # With pruning, files of nothing would drop everything: more likely they are the wrong ones.
        message = "the files hold no statement, so they declare nothing"
        raise DdlFileError(files[0], ParseError(ErrorKind.INVALID_REQUEST, message))
    return tuple(in_order(read))


def in_order(commands: Sequence[FileCommand]) -> Iterator[FileCommand]:
    """Each behind what it waits for; otherwise as they come. Those that wait for each other in a circle come as
    written, to be refused for what is missing."""
    waits = _waits(commands)
    follow: dict[int, list[int]] = {}
    for at, makers in enumerate(waits):
        for maker in makers:
            follow.setdefault(maker, []).append(at)
    ready = [at for at, makers in enumerate(waits) if not makers]
    left = dict.fromkeys(range(len(commands)))
    while left:
        at = heapq.heappop(ready) if ready else next(iter(left))
        if at not in left:
            continue
        del left[at]
        yield commands[at]
        for follower in follow.get(at, ()):
            waits[follower].discard(at)
            if not waits[follower]:
                heapq.heappush(ready, follower)


def _waits(commands: Sequence[FileCommand]) -> list[set[int]]:
    """Indexes, for each command, of those that come before it wherever they are written."""
    makers: dict[_Thing, int] = {}
    defaults: list[int] = []
    for at, statement in enumerate(commands):
        thing = _made(statement.command)
        if thing is not None:
            makers.setdefault(thing, at)
        if isinstance(statement.command, SetDefaultZone):
            defaults.append(at)
    waits: list[set[int]] = []
    for at, statement in enumerate(commands):
        thing = _needed(statement.command)
        before = {makers[thing]} if thing in makers else set()
        if isinstance(statement.command, CreateTable) and statement.command.zone is None:
            # Its zone is the default, which another file may set.
            before.update(other for other in defaults if commands[other].file is not statement.file)
        waits.append(before - {at})
    return waits


def _made(command: SchemaCommand) -> _Thing | None:
    if isinstance(command, CreateZone | CreateTable):
        return isinstance(command, CreateTable), command.name.text
    return (False, command.new_name.text) if isinstance(command, RenameZone) else None


def _needed(command: SchemaCommand) -> _Thing | None:
    if isinstance(command, CreateTable):
        return None if command.zone is None else (False, command.zone.text)
    if isinstance(command, CreateZone):
        return None
    return isinstance(command, TableCommand), command.name.text


def zones_to_know(commands: Sequence[FileCommand]) -> frozenset[str]:
    """The zones that the commands use and do not make: those of the catalog, if it has them."""
    named = (_needed(statement.command) for statement in commands if isinstance(statement.command, _USES_ZONE))
    made = {_made(statement.command) for statement in commands}
    return frozenset(thing[1] for thing in named if thing is not None and thing not in made)


_USES_ZONE = (CreateTable, AlterZone, SetDefaultZone)


def _check(file: DdlFile, count: int, limit: int, what: str) -> None:
    if count > limit:
        message = f"the files together have at most {limit} {what}"
        raise DdlFileError(file, ParseError(ErrorKind.TEXT_TOO_LARGE, message))


QuorumOf = Callable[[Zone], int]
"""The quorum that a zone's declaration comes to on the nodes that live."""


class DesiredAction(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ZoneDifference:
    property: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One statement of a plan; ``kind`` is ``zone`` or ``table``."""

    action: DesiredAction
    kind: str
    name: str
    sql: str
    differences: tuple[ZoneDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """A difference that no statement can make."""

    kind: str
    name: str
    property: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """``unmanaged`` are (kind, name) of what lives and is in no file: kept unless pruning was asked for."""

    catalog_version: int
    changes: tuple[PlannedChange, ...]
    conflicts: tuple[Conflict, ...]
    unmanaged: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "catalog_version": self.catalog_version,
            "changes": [asdict(change) for change in self.changes],
            "conflicts": [asdict(conflict) for conflict in self.conflicts],
            "unmanaged": [{"kind": kind, "name": name} for kind, name in self.unmanaged],
        }


def desired_catalog(
    commands: Sequence[FileCommand], live: CatalogSnapshot, topology: Topology, defaults: ZoneDefaults
) -> CatalogSnapshot:
    """Catalog that the files want. Raises DdlFileError for the first statement that does not stand, and where
    the files rename the live default zone, or take the default from it, without creating it."""
    made = {one.command.name.text for one in commands if isinstance(one.command, CreateZone)}
    default = live.default_zone
    kept_default = default if default is not None and default.name not in made else None
    used = zones_to_know(commands)
    snapshot = CatalogSnapshot(
        zones=tuple(zone for zone in live.zones if zone.name in used or zone is kept_default),
        default_zone_id=kept_default.zone_id if kept_default is not None else None,
        next_zone_id=live.next_zone_id,
        next_table_id=live.next_table_id,
    )
    statements = judged((command.command for command in commands), snapshot, topology, rules_of(defaults))
    try:
        for statement in statements:
            snapshot = statement.before.after(statement.change.entries)
    except StatementError as error:
        number, error.statement = error.statement or 1, None
        raise DdlFileError(commands[number - 1].file, error) from error
    left = snapshot.default_zone
    if kept_default is not None and (left is None or left.name != kept_default.name):
        # Planned again, the files would begin with another default zone and mean something else.
        name = kept_default.name
        message = f"the files rename zone {name} or take the default from it: then they must create it"
        raise DdlFileError(commands[-1].file, RefusedError(ErrorKind.DEFAULT_ZONE_PROTECTED, message))
    return snapshot


def plan_changes(
    live: CatalogSnapshot, desired: CatalogSnapshot, quorum_of: QuorumOf, *, prune: Sequence[str] = ()
) -> CatalogPlan:
    """The statements, in an order in which each can be carried out. A zone or table in no file is dropped if
    the zone's name, or that of the table's zone, is one of ``prune``, in which ``*`` stands for any
    characters."""
    changes: list[PlannedChange] = []
    conflicts: list[Conflict] = []
    desired_tables = {table.name for table in desired.tables}
    desired_zones = {zone.name for zone in desired.zones}
    default = desired.default_zone or live.default_zone
    doomed_tables = [table for table in live.tables if table.name not in desired_tables]
    doomed_zones = [
        zone
        for zone in live.zones
        if zone.name not in desired_zones and not (default is not None and zone.name == default.name)
    ]
    may_drop = _pattern_of(prune)
    dropped_zones = [zone for zone in doomed_zones if may_drop(zone.name)]
    dropped_tables = [table for table in doomed_tables if may_drop(_zone_name(live, table))]
    changes += [
        PlannedChange(DesiredAction.DROP, "table", table.name, render(DropTable(Name(table.name))))
        for table in dropped_tables
    ]
    for zone in desired.zones:
        _plan_zone(live.zone(zone.name), zone, quorum_of, changes, conflicts)
    before = live.default_zone
    if default is not None and (before is None or before.name != default.name):
        difference = ZoneDifference("DEFAULT ZONE", before.name if before else "", default.name)
        sql = render(SetDefaultZone(Name(default.name)))
        changes.append(PlannedChange(DesiredAction.CHANGE, "zone", default.name, sql, (difference,)))
    for table in desired.tables:
        _plan_table(live, desired, table, changes, conflicts)
    changes += [
        PlannedChange(DesiredAction.DROP, "zone", zone.name, render(DropZone(Name(zone.name))))
        for zone in dropped_zones
    ]
    unmanaged = (
        *(("zone", zone.name) for zone in doomed_zones if zone not in dropped_zones),
        *(("table", table.name) for table in doomed_tables if table not in dropped_tables),
    )
    return CatalogPlan(live.version, tuple(changes), tuple(conflicts), unmanaged)


def _pattern_of(names: Sequence[str]) -> Callable[[str], bool]:
    parts = (".*".join(map(re.escape, name.split("*"))) for name in names)
    pattern = re.compile("|".join(parts) if names else r"(?!)", re.S)
    return lambda name: pattern.fullmatch(name) is not None


def _zone_name(catalog: CatalogSnapshot, table: Table) -> str:
    zone = catalog.zone_of(table)
    return zone.name if zone is not None else ""


def _plan_zone(
    before: Zone | None,
    after: Zone,
    quorum_of: QuorumOf,
    changes: list[PlannedChange],
    conflicts: list[Conflict],
) -> None:
    if before is None:
        changes.append(PlannedChange(DesiredAction.CREATE, "zone", after.name, render_zone(after)))
        return
    differences, clauses = [], []
    for row, old_value, new_value in _differing(before, after, quorum_of):
        old, new = option_text(row, old_value), option_text(row, new_value)
        if row.alterable:
            differences.append(ZoneDifference(row.option.value, old, new))
            clauses.append(OptionClause(row.option, new_value))
        else:
            reason = f"{row.option.value} of a zone cannot be altered; say {old}, or use another zone"
            conflicts.append(Conflict("zone", after.name, row.option.value, old, new, reason))
    if clauses:
        sql = render(AlterZone(Name(after.name), tuple(clauses)))
        changes.append(PlannedChange(DesiredAction.CHANGE, "zone", after.name, sql, tuple(differences)))


def _differing(
    before: Zone, after: Zone, quorum_of: QuorumOf
) -> Iterator[tuple[ZoneOptionRow, OptionValue, OptionValue]]:
    """The options that differ, in the order of the grammar.

    An explicit quorum cannot be taken back, only set: one that is equal to what would be derived is as good as
    none, and where the files have none that number is written.
    """
    for row in ZONE_OPTIONS:
        old, new = value_of(before, row), value_of(after, row)
        if row.option is ZoneOption.QUORUM_SIZE and old != new:
            new = quorum_of(after)
            if old is None:
                yield row, quorum_of(before), new
                continue
        if old != new:
            yield row, _stated(row, old), _stated(row, new)


def _stated(row: ZoneOptionRow, value: OptionValue | None) -> OptionValue:
    return option_text(row, value) if value is None else value


def _plan_table(
    live: CatalogSnapshot,
    desired: CatalogSnapshot,
    after: Table,
    changes: list[PlannedChange],
    conflicts: list[Conflict],
) -> None:
    zone = desired.zone_of(after).name
    before = live.table(after.name)
    if before is None:
        changes.append(PlannedChange(DesiredAction.CREATE, "table", after.name, render_table(after, zone)))
        return
    old_columns = {column.name: column for column in before.columns}
    new_columns = {column.name: column for column in after.columns}
    fixed = [
        ("ZONE", live.zone_of(before).name, zone),
        ("STORAGE PROFILE", before.storage_profile, after.storage_profile),
        ("PRIMARY KEY", ", ".join(before.primary_key), ", ".join(after.primary_key)),
        ("COLOCATION", ", ".join(before.colocation), ", ".join(after.colocation)),
    ]
    for name in old_columns.keys() & new_columns.keys():
        old, new = old_columns[name], new_columns[name]
        fixed.append((f"COLUMN {name}", _described(old), _described(new)))
    for name, old_text, new_text in sorted(fixed):
        if old_text != new_text:
            reason = f"{name} of a table cannot be altered; drop the table, or say {old_text}"
            conflicts.append(Conflict("table", after.name, name, old_text, new_text, reason))
    dropped = [column for column in before.columns if column.name not in new_columns]
    added = [column for column in after.columns if column.name not in old_columns]
    if added:
        sql = render(AddColumns(Name(after.name), clauses_of(added)))
        differences = tuple(ZoneDifference(f"COLUMN {column.name}", "", _described(column)) for column in added)
        changes.append(PlannedChange(DesiredAction.CHANGE, "table", after.name, sql, differences))
    if dropped:
        sql = render(DropColumns(Name(after.name), tuple(Name(column.name) for column in dropped)))
        differences = tuple(
            ZoneDifference(f"COLUMN {column.name}", _described(column), "") for column in dropped
        )
        changes.append(PlannedChange(DesiredAction.CHANGE, "table", after.name, sql, differences))


def _described(column: Column) -> str:
    """Type, NOT NULL and DEFAULT as SQL writes them."""
    nullable = "" if column.nullable else " NOT NULL"
    return f"{column.type}{nullable}" + ("" if column.default is None else f" DEFAULT {column.default}")
