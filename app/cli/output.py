"""Printing of results: a table for people, JSON and CSV for programs; results on stdout, the rest on stderr.
Control characters in their texts are made visible, so that each text stays on its line.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

from app.cli.exits import UsageError
from app.cli.options import OutputFormat
from app.contract.change_text import CHANGE_COLUMNS, change_cells
from catalog.core.visible import visible, visible_json


def say(line: str = "", *, out: TextIO | None = None) -> None:
    """Print one line, at once."""
    print(visible(line), file=out or sys.stdout, flush=True)


def counted(number: int, one: str, many: str = "") -> str:
    """Number and noun: 1 zone, 2 zones; ``many``: the plural where it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def confirm(question: str, first: str) -> None:
    """Ask for confirmation, and end the command without it. ``first``: the step that a script takes before it
    adds --yes."""
    import typer

    if not sys.stdin.isatty():
        raise UsageError(f"stdin is not a terminal to confirm on: {first}, then add --yes")
    typer.confirm(question, abort=True, err=True)


def say_lines(text: str) -> None:
    """Print a text of several lines, such as a statement."""
    for line in text.split("\n"):
        say(line)


def say_json(value: object, indent: int | None = None, *, out: TextIO | None = None) -> None:
    """Print one JSON document."""
    print(json_text(value, indent), file=out or sys.stdout)


def json_text(value: object, indent: int | None = None) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent))


# A pipe has no width: wide enough that no row is ever folded.
PIPE_WIDTH = 1_000_000
RESULT_FIELDS = ("n", "sql", "applied", "op", "zone", "zone_id", "catalog_version", "params", "warnings")
Columns = Mapping[str, str | Callable[[Any], object]]
"""Columns by title: the field that each shows, or the function that makes its cell from an object."""


def table_columns(row: type, *names: str, **own: str | Callable[[Any], object]) -> Columns:
    """The columns of ``names``, fields of a row or others, in that order; ``own``: functions for cells that are
    not the field's text."""
    from app.contract.columns import columns_of

    columns = columns_of(row)
    titles = {name: column.title.lower() for name, column in columns.items()}
    return {titles.get(name, name): own.get(name) or columns[name].text for name in names}


def print_table(
    objects: Sequence[Any], columns: Columns, title: str = "", *, out: TextIO | None = None
) -> None:
    """Print a row for each object."""
    cells = [
        (lambda item, field=cell: item[field]) if isinstance(cell, str) else cell for cell in columns.values()
    ]
    print_rows(list(columns), [[_text(cell(item)) for cell in cells] for item in objects], title=title, out=out)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", out: TextIO | None = None
) -> None:
    """Print rows: on a terminal as a Rich table; elsewhere as plain text, without colours or folding."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    stream = out or sys.stdout
    terminal = stream.isatty()
    table = Table(box=SIMPLE_HEAD if terminal else None, pad_edge=False, title=escape(visible(title)) or None)
    table.title_justify = "left"
    for column in columns:
        table.add_column(escape(visible(column)), no_wrap=not terminal, overflow="fold")
    for row in rows:
        table.add_row(*(escape(visible(cell)) for cell in row))
    if terminal:
        Console(file=stream).print(table)
        return
    plain = Console(width=PIPE_WIDTH, color_system=None, highlight=False)
    with plain.capture() as captured:
        plain.print(table)
    stream.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def print_objects(objects: Sequence[Mapping[str, Any]], form: OutputFormat, out: TextIO | None = None) -> None:
    """Print objects: ``json`` as one array; ``jsonl`` one on a line; ``csv`` with nested values as JSON
    text."""
    stream = out or sys.stdout
    if form is OutputFormat.JSON:
        say_json(list(objects), indent=2, out=stream)
    elif form is OutputFormat.JSONL:
        for item in objects:
            say_json(item, out=stream)
    else:
        fields = list(objects[0]) if objects else []
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows([_csv_cell(item.get(name)) for name in fields] for item in objects)


def print_results(results: Sequence[Mapping[str, Any]], form: OutputFormat) -> None:
    """Print the results of a script's statements. With a table their warnings go to stderr.

    A script of one query prints its rows as they are; among other statements, rows stay in their result.
    """
    if len(results) == 1 and _is_answer(results[0]):
        _print_answer(results[0], form)
    elif form is OutputFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(RESULT_FIELDS)
        writer.writerows(_csv_result(result) for result in results)
    elif form is not OutputFormat.TABLE:
        print_objects(results, form)
    else:
        for asks, group in groupby(results, _is_answer):
            if asks:
                for answer in group:
                    _print_answer(answer, form)
            else:
                _print_changes(list(group))


def _is_answer(result: Mapping[str, Any]) -> bool:
    return result.get("columns") is not None


def _print_changes(results: Sequence[Mapping[str, Any]]) -> None:
    print_rows(CHANGE_COLUMNS, [change_cells(result) for result in results])
    _print_warnings(results)


def _print_warnings(results: Sequence[Mapping[str, Any]]) -> None:
    for result in results:
        for warning in result.get("warnings") or ():
            say(f"warning: {warning['name']}: {warning['message']}", out=sys.stderr)


def _print_answer(answer: Mapping[str, Any], form: OutputFormat) -> None:
    """Print the rows of a query. JSON objects cannot hold two columns of one name: the later gets a number."""
    names: list[str] = []
    for column in answer["columns"]:
        name, again = str(column["name"]), 1
        while name in names:
            again += 1
            name = f"{column['name']}_{again}"
        names.append(name)
    rows = answer.get("data") or ()
    if form is OutputFormat.TABLE:
        print_rows(names, [["" if cell is None else _csv_cell(cell) for cell in row] for row in rows])
        _print_warnings([answer])
    elif form is OutputFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    else:
        print_objects([dict(zip(names, row, strict=True)) for row in rows], form)


def _csv_result(result: Mapping[str, Any]) -> list[str]:
    effect = result.get("effect") or {}
    flat = {**result, "op": effect.get("op"), "zone": effect.get("zone"), "params": effect.get("params")}
    return [_csv_cell(flat.get(name)) for name in RESULT_FIELDS]


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
