"""What a system view is, and the registry of all of them: names are found here, rows become Arrow streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.sql.results import AnswerColumn, ResultType
from app.sql.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from parser.queries import QueryName

CATALOG = "ZONEKEEPER"
CLIENTS_CATALOG = "SYSTEM"
"""Where drivers look for ``jdbc`` and ``metadata``."""
SCHEMA = "SYSTEM"
EVENTS = "EVENTS"
AUDIT = "AUDIT"
SQL_QUERIES = "SQL_QUERIES"
ALERTS = "ALERTS"
EXCHANGES = "EXCHANGES"
STORE_COPIES = "STORE_COPIES"
ZONE_ID = "ZONE_ID"
"""The column by which rows are told apart that a caller may see."""

Row = tuple[Any, ...]

BIGINT, INTEGER, BOOLEAN = ResultType.BIGINT, ResultType.INTEGER, ResultType.BOOLEAN
VARCHAR, TIMESTAMP, JSON = ResultType.VARCHAR, ResultType.TIMESTAMP, ResultType.JSON

_ARROW = {
    BIGINT: pa.int64(),
    INTEGER: pa.int32(),
    BOOLEAN: pa.bool_(),
    ResultType.DOUBLE: pa.float64(),
    VARCHAR: pa.string(),
    JSON: pa.string(),
    TIMESTAMP: pa.timestamp("ms"),
}


@dataclass(frozen=True, slots=True)
class SystemView:
    """``rows`` is pure and may be slow: it runs in a worker thread. Timestamps are milliseconds in UTC."""

    name: str
    columns: tuple[AnswerColumn, ...]
    rows: Callable[[SystemSnapshot], Iterable[Row]]
    schema: str = SCHEMA

    @property
    def relation(self) -> str:
        """The name under which a query finds it."""
        return f"{self.schema}.{self.name}"

    @property
    def is_short(self) -> bool:
        """It has few rows however many zones there are: about the views, the queries or the alerts."""
        return self.schema != SCHEMA or self.name in (SQL_QUERIES, ALERTS, "SNAPSHOT")


def view(
    name: str, columns: Mapping[str, ResultType], rows: Callable[[SystemSnapshot], Iterable[Row]]
) -> SystemView:
    return SystemView(name, tuple(AnswerColumn(column, kind) for column, kind in columns.items()), rows)


def arrow_stream(columns: tuple[AnswerColumn, ...], rows: Iterable[Row]) -> bytes:
    """Rows as one Arrow IPC stream."""
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(cell, _ARROW[column.type]) for column, cell in zip(columns, cells, strict=True)]
    table = pa.table(arrays, names=[column.name for column in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class ViewRegistry:
    """All views by schema and name; names are compared without case, as SQL clients send them either way."""

    def __init__(self, views: Iterable[SystemView]) -> None:
        self._views = {(system_view.schema, system_view.name): system_view for system_view in views}
        self._relations = {system_view.relation: system_view for system_view in self._views.values()}

    def __iter__(self) -> Iterator[SystemView]:
        return iter(self._views.values())

    @property
    def schemas(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(schema for schema, _ in self._views))

    def find(self, name: QueryName, schema: str = SCHEMA) -> SystemView:
        """``view``, ``schema.view`` or ``catalog.schema.view``; ``schema`` is the session's.

        Raises RefusedError (VIEW_NOT_FOUND).
        """
        parts = [part.upper() for part in name.parts]
        known = len(parts) <= 3 and (len(parts) < 3 or parts[0] in (CATALOG, CLIENTS_CATALOG))
        schemas = (schema.upper(), SCHEMA) if len(parts) == 1 else (parts[-2],)
        for schema_name in schemas if known else ():
            system_view = self._views.get((schema_name, parts[-1]))
            if system_view is not None:
                return system_view
        views = ", ".join(system_view.name for system_view in self if system_view.schema == SCHEMA)
        message = f"there is no view {name} to query; there are {views}"
        raise RefusedError(ErrorKind.VIEW_NOT_FOUND, message, name.position)

    def relation(self, relation: str) -> SystemView:
        return self._relations[relation]
