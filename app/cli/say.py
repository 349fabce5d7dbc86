"""Lines for people and JSON for programs. Whatever text is in them, it stays on its line and can be seen."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from app.cli.exits import UsageError
from catalog.core.visible import visible, visible_json


def say(line: str = "", *, out: TextIO | None = None) -> None:
    """One line, at once."""
    print(visible(line), file=out or sys.stdout, flush=True)


def counted(number: int, one: str, many: str = "") -> str:
    """1 zone, 2 zones; ``many``: the plural where it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def confirm(question: str, first: str) -> None:
    """Ends the command unless somebody says yes. ``first``: what a script is to do before it says so."""
    import typer

    if not sys.stdin.isatty():
        raise UsageError(f"stdin is not a terminal to confirm on: {first}, then add --yes")
    typer.confirm(question, abort=True, err=True)


def say_lines(text: str) -> None:
    """A text that has lines of its own, as a statement."""
    for line in text.split("\n"):
        say(line)


def say_json(value: object, indent: int | None = None, *, out: TextIO | None = None) -> None:
    """One document."""
    print(json_text(value, indent), file=out or sys.stdout)


def json_text(value: object, indent: int | None = None) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
