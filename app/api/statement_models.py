"""Bodies of the statement log's resources."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.models import StatementRequest, StatementResults, Warned
from app.api.plan import PlanId

WAIT_S_MAX = 50


class LoggedStatementRequest(StatementRequest):
    """Without ``wait_timeout`` and without an idempotency key a statement runs to its end and is not logged."""

    wait_timeout: float | None = Field(
        None,
        ge=0,
        le=WAIT_S_MAX,
        description="seconds to wait for the end; 0: answer at once. Given, the statement is logged",
    )
    on_wait_timeout: Literal["CONTINUE", "CANCEL"] = Field(
        "CONTINUE", description="what becomes of a statement that is not over by then"
    )
    validate_only: bool = Field(
        False, description="changes only: answer with their plan, as POST /plan does, and change nothing"
    )
    plan_id: PlanId = None


class CancelRequest(BaseModel):
    """An empty object: what changes something is asked for in JSON."""

    model_config = ConfigDict(extra="forbid")


class StatementAnswer(StatementResults):
    statement_id: str | None = Field(None, description="given for a logged statement")
    state: str | None = None


class LoggedStatement(BaseModel):
    statement_id: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED", "CLOSED"]
    queue_position: int | None = Field(description="a query that waits for its turn: 1 is the next; else null")
    sql: str
    created_at: str
    expires_at: str
    results: list[dict[str, Any]] = Field(
        description="one a statement, as POST answers them; a query's has its first rows, and the url of all"
    )
    warnings: list[Warned]
    error: dict[str, Any] | None = Field(description="a problem document")
    next_page_token: str | None = Field(description="opaque; null: these were the last results")


class ResultRows(BaseModel):
    columns: list[Any]
    rows: list[list[Any]]
    next_page_token: str | None = Field(description="opaque; null: these were the last rows")
