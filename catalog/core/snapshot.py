"""Changes that a command would make in the catalog: pure, so that it can be tried anywhere.

``apply_command`` is the only judge of a statement. The service commits what it returns, an offline checker
only shows it; both get the same answer for the same snapshot, command and nodes.

Two checks are kept out of ``apply_command`` on purpose: that rebalancing is on for what moves data (VOL-097),
and that today's data nodes have room. A statement that they refuse is a good statement, and a check of a script
without a cluster leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from catalog.core.authorisation import ALL_ZONES, Caller, Grants, Privilege
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AddColumns,
    AlterZone,
    Command,
    CreateTable,
    CreateZone,
    DropColumns,
    DropTable,
    DropZone,
    Position,
    PrincipalCommand,
    RenameZone,
    SchemaCommand,
    SetDefaultZone,
    ZoneOption,
)
from catalog.core.principal_changes import change_principals
from catalog.core.table_changes import add_columns, create_table, drop_columns, drop_table
from catalog.core.versions import (
    CatalogEntry,
    CatalogSnapshot,
    Change,
    DefaultZoneEntry,
    EntryKind,
    StatementWarning,
    Surroundings,
    TableEntry,
    Topology,
    ZoneDefaults,
    ZoneEntry,
)
from catalog.core.zone import Zone
from catalog.core.zone_changes import (
    alter_zone,
    create_zone,
    data_nodes_of,
    drop_zone,
    rename_zone,
    set_default_zone,
)
from catalog.core.zone_options import NodeFilters, clause_position

STANDARD_DEFAULTS = ZoneDefaults()

__all__ = [
    "CatalogEntry",
    "CatalogSnapshot",
    "Change",
    "DefaultZoneEntry",
    "EntryKind",
    "StatementWarning",
    "TableEntry",
    "Topology",
    "ZoneDefaults",
    "ZoneEntry",
    "apply_command",
    "data_nodes_of",
]


def apply_command(
    snapshot: CatalogSnapshot,
    command: Command,
    topology: Topology,
    defaults: ZoneDefaults = STANDARD_DEFAULTS,
    *,
    filters: NodeFilters,
) -> Change:
    """Return what the command changes, or raise RefusedError: the first refusal in the documents' order of
    checks.

    Identifiers; options (unknown, duplicate, alterable, type, sign, mode); profiles exist; the filter matches
    a live node; static ranges, and CREATE's quorum bounds; existence; ALTER's quorum bounds; enough data nodes
    for the quorum. IF [NOT] EXISTS hides none of those before existence. The last one comes after it, so that
    a script of IF NOT EXISTS can be sent again while nodes are down.
    """
    change = _judged(snapshot, command, Surroundings(topology, defaults, filters))
    return change if change.entries else _without_effect(change)


def _without_effect(change: Change) -> Change:
    """Said alike of every command: an IF [NOT] EXISTS, and a change to what is already."""
    command = change.command
    if getattr(command, "if_not_exists", False):
        reason = "what it would create exists already"
    elif getattr(command, "if_exists", False) and change.effect["op"] == "noop" and change.before is None:
        reason = "what it names does not exist"
    else:
        reason = "it is like this already"
    warning = StatementWarning("NOTHING_CHANGED", f"nothing was changed: {reason}")
    return replace(change, applied=False, warnings=(*change.warnings, warning))


def _judged(snapshot: CatalogSnapshot, command: Command, surroundings: Surroundings) -> Change:
    if isinstance(command, PrincipalCommand):
        return change_principals(snapshot, command)
    if isinstance(command, CreateZone):
        return create_zone(snapshot, command, surroundings)
    if isinstance(command, AlterZone):
        return alter_zone(snapshot, command, surroundings)
    if isinstance(command, CreateTable):
        return create_table(snapshot, command, surroundings)
    return _CHANGES[type(command)](snapshot, command)


_CHANGES: dict[type[SchemaCommand], Callable[[CatalogSnapshot, Any], Change]] = {
    RenameZone: rename_zone,
    DropZone: drop_zone,
    SetDefaultZone: set_default_zone,
    AddColumns: add_columns,
    DropColumns: drop_columns,
    DropTable: drop_table,
}

PLACED = ("replicas", "quorum_size", "nodes_filter", "algorithm")
"""Fields of a zone that decide where its data is, and can be altered."""
TIMERS = ("auto_scale_up", "auto_scale_down")
"""Shorter ones apply what waits for them."""


def moves_data(before: Zone, after: Zone) -> tuple[str, ...]:
    """The parameters by which the change may move data, in the order of their list; empty: it moves none."""
    placed = [name for name in PLACED if getattr(before, name) != getattr(after, name)]
    return (*placed, *(name for name in TIMERS if getattr(after, name) < getattr(before, name)))


def check_rebalancing(change: Change, *, allowed: bool) -> None:
    """Refuses a change that may move data while rebalancing is not ``allowed``. A new zone has no data yet, and
    a dropped one moves none."""
    if allowed or change.before is None or change.after is None or not change.entries:
        return
    names = moves_data(change.before, change.after)
    if names:
        settings = ", ".join(name.upper().replace("_", " ") for name in names)
        raise rebalancing_disabled(f"a new {settings} of zone {change.after.name} moves its data")


def rebalancing_disabled(what: str) -> RefusedError:
    """``what`` moves data, as a whole sentence without its full stop."""
    message = f"{what}, and rebalancing is turned off: `zonectl rebalance limits --rebalancing` turns it on"
    return RefusedError(ErrorKind.REBALANCING_DISABLED, message)


class MemberLimitError(RefusedError):
    """NODE_MEMBER_LIMIT. Its message counts replicas of all zones; ``message_without_sums`` is for who does not
    see all of them."""

    def __init__(self, message: str, message_without_sums: str, position: Position | None) -> None:
        super().__init__(ErrorKind.NODE_MEMBER_LIMIT, message, position)
        self.message_without_sums = message_without_sums


def error_for(caller: Caller | None, grants: Grants, error: Exception) -> Exception:
    """The error as ``caller`` may know it: without sums over zones, for who does not see all of them."""
    if not isinstance(error, MemberLimitError) or caller is None:
        return error
    if caller.may(grants, Privilege.SEE, ALL_ZONES):
        return error
    return RefusedError(error.kind, error.message_without_sums, error.position, error.statement)


def check_member_limits(
    change: Change, topology: Topology, existing: Mapping[str, int], added: Mapping[str, int]
) -> None:
    """Refuses a change that would put more members on a node than it can hold; a learner's mirror is a process
    as a member is, and counts as one.

    ``existing`` counts the members that each node holds without this zone, ``added`` those that the change
    would put there; a node that a mapping leaves out has none. The node with the least room is named, with what
    would fit.
    """
    zone = change.after
    if zone is None or not change.entries:
        return
    crowded = [
        (node.member_limit - existing.get(node.name, 0) - added.get(node.name, 0), node)
        for node in topology
        if added.get(node.name, 0) > 0
    ]
    over, node = min(crowded, key=lambda pair: (pair[0], pair[1].name), default=(0, None))
    if node is None or over >= 0:
        return
    held, more = existing.get(node.name, 0), added[node.name]
    room = max(0, node.member_limit - held)
    message = (
        f"node {node.name} holds {held} replicas of other zones and may hold "
        f"{node.member_limit}; zone {zone.name} would need {more} there; {_what_fits(zone, more, room)}"
    )
    position = _position(change, ZoneOption.PARTITIONS, ZoneOption.REPLICAS)
    without_sums = (
        f"node {node.name} has no room for the {more} replicas that zone {zone.name} would need there; "
        "accepted with fewer PARTITIONS or REPLICAS, or once nodes are added"
    )
    raise MemberLimitError(message, without_sums, position)


def _what_fits(zone: Zone, needed: int, room: int) -> str:
    """Partitions in proportion to the room: members grow with partitions."""
    partitions = zone.partitions * room // needed
    if partitions < 1:
        return f"there is room for {room}, so no zone fits before nodes are added"
    return f"there is room for {room}, so about PARTITIONS {partitions} fits"


def _position(change: Change, *options: ZoneOption) -> Position | None:
    command = change.command
    if isinstance(command, (CreateZone, AlterZone)):
        return clause_position(command, *options)
    return command.position if isinstance(command, PrincipalCommand) else command.name.position
