"""SHOW CATALOGS | SCHEMAS | TABLES | COLUMNS and DESCRIBE, as queries over the metadata relations.

SHOW of anything else (ZONES, NODES, CREATE ZONE, ...) is not a matter of the SQL protocol and stays as it is.
"""

from __future__ import annotations

import re

from sqlglot import exp

from app.sql.statements.results import SessionContext
from app.sql.views.view_registry import check_place, required_schema

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_$]*)'
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}"
_LIKE = r"(?:\s+LIKE\s+(?P<like>'(?:[^']|'')*')(?:\s+ESCAPE\s+(?P<escape>'(?:[^']|'')*'))?)?"
_END = r"\s*;?\s*"

_CATALOGS = re.compile(rf"\s*SHOW\s+CATALOGS{_LIKE}{_END}", re.I)
_SCHEMAS = re.compile(rf"\s*SHOW\s+SCHEMAS(?:\s+(?:FROM|IN)\s+(?P<path>{_NAME}))?{_LIKE}{_END}", re.I)
_TABLES = re.compile(rf"\s*SHOW\s+TABLES(?:\s+(?:FROM|IN)\s+(?P<path>{_PATH}))?{_LIKE}{_END}", re.I)
_COLUMNS = re.compile(rf"\s*SHOW\s+COLUMNS\s+(?:FROM|IN)\s+(?P<path>{_PATH}){_LIKE}{_END}", re.I)
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
    if match := _TABLES.fullmatch(sql):
        schema = _schema(_parts(match["path"]) if match["path"] else [], session)
        query = 'SELECT table_name AS "Table" FROM information_schema.tables'
        where = f" WHERE table_schema = {_text(schema)}{_like(match, ' AND ', 'table_name')}"
        return f"{query}{where} ORDER BY 1"
    match = _COLUMNS.fullmatch(sql) or _DESCRIBE.fullmatch(sql)
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
