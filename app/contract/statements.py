"""Statements and their results."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from catalog.core.statement_log import StatementState


class Warned(TypedDict):
    name: str
    message: str


class ResultColumn(TypedDict):
    name: str
    type: Literal["bigint", "integer", "double", "boolean", "varchar", "timestamp(3)", "json"]


class StatementOutcome(TypedDict):
    """Queries have ``columns`` and ``data``; changes have neither."""

    n: Annotated[int, About("number of the statement in its script, from 1")]
    sql: str
    applied: Annotated[
        bool | None,
        About("false: nothing has changed (IF [NOT] EXISTS, or no difference); null: a query"),
    ]
    effect: dict[str, Any] | None
    zone_id: int | None
    catalog_version: Annotated[int, About("version after a change; of a query, the version that it has read")]
    warnings: list[Warned]
    columns: NotRequired[list[ResultColumn] | None]
    data: NotRequired[
        Annotated[list[list[Any]] | None, About("rows, their values in the order of the columns")]
    ]


class StatementResults(TypedDict):
    results: list[StatementOutcome]


class StatementAnswer(StatementResults):
    statement_id: NotRequired[Annotated[str | None, About("given for a logged statement")]]
    state: NotRequired[str | None]


class LoggedStatement(TypedDict):
    statement_id: str
    state: Annotated[str, OneOf(StatementState)]
    queue_position: Annotated[
        int | None, About("position of a query that waits for its turn, 1 is next; else null")
    ]
    sql: str
    created_at: str
    expires_at: str
    results: Annotated[
        list[dict[str, Any]],
        About("one a statement, as POST answers them; a query's has its first rows, and the url of all"),
    ]
    warnings: list[Warned]
    error: Annotated[dict[str, Any] | None, About("a problem document")]
    next_page_token: Annotated[str | None, About("opaque; null: these were the last results")]


class ResultRows(TypedDict):
    columns: list[Any]
    rows: list[list[Any]]
    next_page_token: Annotated[str | None, About("opaque; null: these were the last rows")]
