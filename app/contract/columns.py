"""The one description of a row: each column of it with its type, text, unit, and names in REST and SQL, who may
see it, and where its value is from. A row is a typed dictionary whose fields are marked with ``Named``.

Made from it: the body of REST with its schema, a SQL view (``app.sql.views.view_registry.view_of``), columns of
the console's grids (``app.console.grids.grid_columns``) and of tables of the command line
(``app.cli.output.table_columns``), and ``docs/views.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, TypeVar, Union, cast, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from app.contract.marks import About
from rebalance.core.admission.move_admission import utc

T = TypeVar("T")


class _MomentMark(About):
    """Mark of a text that is kept as milliseconds, which SQL shows."""

    def __init__(self, shown: Callable[[int], str]) -> None:
        super().__init__("UTC")
        self.shown = shown


def _with_milliseconds(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(timespec="milliseconds")


class SqlKind(str):
    """Mark of a field whose SQL type does not follow from its own."""


Moment = Annotated[str, _MomentMark(utc)]
PreciseMoment = Annotated[str, _MomentMark(_with_milliseconds)]
Long = Annotated[int, SqlKind("bigint")]
Milliseconds = Annotated[int, SqlKind("timestamp(3)")]
"""A time in rows that SQL alone shows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Source of a row: a record, whose attributes are its columns, and ``values`` by column that are not the
    record's. ``record`` None: what it would say is not known."""

    record: object | None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Named:
    """Description of a column beside its type."""

    text: str = ""
    sql: str = ""
    """Name of the column in the view; empty: the view does not have it."""
    of: str = ""
    """Attribute of the record, where it has another name than the field."""
    title: str = ""
    """Title of the column in grids and tables, where it does not follow from the field's name."""
    words: Mapping[int, str] = field(default_factory=dict)
    """Numbers that a word is shown for, but not in SQL."""
    none: str = ""
    """Text that people read where there is no value."""
    unit: str = ""
    example: str = ""
    keeps_empty: bool = False
    """An empty text is no lack of one."""
    sums: bool = False
    """True for a sum over all zones: only users who see all of them see it."""
    is_option: bool = False
    """True if the column is an option of the thing: how it is set."""

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        more = {"description": self.text, "examples": [self.example] if self.example else None}
        return handler(core) | {name: value for name, value in more.items() if value}


SQL_KINDS = {bool: "boolean", int: "integer", float: "double", str: "varchar", dict: "json", list: "json"}


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A field of a row. ``path``: of a field of a dictionary in the row, the way to it."""

    name: str
    type: Any
    about: Named
    is_optional: bool
    moment: Callable[[int], str] | None
    """A time as REST shows it."""
    own_kind: str
    get: Callable[[Any], Any]
    path: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.about.title or self.name.replace("_", " ").capitalize()

    @property
    def is_number(self) -> bool:
        return self.type in (int, float)

    @property
    def sql_kind(self) -> str:
        if self.own_kind or self.moment:
            return self.own_kind or "timestamp(3)"
        return "varchar" if self.type == list[str] else SQL_KINDS[get_origin(self.type) or self.type]

    def shown(self, facts: Facts) -> Any:
        """Value of the column as REST shows it."""
        value = self._value(facts)
        if value is None:
            empty = get_origin(self.type)
            return None if self.is_optional or empty is None else empty()
        if self.moment is not None:
            return self.moment(value)
        return self.about.words.get(value, value) if self.about.words else value

    def cell(self, facts: Facts) -> Any:
        """Value of the column as SQL shows it: a list of names as text, other lists and dictionaries as
        JSON."""
        value = self._value(facts)
        for name in self.path:
            value = None if value is None else value[name]
        if isinstance(value, list) and self.type == list[str]:
            return ", ".join(value)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value

    def text(self, body: Mapping[str, Any]) -> str:
        """Text for people, of a row as REST has it; a row of an earlier build may lack the column."""
        value = body.get(self.name)
        if isinstance(value, Mapping):
            return ", ".join(f"{name}={inner}" for name, inner in value.items())
        if isinstance(value, bool):
            return "yes" if value else "no"
        return self.about.none if value is None else ", ".join(value) if isinstance(value, list) else str(value)

    def _value(self, facts: Facts) -> Any:
        """An empty text or tuple is none, where there may be none."""
        if self.name in facts.values:
            value = facts.values[self.name]
        else:
            value = None if facts.record is None else self.get(facts.record)
        if isinstance(value, Enum):
            return value.value
        if self.is_optional and value in ("", ()) and not self.about.keeps_empty:
            return None
        if isinstance(value, tuple):
            return dict(value) if get_origin(self.type) is dict else list(value)
        return value


@lru_cache(maxsize=64)
def columns_of(row: Any) -> Mapping[str, RowColumn]:
    """Columns of a row by field, in the row's order."""
    return {name: _column(name, hint) for name, hint in get_type_hints(row, include_extras=True).items()}


@lru_cache(maxsize=64)
def sql_columns(row: type) -> Mapping[str, RowColumn]:
    """Columns that a SQL view shows, by their names there."""
    return {column.about.sql: column for column in _flat(columns_of(row)) if column.about.sql}


def body_of(row: type[T], facts: Facts) -> T:
    """The row as REST has it."""
    return cast(T, {name: column.shown(facts) for name, column in columns_of(cast(Any, row)).items()})


def without_sums(row: type[T], body: T) -> T:
    """``body`` for a caller who may not see all zones."""
    sums = {name: None for name, column in columns_of(cast(Any, row)).items() if column.about.sums}
    return cast(T, {**cast(Mapping[str, Any], body), **sums})


def _flat(columns: Mapping[str, RowColumn]) -> Iterator[RowColumn]:
    for column in columns.values():
        if is_typeddict(column.type):
            for inner in _flat(columns_of(column.type)):
                path = (inner.name, *inner.path)
                yield replace(inner, name=column.name, get=column.get, path=path)
        else:
            yield column


def _column(name: str, hint: Any) -> RowColumn:
    kind, marks = _bare(hint)
    about = next((mark for mark in marks if isinstance(mark, Named)), Named())
    moment = next((mark.shown for mark in marks if isinstance(mark, _MomentMark)), None)
    own_kind = next((str(mark) for mark in marks if isinstance(mark, SqlKind)), "")
    return RowColumn(name, kind, about, None in marks, moment, own_kind, attrgetter(about.of or name))


def _bare(hint: Any) -> tuple[Any, list[Any]]:
    """The type and what it is marked with: None where it may be none."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        kind, marks = _bare(arguments[0])
        return kind, [*marks, *arguments[1:]]
    if origin in (Union, UnionType):
        kind, marks = _bare(next(one for one in arguments if one is not NoneType))
        return kind, [*marks, *([None] if NoneType in arguments else [])]
    return (str, []) if origin is Literal else (hint, [])
