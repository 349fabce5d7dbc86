"""DESCRIBE INPUT and DESCRIBE OUTPUT of a prepared statement, as an engine that runs it with nothing known.

Drivers ask for both before they bind values. A parameter's type is decided by the value that comes, so it is
``unknown``. The columns of a query are had by running it with NULL for each parameter; what changes zones has
none and is not run.
"""

from __future__ import annotations

from app.sql.results import Column, ColumnType, ResultSet, SessionContext, StatementEngine
from app.sql.trino_control import ControlKind, bind, first_word, placeholders
from app.sql.type_signature import type_signature
from parser.queries import QUERY_WORDS, QUESTION_WORDS

_INPUT = (Column("Position", ColumnType.BIGINT), Column("Type", ColumnType.VARCHAR))
_OUTPUT = (
    *(Column(name, ColumnType.VARCHAR) for name in ("Column Name", "Catalog", "Schema", "Table", "Type")),
    Column("Type Size", ColumnType.BIGINT),
    Column("Aliased", ColumnType.BOOLEAN),
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
        self._kind = kind
        self._prepared = prepared
        self._engine = engine

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """Raises StatementError as the prepared query would."""
        count = placeholders(self._prepared)
        if self._kind is ControlKind.DESCRIBE_INPUT:
            return ResultSet(_INPUT, [(position, "unknown") for position in range(count)])
        if first_word(self._prepared) not in QUERY_WORDS | QUESTION_WORDS:
            return ResultSet(_OUTPUT)
        found = await self._engine.execute(bind(self._prepared, ("NULL",) * count), session)
        return ResultSet(_OUTPUT, [_described(column) for column in found.columns])


def _described(column: Column) -> tuple[object, ...]:
    """Which table a column came from is not told: it may be the result of any expression."""
    kind = column.type.value
    return column.name, "", "", "", kind, _TYPE_BYTES.get(type_signature(kind)["rawType"], 0), False
