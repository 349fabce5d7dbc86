"""Errors as problem documents (RFC 9457), for every way out of the service that speaks HTTP; and those of a
metastore as errors of the service (``answered``)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from app.requests.context import current_request_id
from catalog.core.errors import ErrorKind, StatementError, StoreError
from rebalance.ports.metastore import ContendedError, MetastoreError, MetastoreUnavailableError

MEDIA_TYPE = "application/problem+json"

T = TypeVar("T")


def problem(error: BaseException) -> dict[str, Any]:
    """The problem document of an error. One that is not ours becomes INTERNAL_ERROR and tells nothing more.

    Members of the standard: type, title, status, detail. Ours: name, code (four digits), sqlState, line and
    column (1-based, in the text that was sent), statement (1-based, in its script), action, what to do, and
    request_id, which the log and the audit have, too (null: of no request).
    """
    if not isinstance(error, StatementError):
        message = "the request failed for a reason that the service's log holds"
        error = StatementError(ErrorKind.INTERNAL_ERROR, message)
    kind = error.kind
    return {
        "type": f"urn:zonekeeper:error:{kind.name}",
        "title": kind.value.title,
        "status": kind.http_status,
        "detail": error.message,
        "name": kind.name,
        "code": kind.code,
        "sqlState": kind.sqlstate,
        "line": error.line,
        "column": error.column,
        "statement": error.statement,
        "action": kind.value.action,
        "request_id": current_request_id() or None,
    }


async def answered(call: Awaitable[T]) -> T:
    """Await a call of the metastore. Raises StoreError (OUTCOME_UNKNOWN, METASTORE_UNAVAILABLE)."""
    try:
        return await call
    except MetastoreUnavailableError as error:
        kind = ErrorKind.OUTCOME_UNKNOWN if error.outcome_unknown else ErrorKind.METASTORE_UNAVAILABLE
        raise StoreError(kind, f"etcd does not answer: {error}") from error
    except ContendedError as error:
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, f"{error}; try again") from error
    except MetastoreError as error:
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, f"etcd does not answer: {error}") from error
