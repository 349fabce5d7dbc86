"""``POST /api/v1/statements``: SQL text in, one result a statement."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from app.api.plan import PlanBody
from app.api.problems import documented, problem_response
from app.api.services import ServicesOf
from app.api.statement_bodies import while_connected
from app.api.statement_jobs import run_logged
from app.api.statement_models import LoggedStatementRequest
from app.contract.statements import LoggedStatement, StatementAnswer
from app.requests.actor import acting, current_actor
from app.sql.statements.statement_outcomes import ScriptError, ShownResult
from catalog.core.errors import ErrorKind, RefusedError
from parser.script import check_size

router = APIRouter(prefix="/api/v1", tags=["statements"])

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
    services: ServicesOf,
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
    services.require_metastore()
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
    """Raises RefusedError."""
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
