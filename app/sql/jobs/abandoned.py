"""How a statement ended whose server has died: the catalog's history is the witness.

Nothing is executed a second time. What is in the history has happened; for what is not there the answer says
so, and that the server may have been on its way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.requests.errors import problem
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.statement_log import CommittedStatement, LoggedOutcome, StatementRow, StatementState
from catalog.store.statement_log import pack
from parser.script import first_words, split_script
from parser.text_limits import OWN_TEXT

TRINO = "trino"
REST = "rest"

DONE_COLUMNS = [["result", "boolean"]]
DONE_PAGE = (1, 0, pack([[True]]))
NOT_APPLIED_PAGE = (1, 0, pack([[False]]))
"""Of a statement that had nothing to do: IF [NOT] EXISTS."""


def outcome_of_abandoned(
    row: StatementRow, committed: Sequence[CommittedStatement], in_catalog: int
) -> LoggedOutcome:
    """``in_catalog`` is the catalog's newest version: what a statement that changed nothing saw.

    A single DDL statement that is in the history has succeeded, and so has one whose results were reported
    before its server died (it only waited for data to arrive). Anything else has an unknown outcome.
    """
    if row.heads:
        return LoggedOutcome(
            StatementState.SUCCEEDED, row.heads, _pages_of_reported(row), warnings=(*row.warnings, _stopped())
        )
    texts = _statements(row.sql)
    if committed and len(texts) == len(committed):
        if row.protocol == TRINO:
            heads: tuple[dict[str, Any], ...] = (done_head(row.sql, committed[-1].version),)
            return LoggedOutcome(StatementState.SUCCEEDED, heads, (DONE_PAGE,))
        results = tuple(_result(statement, texts[statement.n - 1]) for statement in committed)
        return LoggedOutcome(StatementState.SUCCEEDED, results)
    if committed:
        done = ", ".join(f"{statement.n} (version {statement.version})" for statement in committed)
        happened = f"of its statements these are in the catalog's history: {done}"
    else:
        happened = f"it is not in the catalog's history up to version {in_catalog}"
    error = StoreError(
        ErrorKind.OUTCOME_UNKNOWN, f"the server that ran the statement stopped answering; {happened}"
    )
    return LoggedOutcome(StatementState.FAILED, error=problem(error))


def done_head(sql: str, catalog_version: int | None, update_type: str | None = None) -> dict[str, Any]:
    """The head of a statement that returns no rows of its own, as SQL clients expect it: one row, TRUE, or
    FALSE when there was nothing to do."""
    return {
        "columns": DONE_COLUMNS,
        "row_count": 1,
        "update_type": update_type or first_words(sql, 2),
        "catalog_version": catalog_version,
    }


def _pages_of_reported(row: StatementRow) -> tuple[tuple[int, int, bytes], ...]:
    return (DONE_PAGE,) if row.protocol == TRINO else ()


def _stopped() -> dict[str, Any]:
    return {
        "name": "WAIT_INTERRUPTED",
        "message": "the server that waited for the data stopped; the change stays and the data still moves",
    }


def _statements(sql: str) -> list[str]:
    return [piece.text for piece in split_script(sql, OWN_TEXT)]


def _result(committed: CommittedStatement, sql: str) -> dict[str, Any]:
    return {
        "n": committed.n,
        "sql": sql,
        "applied": True,
        "effect": {"op": sql.split()[0].lower(), "zone": committed.zone},
        "zone_id": committed.zone_id,
        "catalog_version": committed.version,
        "warnings": [],
    }
