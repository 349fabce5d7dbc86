"""``POST /api/v1/statements``: SQL text in, one result a statement."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.api.models import StatementRequest, StatementResults
from app.api.problems import documented, problem_response
from app.services import ServicesOf
from app.sql.statements import ScriptError

router = APIRouter(prefix="/api/v1", tags=["statements"])


@router.post(
    "/statements",
    response_model=StatementResults,
    responses=documented(400, 404, 409, 503, 504),
    summary="Run a statement or a script",
)
async def run_statements(body: StatementRequest, services: ServicesOf) -> Response:
    """Statements that change zones (CREATE, ALTER, DROP ZONE) and that ask (SELECT, SHOW, DESCRIBE, EXPLAIN).

    The whole script is parsed first. Statements then run one by one; when one is refused, the effects of
    the earlier ones stay, their results are in the problem's ``results``, and the later ones are not run."""
    services.require_metastore()
    try:
        results = await services.run_statements(body.sql)
    except ScriptError as failed:
        return problem_response(failed, {"results": [each.to_json() for each in failed.results]})
    return JSONResponse({"results": [each.to_json() for each in results]})
