"""What the statements of a script did, and the error that ended one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from app.sql.statements.results import ResultSet
from catalog.core.errors import StatementError
from catalog.core.snapshot import StatementWarning, ZoneEntry
from catalog.core.statement_batch import ExecutedStatement
from catalog.core.zone import ZoneId


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What one statement did. ``n`` counts from 1.

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
    """What one question of a script was answered; its JSON has the fields of a change, and the rows."""

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
    """As every answer has them."""
    return [{"name": warning.name, "message": warning.message} for warning in warnings]


class ShownResult(Protocol):
    """What one statement of a script came to, of whatever kind: all that is done with it is showing it."""

    def to_json(self) -> dict[str, Any]: ...


class ScriptError(StatementError):
    """The error that ended a script, with the results of the statements before it: their effects stay."""

    def __init__(self, cause: StatementError, results: Sequence[ShownResult]) -> None:
        super().__init__(cause.kind, cause.message, cause.position, cause.statement)
        self.results = tuple(results)
