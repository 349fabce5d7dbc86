"""What a logged script does, and its results as the log keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.requests.errors import problem
from app.sql.jobs.statement_runner import RunningJob, Work, canceled
from app.sql.statements.results import HELD
from app.sql.statements.statement_outcomes import QueryResult, ScriptError, ShownResult
from catalog.core.statement_log import Json, LoggedOutcome, StatementState
from catalog.store.statement_log import pack

ROWS_IN_PAGE = 1000

RunScript = Callable[[str], Awaitable[Sequence[ShownResult]]]


def script_work(sql: str, run_script: RunScript) -> Work:
    """When it is canceled, it ends while it is being read, and when it only asks; changes that have begun are
    never cut short."""

    async def work(job: RunningJob) -> LoggedOutcome:
        running = await job.run_unless_canceled(run_script(sql))
        if running.cancelled():
            raise canceled("nothing was changed")
        try:
            results = running.result()
        except ScriptError as failed:
            heads, pages = _kept(failed.results)
            return LoggedOutcome(StatementState.FAILED, heads, pages, error=problem(failed))
        heads, pages = _kept(results)
        return LoggedOutcome(StatementState.SUCCEEDED, heads, pages)

    return work


def _kept(done: Sequence[ShownResult]) -> tuple[tuple[Json, ...], tuple[tuple[int, int, bytes], ...]]:
    """Results without their rows, and the rows in pages."""
    pages: list[tuple[int, int, bytes]] = []
    results: list[Json] = []
    for number, shown in enumerate(done, start=1):
        results.append(result := shown.to_json())
        if not isinstance(shown, QueryResult):
            continue
        if shown.answer.held:
            result[HELD] = shown.answer.held
        rows: list[Any] = list(result.pop("data") or ())
        result["row_count"] = len(rows)
        for page, start in enumerate(range(0, len(rows), ROWS_IN_PAGE)):
            pages.append((number, page, pack(rows[start : start + ROWS_IN_PAGE])))
    return tuple(results), tuple(pages)
