"""A table as the catalog keeps it: a name, columns, colocation columns, and where its rows live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from catalog.core.messages import shortened
from catalog.core.zone import ZoneId

TableId = NewType("TableId", int)
"""Given once, never used again, also after a drop."""

LENGTH_MAX = 2_147_483_647
_ARGUMENTS: dict[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "FLOAT", "DOUBLE"), ()),
    **dict.fromkeys(("DATE", "UUID"), ()),
    "DECIMAL": ((1, 32_767), (0, 32_767)),
    **dict.fromkeys(("CHAR", "VARCHAR", "BINARY", "VARBINARY"), ((1, LENGTH_MAX),)),
    **dict.fromkeys(("TIME", "TIMESTAMP", "TIMESTAMP WITH LOCAL TIME ZONE"), ((0, 9),)),
}
"""Type -> the inclusive range of each argument that it may have."""

KNOWN_TYPES = tuple(_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Column:
    """``type`` as SQL writes it, as ``DECIMAL(10, 2)``; ``default`` likewise, None where there is none."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table at one catalog version.

    Invariants: column names are distinct; ``primary_key`` names at least one of them; ``colocation`` is a
    non-empty part of the primary key; ``storage_profile`` is among the zone's; ``zone_id`` never changes.
    """

    table_id: TableId
    name: str
    zone_id: ZoneId
    storage_profile: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    colocation: tuple[str, ...]


def type_text(name: str, arguments: tuple[int, ...]) -> str:
    """The type as SQL writes it; arguments stand behind the first word: TIMESTAMP(3) WITH LOCAL TIME ZONE."""
    if not arguments:
        return name
    first, _, rest = name.partition(" ")
    return f"{first}({', '.join(map(str, arguments))})" + (f" {rest}" if rest else "")


def type_problem(name: str, arguments: tuple[int, ...], written: tuple[str, ...] = ()) -> str | None:
    """Return what is wrong with a type, as a sentence for a message; None when nothing is. ``written``: the
    arguments' texts, which messages show."""
    ranges = _ARGUMENTS.get(name)
    if ranges is None:
        return f"there is no type {name}; known: {', '.join(KNOWN_TYPES)}"
    if len(arguments) > len(ranges):
        return f"{name} takes {len(ranges) or 'no'} argument{'s' if len(ranges) > 1 else ''}"
    for at, (value, (lowest, highest)) in enumerate(zip(arguments, ranges, strict=False)):
        if not lowest <= value <= highest:
            shown = shortened(written[at]) if written else value
            return f"{name} takes a number from {lowest} to {highest}, not {shown}"
    if name == "DECIMAL" and len(arguments) == 2 and arguments[1] > arguments[0]:
        return f"the scale of {name} is at most its precision {arguments[0]}, not {arguments[1]}"
    return None
