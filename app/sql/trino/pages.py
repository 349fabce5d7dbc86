"""The SQL protocol's pages, as functions of a statement's row: every server answers the same.

Token 0 is the answer to the POST. Each later token is answered once with something new and then with the same
again: a status while the statement runs, page after page of rows once it is over. The row remembers the newest
token and what it was answered with. Drivers decode values by the signatures of types, ``{"rawType",
"arguments"}``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from app.sql.engine.statement_jobs import ROWS_IN_PAGE
from app.sql.statements.results import (
    JSON,
    TIMESTAMP,
    AnswerColumn,
    ResultSet,
    SessionContext,
    StatementEngine,
    timestamp_text,
)
from catalog.core.errors import ErrorKind
from catalog.core.statement_log import StatementProgress, StatementRow, StatementState

Json = dict[str, Any]

VARCHAR_LENGTH_MAX = 2**31 - 1
_TOKEN = re.compile(r'"(?:[^"]|"")*"|[(),]|[^\s(),"]+')
_NESTED = frozenset({"array", "map", "row"})


def type_signature(name: str) -> Json:
    """``name`` is a type of ours: ``decimal(38,0)``, ``row("a b" date, map(varchar, timestamp(6)))``."""
    return _SignatureReader(_TOKEN.findall(name)).read()


class _SignatureReader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    def read(self) -> Json:
        """``timestamp(6) with time zone`` has its arguments in the middle of its name."""
        words = [self._take()]
        while self._peek() not in ("", "(", ")", ","):
            words.append(self._take())
        arguments: list[Json] = []
        if self._peek() == "(":
            self._take()
            while self._peek() != ")":
                arguments.append(self._argument(words[0]))
                if self._peek() == ",":
                    self._take()
            self._take()
            while self._peek() not in ("", "(", ")", ","):
                words.append(self._take())
        elif words == ["varchar"]:
            arguments = [{"kind": "LONG", "value": VARCHAR_LENGTH_MAX}]
        return {"rawType": " ".join(words), "arguments": arguments}

    def _argument(self, outer: str) -> Json:
        if outer not in _NESTED:
            return {"kind": "LONG", "value": int(self._take())}
        if outer != "row":
            return {"kind": "TYPE", "value": self.read()}
        field = self._field()
        value: Json = {"typeSignature": self.read()}
        if field is not None:
            value["fieldName"] = {"name": field}
        return {"kind": "NAMED_TYPE", "value": value}

    def _field(self) -> str | None:
        """A field's name, if it has one: then another word follows, which is not the rest of a type's name."""
        following = self._tokens[self._next + 1]
        if self._peek().startswith('"'):
            return self._take()[1:-1].replace('""', '"')
        is_name = following not in ("(", ")", ",") and self._peek() != "interval"
        return self._take() if is_name else None

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]


def page_body(
    row: StatementRow,
    base: str,
    progress: StatementProgress | None,
    next_token: int | None,
    rows: list[list[Any]] | None = None,
    queued: int | None = None,
) -> Json:
    """One page. ``base``: where clients find this server, ``http://host:port``. ``next_token`` None ends the
    statement; ``rows`` are those of this page, ``queued`` is the position of a query that waits for its
    turn."""
    head = row.heads[0] if row.heads else {}
    body: Json = {"id": row.statement_id, "infoUri": f"{base}/v1/query/{row.statement_id}"}
    if next_token is not None:
        body["nextUri"] = f"{base}/v1/statement/executing/{row.statement_id}/{next_token}"
    if head.get("columns") and row.error is None:
        body["columns"] = [
            {"name": name, "type": kind, "typeSignature": type_signature(kind)}
            for name, kind in head["columns"]
        ]
        if rows:
            body["data"] = rows
    body["stats"] = _stats(row, progress, head, queued)
    # Codes of warnings mean nothing to clients; the name is what they show.
    body["warnings"] = [
        {"warningCode": {"code": 1, "name": str(warning["name"])}, "message": warning["message"]}
        for warning in row.warnings
    ]
    if row.error is not None:
        body["error"] = _error(row.error)
    if head.get("update_type"):
        body["updateType"] = head["update_type"]
    return body


def page_count(row: StatementRow) -> int:
    """Number of pages of rows that a statement that is over has; 0 for one that failed."""
    if row.error is not None or not row.heads:
        return 0
    return -(-int(row.heads[0].get("row_count", 0)) // ROWS_IN_PAGE)


def wire_value(value: Any, column: AnswerColumn) -> Any:
    """A JSON-ready value as the protocol writes its type: JSON and timestamps are strings."""
    if value is None:
        return None
    if column.type == JSON and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if column.type == TIMESTAMP and isinstance(value, int):
        return timestamp_text(value)
    return value


def _stats(row: StatementRow, progress: StatementProgress | None, head: Json, queued: int | None) -> Json:
    states = {StatementState.PENDING: "QUEUED", StatementState.RUNNING: "RUNNING"}
    state = states.get(row.state, "FINISHED" if row.error is None else "FAILED")
    if queued is not None and not row.state.is_over:
        state = "QUEUED"
    done, total = (progress.done, progress.total) if progress is not None else (int(row.state.is_over), 1)
    elapsed_ms = ((row.finished_us or row.created_us) - row.created_us) // 1000
    return {
        "state": state,
        "queued": state == "QUEUED",
        "scheduled": state != "QUEUED",
        "nodes": 1,
        "totalSplits": total,
        "queuedSplits": total - done if state == "QUEUED" else 0,
        "runningSplits": 0 if state == "QUEUED" else total - done,
        "completedSplits": done,
        "cpuTimeMillis": 0,
        "wallTimeMillis": elapsed_ms,
        "queuedTimeMillis": 0,
        "elapsedTimeMillis": elapsed_ms,
        "processedRows": int(head.get("row_count", 0)),
        "processedBytes": 0,
        "physicalInputBytes": 0,
        "peakMemoryBytes": 0,
        "spilledBytes": 0,
        "progressPercentage": 100.0 * done / total if total else 100.0,
        "queuePosition": queued,
    }


def _error(problem: Json) -> Json:
    line, column = problem.get("line"), problem.get("column")
    error: Json = {
        "message": problem["detail"],
        "sqlState": problem["sqlState"],
        "errorCode": problem["code"],
        "errorName": problem["name"],
        "errorType": ErrorKind[problem["name"]].protocol_type.value,
        "failureInfo": {
            "type": problem["name"],
            "message": problem["detail"],
            "suppressed": [],
            "stack": [],
        },
    }
    if line is not None and column is not None:
        error["errorLocation"] = {"lineNumber": line, "columnNumber": column}
        error["failureInfo"]["errorLocation"] = error["errorLocation"]
    return error


class LowerCaseNames:
    """An engine whose folded names come out in lower case, as that protocol has them; names that were quoted
    with a lower-case letter in them stay as they were written."""

    def __init__(self, inner: StatementEngine) -> None:
        self._inner = inner

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        answer = await self._inner.execute(sql, session)
        columns = tuple(
            replace(column, name=column.name.lower() if column.name.isupper() else column.name)
            for column in answer.columns
        )
        return replace(answer, columns=columns)
