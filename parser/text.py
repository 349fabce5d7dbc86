"""Coded errors from places in the text: offsets become lines and columns here and nowhere else.

Lines end at a line feed (a carriage return before it belongs to the line it ends). Columns count characters,
not bytes, from 1.

The limits of the text that is read, and the way its reading is given up, are here, too. Work grows with the
text and with nothing else; the bounds hold for all the texts of one request together.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

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


def quoted(text: str) -> str:
    """Write a text as a literal."""
    return "'" + text.replace("'", "''") + "'"


TEXT_BYTES_MAX = 1_048_576
STATEMENTS_MAX = 1_000
TOKENS_MAX = 200_000
NESTING_MAX = 200
_ANY = 2**62


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """``text_bytes_max`` counts UTF-8; a token is a word, a number, a string, a quoted name or a sign;
    ``nesting_max`` counts parentheses and brackets that are open at once."""

    text_bytes_max: int = TEXT_BYTES_MAX
    statements_max: int = STATEMENTS_MAX
    tokens_max: int = TOKENS_MAX
    nesting_max: int = NESTING_MAX


DEFAULT_LIMITS = ScriptLimits()
OWN_TEXT = ScriptLimits(_ANY, _ANY, _ANY)
"""Limits for texts that no client sent: a user's own file on the user's own machine, and statements of this
program."""


class ReadingStoppedError(Exception):
    """Error of a reading whose result is not waited for any more. What set the flag handles it."""


class StopFlag:
    """Set in one thread, looked at in another, in which a text is being read."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def check(self) -> None:
        """Raises ReadingStoppedError."""
        if self._is_set:
            raise ReadingStoppedError


NEVER = StopFlag()
"""Flag of a caller who waits to the end."""
