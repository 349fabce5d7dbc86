"""Where one statement ends and the next begins, without reading what they say.

A semicolon separates, unless it is in a string, a quoted name or a comment. The same rules as the tokenizer's,
so that a text that it cannot read at all can still be cut, and every statement judged for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.core.errors import ParseError
from parser.errors import SourceMap

_LEXEME = re.compile(
    r"""
    (?P<blank> \s+ | (?:--|//)[^\r\n]* | /\*(?!\+).*?\*/ )
    | (?P<semicolon> ; )
    | (?P<string> '(?:[^']|'')*' )
    | (?P<name> "(?:[^"]|"")*" )
    | (?P<curly_string> [‘‚‛][^'‘’‚‛]*[’‘] )
    | (?P<curly_name> [“„‟][^"“”„‟]*[”“] )
    | (?P<open> /\*(?!\+) | ['"‘‚‛“„‟] )
    | [^\s'"‘‚‛“„‟;/-]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_CURLY = re.compile("[‘‚‛“„‟]")
_OPENED = {
    "/*": "a comment that is never closed by */",
    "'": "a string that is never closed by '",
    '"': 'a name that is never closed by "',
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement: ``text`` begins at ``offset`` of the script, without blanks and comments around it.

    ``plain`` has the same length and straight quotes where the text has typographic ones, as word processors
    make of IEP-133's example. ``unclosed`` is where something is opened and never closed, and what it is.
    """

    text: str
    plain: str
    offset: int
    unclosed: tuple[int, str] | None = None


def split_script(text: str) -> Iterator[Piece]:
    """The statements in their order. Empty ones are left out, except one before all others: that is a mistake.

    Nothing is yielded for a text without statements and semicolons.
    """
    start: int | None = None
    end = 0
    opened: tuple[int, str] | None = None
    first = True
    for lexeme in _LEXEME.finditer(text):
        kind = lexeme.lastgroup
        if kind == "blank":
            continue
        if kind == "semicolon":
            if start is not None:
                yield _piece(text, start, end, opened)
            elif first:
                yield Piece("", "", lexeme.start())
            start, opened, first = None, None, False
            continue
        if kind == "open":
            opened = opened or (lexeme.start(), _what(lexeme.group()))
        if start is None:
            start = lexeme.start()
        end = lexeme.end()
    if start is not None:
        yield _piece(text, start, end, opened)


def unclosed(source: SourceMap) -> ParseError | None:
    """The first comment, string or quoted name that is opened and never closed, if there is one."""
    for piece in split_script(source.text):
        if piece.unclosed:
            at, what = piece.unclosed
            return source.fail(at, f"{what} starts here")
    return None


def _what(opening: str) -> str:
    return _OPENED.get(opening, "a typographic quote that is never closed")


def _piece(text: str, start: int, end: int, opened: tuple[int, str] | None) -> Piece:
    part = text[start:end]
    return Piece(part, _straight(part) if _CURLY.search(part) else part, start, opened)


def _straight(text: str) -> str:
    parts: list[str] = []
    for lexeme in _LEXEME.finditer(text):
        part = lexeme.group()
        if lexeme.lastgroup == "curly_string":
            part = f"'{part[1:-1]}'"
        elif lexeme.lastgroup == "curly_name":
            part = f'"{part[1:-1]}"'
        parts.append(part)
    return "".join(parts)
