"""Answers of statements for all protocols: columns and rows, the effect of a DDL statement, the results of a
script, and the error that ended one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from catalog.core.errors import StatementError
from catalog.core.snapshot import StatementWarning, ZoneEntry
from catalog.core.statement_batch import ExecutedStatement
from catalog.core.zone import ZoneId

HELD = "held"
"""Key of ``ResultSet.held`` in the head of a logged result."""


@dataclass(frozen=True, slots=True)
class ResultType:
    """``value`` is the type as SQL clients write it: ``bigint``, ``decimal(38,0)``, ``array(date)``."""

    value: str


BIGINT, INTEGER, DOUBLE = ResultType("bigint"), ResultType("integer"), ResultType("double")
BOOLEAN, VARCHAR = ResultType("boolean"), ResultType("varchar")
TIMESTAMP, JSON = ResultType("timestamp(3)"), ResultType("json")
"""The types of our own views; those of a query's columns are any. Timestamps are milliseconds, in UTC."""


def timestamp_text(at_ms: int) -> str:
    """Write a time as clients read it: UTC, with milliseconds."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}"


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """``comment``: of a view's column, its meaning. ``sums``: over all zones, so it is empty for a
    caller who may not see them all."""

    name: str
    type: ResultType
    comment: str = field(default="", compare=False)
    sums: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ResultSet:
    """``rows`` hold JSON-ready values in column order. For DDL: no columns, ``update_type`` (CREATE ZONE, ...),
    ``applied``, ``effect``, the zone and the catalog version after it. ``held``: what a
    reader of the rows has to hold, as ``Permit.shown`` writes it; empty where no login is required."""

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
    """Session as its client describes it; ``catalog`` and ``schema`` qualify unqualified names. ``time_zone``
    is a name or an offset as ``+01:00``: timestamps with a zone are shown in it."""

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


@dataclass(frozen=True, slots=True)
class StatementResult:
    """Result of one statement that changes the catalog. ``n`` counts from 1.

    ``zone_id`` is the zone whose data may move by it: None when there is no such zone, and for a statement that
    changed the catalog but no zone (a table, the default), for which nothing has to be waited for.
    """

    n: int
    sql: str
    applied: bool
    effect: dict[str, Any]
    zone_id: ZoneId | None
    catalog_version: int
    warnings: tuple[StatementWarning, ...] = ()

    @classmethod
    def of(cls, n: int, executed: ExecutedStatement) -> Self:
        change = executed.change
        moves = not change.entries or any(isinstance(entry, ZoneEntry) for entry in change.entries)
        return cls(
            n=n,
            sql=change.command.source,
            applied=change.applied,
            effect=dict(change.effect),
            zone_id=change.zone_id if moves else None,
            catalog_version=executed.version,
            warnings=change.warnings,
        )

    def to_json(self) -> dict[str, Any]:
        done = {"applied": self.applied, "effect": self.effect, "zone_id": self.zone_id}
        return _json(self.n, self.sql, done, self.catalog_version, self.warnings)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Answer to one question of a script; its JSON has the fields of a change, and the rows."""

    n: int
    sql: str
    answer: ResultSet

    def to_json(self) -> dict[str, Any]:
        answer, nothing = self.answer, dict.fromkeys(("applied", "effect", "zone_id"))
        return {
            **_json(self.n, self.sql, nothing, answer.catalog_version, answer.warnings),
            "columns": [{"name": column.name, "type": column.type.value} for column in answer.columns],
            "data": [list(row) for row in answer.rows],
        }


def _json(
    n: int, sql: str, done: dict[str, Any], version: int | None, warnings: Sequence[StatementWarning]
) -> dict[str, Any]:
    return {"n": n, "sql": sql, **done, "catalog_version": version, "warnings": shown_warnings(warnings)}


def shown_warnings(warnings: Sequence[StatementWarning]) -> list[dict[str, str]]:
    """Write warnings as every answer has them."""
    return [{"name": warning.name, "message": warning.message} for warning in warnings]


class ShownResult(Protocol):
    """Result of one statement of a script, of any kind, to be shown."""

    def to_json(self) -> dict[str, Any]: ...


class ScriptError(StatementError):
    """The error that ended a script, with the results of the statements before it: their effects stay."""

    def __init__(self, cause: StatementError, results: Sequence[ShownResult]) -> None:
        super().__init__(cause.kind, cause.message, cause.position, cause.statement)
        self.results = tuple(results)
