"""Limits of the text that is read, and the way its reading is given up.

Work grows with the text and with nothing else; these bounds say how large it can get. They hold for all the
texts of one request together.
"""

from __future__ import annotations

from dataclasses import dataclass

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
