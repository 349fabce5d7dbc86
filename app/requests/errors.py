"""Errors as problem documents (RFC 9457), for every way out of the service that speaks HTTP."""

from __future__ import annotations

from typing import Any

from app.requests.context import current_request_id
from catalog.core.errors import ErrorKind, StatementError

MEDIA_TYPE = "application/problem+json"


def problem(error: BaseException) -> dict[str, Any]:
    """The problem document of an error. One that is not ours becomes INTERNAL_ERROR and tells nothing more.

    Members of the standard: type, title, status, detail. Ours: name, code (four digits), sqlState, line and
    column (1-based, in the text that was sent), statement (1-based, in its script), action, what to do, and
    request_id, which the log and the audit have, too (null: of no request).
    """
    if isinstance(error, StatementError):
        return _document(error.kind, error.message, error.line, error.column, error.statement)
    return _document(ErrorKind.INTERNAL_ERROR, "the request failed for a reason that the service's log holds")


def http_status(error: BaseException) -> int:
    return error.kind.http_status if isinstance(error, StatementError) else ErrorKind.INTERNAL_ERROR.http_status


def _document(
    kind: ErrorKind,
    detail: str,
    line: int | None = None,
    column: int | None = None,
    statement: int | None = None,
) -> dict[str, Any]:
    return {
        "type": f"urn:zonekeeper:error:{kind.name}",
        "title": kind.value.title,
        "status": kind.http_status,
        "detail": detail,
        "name": kind.name,
        "code": kind.code,
        "sqlState": kind.sqlstate,
        "line": line,
        "column": column,
        "statement": statement,
        "action": kind.value.action,
        "request_id": current_request_id() or None,
    }
