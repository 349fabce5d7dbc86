"""Statements as they may be kept and shown: what follows PASSWORD is replaced, and every string of a statement
that makes or alters users.

Works on tokens, so that a text that is no statement, or not one of ours, is kept without its secrets, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sqlglot.tokenizer_core import TokenType

from catalog.core.errors import ParseError
from catalog.core.principal_changes import HIDDEN_PASSWORD
from parser.script import Piece, split_script
from parser.text import OWN_TEXT, quoted

HIDDEN = f"'{HIDDEN_PASSWORD}'"
_MARKS = ("PASSWORD", "IDENTIFIED")
"""Words before a secret: ours, and those of other products, which are typed by mistake."""
_NO_SECRETS = frozenset(
    {*_MARKS, "BY", "FOR", "NULL", "LOGIN", "NOLOGIN", "WITH", "USING", "ENCRYPTED", "TO", "="}
)
_NAMED = frozenset({"USER", "ROLE"})


def hide_secrets(text: str) -> str:
    """``text`` with ``'********'`` in the place of each secret; the same text where there is none."""
    if not _may_hold_one(text):
        return text
    try:
        spans = [span for piece in split_script(text, OWN_TEXT) for span in _spans(piece)]
    except ParseError:
        # A character that no catalog stores: then nothing of it is shown.
        return HIDDEN
    parts: list[str] = []
    end = 0
    for start, behind, shown in spans:
        parts += (text[end:start], shown)
        end = behind
    return "".join((*parts, text[end:]))


def _may_hold_one(text: str) -> bool:
    upper = text.upper()
    return any(word in upper for word in (*_MARKS, *_NAMED))


def _spans(piece: Piece) -> Iterator[tuple[int, int, str]]:
    """Start, end and what is shown instead, in the whole text."""
    is_on_users, is_behind_mark = _is_on_users(piece), False
    for token in piece.tokens:
        is_text = token.token_type is TokenType.STRING
        if is_on_users and is_behind_mark and not is_text and token.text.upper() not in _NO_SECRETS:
            # Without quotes, or what goes on behind a quote that the secret holds: all from here on is one.
            yield piece.offset + token.start, piece.offset + piece.tokens[-1].end + 1, HIDDEN
            return
        if piece.unclosed and token.start == piece.unclosed[0] and _may_hold_one(piece.text[: token.start]):
            yield piece.offset + token.start, piece.offset + piece.tokens[-1].end + 1, HIDDEN
            return
        is_marked = is_on_users or is_behind_mark
        if is_text:
            nested = HIDDEN if is_marked else quoted(hide_secrets(token.text))
            if is_marked or nested != quoted(token.text):
                yield piece.offset + token.start, piece.offset + token.end + 1, nested
        is_behind_mark |= token.token_type is TokenType.VAR and token.text.upper() in _MARKS


def _is_on_users(piece: Piece) -> bool:
    """CREATE or ALTER of one, also behind EXPLAIN and the like."""
    words = [token.text.upper() for token in piece.tokens[:4]]
    return any(verb in ("CREATE", "ALTER") and what in _NAMED for verb, what in pairwise(words))
