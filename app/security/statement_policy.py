"""The hand-written table of statements: the privilege that each kind of them needs, and on what.

It has a row for each command, CALL, question and view; ``check_complete`` stops the start of a server that
knows one without a row. ``catalog.core.authorisation`` alone decides; this table says only what to check there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    Caller,
    GrantObject,
    ObjectKind,
    Permission,
    Privilege,
    zone_object,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AddColumns,
    AlterUser,
    AlterZone,
    ChangeGrants,
    ChangeMembers,
    Command,
    CreateRole,
    CreateTable,
    CreateUser,
    CreateZone,
    DropColumns,
    DropRole,
    DropTable,
    DropUser,
    DropZone,
    Position,
    PrincipalCommand,
    RenameZone,
    SetDefaultZone,
)
from catalog.core.names import spellings
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import Zone
from parser.queries import Call, Procedure, ShowKind


@dataclass(frozen=True, slots=True)
class Need:
    """Privilege that a statement needs. ``on`` ZONE: on the zone that the statement names, or its table's."""

    privilege: Privilege
    on: ObjectKind


ANYBODY = None
"""Any user who has logged in may ask; rows about zones, users and grants are those that the caller may see."""

SEES_ALL_ZONES = Need(Privilege.SEE, ObjectKind.ALL_ZONES)
_ADMIN = Need(Privilege.ADMIN, ObjectKind.SYSTEM)
_SEES_SYSTEM = Need(Privilege.SEE, ObjectKind.SYSTEM)
_AUDITS = Need(Privilege.AUDIT, ObjectKind.SYSTEM)
_RECOVERS = Need(Privilege.RECOVER, ObjectKind.ZONE)
_OPERATES = Need(Privilege.OPERATE, ObjectKind.ZONE)

COMMANDS: Mapping[type[Command], Need] = {
    CreateZone: Need(Privilege.CREATE, ObjectKind.ALL_ZONES),
    AlterZone: Need(Privilege.ALTER, ObjectKind.ZONE),
    RenameZone: Need(Privilege.ALTER, ObjectKind.ZONE),
    SetDefaultZone: Need(Privilege.ALTER, ObjectKind.ALL_ZONES),
    DropZone: Need(Privilege.DROP, ObjectKind.ZONE),
    CreateTable: Need(Privilege.CREATE, ObjectKind.ZONE),
    AddColumns: Need(Privilege.ALTER, ObjectKind.ZONE),
    DropColumns: Need(Privilege.ALTER, ObjectKind.ZONE),
    DropTable: Need(Privilege.DROP, ObjectKind.ZONE),
    CreateUser: _ADMIN,
    AlterUser: _ADMIN,
    DropUser: _ADMIN,
    CreateRole: _ADMIN,
    DropRole: _ADMIN,
    ChangeGrants: _ADMIN,
    ChangeMembers: _ADMIN,
}
"""Needs of commands; EXPLAIN and plans need those of the commands that they explain."""

PROCEDURES: Mapping[Procedure, Need] = {
    Procedure.RESET_PARTITIONS: _RECOVERS,
    Procedure.RESTART_PARTITIONS: _RECOVERS,
    Procedure.RESET_LOST_PARTITIONS: _RECOVERS,
    Procedure.ACTIVATE_ZONE: _OPERATES,
    Procedure.DEACTIVATE_ZONE: _OPERATES,
}

QUESTIONS: Mapping[ShowKind, Need | None] = {
    ShowKind.NODES: _SEES_SYSTEM,
    **dict.fromkeys(set(ShowKind) - {ShowKind.NODES}, ANYBODY),
}

VIEWS: Mapping[str, Need | None] = {
    **dict.fromkeys(
        (
            *("ZONES", "ZONE_STORAGE_PROFILES", "TABLES", "GLOBAL_ZONE_PARTITION_STATES"),
            *(
                "LOCAL_ZONE_PARTITION_STATES",
                "LEARNERS",
                "ASSIGNMENTS",
                "AFFINITY",
                "PARTITION_MAP",
                "FAILURES",
            ),
            *("OPERATIONS", "OPERATION_HISTORY", "STORE_COPIES", "SNAPSHOT", "USERS", "ROLES", "GRANTS"),
        ),
        ANYBODY,
    ),
    "NODES": _SEES_SYSTEM,
    "ALERTS": _SEES_SYSTEM,
    "SQL_QUERIES": _SEES_SYSTEM,
    "EXCHANGES": SEES_ALL_ZONES,
    "EVENTS": _AUDITS,
    "AUDIT": _AUDITS,
}
"""Views of the schema SYSTEM by name. Those of other schemas describe the views, and are open to any user."""

EXPLAIN_PARTITION = "EXPLAIN PARTITION"
SHOWS_MORE: Mapping[str, Privilege] = {
    **dict.fromkeys(("USERS", "ROLES", "GRANTS"), Privilege.ADMIN),
    "SQL_QUERIES": Privilege.OPERATE,
    EXPLAIN_PARTITION: Privilege.SEE,
}
"""Privilege on the system that shows rows, or cells, which others who may ask do not see."""


def check_complete(views: Iterable[str]) -> None:
    """Check the tables. ``views``: those of the schema SYSTEM. Raises RuntimeError for one without a row, and
    for rows of nothing."""
    rows: tuple[tuple[str, set[object], set[object]], ...] = (
        ("commands", set(COMMANDS), set(get_args(Command))),
        ("procedures", set(PROCEDURES), set(Procedure)),
        ("questions", set(QUESTIONS), set(ShowKind)),
        ("views", set(VIEWS), set(views)),
    )
    for what, table, there in rows:
        if table != there:
            different = ", ".join(sorted(str(one) for one in table ^ there))
            raise RuntimeError(f"the table of privileges and the {what} differ in: {different}")


def require(caller: Caller, snapshot: CatalogSnapshot, need: Need | None, position: Position | None) -> None:
    """Check the privilege for a statement that names no zone. Raises RefusedError (PRIVILEGE_MISSING)."""
    if need is not None:
        _require_on(caller, snapshot, need, SYSTEM if need.on is ObjectKind.SYSTEM else ALL_ZONES, position)


def authorised(snapshot: CatalogSnapshot, command: Command, caller: Caller) -> CatalogSnapshot:
    """Authorise a command, and return the catalog on which to run it: a zone that the caller may not see does
    not exist in it, so that the command ends accordingly. Raises RefusedError (PRIVILEGE_MISSING)."""
    need = COMMANDS[type(command)]
    if isinstance(command, PrincipalCommand | CreateZone | SetDefaultZone):
        require(caller, snapshot, need, command.position)
        return snapshot
    if isinstance(command, CreateTable):
        return _authorised_table(snapshot, command, caller)
    if isinstance(command, AlterZone | RenameZone | DropZone):
        zone = snapshot.zone(command.name.text)
    else:
        table = snapshot.table(command.name.text)
        zone = None if table is None else snapshot.zone_of(table)
    return snapshot if zone is None else _authorised_on(snapshot, zone, need, caller, command.name.position)


def authorise_call(snapshot: CatalogSnapshot, call: Call, caller: Caller) -> CatalogSnapshot:
    """Authorise a call as ``authorised`` does. Where one zone of that name is hidden, the call may be for
    another spelling of the name."""
    need = PROCEDURES[call.procedure]
    while (zone := called_zone(snapshot, call)) is not None:
        known = _authorised_on(snapshot, zone, need, caller, call.position)
        if known is snapshot:
            break
        snapshot = known
    return snapshot


def authorise_restored(snapshot: CatalogSnapshot, zone: Zone, caller: Caller) -> None:
    """Authorise the reversal of an operation, which alters its zone. Raises RefusedError (PRIVILEGE_MISSING,
    and ZONE_NOT_FOUND for a zone that the caller may not see)."""
    if _authorised_on(snapshot, zone, COMMANDS[AlterZone], caller, None) is not snapshot:
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, f"zone {zone.name} does not exist")


def called_zone(snapshot: CatalogSnapshot, call: Call) -> Zone | None:
    """The zone that a call names: the name is a text, read as in an address."""
    return next(filter(None, map(snapshot.zone, spellings(call.zone.value))), None)


def only_zones(snapshot: CatalogSnapshot, zones: Iterable[Zone]) -> CatalogSnapshot:
    """The catalog with these of its zones, and their tables; ids and version are the same."""
    left = tuple(zones)
    ids = {zone.zone_id for zone in left}
    default = snapshot.default_zone_id if snapshot.default_zone_id in ids else None
    tables = tuple(table for table in snapshot.tables if table.zone_id in ids)
    return replace(snapshot, zones=left, tables=tables, default_zone_id=default, zones_by_name=None)


def visible_catalog(snapshot: CatalogSnapshot, caller: Caller) -> CatalogSnapshot:
    """The catalog with the zones that the caller may see."""
    seen = caller.seen_zones(snapshot.grants, (zone.zone_id for zone in snapshot.zones))
    return snapshot if seen is None else only_zones(snapshot, (z for z in snapshot.zones if z.zone_id in seen))


def _authorised_table(snapshot: CatalogSnapshot, command: CreateTable, caller: Caller) -> CatalogSnapshot:
    """Authorise CREATE TABLE: in the default zone where it names none, which the first table makes."""
    need = COMMANDS[CreateTable]
    if command.zone is not None:
        zone = snapshot.zone(command.zone.text)
        if zone is not None:
            snapshot = _authorised_on(snapshot, zone, need, caller, command.zone.position)
    else:
        target = ALL_ZONES if snapshot.default_zone_id is None else zone_object(snapshot.default_zone_id)
        _require_on(caller, snapshot, need, target, command.name.position)
    existing = snapshot.table(command.name.text)
    home = None if existing is None else snapshot.zone_of(existing)
    if home is None or caller.may(snapshot.grants, Privilege.SEE, zone_object(home.zone_id)):
        return snapshot
    # That the name is taken is told, and not where.
    others = tuple(zone for zone in snapshot.zones if zone is not home)
    return replace(snapshot, zones=others, zones_by_name=None)


def _authorised_on(
    snapshot: CatalogSnapshot, zone: Zone, need: Need, caller: Caller, position: Position | None
) -> CatalogSnapshot:
    decision = caller.decide(snapshot.grants, need.privilege, zone_object(zone.zone_id))
    if decision.access is Permission.HIDDEN:
        return only_zones(snapshot, [other for other in snapshot.zones if other is not zone])
    if not decision.is_allowed:
        raise _missing(decision.reason.replace("the zone", f"ZONE {zone.name}"), position)
    return snapshot


def _require_on(
    caller: Caller, snapshot: CatalogSnapshot, need: Need, target: GrantObject, position: Position | None
) -> None:
    decision = caller.decide(snapshot.grants, need.privilege, target)
    if not decision.is_allowed:
        raise _missing(decision.reason.replace("the zone", "the default zone"), position)


def _missing(reason: str, position: Position | None) -> RefusedError:
    return RefusedError(ErrorKind.PRIVILEGE_MISSING, reason, position)
