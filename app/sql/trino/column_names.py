"""Column names as clients of the SQL protocol expect them."""

from __future__ import annotations

from dataclasses import replace

from app.sql.statements.results import ResultSet, SessionContext, StatementEngine


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
