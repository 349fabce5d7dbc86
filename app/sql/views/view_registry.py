"""System views, and the registry of all of them: names are resolved here, rows become Arrow streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from app.contract.columns import Facts, sql_columns
from app.sql.statements.results import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    JSON,
    TIMESTAMP,
    VARCHAR,
    AnswerColumn,
    ResultType,
)
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Position, shortened
from parser.queries import QueryName

CATALOG = "ZONEKEEPER"
CLIENTS_CATALOG = "SYSTEM"
"""Catalog where drivers look for ``jdbc`` and ``metadata``."""
SCHEMA = "SYSTEM"
TABLES_SCHEMA = "PUBLIC"
"""Schema where the tables of the catalog stand."""
SCHEMAS = (SCHEMA, TABLES_SCHEMA, "INFORMATION_SCHEMA", "JDBC", "METADATA")
EVENTS = "EVENTS"
AUDIT = "AUDIT"
SQL_QUERIES = "SQL_QUERIES"
ALERTS = "ALERTS"
EXCHANGES = "EXCHANGES"
STORE_COPIES = "STORE_COPIES"
ZONE_ID = "ZONE_ID"
"""The column by which rows are told apart that a caller may see."""

Row = tuple[Any, ...]
Block = Mapping[str, Iterable[Any]]
"""Rows by columns: the values of each field as SQL shows them; not all of them are a ``repeat``."""

_ARROW = {
    BIGINT: pa.int64(),
    INTEGER: pa.int32(),
    BOOLEAN: pa.bool_(),
    DOUBLE: pa.float64(),
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
        """True if it has few rows however many zones there are: about the views, the queries or the alerts."""
        return self.schema != SCHEMA or self.name in (SQL_QUERIES, ALERTS, "SNAPSHOT")


def view_of(name: str, row: type, facts: Callable[[SystemSnapshot], Iterable[Facts]]) -> SystemView:
    """The columns of ``row`` that SQL shows."""
    shown = tuple(sql_columns(row).values())

    def rows(snapshot: SystemSnapshot) -> Iterator[Row]:
        return (tuple(column.cell(one) for column in shown) for one in facts(snapshot))

    return SystemView(name, _answer_columns(row), rows)


def large_view(
    name: str, row: type, bodies: Callable[[SystemSnapshot], Iterable[Mapping[str, Any]]]
) -> SystemView:
    """A view of many rows, whose values are given by field as SQL shows them: nothing is looked at again."""
    cells = itemgetter(*(column.name for column in sql_columns(row).values()))
    return SystemView(name, _answer_columns(row), lambda snapshot: map(cells, bodies(snapshot)))


def column_view(name: str, row: type, blocks: Callable[[SystemSnapshot], Iterable[Block]]) -> SystemView:
    """A view of many rows that are at hand together."""
    cells = itemgetter(*(column.name for column in sql_columns(row).values()))

    def rows(snapshot: SystemSnapshot) -> Iterator[Row]:
        return chain.from_iterable(zip(*cells(block), strict=False) for block in blocks(snapshot))

    return SystemView(name, _answer_columns(row), rows)


def _answer_columns(row: type) -> tuple[AnswerColumn, ...]:
    return tuple(
        AnswerColumn(sql, ResultType(one.sql_kind), one.about.text, one.about.sums)
        for sql, one in sql_columns(row).items()
    )


def arrow_stream(columns: tuple[AnswerColumn, ...], rows: Iterable[Row]) -> bytes:
    """Rows as one Arrow IPC stream."""
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(cell, _ARROW[column.type]) for column, cell in zip(columns, cells, strict=True)]
    table = pa.table(arrays, names=[column.name for column in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def check_place(catalog: str, schema: str = "", position: Position | None = None) -> None:
    """That there are such a catalog and, unless it is empty, such a schema. Raises RefusedError."""
    if catalog.upper() not in (CATALOG, CLIENTS_CATALOG):
        message = f"Catalog '{shortened(catalog)}' not found"
        raise RefusedError(ErrorKind.CATALOG_NOT_FOUND, message, position)
    if schema and schema.upper() not in SCHEMAS:
        message = f"Schema '{shortened(schema)}' does not exist"
        raise RefusedError(ErrorKind.SCHEMA_NOT_FOUND, message, position)


def required_schema(schema: str, position: Position | None = None) -> str:
    """A session's, for a name without one. Raises RefusedError."""
    if not schema:
        message = "Schema must be specified when session schema is not set"
        raise RefusedError(ErrorKind.MISSING_SCHEMA_NAME, message, position)
    return schema


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

        Raises RefusedError (CATALOG_NOT_FOUND, SCHEMA_NOT_FOUND, MISSING_SCHEMA_NAME, VIEW_NOT_FOUND).
        """
        parts = [part.upper() for part in name.parts]
        if len(parts) <= 3:
            schema = parts[-2] if len(parts) > 1 else required_schema(schema, name.position)
            check_place(name.parts[0] if len(parts) == 3 else CATALOG, schema, name.position)
            system_view = self._views.get((schema.upper(), parts[-1]))
            if system_view is not None:
                return system_view
        views = ", ".join(system_view.name for system_view in self if system_view.schema == SCHEMA)
        message = f"there is no view {name} to query; there are {views}"
        raise RefusedError(ErrorKind.VIEW_NOT_FOUND, message, name.position)

    def relation(self, relation: str) -> SystemView:
        return self._relations[relation]
