"""The SQL editor's logic: what a script does, where an error is, results as grids and files, and the words that
it offers: of statements, options of zones, views with their columns, and zones.

The words are made of the tables that parser, catalog and views have, so that a new option or view is offered by
itself.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.security.statement_policy import COMMANDS, EXPLAIN_PARTITION
from app.sql.statements.statement_meter import kind_of_type
from app.sql.views.view_registry import SCHEMA, ViewRegistry
from catalog.core.authorisation import ObjectKind, Privilege
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.messages import Name
from catalog.core.zone_options import ZONE_OPTIONS
from parser.dialect import USER_OPTIONS
from parser.queries import QUERY_WORDS, QUESTION_WORDS, Procedure, ShowKind, cut_script
from parser.render import render_name
from parser.rules import RESERVED
from parser.text import DEFAULT_LIMITS, NEVER, ScriptLimits, StopFlag

Json = Mapping[str, Any]

_WORD = re.compile(r"\w+")
_NUMERIC = frozenset({"bigint", "integer", "double"})
ROWS_SHOWN_MAX = 10_000
_COMPUTED = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class ScriptFailure:
    """A refused script: ``line`` and ``column`` from 1 in the text of the editor; None: nowhere in it."""

    name: str
    message: str
    action: str
    line: int | None = None
    column: int | None = None
    statement: int | None = None

    @property
    def place(self) -> str:
        return "" if self.line is None else f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Sent:
    """Text that is sent for the editor's ``written`` one: the same behind a ``prefix``, without a line break,
    that the user has not written; places of errors do not count it."""

    written: str
    prefix: str = ""

    @property
    def text(self) -> str:
        return self.prefix + self.written

    def written_place(self, line: int, column: int) -> tuple[int, int]:
        """Line and column in ``written`` of a place in ``text``; all from 1."""
        return line, column if line > 1 else max(1, column - len(self.prefix))


def failure(error: StatementError, sent: Sent | None = None) -> ScriptFailure:
    """``sent``: what was sent in place of the editor's text."""
    line, column = error.line, error.column
    if sent is not None and line is not None and column is not None:
        line, column = sent.written_place(line, column)
    return ScriptFailure(error.kind.name, error.message, error.kind.value.action, line, column, error.statement)


def changes_something(text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> bool:
    """Check for a statement of the script that would change the catalog or the partitions.

    Raises StatementError for text that would be refused as it stands; then nothing of it is run."""
    pieces = cut_script(text, limits, stop)
    if not pieces:
        raise StatementError(ErrorKind.SYNTAX_ERROR, "no statement: enter one, such as SHOW ZONES")
    return any(piece.changes for piece in pieces)


def explained(text: str) -> Sent:
    """The script as a question what it would change."""
    is_question = text.lstrip()[:7].upper() == "EXPLAIN"
    return Sent(text, "" if is_question else "EXPLAIN ")


def mark(text: str, line: int, column: int) -> tuple[int, int]:
    """Offsets of the word at ``line`` and ``column`` (both from 1), at least one character long; what lies
    beyond the end marks the last character."""
    lines = text.split("\n")
    line = min(line, len(lines))
    start = sum(len(before) + 1 for before in lines[: line - 1]) + min(column - 1, len(lines[line - 1]))
    word = _WORD.match(text, start)
    end = word.end() if word else start + 1
    if end > len(text) or start == end or text[start:end] == "\n":
        start, end = max(0, min(start, len(text)) - 1), min(max(start, 1), len(text))
    return start, end


def has_rows(result: Json) -> bool:
    return result.get("columns") is not None


def grid_options(result: Json) -> dict[str, Any]:
    """AG Grid options of one answer; columns are numbered, for their names may repeat."""
    columns = result["columns"]
    return {
        "columnDefs": [
            {
                "field": f"c{at}",
                "headerName": column["name"],
                "type": "rightAligned" if column["type"] in _NUMERIC else None,
                "resizable": True,
                "sortable": True,
                "filter": True,
                "minWidth": 120,
                "flex": 1,
            }
            for at, column in enumerate(columns)
        ],
        "rowData": [
            {f"c{at}": _shown(value) for at, value in enumerate(row)} for row in result["data"][:ROWS_SHOWN_MAX]
        ],
        "suppressFieldDotNotation": True,
        "enableCellTextSelection": True,
    }


def _shown(value: object) -> object:
    """Return a value as text where a grid has no form of its own for it."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value) if isinstance(value, bool) else value


def as_csv(result: Json) -> str:
    """Write CSV with a header line; NULL is an empty field. A text that a spreadsheet would compute stands
    behind a quote sign, which it takes for text."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([_inert(column["name"]) for column in result["columns"]])
    writer.writerows(
        [["" if value is None else _inert(_shown(value)) for value in row] for row in result["data"]]
    )
    return out.getvalue()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_COMPUTED) else value


def as_json(results: Sequence[Json]) -> str:
    """Write results as the REST API answers them."""
    return json.dumps({"results": list(results)}, ensure_ascii=False, indent=2)


ZONES_MAX = 2_000
"""Names of so many zones are offered, the first by name."""
OF_NO_STATEMENT = frozenset(
    ["CHECK", "CONSTRAINT", "DELETE", "FOREIGN", "INDEX", "INSERT", "INTO", "MERGE", "REFERENCES", "UPDATE"]
)
"""Reserved for what other databases have."""


@dataclass(frozen=True, slots=True)
class OfferedWord:
    """``kind``: the editor's own word for it, which chooses a sign. ``views``: of a column, those that have it:
    it is offered where one of them is named."""

    label: str
    kind: str
    detail: str = ""
    info: str = ""
    views: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the word as CodeMirror takes it."""
        body = {"label": self.label, "type": self.kind, "detail": self.detail, "info": self.info}
        return {name: text for name, text in body.items() if text} | {"views": list(self.views)}


def offered_words(registry: ViewRegistry) -> list[OfferedWord]:
    """All but the names of zones: views first, then columns, options and words of statements."""
    views = [view for view in registry if view.schema == SCHEMA]
    having: dict[str, list[str]] = {}
    for view in views:
        for column in view.columns:
            having.setdefault(column.name, []).append(view.name)
    return [
        *(OfferedWord(view.name.lower(), "class", "view") for view in views),
        *(OfferedWord(column.lower(), "property", "column", views=tuple(of)) for column, of in having.items()),
        *(OfferedWord(row.option.value, "property", "option", row.text) for row in ZONE_OPTIONS),
        *(OfferedWord(f"'{name}'", "constant") for row in ZONE_OPTIONS for name in row.choice_names),
        *(OfferedWord(procedure.value.lower(), "function", "procedure") for procedure in Procedure),
        *(OfferedWord(word, "keyword") for word in sorted(_words())),
    ]


def _words() -> set[str]:
    commands = (kind_of_type(kind).split("_") for kind in COMMANDS)
    kinds = (value for kind in (ShowKind, ObjectKind, Privilege) for value in kind)
    return {
        *(RESERVED | QUERY_WORDS | QUESTION_WORDS) - OF_NO_STATEMENT,
        *(word for words in commands if words[0] in RESERVED for word in words),
        *(word for kind in kinds for word in str(kind.value).split()),
        *USER_OPTIONS,
        *EXPLAIN_PARTITION.split(),
    }


def zone_words(names: Iterable[str]) -> list[str]:
    """Return the zones' names as statements write them."""
    return [render_name(Name(name)) for name in sorted(names)[:ZONES_MAX]]
