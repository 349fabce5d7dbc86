"""What the statements of a script did, and the error that ended one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

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
        return {
            "n": self.n,
            "sql": self.sql,
            "applied": self.applied,
            "effect": self.effect,
            "zone_id": self.zone_id,
            "catalog_version": self.catalog_version,
            "warnings": [{"name": warning.name, "message": warning.message} for warning in self.warnings],
        }


class ShownResult(Protocol):
    """What one statement of a script came to, of whatever kind: all that is done with it is showing it."""

    def to_json(self) -> dict[str, Any]: ...


class ScriptError(StatementError):
    """The error that ended a script, with the results of the statements before it: their effects stay."""

    def __init__(self, cause: StatementError, results: Sequence[ShownResult]) -> None:
        super().__init__(cause.kind, cause.message, cause.position, cause.statement)
        self.results = tuple(results)
