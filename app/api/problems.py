"""Errors at the HTTP edge: all leave as problem+json, documented and without a stack trace."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from app.metrics.request_meter import METHODS
from app.requests.errors import MEDIA_TYPE, problem
from catalog.core.errors import ErrorKind, StatementError
from rebalance.ports.metric_rows import Metric

log = structlog.get_logger(__name__)

HTTP_KINDS = {404: ErrorKind.ADDRESS_NOT_FOUND, 405: ErrorKind.METHOD_NOT_ALLOWED}
"""Error kinds by status for requests that the framework refuses by itself."""
REFUSALS = frozenset({ErrorKind.UNAUTHENTICATED, ErrorKind.PRIVILEGE_MISSING})
"""Kinds of refusals for want of a login or a privilege, where a route or a statement needs one."""
EDGE = (403, 408, 413, 415, 431)
"""Statuses with which ``app.edge`` refuses requests of any route."""
RETRY_AFTER_S = 2


class Problem(BaseModel):
    """RFC 9457, with the error's name, numeric code, SQLSTATE and place in the text."""

    type: str
    title: str
    status: int
    detail: str
    name: str
    code: int
    sqlState: str  # noqa: N815  # the name on the wire, as SQL clients know it
    line: int | None = None
    column: int | None = None
    statement: int | None = None
    request_id: str | None = None


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with problems of these statuses."""
    content = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {status: {"description": "Problem", "content": content} for status in statuses}


def answers(model: Any, *statuses: int, **more: Any) -> dict[str, Any]:
    """Arguments that document a route's answers: the contract's type of a success, and the statuses of
    problems."""
    return {"response_model": model, "responses": documented(*statuses), **more}


EVERYWHERE = documented(400, *EDGE)
"""Answers of any route to requests that are refused before the route runs."""


def problem_response(error: StatementError, extra: dict[str, Any] | None = None) -> Response:
    return problem_document({**problem(error), **(extra or {})})


def problem_document(document: dict[str, Any]) -> Response:
    """Answer with a problem, with ``Retry-After`` when there was no room for the request."""
    is_full = document["sqlState"] == ErrorKind.TOO_MANY_STATEMENTS.sqlstate
    headers = {"Retry-After": str(RETRY_AFTER_S)} if is_full else None
    return JSONResponse(document, document["status"], headers=headers, media_type=MEDIA_TYPE)


def _allowed(request: Request) -> set[str]:
    """The methods of all routes of the path; the framework names only those of the first."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)

    return set(filter(is_taken, METHODS))


def install(app: FastAPI) -> None:
    """Register the handlers for our errors, the framework's and unexpected ones."""

    @app.exception_handler(StatementError)
    async def on_statement_error(request: Request, error: StatementError) -> Response:
        if error.kind in REFUSALS and request.app.state.services is not None:
            request.app.state.services.metrics.count(Metric.REFUSALS, error.kind.name)
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_: Request, error: RequestValidationError) -> Response:
        detail = "; ".join(f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors())
        return problem_response(StatementError(ErrorKind.INVALID_REQUEST, detail))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path}: {error.detail}"
        kind = HTTP_KINDS.get(error.status_code, ErrorKind.INVALID_REQUEST)
        document = {**problem(StatementError(kind, where)), "status": error.status_code}
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_allowed(request)))
        return JSONResponse(document, error.status_code, headers=headers, media_type=MEDIA_TYPE)

    @app.exception_handler(ClientDisconnect)
    async def on_gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it

    @app.exception_handler(Exception)
    async def on_unexpected(request: Request, error: Exception) -> Response:
        log.exception("request failed", method=request.method, path=request.url.path, exc_info=error)
        return problem_response(
            StatementError(ErrorKind.INTERNAL_ERROR, f"{type(error).__name__}: see the log")
        )
