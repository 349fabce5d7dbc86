"""SQL text in, results out: the script is read whole, then its statements are executed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from catalog.core.errors import ErrorKind, ParseError, StatementError
from catalog.core.messages import Command
from catalog.core.snapshot import Change, StatementWarning, Topology, ZoneEntry
from catalog.core.zone import ZoneId
from catalog.service import CatalogService, ChangeCheck, ExecutedStatement
from parser.to_command import parse_ddl, parse_single


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


class StatementRunner:
    """Runs scripts on the catalog. ``checks`` are limits beyond the catalog's rules, asked for each change."""

    def __init__(self, service: CatalogService, checks: Sequence[ChangeCheck] = ()) -> None:
        self._service = service
        self._checks = tuple(checks)

    def run(
        self,
        sql: str,
        topology: Topology,
        *,
        single: bool = False,
        parameters: Sequence[object] = (),
        base_version: int | None = None,
    ) -> list[StatementResult]:
        """Executes a script, each statement a catalog version of its own; ``single``: exactly one statement;
        ``base_version``: only if the catalog is at it still.

        ``parameters`` are values bound beside the text, which DDL has no place for.
        Raises ScriptError: for text that is not understood nothing was executed and ``results`` is empty; else
        ``statement`` is the number of the one that failed and ``results`` are those before it.
        """
        try:
            commands = (parse_single(sql),) if single else parse_ddl(sql)
            _check_parameters(commands, parameters)
        except StatementError as error:
            raise ScriptError(error, ()) from error
        return self.run_commands(commands, topology, base_version)

    def run_commands(
        self, commands: Sequence[Command], topology: Topology, base_version: int | None = None
    ) -> list[StatementResult]:
        """As ``run``, of a script that has been read."""
        results: list[StatementResult] = []
        try:
            for executed in self._service.execute_each(commands, topology, self._checks, base_version):
                results.append(_result(len(results) + 1, commands[len(results)], executed))
        except StatementError as error:
            raise ScriptError(error, results) from error
        return results


def _check_parameters(commands: Sequence[Command], parameters: Sequence[object]) -> None:
    if parameters:
        message = f"the statement takes no parameters, {len(parameters)} given"
        raise ParseError(ErrorKind.PARAMETERS_MISMATCH, message, commands[0].position, statement=1)


def _writes_zone(change: Change) -> bool:
    return any(isinstance(entry, ZoneEntry) for entry in change.entries)


def _result(n: int, command: Command, executed: ExecutedStatement) -> StatementResult:
    change = executed.change
    return StatementResult(
        n=n,
        sql=command.source,
        applied=change.applied,
        effect=dict(change.effect),
        zone_id=None if change.entries and not _writes_zone(change) else change.zone_id,
        catalog_version=executed.version,
        warnings=change.warnings,
    )
