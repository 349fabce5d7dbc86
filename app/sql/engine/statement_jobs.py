"""Logged statements: their runs, the waits for them, the log of a script, and the end of those whose server
died.

A statement is inserted into the log before it runs; the server that inserted it runs it, all others read. While
it runs its server renews a lease. When the lease has run out, the next server that is asked takes the statement
over, reads the catalog's history and writes down how it ended (``outcome_of_abandoned``). Nothing is executed a
second time. Changes in the history have happened; of others the answer says that they are not there, and that
the server may have been about to make them.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import structlog

from app.requests.context import current_actor, current_caller, current_principal, current_scope
from app.requests.errors import problem
from app.security.standing import StandingWatch
from app.sql.statements.results import HELD, QueryResult, ScriptError, ShownResult
from app.sql.statements.script_reader import ScriptReader
from app.sql.statements.statement_line import StatementLine, StatementTurn, accepted, numbered
from app.sql.statements.statement_meter import StatementMeter
from catalog.core.authorisation import SYSTEM, Privilege
from catalog.core.credentials import scope_text
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.statement_log import (
    CommittedStatement,
    Json,
    LoggedOutcome,
    NewStatement,
    StatementProgress,
    StatementRow,
    StatementState,
    key_of_scope,
)
from catalog.store.statement_log import SqlStatementLog, pack
from parser.script import first_words, split_script
from parser.text import OWN_TEXT
from rebalance.core.backoff import Backoff
from rebalance.hosting.client_connections import network_of

TRINO = "trino"
REST = "rest"

WAIT_INTERRUPTED: Json = {
    "name": "WAIT_INTERRUPTED",
    "message": "the server that waited for the data stopped; the change stays and the data still moves",
}
DONE_COLUMNS = [["result", "boolean"]]
DONE_PAGE = (1, 0, pack([[True]]))
NOT_APPLIED_PAGE = (1, 0, pack([[False]]))
"""Page of a statement that had nothing to do: IF [NOT] EXISTS."""


def outcome_of_abandoned(
    row: StatementRow, committed: Sequence[CommittedStatement], in_catalog: int
) -> LoggedOutcome:
    """``in_catalog`` is the catalog's newest version: what a statement that changed nothing saw.

    A single DDL statement that is in the history has succeeded, and so has one whose results were reported
    before its server died (it only waited for data to arrive). Anything else has an unknown outcome.
    """
    if row.heads:
        pages = (DONE_PAGE,) if row.protocol == TRINO else ()
        warnings = (*row.warnings, WAIT_INTERRUPTED)
        return LoggedOutcome(StatementState.SUCCEEDED, row.heads, pages, warnings=warnings)
    texts = [piece.text for piece in split_script(row.sql, OWN_TEXT)]
    if committed and len(texts) == len(committed):
        if row.protocol == TRINO:
            heads: tuple[dict[str, Any], ...] = (done_head(row.sql, committed[-1].version),)
            return LoggedOutcome(StatementState.SUCCEEDED, heads, (DONE_PAGE,))
        results = tuple(_result(statement, texts[statement.n - 1]) for statement in committed)
        return LoggedOutcome(StatementState.SUCCEEDED, results)
    if committed:
        done = ", ".join(f"{statement.n} (version {statement.version})" for statement in committed)
        happened = f"of its statements these are in the catalog's history: {done}"
    else:
        happened = f"it is not in the catalog's history up to version {in_catalog}"
    error = StoreError(
        ErrorKind.OUTCOME_UNKNOWN, f"the server that ran the statement stopped answering; {happened}"
    )
    return LoggedOutcome(StatementState.FAILED, error=problem(error))


def done_head(sql: str, catalog_version: int | None, update_type: str | None = None) -> dict[str, Any]:
    """The head of a statement that returns no rows of its own, as SQL clients expect it: one row, TRUE, or
    FALSE when there was nothing to do."""
    return {
        "columns": DONE_COLUMNS,
        "row_count": 1,
        "update_type": update_type or first_words(sql, 2),
        "catalog_version": catalog_version,
    }


def _result(committed: CommittedStatement, sql: str) -> dict[str, Any]:
    return {
        "n": committed.n,
        "sql": sql,
        "applied": True,
        "effect": {"op": sql.split()[0].lower(), "zone": committed.zone},
        "zone_id": committed.zone_id,
        "catalog_version": committed.version,
        "warnings": [],
    }


def new_statement(protocol: str, shown: str, key: str | None = None) -> NewStatement:
    """Make a statement of the present caller. ``shown``: its text as it may be kept; ``key``: what its
    repetitions have in common."""
    scope = scope_text(current_scope())
    key, principal = key_of_scope(key, scope), current_principal()
    return NewStatement(uuid.uuid4().hex, protocol, shown, text_digest(shown), key, principal, scope)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


log = structlog.get_logger(__name__)
T = TypeVar("T")

POLL_S = 0.1
PURGE_EVERY_S = 60.0
FINISH_ATTEMPTS_MAX = 10
FINISH_RETRY = Backoff(0.2, 2.0)
_STATEMENT_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StatementGate:
    """The gate that statements pass, however they came. ``reader`` is closed with the engine; in ``line``
    statements wait for their turn. ``watch`` None: no login is required."""

    reader: ScriptReader = field(default_factory=ScriptReader)
    line: StatementLine = field(default_factory=StatementLine)
    meter: StatementMeter = field(default_factory=StatementMeter)
    watch: StandingWatch | None = None


@dataclass(frozen=True, slots=True)
class JobLimits:
    """``lease_s`` exceeds what a store may take to come back; ``kept_s`` is how long results are there.
    ``for_data_max``: statements that are to wait for data, which may take days; ``for_data_of_address`` leaves
    room for those of other addresses."""

    lease_s: float = 15.0
    renew_s: float = 1.0
    kept_s: float = 15 * 60.0
    for_data_max: int = 200
    for_data_of_address: int = 120


class CatalogThread(Protocol):
    """The catalog's worker thread, as far as the log needs it."""

    async def on_log(self, act: Callable[[SqlStatementLog], T]) -> T: ...

    async def snapshot(self) -> CatalogSnapshot: ...

    async def settled(self) -> None: ...


@dataclass
class RunningJob:
    """A statement that this server runs, as ``owner`` in the log. ``reached`` is set when its work has said
    something, or is over."""

    statement_id: str
    owner: str
    turn: StatementTurn
    address: str
    for_data: bool
    catalog: CatalogThread
    watch: StandingWatch | None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    progress: StatementProgress | None = None
    task: asyncio.Task[None] = field(init=False)

    async def report(self, heads: tuple[Json, ...], warnings: tuple[Json, ...]) -> None:
        """Results and warnings that are sure, before the work is over."""
        await self.catalog.on_log(
            lambda log: log.report(self.statement_id, self.owner, heads, warnings, self.progress)
        )
        self.reached.set()

    async def committed(self) -> tuple[CommittedStatement, ...]:
        """The catalog versions that the work has made so far."""
        return await self.catalog.on_log(lambda log: log.committed(self.statement_id))

    async def run_unless_canceled(
        self, work: Awaitable[T], timeout_s: float | None = None
    ) -> asyncio.Future[T]:
        """``work``, which is over. When the client canceled the statement, or time was over, it was cancelled,
        but for changes that had begun."""
        running = asyncio.ensure_future(work)
        unwanted = asyncio.create_task(self.cancel.wait())
        try:
            await asyncio.wait([running, unwanted], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unwanted.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
        return running


Work = Callable[[RunningJob], Awaitable[LoggedOutcome]]
"""Does what the statement says; watches ``cancel`` itself. Raises StatementError."""


class StatementJobs:
    """One server's share of the log. ``run`` must run; ``close`` ends what still does."""

    def __init__(
        self,
        catalog: CatalogThread,
        limits: JobLimits | None = None,
        gate: StatementGate | None = None,
        position: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """``gate``: that of the engine. ``position`` of a statement in the line of queries, None for one that
        does not wait there."""
        gate = gate or StatementGate()
        self._reader, self._line, self._watch = gate.reader, gate.line, gate.watch
        self._catalog = catalog
        self.on_log = catalog.on_log
        self._query_position = position
        self._limits = limits or JobLimits()
        self._owner = uuid.uuid4().hex
        self._jobs: dict[str, RunningJob] = {}

    async def submit(
        self, new: NewStatement, work: Work, *, for_data: bool = False
    ) -> tuple[StatementRow, bool]:
        """The statement's row, and whether it is new: then ``work`` is running, or waits for its turn.
        ``for_data``: it is to wait for data when it has changed a zone.

        Raises StoreError, and RefusedError: TOO_MANY_STATEMENTS, CLIENT_STATEMENT_LIMIT.
        """
        if for_data:
            self._check_for_data(network_of(current_actor().address))
        turn = self._line.arrive()
        is_begun = False
        try:
            row, is_begun = await self.on_log(
                lambda log: log.submit(new, self._owner, self._limits.lease_s, self._limits.kept_s)
            )
        finally:
            if not is_begun:
                self._line.leave(turn)
        if is_begun:
            of_job = new.statement_id, self._owner, turn, current_actor().address, for_data
            job = self._jobs[new.statement_id] = RunningJob(*of_job, self._catalog, self._watch)
            job.task = asyncio.create_task(self._run_job(job, work), name=f"statement {job.statement_id}")
        return row, is_begun

    def position(self, statement_id: str) -> int | None:
        """Position in line of a statement that waits for its turn, or whose query does; None: it does not
        wait."""
        job = self._jobs.get(statement_id)
        before = None if job is None else self._line.position(job.turn)
        return self._query_position(statement_id) if before is None else before

    async def read(self, statement_id: str) -> StatementRow | None:
        """The row as it is now; one that was abandoned is brought to its end first. None for one that does not
        exist, and for another user's that the caller may not see."""
        if not _STATEMENT_ID.fullmatch(statement_id):
            return None
        row, now_us = await self.on_log(lambda log: (log.read(statement_id), log.now_us()))
        if row is None or not await self._may_look_at(row):
            return None
        if statement_id not in self._jobs and row.is_abandoned(now_us):
            lease_s = self._limits.lease_s
            if await self.on_log(lambda log: log.take_over(statement_id, self._owner, lease_s)):
                await self._write_end(row)
            return await self._row(statement_id)
        return row

    async def require_results(self, row: StatementRow) -> None:
        """Require that the caller may see what the statement's answers have shown its sender.

        Raises RefusedError (PRIVILEGE_MISSING) and StoreError."""
        if self._watch is not None:
            for held in {head[HELD] for head in row.heads if HELD in head}:
                await self._watch.require(held)

    def _check_for_data(self, network: str) -> None:
        """Raises RefusedError."""
        limits, waiting = self._limits, [network_of(job.address) for job in self._jobs.values() if job.for_data]
        if len(waiting) >= limits.for_data_max:
            message = f"{limits.for_data_max} statements wait for data here already"
            raise RefusedError(ErrorKind.TOO_MANY_STATEMENTS, message)
        if waiting.count(network) >= limits.for_data_of_address:
            message = f"{limits.for_data_of_address} statements of this address wait for data here already"
            raise RefusedError(ErrorKind.CLIENT_STATEMENT_LIMIT, message)

    async def _may_look_at(self, row: StatementRow) -> bool:
        """True for the statement's sender, unless its token is too narrow, and for a caller that may operate
        the system."""
        caller = current_caller()
        if caller is None or row.is_within(caller):
            return True
        return caller.may((await self._catalog.snapshot()).grants, Privilege.OPERATE, SYSTEM)

    async def wait(self, statement_id: str, hold_s: float, *, for_report: bool = False) -> StatementRow | None:
        """The row once the statement is over, or after ``hold_s``.

        ``for_report``: or once it has reported, which tells warnings and what a DDL statement did.
        """
        deadline = time.monotonic() + hold_s
        while True:
            job = self._jobs.get(statement_id)
            left = deadline - time.monotonic()
            if job is not None and left > 0:
                awaited = asyncio.create_task(job.reached.wait()) if for_report else job.task
                await asyncio.wait([awaited], timeout=left)
                if for_report and not awaited.done():
                    awaited.cancel()
            row = await self.read(statement_id)
            left = deadline - time.monotonic()
            if row is None or row.state.is_over or left <= 0 or (for_report and row.heads):
                return row
            await asyncio.sleep(min(POLL_S, left))

    def progress(self, row: StatementRow) -> StatementProgress | None:
        """The newest that this server knows."""
        job = self._jobs.get(row.statement_id)
        return (job.progress if job is not None else None) or row.progress

    async def rows(self, statement_id: str, result: int, page: int) -> list[list[object]] | None:
        return await self.on_log(lambda log: log.page(statement_id, result, page))

    async def cancel(self, statement_id: str) -> None:
        """A request; what is being committed is committed. The server that runs the statement sees it within a
        second."""
        job = self._jobs.get(statement_id)
        if job is not None:
            job.cancel.set()
        await self.on_log(lambda log: log.request_cancel(statement_id))

    async def run(self) -> None:
        """Renew leases, carry out requests to cancel, and remove expired statements, until cancelled."""
        purged = time.monotonic()
        while True:
            await asyncio.sleep(self._limits.renew_s)
            try:
                if self._jobs:
                    unwanted = await self.on_log(lambda log: log.renew(self._owner, self._limits.lease_s))
                    for statement_id in unwanted & self._jobs.keys():
                        self._jobs[statement_id].cancel.set()
                if time.monotonic() - purged > PURGE_EVERY_S:
                    purged = time.monotonic()
                    await self.on_log(lambda log: log.purge())
            except StoreError as error:
                log.warning("the statement log does not answer", error=str(error))

    async def close(self) -> None:
        """Stops what runs. The catalog's thread has finished its commits when it is asked how they ended."""
        jobs = dict(self._jobs)
        for job in jobs.values():
            job.task.cancel()
        await asyncio.gather(*(job.task for job in jobs.values()), return_exceptions=True)
        await self._catalog.settled()
        for statement_id in jobs:
            try:
                row = await self._row(statement_id)
                if row is not None and not row.state.is_over:
                    await self._write_end(row)
            except StoreError as error:
                log.warning("a statement is left to other servers", id=statement_id, error=str(error))

    async def _run_job(self, job: RunningJob, work: Work) -> None:
        try:
            await self._finish(job.statement_id, await self._outcome(job, work))
        finally:
            job.reached.set()
            self._line.leave(job.turn)
            del self._jobs[job.statement_id]

    async def _outcome(self, job: RunningJob, work: Work) -> LoggedOutcome:
        try:
            with numbered(job.statement_id), accepted(job.turn):
                return await work(job)
        except StatementError as error:
            canceled = error.kind is ErrorKind.STATEMENT_CANCELED
            state = StatementState.CANCELED if canceled else StatementState.FAILED
            return LoggedOutcome(state, error=problem(error))
        except Exception as error:
            log.exception("statement failed", id=job.statement_id, exc_info=error)
            return LoggedOutcome(StatementState.FAILED, error=problem(error))

    async def _finish(self, statement_id: str, outcome: LoggedOutcome) -> None:
        """Repeated while the database is away; given up, the statement is left to the server that is asked for
        it next."""
        retry = FINISH_RETRY
        for _ in range(FINISH_ATTEMPTS_MAX):
            try:
                await self.on_log(
                    lambda log: log.finish(statement_id, self._owner, outcome, self._limits.kept_s)
                )
                return
            except StoreError as error:
                log.warning("an outcome is not logged yet", id=statement_id, error=str(error))
                retry = retry.failed()
                await asyncio.sleep(retry.delay_s(random.random()))

    async def _row(self, statement_id: str) -> StatementRow | None:
        return await self.on_log(lambda log: log.read(statement_id))

    async def _write_end(self, row: StatementRow) -> None:
        committed = await self.on_log(lambda log: log.committed(row.statement_id))
        newest = (await self._catalog.snapshot()).version
        outcome = await self._reader.run(len(row.sql), lambda _: outcome_of_abandoned(row, committed, newest))
        log.warning("statement abandoned", id=row.statement_id, state=outcome.state.value)
        await self._finish(row.statement_id, outcome)


def canceled(what_stays: str) -> RefusedError:
    """The error of a statement that its client canceled."""
    return RefusedError(ErrorKind.STATEMENT_CANCELED, f"canceled by the client; {what_stays}")


ROWS_IN_PAGE = 1000

RunScript = Callable[[str], Awaitable[Sequence[ShownResult]]]


def script_work(sql: str, run_script: RunScript) -> Work:
    """Work of a script. When it is canceled, it ends while it is being read, and when it only asks; changes
    that have begun are never cut short."""

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
        pages.extend(paged(number, rows))
    return tuple(results), tuple(pages)


def paged(result: int, rows: Sequence[Any]) -> Iterator[tuple[int, int, bytes]]:
    for page, start in enumerate(range(0, len(rows), ROWS_IN_PAGE)):
        yield result, page, pack(rows[start : start + ROWS_IN_PAGE])
