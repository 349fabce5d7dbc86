"""How a refusal is shown: for people with a caret below the spot, for programs as one JSON object."""

from __future__ import annotations

import re
import unicodedata

from app.cli.options import OutputFormat
from app.cli.problem_document import ProblemDocument
from app.cli.say import json_text
from app.cli.sql_source import Script
from catalog.core.visible import hidden_character

_WORD = re.compile(r"\w+|\"[^\"]*\"|'[^']*'")
TAB_STOP = 8
HIDDEN_MARK = "\ufffd"


def render_problem(problem: ProblemDocument, form: OutputFormat, script: Script | None = None) -> str:
    """``script`` is the text that ``line`` and ``column`` of the problem point into."""
    if form in (OutputFormat.JSON, OutputFormat.JSONL):
        file = {} if script is None else {"file": script.name}
        return json_text({**problem.as_json(), **file})
    return problem.headline() if script is None else describe_problem(script, problem)


def describe_problem(script: Script, problem: ProblemDocument) -> str:
    """``FILE:line:column: NAME (code, SQLSTATE): message``, the line itself, and a caret below the spot."""
    if problem.line is None:
        return f"{script.name}: {problem.headline()}"
    column = problem.column or 1
    headline = f"{script.name}:{problem.line}:{column}: {problem.headline()}"
    if not 1 <= problem.line <= len(script.lines):
        return headline
    source = script.lines[problem.line - 1].rstrip("\r")
    if _holds_a_secret(script, problem.line):
        return headline
    return f"{headline}\n  {_shown(source.expandtabs(TAB_STOP))}\n  {_caret(source, column)}"


def _holds_a_secret(script: Script, line: int) -> bool:
    """Terminals are scrolled back, and those of pipelines are kept."""
    # Loading the parser takes longer than most commands.
    from parser.hidden_secrets import hide_secrets

    shown = hide_secrets("\n".join(script.lines)).split("\n")
    return len(shown) != len(script.lines) or shown[line - 1] != script.lines[line - 1]


def _shown(source: str) -> str:
    """As wide as it was, so that the caret stays below the spot."""
    return "".join(HIDDEN_MARK if hidden_character(char) else char for char in source)


def _caret(source: str, column: int) -> str:
    start = column - 1
    before = _width(source[:start].expandtabs(TAB_STOP))
    word = _WORD.match(source, start)
    length = _width(word.group()) if word else 1
    return " " * before + "^" + "~" * (length - 1)


def _width(text: str) -> int:
    """Terminal cells: wide characters (as CJK) take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
