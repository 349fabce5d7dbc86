"""Logged statements: run one without waiting for it, look at it again, cancel it, page through its results."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response

from app.api.problems import answers, documented, problem_document
from app.api.services import Services, ServicesOf
from app.api.statement_models import (
    WAIT_S_MAX,
    CancelRequest,
    LoggedStatementRequest,
)
from app.contract.statements import LoggedStatement, ResultRows
from app.requests.actor import current_principal, current_scope
from app.sql.jobs.abandoned import REST
from app.sql.jobs.script_work import ROWS_IN_PAGE, script_work
from app.sql.statements.paging import page_offset, page_token
from app.sql.statements.results import HELD
from catalog.core.access_tokens import scope_text
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.statement_log import NewStatement, StatementRow, StatementState, key_of_scope

router = APIRouter(prefix="/api/v1/statements", tags=["statements"])

RETRY_AFTER_S = 1
CANCEL_HOLD_S = 1.5
RESULTS_DEFAULT = 50
ROWS_DEFAULT = 1000
PAGE_MAX = 1000

StatementId = Annotated[str, Path(max_length=64)]
PageToken = Annotated[str | None, Query(max_length=100, description="next_page_token of the previous page")]


async def run_logged(body: LoggedStatementRequest, key: str | None, services: Services) -> Response:
    """POST of a statement that is to be remembered: the same key and text has one effect and one answer."""
    shown = await services.reader.shown(body.sql)
    digest = hashlib.sha256(shown.encode(errors="surrogatepass")).hexdigest()
    scope = scope_text(current_scope())
    new = NewStatement(
        uuid.uuid4().hex, REST, shown, digest, key_of_scope(key, scope), current_principal(), scope
    )
    row, _ = await services.jobs.submit(new, script_work(body.sql, services.sql.run_script))
    if row.sql_hash != digest:
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
        problem = {**row.error, "results": results, "statement_id": row.statement_id}
        return problem_document(problem)
    return JSONResponse(
        {"results": results, "statement_id": row.statement_id, "state": row.state.value},
        headers={"Location": _url(row)},
    )


@router.get("/{statement_id:segment}", **answers(LoggedStatement, 400, 404, 503))
async def get_statement(
    statement_id: StatementId,
    services: ServicesOf,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = RESULTS_DEFAULT,
    token: Annotated[PageToken, Query(alias="page_token")] = None,
) -> Response:
    """Show the state of a logged statement, and its results once it has ended."""
    row = await _row(statement_id, services)
    return await _document(row, services, page_size, page_offset(f"{statement_id}/results", token))


@router.post(
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


@router.delete("/{statement_id:segment}", status_code=204, responses=documented(400, 404, 503))
async def close_statement(statement_id: StatementId, services: ServicesOf) -> Response:
    """Remove the results of a statement. One that still runs is asked to end, and its results expire."""
    row = await _row(statement_id, services)
    if row.state.is_over:
        await services.jobs.on_log(lambda log: log.close(statement_id))
    else:
        await services.jobs.cancel(statement_id)
    return Response(status_code=204)


@router.get("/{statement_id:segment}/results/{n}/rows", **answers(ResultRows, 400, 404, 410, 503))
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
    """Results as POST answers them; of a query's rows the first page. Raises RefusedError
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
    """Rows from ``offset``, at most ``count``, over the borders of the stored pages."""
    rows: list[Any] = []
    pages = range(offset // ROWS_IN_PAGE, (offset + count - 1) // ROWS_IN_PAGE + 1)
    stored = await asyncio.gather(*(services.jobs.rows(row.statement_id, n, page) for page in pages))
    for page in stored:
        rows += page or []
    begin = offset % ROWS_IN_PAGE
    return rows[begin : begin + count]


def _url(row: StatementRow) -> str:
    return f"/api/v1/statements/{row.statement_id}"


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")
