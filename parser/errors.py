"""Coded errors from places in the text: offsets become lines and columns here and nowhere else.

Lines end at a line feed (a carriage return before it belongs to the line it ends). Columns count characters,
not bytes, from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Position

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Lines:
    """Lines of a whole script. Indexed once, when first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] | None = None

    def position(self, offset: int) -> Position:
        """The 1-based line and column of a character; the end of the text counts as one."""
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


class SourceMap:
    """The text of one statement, and where each offset of it is in the whole script."""

    def __init__(self, text: str, lines: Lines | None = None, base: int = 0) -> None:
        self.text = text
        self._lines = lines or Lines(text)
        self._base = base

    def position(self, offset: int) -> Position:
        return self._lines.position(self._base + offset)

    def fail(self, offset: int, message: str, kind: ErrorKind = ErrorKind.SYNTAX_ERROR) -> ParseError:
        return ParseError(kind, message, self.position(offset))


def check_characters(source: SourceMap) -> None:
    """Refuses what no catalog can store: NUL and half of a surrogate pair, also inside comments and strings.

    The text of each statement is kept in the catalog's history, so it must be storable as a whole.
    """
    match = _UNSTORABLE.search(source.text)
    if match:
        raise source.fail(match.start(), f"character U+{ord(match.group()):04X} is not allowed in a statement")
