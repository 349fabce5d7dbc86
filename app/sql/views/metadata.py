"""Metadata by which SQL clients draw their trees: ``information_schema`` and ``system.jdbc``, as plain
relations.

``relations`` makes them from the list of tables that an engine knows; an engine registers them under their
qualified names. All text is lower case as clients of the protocol expect; NULL is None. SHOW CATALOGS, SCHEMAS,
TABLES and COLUMNS, and DESCRIBE, become queries over them (``rewrite_show``); SHOW of anything else, as ZONES,
is no matter of the SQL protocol and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from app.sql.statements.results import BIGINT, BOOLEAN, VARCHAR, AnswerColumn, ResultType, SessionContext
from app.sql.views.system_views import SYSTEM_VIEWS
from app.sql.views.view_registry import TABLES_SCHEMA, SystemView, ViewRegistry, check_place, required_schema
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.table import Table

CATALOG = "zonekeeper"
INFORMATION_SCHEMA = "information_schema"

Rows = Sequence[tuple[Any, ...]]
Columns = tuple[AnswerColumn, ...]
Relation = tuple[Columns, Rows]

# java.sql.Types, which the JDBC driver expects in its metadata relations, and the size of a column.
_JDBC_TYPES: dict[str, tuple[int, int | None]] = {
    "boolean": (16, None),
    "bigint": (-5, 19),
    "integer": (4, 10),
    "smallint": (5, 5),
    "tinyint": (-6, 3),
    "real": (7, 24),
    "double": (8, 53),
    "decimal": (3, 38),
    "varchar": (12, 2147483647),
    "varbinary": (-3, 2147483647),
    "date": (91, 14),
    "time(6)": (92, 15),
    "time(6) with time zone": (2013, 21),
    "timestamp(3)": (93, 23),
    "timestamp(6)": (93, 26),
    "timestamp(9)": (93, 29),
    "timestamp(6) with time zone": (2014, 33),
    **dict.fromkeys(("json", "uuid", "interval year to month", "interval day to second"), (2000, None)),
    **dict.fromkeys(("row", "map"), (2000, None)),
    "array": (2003, None),
}
_TYPE_PARTS = re.compile(r"(\w+)(\([^)]*\))?(.*)")
_OF_TABLES = (
    *("information_schema.tables", "information_schema.columns"),
    *("system.jdbc.tables", "system.jdbc.columns"),
)
"""Relations that list the tables of the catalog as well."""
_QUOTED = frozenset({"varchar", "date", "time", "timestamp"})
_NUMBERS = frozenset({"bigint", "integer", "smallint", "tinyint", "real", "double", "decimal"})


def relations(views: Iterable[SystemView]) -> Mapping[str, Relation]:
    """Qualified name -> (columns, rows). ``views`` appear with the metadata relations themselves."""
    described = (*map(_in_lower_case, views), *_OWN)
    schemas = sorted({TABLES_SCHEMA.lower(), *(view.schema for view in described)})
    return {
        **_information_schema(described, schemas),
        **_jdbc(described, schemas),
        "system.metadata.table_comments": (
            _columns("catalog_name schema_name table_name comment"),
            [(CATALOG, view.schema, view.name, None) for view in described],
        ),
    }


def registry_with_metadata(views: Sequence[SystemView] = SYSTEM_VIEWS) -> ViewRegistry:
    """The views themselves, and ``information_schema``, ``system.jdbc`` and ``system.metadata`` about them."""
    return ViewRegistry((*views, *(_view(name, *relation) for name, relation in relations(views).items())))


def _view(qualified_name: str, columns: Columns, rows: Rows) -> SystemView:
    schema, name = qualified_name.upper().split(".")[-2:]
    upper = tuple(AnswerColumn(column.name.upper(), column.type) for column in columns)

    def with_tables(snapshot: SystemSnapshot) -> Rows:
        of_catalog = tuple(map(_of_catalog, snapshot.catalog.tables))
        made = {**_information_schema(of_catalog, ()), **_jdbc(of_catalog, ())}
        return [*rows, *made[qualified_name][1]]

    return SystemView(name, upper, with_tables if qualified_name in _OF_TABLES else lambda _: rows, schema)


def _of_catalog(table: Table) -> SystemView:
    """A table of the catalog, whose rows its zone has."""
    columns = tuple(AnswerColumn(_folded(column.name), trino_type(column.type)) for column in table.columns)
    return SystemView(_folded(table.name), columns, lambda _: (), TABLES_SCHEMA.lower())


def _folded(name: str) -> str:
    """Fold a name as clients of the protocol expect names that were not quoted."""
    return name.lower() if name.isupper() else name


def trino_type(text: str) -> ResultType:
    """A type of the catalog, as ``DECIMAL(10, 2)`` or ``TIMESTAMP(3) WITH LOCAL TIME ZONE``."""
    parts = _TYPE_PARTS.fullmatch(text)
    assert parts is not None, text
    name, arguments, rest = parts.groups("")
    given = arguments.replace(" ", "")
    if name in ("TIME", "TIMESTAMP"):
        zone = " with time zone" if rest else ""
        return ResultType(f"{name.lower()}{given or '(6)'}{zone}")
    if name in ("BINARY", "VARBINARY"):
        return ResultType("varbinary")
    return ResultType(
        {"FLOAT": "double", "DECIMAL": f"decimal{given or '(38,0)'}"}.get(name, name.lower() + given)
    )


def _in_lower_case(view: SystemView) -> SystemView:
    columns = tuple(AnswerColumn(column.name.lower(), column.type) for column in view.columns)
    return SystemView(view.name.lower(), columns, view.rows, view.schema.lower())


def _information_schema(tables: Sequence[SystemView], schemas: Sequence[str]) -> dict[str, Relation]:
    columns = [
        (
            *(CATALOG, table.schema, table.name, column.name, position, None, "YES"),
            *(column.type.value, None, None),
        )
        for table in tables
        for position, column in enumerate(table.columns, start=1)
    ]
    return {
        "information_schema.schemata": (_SCHEMATA, [(CATALOG, schema) for schema in schemas]),
        "information_schema.tables": (
            _TABLES,
            [(CATALOG, table.schema, table.name, _kind(table, "BASE TABLE"), None) for table in tables],
        ),
        "information_schema.columns": (_COLUMNS, columns),
        "information_schema.views": (_VIEWS, [(CATALOG, view.schema, view.name, None) for view in _OWN]),
    }


def _jdbc(tables: Sequence[SystemView], schemas: Sequence[str]) -> dict[str, Relation]:
    jdbc_tables = [
        (CATALOG, table.schema, table.name, _kind(table, "TABLE"), *([None] * 6)) for table in tables
    ]
    return {
        "system.jdbc.catalogs": (_columns("table_cat"), [(CATALOG,)]),
        "system.jdbc.schemas": (
            _columns("table_schem table_catalog"),
            [(schema, CATALOG) for schema in schemas],
        ),
        "system.jdbc.tables": (_JDBC_TABLES, jdbc_tables),
        "system.jdbc.columns": (_JDBC_COLUMNS, list(_jdbc_columns(tables))),
        "system.jdbc.types": (_JDBC_TYPE_COLUMNS, list(_jdbc_types())),
        "system.jdbc.table_types": (_columns("table_type"), [("TABLE",), ("VIEW",)]),
        **{f"system.jdbc.{name}": (columns, ()) for name, columns in _JDBC_EMPTY.items()},
    }


def _jdbc_columns(tables: Sequence[SystemView]) -> Iterable[tuple[Any, ...]]:
    for table in tables:
        for position, column in enumerate(table.columns, start=1):
            number, size, digits = _jdbc_type(column.type.value)
            yield (
                *(CATALOG, table.schema, table.name, column.name, number, column.type.value, size, None),
                *(digits, 10, 1, None, None, None, None, None, position, "YES", None, None, None, None),
                *("NO", "NO"),
            )


def _jdbc_type(kind: str) -> tuple[int, int | None, int]:
    """Number of the type in JDBC, the size of a column, and its decimal digits."""
    known = _JDBC_TYPES.get(kind)
    if known is not None:
        return *known, 0
    name, _, rest = kind.partition("(")
    first, _, second = rest.partition(")")[0].partition(",")
    if name in ("time", "timestamp"):
        number, size = _JDBC_TYPES[f"{name}(6)" + (" with time zone" if "zone" in kind else "")]
        return number, size, 0
    number, size = (1, None) if name == "char" else _JDBC_TYPES[name]
    return number, int(first) if first else size, int(second or 0)


def _jdbc_types() -> Iterable[tuple[Any, ...]]:
    for kind, (number, size) in _JDBC_TYPES.items():
        quote = "'" if kind.partition("(")[0] in _QUOTED else None
        is_number = kind in _NUMBERS
        yield (
            *(kind, number, size, quote, quote, None, 1, True, 3, not is_number, False, False, None),
            *(0, 38 if kind == "decimal" else 0, None, None, 10 if is_number else None),
        )


def _columns(text: str) -> tuple[AnswerColumn, ...]:
    """Columns from ``name`` (varchar), ``name:b`` (bigint) and ``name:?`` (boolean)."""
    kinds = {"": VARCHAR, "b": BIGINT, "?": BOOLEAN}
    parts = [word.partition(":") for word in text.split()]
    return tuple(AnswerColumn(name, kinds[kind]) for name, _, kind in parts)


_SCHEMATA = _columns("catalog_name schema_name")
_TABLES = _columns("table_catalog table_schema table_name table_type comment")
_VIEWS = _columns("table_catalog table_schema table_name view_definition")
_COLUMNS = _columns(
    "table_catalog table_schema table_name column_name ordinal_position:b column_default is_nullable "
    "data_type comment extra_info"
)
_JDBC_TABLES = _columns(
    "table_cat table_schem table_name table_type remarks type_cat type_schem type_name "
    "self_referencing_col_name ref_generation"
)
_JDBC_COLUMNS = _columns(
    "table_cat table_schem table_name column_name data_type:b type_name column_size:b buffer_length:b "
    "decimal_digits:b num_prec_radix:b nullable:b remarks column_def sql_data_type:b sql_datetime_sub:b "
    "char_octet_length:b ordinal_position:b is_nullable scope_catalog scope_schema scope_table "
    "source_data_type:b is_autoincrement is_generatedcolumn"
)
_JDBC_TYPE_COLUMNS = _columns(
    "type_name data_type:b precision:b literal_prefix literal_suffix create_params nullable:b "
    "case_sensitive:? searchable:b unsigned_attribute:? fixed_prec_scale:? auto_increment:? "
    "local_type_name minimum_scale:b maximum_scale:b sql_data_type:b sql_datetime_sub:b num_prec_radix:b"
)
_JDBC_EMPTY = {
    "attributes": _columns(
        "type_cat type_schem type_name attr_name data_type:b attr_type_name attr_size:b decimal_digits:b "
        "num_prec_radix:b nullable:b remarks attr_def sql_data_type:b sql_datetime_sub:b char_octet_length:b "
        "ordinal_position:b is_nullable scope_catalog scope_schema scope_table source_data_type:b"
    ),
    "procedures": _columns(
        "procedure_cat procedure_schem procedure_name remarks procedure_type:b specific_name"
    ),
    "procedure_columns": _columns(
        "procedure_cat procedure_schem procedure_name column_name column_type:b data_type:b type_name "
        "precision:b length:b scale:b radix:b nullable:b remarks column_def sql_data_type:b "
        "sql_datetime_sub:b char_octet_length:b ordinal_position:b is_nullable specific_name"
    ),
    "pseudo_columns": _columns(
        "table_cat table_schem table_name column_name data_type:b column_size:b decimal_digits:b "
        "num_prec_radix:b column_usage remarks char_octet_length:b is_nullable"
    ),
    "super_tables": _columns("table_cat table_schem table_name supertable_name"),
    "super_types": _columns("type_cat type_schem type_name supertype_cat supertype_schem supertype_name"),
    "udts": _columns("type_cat type_schem type_name class_name data_type:b remarks base_type:b"),
}


_OWN_COLUMNS = {"schemata": _SCHEMATA, "tables": _TABLES, "columns": _COLUMNS, "views": _VIEWS}
_OWN = tuple(
    SystemView(name, columns, lambda _snapshot: (), INFORMATION_SCHEMA)
    for name, columns in _OWN_COLUMNS.items()
)


def _kind(table: SystemView, otherwise: str) -> str:
    """VIEW tells clients that it cannot be written to."""
    return "VIEW" if table.schema == INFORMATION_SCHEMA else otherwise


_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_$]*)'
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}"
_LIKE = r"(?:\s+LIKE\s+(?P<like>'(?:[^']|'')*')(?:\s+ESCAPE\s+(?P<escape>'(?:[^']|'')*'))?)?"
_END = r"\s*;?\s*"

_CATALOGS = re.compile(rf"\s*SHOW\s+CATALOGS{_LIKE}{_END}", re.I)
_SCHEMAS = re.compile(rf"\s*SHOW\s+SCHEMAS(?:\s+(?:FROM|IN)\s+(?P<path>{_NAME}))?{_LIKE}{_END}", re.I)
_SHOW_TABLES = re.compile(rf"\s*SHOW\s+TABLES(?:\s+(?:FROM|IN)\s+(?P<path>{_PATH}))?{_LIKE}{_END}", re.I)
_SHOW_COLUMNS = re.compile(rf"\s*SHOW\s+COLUMNS\s+(?:FROM|IN)\s+(?P<path>{_PATH}){_LIKE}{_END}", re.I)
_DESCRIBE = re.compile(rf"\s*(?:DESCRIBE|DESC)\s+(?P<path>{_PATH}){_END}", re.I)


def rewrite_show(sql: str, session: SessionContext) -> str:
    """The query that answers ``sql``; ``sql`` itself when it asks for no metadata. Raises RefusedError for a
    catalog or schema that is not there, and where none is named."""
    if match := _CATALOGS.fullmatch(sql):
        query = 'SELECT table_cat AS "Catalog" FROM system.jdbc.catalogs'
        return f"{query}{_like(match, ' WHERE ', 'table_cat')} ORDER BY 1"
    if match := _SCHEMAS.fullmatch(sql):
        check_place(_parts(match["path"])[0] if match["path"] else session.catalog)
        query = 'SELECT schema_name AS "Schema" FROM information_schema.schemata'
        return f"{query}{_like(match, ' WHERE ', 'schema_name')} ORDER BY 1"
    if match := _SHOW_TABLES.fullmatch(sql):
        schema = _schema(_parts(match["path"]) if match["path"] else [], session)
        query = 'SELECT table_name AS "Table" FROM information_schema.tables'
        where = f" WHERE table_schema = {_text(schema)}{_like(match, ' AND ', 'table_name')}"
        return f"{query}{where} ORDER BY 1"
    match = _SHOW_COLUMNS.fullmatch(sql) or _DESCRIBE.fullmatch(sql)
    if match is None:
        return sql
    parts = _parts(match["path"])
    schema = _schema(parts[:-1], session)
    where = f" WHERE table_schema = {_text(schema)} AND table_name = {_text(parts[-1])}"
    if "like" in match.groupdict():
        where += _like(match, " AND ", "column_name")
    query = 'SELECT column_name AS "Column", data_type AS "Type", extra_info AS "Extra", comment AS "Comment"'
    return f"{query} FROM information_schema.columns{where} ORDER BY ordinal_position"


def _schema(path: list[str], session: SessionContext) -> str:
    """The one that a path, of a catalog and a schema, leads to."""
    schema = path[-1] if path else required_schema(session.schema)
    check_place(path[0] if len(path) > 1 else session.catalog, schema)
    return schema


def _like(match: re.Match[str], before: str, column: str) -> str:
    if not match["like"]:
        return ""
    escape = f" ESCAPE {match['escape']}" if match["escape"] else ""
    return f"{before}{column} LIKE {match['like']}{escape}"


def _parts(path: str) -> list[str]:
    """The names of a path; unquoted ones in lower case."""
    return [
        name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
        for name in re.findall(_NAME, path)
    ]


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="trino")
