"""What a statement gives back, whatever protocol asked: columns and rows, or what a DDL statement did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from catalog.core.snapshot import StatementWarning
from catalog.core.zone import ZoneId


class ColumnType(Enum):
    """The value is the name that SQL clients know. Timestamps are milliseconds, in UTC."""

    BIGINT = "bigint"
    INTEGER = "integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    VARCHAR = "varchar"
    TIMESTAMP = "timestamp(3)"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class ResultSet:
    """``rows`` hold JSON-ready values in column order. For DDL: no columns, ``update_type`` (CREATE ZONE, ...),
    ``applied``, ``effect``, the zone and the catalog version after it."""

    columns: tuple[Column, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    update_type: str | None = None
    applied: bool | None = None
    effect: dict[str, Any] | None = None
    zone_id: ZoneId | None = None
    catalog_version: int | None = None
    warnings: tuple[StatementWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a client said of its session; ``catalog`` and ``schema`` qualify unqualified names."""

    user: str = ""
    catalog: str = "zonekeeper"
    schema: str = "system"
    in_transaction: bool = False
    properties: dict[str, str] = field(default_factory=dict)


class StatementEngine(Protocol):
    """Runs one statement of any kind. Blocks nothing but its own task; cancelling the task cancels a query
    (a DDL statement that is being committed is committed)."""

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """Raises StatementError."""
        ...
