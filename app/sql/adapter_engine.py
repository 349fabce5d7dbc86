"""A small engine: DDL through the catalog, queries over literals and the metadata relations.

Queries run in sqlglot's own executor: no file, no network, and nothing that grows. It stands in for an engine
with system views.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError
from sqlglot.executor import execute

from app.sql.metadata import Relation, SystemTable, relations
from app.sql.results import Column, ColumnType, ResultSet, SessionContext
from app.sql.statements import StatementResult
from app.sql.trino_control import first_word
from catalog.core.errors import ErrorKind, ParseError

SERVER_VERSION = "zonekeeper"

KNOWN_TABLES = (
    SystemTable(
        "zones",
        (
            Column("zone_id", ColumnType.BIGINT),
            Column("name", ColumnType.VARCHAR),
            Column("partitions", ColumnType.INTEGER),
        ),
    ),
    SystemTable("nodes", (Column("name", ColumnType.VARCHAR), Column("alive", ColumnType.BOOLEAN))),
)

_TYPES = {bool: ColumnType.BOOLEAN, int: ColumnType.BIGINT, float: ColumnType.DOUBLE}

RunScript = Callable[[str], Awaitable[Sequence[StatementResult]]]


class AdapterEngine:
    """``StatementEngine``; ``run_script`` executes DDL."""

    def __init__(self, run_script: RunScript, tables: Sequence[SystemTable] = KNOWN_TABLES) -> None:
        self._run_script = run_script
        self._relations = relations(tables)

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        if first_word(sql) == "SELECT":
            return self._query(sql)
        *_, result = await self._run_script(sql)
        return ResultSet(
            update_type=" ".join(result.sql.split()[:2]).upper(),
            applied=result.applied,
            effect=result.effect,
            zone_id=result.zone_id,
            catalog_version=result.catalog_version,
            warnings=result.warnings,
        )

    def _query(self, sql: str) -> ResultSet:
        try:
            (query,) = parse(sql, dialect="trino")
            if not isinstance(query, exp.Select):
                raise ParseError(ErrorKind.STATEMENT_NOT_SUPPORTED, "only SELECT is supported")
            for call in list(query.find_all(exp.Anonymous, exp.CurrentVersion)):
                if isinstance(call, exp.CurrentVersion) or call.name.lower() == "version":
                    call.replace(exp.alias_(exp.Literal.string(SERVER_VERSION), "_col0"))
            used = {_qualified(table): table for table in query.find_all(exp.Table)}
            for name, table in used.items():
                if name not in self._relations:
                    raise ParseError(ErrorKind.SYNTAX_ERROR, f"there is no table {name}")
                table.replace(exp.to_table(name.replace(".", "__"), alias=table.alias or None))
            shapes = {name.replace(".", "__"): self._relations[name] for name in used}
            found = execute(
                query,
                schema={name: {c.name: _engine_type(c) for c in shape[0]} for name, shape in shapes.items()},
                tables={name: _records(shape) for name, shape in shapes.items()},
            )
        except (SqlglotError, ValueError) as error:
            raise ParseError(ErrorKind.SYNTAX_ERROR, f"the query cannot be run: {error}") from error
        kinds = {column.name: column.type for shape in shapes.values() for column in shape[0]}
        return _result(found.columns, found.rows, kinds)


def _qualified(table: exp.Table) -> str:
    parts = [part.name.lower() for part in table.parts]
    return ".".join(parts[1:] if len(parts) == 3 and parts[1] == "information_schema" else parts)


def _engine_type(column: Column) -> str:
    return {"timestamp(3)": "timestamp", "json": "varchar"}.get(column.type.value, column.type.value)


def _records(relation: Relation) -> list[dict[str, Any]]:
    columns, rows = relation
    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _result(names: Sequence[str], rows: Sequence[tuple[Any, ...]], kinds: dict[str, ColumnType]) -> ResultSet:
    values = [tuple(float(v) if isinstance(v, Decimal) else v for v in row) for row in rows]
    first = values[0] if values else (None,) * len(names)
    columns = tuple(
        Column(name, kinds.get(name) or _TYPES.get(type(value), ColumnType.VARCHAR))
        for name, value in zip(names, first, strict=True)
    )
    return ResultSet(columns, values)
