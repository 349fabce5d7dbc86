"""DESCRIBE INPUT and DESCRIBE OUTPUT of a prepared statement, as an engine that runs it with nothing known.

Drivers ask for both before they bind values. A parameter's type is decided by the value that comes, so it is
``unknown``. The columns of a query are had by running it with NULL for each parameter; what changes zones has
none and is not run.
"""

from __future__ import annotations

from app.sql.statements.results import AnswerColumn, ResultSet, ResultType, SessionContext, StatementEngine
from app.sql.trino.control import ControlKind, bind, placeholders
from app.sql.trino.type_signature import type_signature
from parser.queries import QUERY_WORDS, QUESTION_WORDS
from parser.script import first_words

_INPUT = (AnswerColumn("Position", ResultType.BIGINT), AnswerColumn("Type", ResultType.VARCHAR))
_OUTPUT = (
    *(AnswerColumn(name, ResultType.VARCHAR) for name in ("Column Name", "Catalog", "Schema", "Table", "Type")),
    AnswerColumn("Type Size", ResultType.BIGINT),
    AnswerColumn("Aliased", ResultType.BOOLEAN),
)

_TYPE_BYTES = {
    **dict.fromkeys(("boolean", "tinyint"), 1),
    "smallint": 2,
    **dict.fromkeys(("integer", "real", "date", "interval year to month"), 4),
    **dict.fromkeys(("bigint", "double", "time", "timestamp", "interval day to second"), 8),
    **dict.fromkeys(("time with time zone", "timestamp with time zone"), 8),
    "uuid": 16,
}
"""Of the fixed-size types; the others have size 0 in this protocol."""


class PreparedDescriber:
    """A StatementEngine whose only answer is the description of ``prepared``."""

    def __init__(self, kind: ControlKind, prepared: str, engine: StatementEngine) -> None:
        """Reads ``prepared``: call it in a reader's thread. Raises StatementError."""
        self._kind = kind
        self._engine = engine
        self._count = placeholders(prepared)
        asks = first_words(prepared, 1) in QUERY_WORDS | QUESTION_WORDS
        describes_rows = kind is ControlKind.DESCRIBE_OUTPUT and asks
        self._query = bind(prepared, ("NULL",) * self._count) if describes_rows else ""

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """Raises StatementError as the prepared query would."""
        if self._kind is ControlKind.DESCRIBE_INPUT:
            return ResultSet(_INPUT, [(position, "unknown") for position in range(self._count)])
        if not self._query:
            return ResultSet(_OUTPUT)
        described = await self._engine.execute(self._query, session)
        return ResultSet(_OUTPUT, [_described(column) for column in described.columns])


def _described(column: AnswerColumn) -> tuple[object, ...]:
    """Which table a column came from is left out: it may be the result of any expression."""
    kind = column.type.value
    return column.name, "", "", "", kind, _TYPE_BYTES.get(type_signature(kind)["rawType"], 0), False
