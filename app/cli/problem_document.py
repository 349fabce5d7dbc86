"""A problem document (RFC 9457) as a client reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from catalog.core.visible import visible

if TYPE_CHECKING:
    import httpx

    from app.contract.statements import StatementOutcome

JsonObject = dict[str, Any]
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """A problem+json body; ``results`` are those of the statements before the refused one."""

    status: int
    name: str
    detail: str
    code: int | str | None = None
    sql_state: str | None = None
    line: int | None = None
    column: int | None = None
    statement: int | None = None
    results: Sequence[StatementOutcome] = field(default=())
    file: str | None = None
    """Of several files that were sent, the one that is wrong."""
    request_id: str | None = None
    """By which the server's log has it."""

    @classmethod
    def from_body(cls, status: int, body: Mapping[str, Any]) -> ProblemDocument:
        return cls(
            status=status,
            name=str(body.get("name") or body.get("title") or "ERROR"),
            detail=str(body.get("detail") or body.get("title") or f"HTTP {status}"),
            code=body.get("code"),
            sql_state=body.get("sqlState"),
            line=body.get("line"),
            column=body.get("column"),
            statement=body.get("statement"),
            results=tuple(body.get("results") or ()),
            file=body.get("file"),
            request_id=body.get("request_id"),
        )

    def headline(self) -> str:
        """``NAME (code, SQLSTATE): message``, without what the server did not name; with the request's id where
        the server has failed, and its log says more."""
        codes = ", ".join(str(part) for part in (self.code, self.sql_state) if part not in (None, ""))
        detail = visible(self.detail)
        request = f"; request id {self.request_id}" if self.status >= SERVER_ERROR and self.request_id else ""
        return f"{self.name} ({codes}): {detail}{request}" if codes else f"{self.name}: {detail}{request}"

    def as_json(self) -> JsonObject:
        return {
            "name": self.name,
            "code": self.code,
            "sqlState": self.sql_state,
            "message": self.detail,
            "line": self.line,
            "column": self.column,
            "statement": self.statement,
            "status": self.status,
        }


def json_object(response: httpx.Response) -> JsonObject | None:
    """None for a body that is none."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
