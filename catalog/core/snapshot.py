"""Changes that a command would make in the catalog: pure, so that it can be tried anywhere.

``apply_command`` is the only judge of a statement. The service commits what it returns, an offline checker
only shows it; both get the same answer for the same snapshot, command and nodes.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.core.messages import (
    AddColumns,
    AlterZone,
    Command,
    CreateTable,
    CreateZone,
    DropColumns,
    DropTable,
    DropZone,
    PrincipalCommand,
    RenameZone,
)
from catalog.core.node_filter import NodeFilters
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
from catalog.core.zone_changes import (
    alter_zone,
    create_zone,
    data_nodes_of,
    drop_zone,
    rename_zone,
    set_default_zone,
)

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
    if isinstance(command, RenameZone):
        return rename_zone(snapshot, command)
    if isinstance(command, DropZone):
        return drop_zone(snapshot, command)
    if isinstance(command, CreateTable):
        return create_table(snapshot, command, surroundings)
    if isinstance(command, AddColumns):
        return add_columns(snapshot, command)
    if isinstance(command, DropColumns):
        return drop_columns(snapshot, command)
    if isinstance(command, DropTable):
        return drop_table(snapshot, command)
    return set_default_zone(snapshot, command)
