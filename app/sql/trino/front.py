"""The SQL protocol without HTTP: what a POST, a GET and a DELETE mean, and what a logged statement of the
protocol does: run, and on request wait for the data."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote_plus

from app.requests.context import acting, current_actor, current_caller
from app.requests.errors import problem
from app.security.standing import while_allowed
from app.sql.engine.statement_jobs import (
    DONE_PAGE,
    NOT_APPLIED_PAGE,
    TRINO,
    RunningJob,
    StatementJobs,
    Work,
    canceled,
    done_head,
    new_statement,
    paged,
    text_digest,
)
from app.sql.statements.results import HELD, ResultSet, StatementEngine, shown_warnings
from app.sql.statements.script_reader import ScriptReader
from app.sql.trino.pages import page_body, page_count, wire_value
from app.sql.trino.trino_session import (
    Control,
    ControlKind,
    PreparedDescriber,
    TrinoSession,
    bind,
    check_property,
    literal,
    parse_control,
    plain,
)
from app.sql.views.metadata import rewrite_show
from app.sql.views.view_registry import CATALOG, check_place
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.statement_log import (
    REPEAT_PREFIX,
    LoggedOutcome,
    StatementProgress,
    StatementRow,
    StatementState,
)
from catalog.core.zone import ZoneId
from parser.hidden_secrets import hide_secrets
from parser.script import check_size, first_words
from parser.text import StopFlag

POLL_S = 0.2
CHANGES = frozenset({"CREATE", "ALTER", "DROP", "GRANT", "REVOKE"})

Progress = Callable[[ZoneId, int], Mapping[str, Any]]
"""``KeyspaceViews.progress``."""


def is_ddl(sql: str) -> bool:
    """True if the text is a change, by its first word that is no comment."""
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
            waiting = _converged(job, shown, result.zone_id, version, deadline, stays)
            await while_allowed(job.watch, waiting, stays)
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
    """Progress with the statement's own number of partitions as long as a new zone's progress knows none: its
    intent is not published yet."""
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
    return tuple(paged(1, rows))


FIRST_HOLD_S = 0.1
"""A POST is answered when the statement was judged, so that its warnings are on the first page if they can be,
but before anybody could wish to cancel it: a driver that has no address yet cannot."""
HOLD_S = 1.0
REPEAT_WITHIN_S = 60.0
TEXT_KEPT = 200
NO_ROOM = (ErrorKind.TOO_MANY_STATEMENTS, ErrorKind.CLIENT_STATEMENT_LIMIT)
_UNLOGGED = re.compile(r"[0-9a-f]{32}-([A-Z_]{1,60})(?:\.([a-z_]*)\.([a-z_]+))?")
_DESCRIBES = (ControlKind.DESCRIBE_INPUT, ControlKind.DESCRIBE_OUTPUT)
_RUNS = (ControlKind.EXECUTE, *_DESCRIBES)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer: the body, and headers that change the client's session."""

    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reading of a POST: it asks for a statement, by ``describer`` if not by the engine, or for nothing but
    ``page``."""

    sql: str
    describer: PreparedDescriber | None = None
    page: Page | None = None


@dataclass(eq=False)
class TrinoFront:
    """Stateless: everything about a statement is in its row. ``require_ready`` raises StoreError while changes
    cannot be judged."""

    jobs: StatementJobs
    engine: StatementEngine
    progress: Progress
    reader: ScriptReader
    require_ready: Callable[[], None] = lambda: None

    async def post(self, sql: str, session: TrinoSession, key: str | None, origin: str, base: str) -> Page:
        """The first page, which is never the last: drivers read errors on a later one. ``base``: the address of
        this server for clients, ``http://host:port``. Raises internal errors, and RefusedError (``NO_ROOM``),
        after which drivers try again."""
        try:
            understood = await self.reader.run(len(sql), self._understood, sql, session, base)
            if understood.page is not None:
                return understood.page
            sql = understood.sql
            if understood.describer is not None:
                return await self._submit(sql, session, key, origin, base, understood.describer)
            if is_ddl(sql) and session.transaction_id is not None:
                message = "zones are changed one statement at a time, not in a transaction"
                raise RefusedError(ErrorKind.TRANSACTION_NOT_SUPPORTED, message)
            if is_ddl(sql):
                self.require_ready()
            with acting(current_actor().because(session.reason)):
                return await self._submit(sql, session, key, origin, base)
        except StatementError as error:
            if error.kind in NO_ROOM:
                raise
            return await self._refused(sql, error, base)

    def _understood(self, stop: StopFlag, sql: str, session: TrinoSession, base: str) -> _Reading:
        """Runs in a reader's thread. Raises StatementError."""
        control = parse_control(sql, self.reader.limits, stop)
        if control is None or control.kind in _RUNS:
            check_place(session.catalog, session.schema)
        if control is None:
            return _Reading(rewrite_show(sql, session.context))
        if control.kind is ControlKind.EXECUTE:
            text = _prepared(control.name, session) if control.name else control.text
            executed = bind(text, control.parameters)
            check_size(executed, self.reader.limits)
            return _Reading(rewrite_show(executed, session.context))
        if control.kind in _DESCRIBES:
            prepared = _prepared(control.name, session)
            describer = PreparedDescriber(control.kind, prepared, self.engine)
            return _Reading(f"{sql} /* {hide_secrets(prepared)} */", describer)
        return _Reading(sql, page=_controlled(control, session, base))

    async def get(self, statement_id: str, token: int, base: str) -> Page:
        """The page of a token. Raises RefusedError: STATEMENT_NOT_FOUND, STATEMENT_RESULT_GONE."""
        if unlogged := _UNLOGGED.fullmatch(statement_id):
            return _last_page(unlogged, base)
        row = await self._row(statement_id)
        if token < 1 or token > row.token + 1:
            raise RefusedError(ErrorKind.STATEMENT_NOT_FOUND, "this page was never offered")
        if token < row.token or row.state is StatementState.CLOSED:
            raise RefusedError(ErrorKind.STATEMENT_RESULT_GONE, "this page was read before; read on")
        if token == row.token:
            return await self._again(row, token, base)
        finished = await self.jobs.wait(statement_id, HOLD_S)
        row = finished if finished is not None else row
        if token != row.token + 1:
            return await self.get(statement_id, token, base)
        answer: dict[str, Any]
        before = row.token_answer["page"] if row.token_answer else -1
        if row.state.is_over:
            answer = {"page": before + 1}
        else:
            progress = self.jobs.progress(row)
            counts = [progress.done, progress.total] if progress else None
            queued = self.jobs.position(statement_id)
            answer = {"page": before, "status": counts, "reported": bool(row.heads), "queued": queued}
        if not await self.jobs.on_log(lambda log: log.advance(statement_id, token, answer)):
            return await self.get(statement_id, token, base)
        return await self._again(replace(row, token=token, token_answer=answer), token, base)

    async def delete(self, statement_id: str) -> None:
        """A wish to stop; undoes nothing. Raises RefusedError (STATEMENT_NOT_FOUND)."""
        if _UNLOGGED.fullmatch(statement_id):
            return
        row = await self._row(statement_id)
        if not row.state.is_over:
            await self.jobs.cancel(statement_id)

    async def _submit(
        self,
        sql: str,
        session: TrinoSession,
        key: str | None,
        origin: str,
        base: str,
        engine: StatementEngine | None = None,
    ) -> Page:
        shown = await self.reader.shown(sql)
        # A client sends one key with every statement of a connection, so the text belongs to the key.
        own = f"{key}:{text_digest(shown)}" if key is not None else _repeat_key(sql, session, origin)
        # What tells two of them apart may be a secret, of which not even a digest is kept: each is run.
        new = new_statement(TRINO, shown, own if shown == sql else None)
        scoped = new.idempotency_key
        work = statement_work(sql, session, engine or self.engine, self.progress)
        for_data = session.wait and is_ddl(sql)
        row, created = await self.jobs.submit(new, work, for_data=for_data)
        if not created and key is None and scoped is not None:
            await self.jobs.on_log(lambda log: log.release(TRINO, scoped, REPEAT_WITHIN_S, new.principal))
            row, created = await self.jobs.submit(new, work, for_data=for_data)
        if not created and row.token:
            await self.jobs.on_log(lambda log: log.rewind(row.statement_id))
        return await self._first(row, base, is_kept=is_ddl(sql))

    async def _refused(self, sql: str, error: StatementError, base: str) -> Page:
        """Log a statement that was refused before it ran, with its error, so that every server can answer for
        it; return the first page. Only the first word of its text is logged, since it may not have been
        parsed."""

        async def refuse(_: RunningJob) -> LoggedOutcome:
            raise error

        try:
            row, _ = await self.jobs.submit(new_statement(TRINO, first_words(sql[:TEXT_KEPT], 1)), refuse)
            return await self._first(row, base, is_kept=True)
        except StoreError as broken:
            return Page(_first_page(broken.kind.name, base))

    async def _first(self, row: StatementRow, base: str, *, is_kept: bool) -> Page:
        """The answer to a POST. ``is_kept``: the statement goes on when its client has gone."""
        try:
            newest = await self.jobs.wait(row.statement_id, FIRST_HOLD_S, for_report=True)
        except asyncio.CancelledError:
            if not is_kept:
                await asyncio.shield(self.jobs.cancel(row.statement_id))
            raise
        then = replace(newest or row, token=0, token_answer=None)
        if then.state.is_over:
            then = replace(then, state=StatementState.RUNNING, finished_us=None, error=None)
        queued = self.jobs.position(row.statement_id)
        return Page(page_body(then, base, self.jobs.progress(then), 1, queued=queued))

    async def _again(self, row: StatementRow, token: int, base: str) -> Page:
        """The page of the newest token: the same each time."""
        answer = row.token_answer or {"page": 0}
        page = answer["page"]
        if "status" in answer:
            progress = StatementProgress(*answer["status"]) if answer["status"] else None
            then = replace(
                row,
                state=StatementState.RUNNING,
                finished_us=None,
                error=None,
                heads=row.heads if answer["reported"] else (),
                warnings=row.warnings if answer["reported"] else (),
            )
            return Page(page_body(then, base, progress, token + 1, queued=answer.get("queued")))
        try:
            await self.jobs.require_results(row)
        except RefusedError as error:
            failed = StatementRow(row.statement_id, TRINO, StatementState.FAILED, error=problem(error))
            return Page(page_body(failed, base, None, None))
        count = page_count(row)
        rows = await self.jobs.rows(row.statement_id, 1, page) if page < count else None
        next_token = token + 1 if page + 1 < count else None
        return Page(page_body(row, base, row.progress, next_token, rows))

    async def _row(self, statement_id: str) -> StatementRow:
        row = await self.jobs.read(statement_id)
        if row is None or row.protocol != TRINO:
            raise RefusedError(ErrorKind.STATEMENT_NOT_FOUND, "there is no such statement, or it has expired")
        return row


def _repeat_key(sql: str, session: TrinoSession, origin: str) -> str | None:
    """Recognises a change that a client sends again because the answer was lost."""
    if not is_ddl(sql):
        return None
    parts = [sql, origin, session.user, session.source, session.catalog, session.schema, session.properties]
    return REPEAT_PREFIX + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _prepared(name: str, session: TrinoSession) -> str:
    if name not in session.prepared:
        message = f"there is no prepared statement {name}"
        raise RefusedError(ErrorKind.PREPARED_STATEMENT_UNKNOWN, message)
    return session.prepared[name]


def _controlled(control: Control, session: TrinoSession, base: str) -> Page:
    """Everything about the session happens in the client: the answer's headers tell it what."""
    kind, headers = control.kind, {}
    if kind is ControlKind.PREPARE:
        headers["X-Trino-Added-Prepare"] = f"{quote_plus(control.name)}={quote_plus(control.text)}"
    elif kind is ControlKind.DEALLOCATE:
        _prepared(control.name, session)
        headers["X-Trino-Deallocated-Prepare"] = quote_plus(control.name)
    elif kind is ControlKind.USE:
        catalog, schema = control.catalog.lower(), control.name.lower()
        check_place(catalog or session.catalog, schema)
        return Page(_first_page(f"{kind.name}.{catalog}.{schema}", base), _used(catalog, schema))
    elif kind is ControlKind.SET_SESSION:
        value = plain(literal(control.text)).strip()
        value = value[1:-1].replace("''", "'") if value.startswith("'") else value.lower()
        check_property(control.name, value)
        headers["X-Trino-Set-Session"] = f"{control.name}={quote_plus(value)}"
    elif kind is ControlKind.RESET_SESSION:
        headers["X-Trino-Clear-Session"] = quote_plus(control.name)
    elif kind is ControlKind.START_TRANSACTION:
        if session.transaction_id is not None:
            raise RefusedError(ErrorKind.TRANSACTION_NOT_SUPPORTED, "a transaction is open already")
        headers["X-Trino-Started-Transaction-Id"] = str(uuid.uuid4())
    else:
        headers["X-Trino-Clear-Transaction-Id"] = "true"
    return Page(_first_page(kind.name, base), headers)


def _first_page(answer: str, base: str) -> dict[str, Any]:
    """First page of a statement that has no effect here, or cannot be logged: every server knows the last page
    from its id, which ends in the name of a ControlKind or ErrorKind, followed for USE by catalog and
    schema."""
    row = StatementRow(f"{uuid.uuid4().hex}-{answer}", TRINO, StatementState.RUNNING)
    return page_body(row, base, None, 1)


def _last_page(unlogged: re.Match[str], base: str) -> Page:
    """The last page of a statement that is not logged. Raises RefusedError for an id that was never given
    out."""
    answer, catalog, schema = unlogged[1], unlogged[2] or "", unlogged[3] or ""
    row = StatementRow(unlogged[0], TRINO, StatementState.SUCCEEDED, finished_us=0)
    if answer in ControlKind.__members__:
        if schema:
            check_place(catalog or CATALOG, schema)
        head = {"columns": [["result", "boolean"]], "update_type": ControlKind[answer].value}
        body = page_body(replace(row, heads=(head,)), base, None, None)
        return Page(body, _used(catalog, schema) if schema else {})
    if answer not in ErrorKind.__members__:
        raise RefusedError(ErrorKind.STATEMENT_NOT_FOUND, "there is no such statement")
    error = problem(StoreError(ErrorKind[answer], ErrorKind[answer].value.title))
    failed = replace(row, state=StatementState.FAILED, error=error)
    return Page(page_body(failed, base, None, None))


def _used(catalog: str, schema: str) -> dict[str, str]:
    """Headers of each page of USE: JDBC's driver believes the last one."""
    named = {"X-Trino-Set-Catalog": catalog} if catalog else {}
    return {**named, "X-Trino-Set-Schema": schema}
