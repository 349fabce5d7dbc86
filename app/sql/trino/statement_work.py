"""What a logged statement of the SQL protocol does: run it, and on request wait for the data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from app.requests.actor import current_caller
from app.sql.jobs.abandoned import DONE_PAGE, NOT_APPLIED_PAGE, done_head
from app.sql.jobs.statement_runner import RunningJob, Work, canceled
from app.sql.statements.results import HELD, ResultSet, StatementEngine
from app.sql.statements.statement_outcomes import shown_warnings
from app.sql.trino.pages import ROWS_IN_PAGE, wire_value
from app.sql.trino.session_headers import TrinoSession
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.statement_log import LoggedOutcome, StatementProgress, StatementState
from catalog.core.zone import ZoneId
from catalog.store.statement_log import pack
from parser.script import first_words

POLL_S = 0.2
CHANGES = frozenset({"CREATE", "ALTER", "DROP", "GRANT", "REVOKE"})

Progress = Callable[[ZoneId, int], Mapping[str, Any]]
"""``KeyspaceViews.progress``."""


def is_ddl(sql: str) -> bool:
    """By the first word that is no comment."""
    return first_words(sql, 1) in CHANGES


def statement_work(sql: str, session: TrinoSession, engine: StatementEngine, progress: Progress) -> Work:
    """The work of one statement in one session.

    A DDL statement is never cut short: what it did is what is said. A query ends when its client cancels it or
    its time is over, and so does waiting for data; then the change stays, and the error says so.
    """
    ddl = is_ddl(sql)

    async def work(job: RunningJob) -> LoggedOutcome:
        timeout_s = session.timeout_s
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        result = await _execute(job, engine, sql, session, None if ddl else deadline)
        warnings = tuple(shown_warnings(result.warnings))
        if result.columns:
            head = {
                "columns": [[column.name, column.type.value] for column in result.columns],
                "row_count": len(result.rows),
                **({HELD: result.held} if result.held else {}),
            }
            return LoggedOutcome(StatementState.SUCCEEDED, (head,), _pages(result), warnings=warnings)
        head = done_head(sql, result.catalog_version, result.update_type)
        if session.wait and result.zone_id is not None:
            # A change that asked for what was there made no version: its zone need not reach the newest.
            made = await job.committed()
            version = made[-1].version if made else 0
            shown = _with_total(progress, result)
            job.progress = _partitions(shown(result.zone_id, version))
            await job.report((head,), warnings)
            stays = f"catalog version {version} stays, and its data keeps moving"
            await job.while_allowed(_converged(job, shown, result.zone_id, version, deadline, stays), stays)
        page = NOT_APPLIED_PAGE if result.applied is False else DONE_PAGE
        return LoggedOutcome(
            StatementState.SUCCEEDED, (head,), (page,), warnings=warnings, progress=job.progress
        )

    return work


async def _execute(
    job: RunningJob,
    engine: StatementEngine,
    sql: str,
    session: TrinoSession,
    deadline: float | None,
) -> ResultSet:
    """A change that is being committed is committed, and its result is what is said."""
    left = None if deadline is None else max(deadline - time.monotonic(), 0)
    executing = await job.run_unless_canceled(engine.execute(sql, session.context), left)
    if not executing.cancelled():
        return executing.result()
    if job.cancel.is_set():
        raise canceled("nothing was changed")
    raise RefusedError(ErrorKind.STATEMENT_TIMED_OUT, "the query took longer than its timeout")


async def _converged(
    job: RunningJob, progress: Progress, zone_id: ZoneId, version: int, deadline: float | None, stays: str
) -> None:
    """Returns when the zone's data is where this version wants it."""
    while True:
        now = progress(zone_id, version)
        job.progress = _partitions(now)
        if now["state"] == "CONVERGED":
            return
        if job.cancel.is_set():
            raise canceled(stays)
        if deadline is not None and time.monotonic() > deadline:
            texts = (cause["cause"] for cause in now["causes"][:3])
            # A cause may count what other zones move: to callers its name.
            causes = ", ".join(text if current_caller() is None else text.partition(":")[0] for text in texts)
            message = f"not converged within the timeout ({causes}); {stays}"
            raise RefusedError(ErrorKind.STATEMENT_TIMED_OUT, message)
        await asyncio.sleep(POLL_S)


def _with_total(progress: Progress, result: ResultSet) -> Progress:
    """Before a new zone's intent is published its progress knows no partitions; the statement does."""
    total = ((result.effect or {}).get("params") or {}).get("partitions", 0)

    def with_total(zone_id: ZoneId, version: int) -> Mapping[str, Any]:
        now = progress(zone_id, version)
        if now["partitions"]["total"] or now["state"] == "CONVERGED":
            return now
        return {**now, "partitions": {**now["partitions"], "total": total}}

    return with_total


def _partitions(progress: Mapping[str, Any]) -> StatementProgress:
    return StatementProgress(progress["partitions"]["done"], progress["partitions"]["total"])


def _pages(result: ResultSet) -> tuple[tuple[int, int, bytes], ...]:
    rows = [
        [wire_value(value, column) for value, column in zip(row, result.columns, strict=True)]
        for row in result.rows
    ]
    starts = range(0, len(rows), ROWS_IN_PAGE)
    return tuple((1, page, pack(rows[start : start + ROWS_IN_PAGE])) for page, start in enumerate(starts))
