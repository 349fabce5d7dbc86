"""``POST /api/v1/statements``, the statement log, and ``POST /api/v1/plan``.

SQL text comes in, and one result for each statement goes out. A logged statement runs on its own: clients poll
it, cancel it, and read its results page by page. A plan says what a script or a set of DDL files would change,
and changes nothing. Work for a client ends when the client has hung up (``while_connected``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from app.api.bodies import Reason, RequestBody
from app.api.problems import answers, documented, problem_document, problem_response
from app.api.services import LoadedServices, Services, ServicesOf
from app.contract.statements import LoggedStatement, ResultRows, StatementAnswer, Warned
from app.requests.context import acting, current_actor
from app.sql.engine.statement_jobs import REST, ROWS_IN_PAGE, new_statement, script_work
from app.sql.plan.desired_state import DdlFile, DdlFileError
from app.sql.statements.paging import page_offset, page_token
from app.sql.statements.results import HELD, ScriptError, ShownResult
from catalog.core.errors import ErrorKind, ParseError, RefusedError, StatementError, StoreError
from catalog.core.statement_log import StatementRow, StatementState
from parser.script import check_size
from parser.text import OWN_TEXT

T = TypeVar("T")

WATCHED_AFTER_S = 0.1
"""Seconds after which work watches for its client to hang up; shorter work runs without."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Read a body. Raises ParseError (TEXT_TOO_LARGE) as soon as it is known, without reading on."""
    _check(int(request.headers.get("content-length", "0")), bytes_max)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        _check(size, bytes_max)
        parts.append(part)
    return b"".join(parts)


async def while_connected(request: Request, work: Awaitable[T], gone_error: StatementError | None = None) -> T:
    """Await ``work``, which is cancelled when the client hangs up: changes that have begun are carried out to
    their end, though the client sees neither that nor ``gone_error``. The body must have been read."""
    running = asyncio.ensure_future(work)
    gone: asyncio.Task[None] | None = None
    try:
        await asyncio.wait([running], timeout=WATCHED_AFTER_S)
        if not running.done():
            gone = asyncio.create_task(_gone(request))
            await asyncio.wait([running, gone], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
        if running.cancelled():
            if gone_error is not None:
                raise gone_error
            raise RefusedError(ErrorKind.STATEMENT_CANCELED, "the client went away; nothing was changed")
        return running.result()
    finally:
        if gone is not None:
            gone.cancel()
        running.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        message = f"a body with statements has at most {bytes_max} bytes here"
        raise ParseError(ErrorKind.TEXT_TOO_LARGE, message)


router = APIRouter(prefix="/api/v1", tags=["statements"])

ATTEMPTS_MAX = 5
NO_PLAN = {"plan_id": None, "data_nodes_revision": None, "target_revision": None}


class PlanFile(RequestBody):
    name: str = Field(description="name of the file in errors", examples=["zones.sql"])
    text: str = Field(description="statements that change the catalog")


PlanId = Annotated[
    str | None,
    Field(
        max_length=80,
        pattern=r"^[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,18}-[0-9a-f]{12}$",
        description="id of a plan that was shown; if the plan would differ now, 409 says what changed",
        examples=["12-340-355-9f3a2c41b07e"],
    ),
]


class PlanRequest(RequestBody):
    """Either ``files``, which define completely what they name, or ``sql``, a script to run."""

    files: list[PlanFile] | None = Field(None, description="in any order", min_length=1, max_length=1_000)
    prune: list[str] | bool = Field(
        False,
        description="with files: names of the zones that are dropped with their tables if they are in no file;"
        " `*` stands for any characters. `true` is refused: other zones may be in others' files",
        examples=[["ORDERS", "TEAM_A_*"]],
    )
    sql: str | None = Field(None, description="a script of changes")
    plan_id: PlanId = None


class PlannedDifference(BaseModel):
    property: str
    before: str
    after: str


class EffectBody(BaseModel):
    """A row of EXPLAIN: parameters, data nodes, replicas that move, and the balance."""

    section: str = Field(examples=["MOVE", "ADD", "REMOVE", "ROLE", "PARAMETER"])
    name: str
    before: str | None
    after: str | None
    replicas: int | None
    bytes: int | None = Field(description="bytes to copy, estimated by current sizes")
    note: str


class PlannedChangeBody(BaseModel):
    action: Literal["create", "change", "drop", "noop"]
    kind: Literal["zone", "table"]
    name: str
    sql: str
    differences: list[PlannedDifference]
    effects: list[EffectBody] | None = Field(description="null: the plan has more than 50 statements")
    warnings: list[Warned] = Field(description="risks to consider before the statement is run")


class ConflictBody(PlannedDifference):
    kind: Literal["zone", "table"]
    name: str
    reason: str


class Unmanaged(BaseModel):
    kind: Literal["zone", "table"]
    name: str


class PlanBody(BaseModel):
    plan_id: str | None = Field(
        description="id to apply exactly this plan; null: there is nothing to change, or a conflict"
    )
    data_nodes_revision: int | None = Field(
        description="metastore revision of the topology and of the data nodes of the changed zones"
    )
    target_revision: int | None = Field(description="metastore revision of the newest target of those zones")
    catalog_version: int = Field(
        description="version that the plan was made on, an If-Match for its statements"
    )
    changes: list[PlannedChangeBody] = Field(description="statements in the order to run them")
    conflicts: list[ConflictBody] = Field(description="differences that no statement can make")
    unmanaged: list[Unmanaged] = Field(description="zones and tables that are in no file")


@router.post("/plan", response_model=PlanBody, responses=documented(400, 404, 409, 413, 422, 503))
async def make_plan(request: Request, body: PlanRequest, services: LoadedServices) -> Response:
    """Plan what a script, or a set of files compared with the catalog, would change and move.

    ``plan_id`` is made of all that the plan was computed from; ``POST /statements`` with it carries out exactly
    this plan, or says what changed (40001). An error in a file is a problem document whose ``file`` names it;
    line and column are that file's."""
    if (body.files is None) == (body.sql is None):
        raise RefusedError(ErrorKind.INVALID_REQUEST, "a plan is made of either files or sql")
    if body.prune is True:
        message = "prune names the zones that may be dropped, as ['ORDERS', 'TEAM_A_*'], and is not true"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    if body.sql is not None:
        plan = await while_connected(request, services.sql.change_plan(body.sql, body.plan_id))
        return JSONResponse(plan.to_json())
    files = [DdlFile(file.name, file.text) for file in body.files or ()]
    try:
        return JSONResponse(await while_connected(request, _of_files(files, body, services)))
    except DdlFileError as error:
        return problem_response(error.cause, {"file": error.file.name})


async def _of_files(files: Sequence[DdlFile], body: PlanRequest, services: Services) -> dict[str, Any]:
    """Plan the changes for files. Raises StatementError and DdlFileError."""
    for _ in range(ATTEMPTS_MAX):
        plan = await services.sql.plan(files, body.prune if isinstance(body.prune, list) else ())
        answer = {**NO_PLAN, **plan.to_json()}
        is_refused = plan.conflicts or not plan.changes
        if is_refused:
            answer["changes"] = [{**change, "effects": None, "warnings": []} for change in answer["changes"]]
        if is_refused and (body.plan_id is None or not plan.conflicts):
            # With an id as well: what it planned has been done.
            return answer
        statements = ";\n".join(change.sql for change in plan.changes)
        moves = await services.sql.change_plan(statements, body.plan_id, OWN_TEXT)
        if is_refused:
            return answer
        if moves.plan_id.catalog_version == plan.catalog_version:
            pairs = zip(answer["changes"], moves.to_json()["changes"], strict=True)
            changes = [{**judged, **change} for change, judged in pairs]
            return {**answer, **moves.basis_json(), "changes": changes}
    message = f"other statements changed it during each of {ATTEMPTS_MAX} attempts"
    raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message)


WAIT_S_MAX = 50


class StatementRequest(RequestBody):
    sql: str = Field(
        description="one statement or a script", examples=["CREATE ZONE orders (REPLICAS 3)", "SHOW ZONES"]
    )
    reason: Reason = ""


class LoggedStatementRequest(StatementRequest):
    """A statement without ``wait_timeout`` and without an idempotency key runs to its end and is not logged."""

    wait_timeout: float | None = Field(
        None,
        ge=0,
        le=WAIT_S_MAX,
        description="seconds to wait for the end; 0: answer at once. If given, the statement is logged",
    )
    on_wait_timeout: Literal["CONTINUE", "CANCEL"] = Field(
        "CONTINUE", description="what happens to a statement that still runs by then"
    )
    validate_only: bool = Field(
        False, description="changes only: answer with their plan, as POST /plan does, and change nothing"
    )
    plan_id: PlanId = None


class CancelRequest(RequestBody):
    """An empty object."""


logged = APIRouter(prefix="/api/v1/statements", tags=["statements"])

RETRY_AFTER_S = 1
CANCEL_HOLD_S = 1.5
RESULTS_DEFAULT = 50
ROWS_DEFAULT = 1000
PAGE_MAX = 1000

StatementId = Annotated[str, Path(max_length=64)]
PageToken = Annotated[str | None, Query(max_length=100, description="next_page_token of the previous page")]


async def run_logged(body: LoggedStatementRequest, key: str | None, services: Services) -> Response:
    """Run a logged statement: the same key and text has one effect and one answer."""
    shown = await services.reader.shown(body.sql)
    new = new_statement(REST, shown, key)
    row, _ = await services.jobs.submit(new, script_work(body.sql, services.sql.run_script))
    if row.sql_hash != new.sql_hash:
        message = "the idempotency key was used with another text"
        raise RefusedError(ErrorKind.IDEMPOTENCY_KEY_REUSED, message)
    hold_s = WAIT_S_MAX if body.wait_timeout is None else body.wait_timeout
    ended = row if row.state.is_over else await services.jobs.wait(row.statement_id, hold_s)
    if ended is not None and not ended.state.is_over and body.on_wait_timeout == "CANCEL":
        await services.jobs.cancel(row.statement_id)
        ended = await services.jobs.wait(row.statement_id, CANCEL_HOLD_S)
    row = ended or row
    if row.state is StatementState.CLOSED:
        raise RefusedError(ErrorKind.STATEMENT_RESULT_GONE, "the statement was closed")
    if not row.state.is_over:
        return await _document(row, services, status=202)
    results = await _results(row, services, 0, len(row.heads))
    if row.error is not None:
        return problem_document({**row.error, "results": results, "statement_id": row.statement_id})
    return JSONResponse(
        {"results": results, "statement_id": row.statement_id, "state": row.state.value},
        headers={"Location": _url(row)},
    )


@logged.get("/{statement_id:segment}", **answers(LoggedStatement, 400, 404, 503))
async def get_statement(
    statement_id: StatementId,
    services: ServicesOf,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = RESULTS_DEFAULT,
    token: Annotated[PageToken, Query(alias="page_token")] = None,
) -> Response:
    """Show the state of a logged statement, and its results once it has ended."""
    row = await _row(statement_id, services)
    return await _document(row, services, page_size, page_offset(f"{statement_id}/results", token))


@logged.post(
    "/{statement_id:segment}/cancel",
    response_model=LoggedStatement,
    responses={**documented(400, 404, 503), 202: {"model": LoggedStatement, "description": "Accepted"}},
)
async def cancel_statement(statement_id: StatementId, body: CancelRequest, services: ServicesOf) -> Response:
    """Request the end of a statement. Queries end as CANCELED; a change that is being committed is committed,
    and its statement ends normally. Nothing is undone for a statement that has ended."""
    row = await _row(statement_id, services)
    if not row.state.is_over:
        await services.jobs.cancel(statement_id)
        row = await services.jobs.wait(statement_id, CANCEL_HOLD_S) or row
    return await _document(row, services, status=200 if row.state.is_over else 202)


@logged.delete("/{statement_id:segment}", status_code=204, responses=documented(400, 404, 503))
async def close_statement(statement_id: StatementId, services: ServicesOf) -> Response:
    """Remove the results of a statement. One that still runs is asked to end, and its results expire."""
    row = await _row(statement_id, services)
    if row.state.is_over:
        await services.jobs.on_log(lambda log: log.close(statement_id))
    else:
        await services.jobs.cancel(statement_id)
    return Response(status_code=204)


@logged.get("/{statement_id:segment}/results/{n}/rows", **answers(ResultRows, 400, 404, 410, 503))
async def get_rows(
    statement_id: StatementId,
    n: Annotated[int, Path(ge=1, le=100_000, description="number of the result, from 1")],
    services: ServicesOf,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = ROWS_DEFAULT,
    token: Annotated[PageToken, Query(alias="page_token")] = None,
) -> Response:
    """Return the rows of one query of a logged script, page by page."""
    row = await _row(statement_id, services)
    offset = page_offset(f"{statement_id}/{n}", token)
    if row.state is StatementState.CLOSED:
        raise RefusedError(ErrorKind.STATEMENT_RESULT_GONE, "the statement was closed")
    if n > len(row.heads) or "row_count" not in row.heads[n - 1]:
        raise RefusedError(ErrorKind.STATEMENT_NOT_FOUND, f"result {n} of this statement has no rows")
    await services.jobs.require_results(row)
    head = row.heads[n - 1]
    rows = await _rows(row, services, n, offset, page_size)
    following = offset + len(rows)
    more = bool(rows) and following < head["row_count"]
    return JSONResponse(
        {
            "columns": head.get("columns", []),
            "rows": rows,
            "next_page_token": page_token(f"{statement_id}/{n}", following) if more else None,
        }
    )


async def _row(statement_id: str, services: Services) -> StatementRow:
    row = await services.jobs.read(statement_id)
    if row is None or row.protocol != REST:
        raise RefusedError(ErrorKind.STATEMENT_NOT_FOUND, "there is no such statement, or it has expired")
    return row


async def _document(
    row: StatementRow,
    services: Services,
    page_size: int = RESULTS_DEFAULT,
    offset: int = 0,
    status: int = 200,
) -> Response:
    end = min(offset + page_size, len(row.heads))
    more = end < len(row.heads)
    body = {
        "statement_id": row.statement_id,
        "state": row.state.value,
        "queue_position": services.jobs.position(row.statement_id),
        "sql": row.sql,
        "created_at": _moment(row.created_us),
        "expires_at": _moment(row.expires_us),
        "results": await _results(row, services, offset, end),
        "warnings": list(row.warnings),
        "error": row.error,
        "next_page_token": page_token(f"{row.statement_id}/results", end) if more else None,
    }
    headers = {"Location": _url(row)}
    if not row.state.is_over:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return JSONResponse(body, status_code=status, headers=headers)


async def _results(row: StatementRow, services: Services, start: int, end: int) -> list[dict[str, Any]]:
    """Results as POST returns them; of a query's rows the first page. Raises RefusedError
    (PRIVILEGE_MISSING)."""
    await services.jobs.require_results(row)
    results = [dict(head) for head in row.heads[start:end]]
    for n, result in enumerate(results, start=start + 1):
        result.pop(HELD, None)
        if "row_count" in result:
            result["data"] = await _rows(row, services, n, 0, ROWS_DEFAULT)
            result["rows_url"] = f"{_url(row)}/results/{n}/rows"
    return results


async def _rows(row: StatementRow, services: Services, n: int, offset: int, count: int) -> list[Any]:
    """Rows from ``offset``, at most ``count``, across the borders of the stored pages."""
    pages = range(offset // ROWS_IN_PAGE, (offset + count - 1) // ROWS_IN_PAGE + 1)
    stored = await asyncio.gather(*(services.jobs.rows(row.statement_id, n, page) for page in pages))
    begin = offset % ROWS_IN_PAGE
    return list(islice(chain.from_iterable(page or () for page in stored), begin, begin + count))


def _url(row: StatementRow) -> str:
    return f"/api/v1/statements/{row.statement_id}"


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="retries with this key and the same text are applied once and get the same answer; with "
        "another text: 422",
    ),
]

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=r'^"?[0-9]{1,9}"?$',
        description="catalog version; if the catalog has another one by now, nothing is changed (409)",
    ),
]


@router.post(
    "/statements",
    response_model=StatementAnswer | PlanBody,
    responses={
        **documented(400, 404, 409, 410, 413, 422, 429, 503, 504),
        202: {"model": LoggedStatement, "description": "Still running: poll Location"},
    },
    summary="Run a statement or a script",
)
async def run_statements(
    request: Request,
    body: LoggedStatementRequest,
    services: LoadedServices,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Statements that change the catalog (CREATE, ALTER, DROP) and that ask (SELECT, SHOW, DESCRIBE, EXPLAIN).

    The whole script is parsed first. Statements then run one by one; when one is refused, the effects of
    the earlier ones stay, their results are in the problem's ``results``, and the later ones are not run.
    With ``wait_timeout`` or an idempotency key the script is logged, and its results are kept for a while.
    With ``If-Match`` it holds changes only, and runs only if the catalog is at that version still; with
    ``plan_id``, only if exactly that plan would still come out (40001 says what changed). With
    ``validate_only`` nothing is changed, and the answer is the plan of the script."""
    _check_combination(body, key, if_match)
    sql = services.sql
    with acting(current_actor().because(body.reason)):
        if body.validate_only:
            return JSONResponse((await while_connected(request, sql.change_plan(body.sql))).to_json())
        if key is not None or body.wait_timeout is not None:
            check_size(body.sql, services.reader.limits)
            return await run_logged(body, key, services)
        work: Awaitable[Sequence[ShownResult]]
        if body.plan_id is not None:
            work = sql.run_planned(body.sql, body.plan_id)
        elif if_match is not None:
            work = sql.run_guarded(body.sql, int(if_match.strip('"')))
        else:
            work = sql.run_script(body.sql)
        try:
            results = await while_connected(request, work)
        except ScriptError as failed:
            return problem_response(failed, {"results": [result.to_json() for result in failed.results]})
        return JSONResponse({"results": [result.to_json() for result in results]})


def _check_combination(body: LoggedStatementRequest, key: str | None, if_match: str | None) -> None:
    """Check that the parameters go together. Raises RefusedError."""
    logged = key is not None or body.wait_timeout is not None
    guards = {
        "If-Match": if_match is not None,
        "validate_only": body.validate_only,
        "plan_id": body.plan_id is not None,
    }
    given = [name for name, is_given in guards.items() if is_given]
    if len(given) > 1:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"{' and '.join(given)} do not go together: send one")
    if given and logged:
        message = f"{given[0]} does not go with Idempotency-Key or wait_timeout: send the script without those"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
