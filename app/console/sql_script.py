"""The SQL editor's logic: what a script does, where an error is, and results as grids and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.core.errors import ErrorKind, StatementError
from parser.queries import cut_script
from parser.text_limits import DEFAULT_LIMITS, NEVER, ScriptLimits, StopFlag

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
