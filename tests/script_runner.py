"""Scripts on a catalog without a server around it: text in, results out, as the server's SQL engine does it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from app.sql.statements import ScriptError, StatementResult
from catalog.core.audit import NOBODY, Actor
from catalog.core.batch import CommandScript, NewVersion, ScriptRun, StatementStamp
from catalog.core.errors import StatementError
from catalog.core.snapshot import CatalogEntry, CatalogSnapshot, Topology
from catalog.service import CatalogService
from parser.to_command import parse_ddl, parse_single

_numbers = itertools.count(1)


def script_of(
    sql: str,
    topology: Topology,
    *,
    base_version: int | None = None,
    actor: Actor = NOBODY,
    statement_ids: Sequence[str] = (),
) -> CommandScript:
    """Without ``statement_ids`` each statement gets one of its own."""
    commands = parse_ddl(sql)
    ids = tuple(statement_ids) or tuple(f"test-{next(_numbers)}" for _ in commands)
    return CommandScript(commands, topology, ids, actor, base_version)


def results_of(run: ScriptRun) -> list[StatementResult]:
    """Raises ScriptError."""
    results = [StatementResult.of(n, executed) for n, executed in enumerate(run.done, start=1)]
    if isinstance(run.error, StatementError):
        raise ScriptError(run.error, results) from run.error
    assert run.error is None
    return results


def new_version(
    base: CatalogSnapshot, entries: tuple[CatalogEntry, ...], statement_id: str, text: str = ""
) -> NewVersion:
    """Past the statement and its checks: as an earlier release, or somebody with the database, wrote it."""
    return NewVersion(base.after(entries), entries, StatementStamp(statement_id, text))


class ScriptRunner:
    """Runs one script after another."""

    def __init__(self, service: CatalogService) -> None:
        self._service = service

    def run(
        self, sql: str, topology: Topology, *, single: bool = False, parameters: Sequence[object] = ()
    ) -> list[StatementResult]:
        """``single``: exactly one statement, with ``parameters``. Raises ScriptError."""
        try:
            if single:
                parse_single(sql, parameters=parameters)
            script = script_of(sql, topology)
        except StatementError as error:
            raise ScriptError(error, ()) from error
        (run,) = self._service.execute_together([script])
        return results_of(run)
