"""What a statement gives back, whatever protocol asked: columns and rows, or what a DDL statement did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

from catalog.core.snapshot import StatementWarning
from catalog.core.zone import ZoneId

HELD = "held"
"""Of the head of a logged result: ``ResultSet.held``."""


@dataclass(frozen=True, slots=True)
class ResultType:
    """``value`` is the type as SQL clients write it: ``bigint``, ``decimal(38,0)``, ``array(date)``. Below are
    the types of our own views; those of a query's columns are any. A view's timestamps are milliseconds, in
    UTC."""

    value: str

    BIGINT: ClassVar[ResultType]
    INTEGER: ClassVar[ResultType]
    DOUBLE: ClassVar[ResultType]
    BOOLEAN: ClassVar[ResultType]
    VARCHAR: ClassVar[ResultType]
    TIMESTAMP: ClassVar[ResultType]
    JSON: ClassVar[ResultType]


ResultType.BIGINT = ResultType("bigint")
ResultType.INTEGER = ResultType("integer")
ResultType.DOUBLE = ResultType("double")
ResultType.BOOLEAN = ResultType("boolean")
ResultType.VARCHAR = ResultType("varchar")
ResultType.TIMESTAMP = ResultType("timestamp(3)")
ResultType.JSON = ResultType("json")


def timestamp_text(at_ms: int) -> str:
    """As clients read it: UTC, with milliseconds."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}"


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """``comment``: of a view's column, its meaning. ``sums``: over all zones, so it is empty for who
    does not see them all."""

    name: str
    type: ResultType
    comment: str = field(default="", compare=False)
    sums: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ResultSet:
    """``rows`` hold JSON-ready values in column order. For DDL: no columns, ``update_type`` (CREATE ZONE, ...),
    ``applied``, ``effect``, the zone and the catalog version after it. ``held``: what a
    reader of the rows has to hold, as ``Permit.shown`` writes it; empty where nobody has to log in."""

    columns: tuple[AnswerColumn, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    update_type: str | None = None
    applied: bool | None = None
    effect: dict[str, Any] | None = None
    zone_id: ZoneId | None = None
    catalog_version: int | None = None
    warnings: tuple[StatementWarning, ...] = ()
    held: str = ""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a client said of its session; ``catalog`` and ``schema`` qualify unqualified names. ``time_zone`` is
    a name or an offset as ``+01:00``: timestamps with a zone are shown in it."""

    user: str = ""
    catalog: str = "zonekeeper"
    schema: str = "system"
    in_transaction: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    time_zone: str = "UTC"


class StatementEngine(Protocol):
    """Runs one statement of any kind. Blocks nothing but its own task; cancelling the task cancels a query
    (a DDL statement that is being committed is committed)."""

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """Raises StatementError."""
        ...
