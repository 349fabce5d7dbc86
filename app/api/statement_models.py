"""Bodies of the statement log's resources."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.bodies import Reason, RequestBody
from app.api.plan import PlanId

WAIT_S_MAX = 50


class StatementRequest(RequestBody):
    sql: str = Field(
        description="one statement or a script", examples=["CREATE ZONE orders (REPLICAS 3)", "SHOW ZONES"]
    )
    reason: Reason = ""


class LoggedStatementRequest(StatementRequest):
    """Without ``wait_timeout`` and without an idempotency key a statement runs to its end and is not logged."""

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


class CancelRequest(BaseModel):
    """An empty object."""

    model_config = ConfigDict(extra="forbid")
