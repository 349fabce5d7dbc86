"""Text to tokens, statement by statement: one pass, which also finds where statements end.

A semicolon separates, unless it is in a string, a quoted name or a comment. The pass is linear in the text,
whatever it holds: no lexeme is looked at twice. A text that cannot be understood at all can still be cut, and
every statement judged for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from catalog.core.errors import ErrorKind, ParseError
from parser.text import (
    DEFAULT_LIMITS,
    NEVER,
    OWN_TEXT,
    Lines,
    ScriptLimits,
    SourceMap,
    StopFlag,
    check_characters,
)

STOP_CHECK_LEXEMES = 1_024
"""Every so many the reader looks whether anybody still waits."""

_QUOTES = "'\"‘‚‛“„‟"
_SIGNS = re.escape("".join(sign for sign in Tokenizer.SINGLE_TOKENS if sign not in _QUOTES))
_LEXEMES = rf"""
    (?P<blank> (?: \s++ | (?:--|//)[^\r\n]*+ COMMENT )++ )
    | (?P<semicolon> ; )
    | (?P<string> '(?:[^']++|'')*+' )
    | (?P<name> "(?:[^"]++|"")*+" )
    | (?P<curly_string> [‘‚‛][^'‘’‚‛]*+[’‘] )
    | (?P<curly_name> [“„‟][^"“”„‟]*+[”“] )
    HINT
    | (?P<open> /\* | [{_QUOTES}] )
    | (?P<number> [0-9]++ (?:\.[0-9]*+)? (?:[eE](?:[+-](?=[0-9]))?[0-9]*+)? )
    | (?P<word> [^\s0-9{_QUOTES}{_SIGNS}][^\s{_QUOTES}{_SIGNS}]*+ )
    | (?P<sign> . )
"""
_FLAGS = re.VERBOSE | re.DOTALL
# A hint would be a comment that changes meaning: as a token it is refused everywhere.
_LEXEME = re.compile(
    _LEXEMES.replace("COMMENT", r"| /\*(?!\+).*?\*/").replace("HINT", r"| (?P<hint> /\*\+.*?\*/ )"), _FLAGS
)
_BEHIND_OPEN_COMMENT = re.compile(_LEXEMES.replace("COMMENT", "").replace("HINT", ""), _FLAGS)
"""Lexemes behind an open comment: none ends behind one that is never closed, and looking for the end again and
again would be quadratic."""

_KEYWORDS = {"CREATE": TokenType.CREATE, "ALTER": TokenType.ALTER, "DROP": TokenType.DROP}
"""Few on purpose: all other words stay plain words, so that an option's name can also name a zone."""
KEYWORD_CHARS_MAX = max(map(len, _KEYWORDS))
_SIGN_TYPES = dict(Tokenizer.SINGLE_TOKENS)
_NO_COMMENTS: list[str] = []
"""One for all tokens: a list for each would double what the garbage collector looks at."""
_QUOTED = {
    "string": (TokenType.STRING, "'"),
    "name": (TokenType.IDENTIFIER, '"'),
    "curly_string": (TokenType.STRING, ""),
    "curly_name": (TokenType.IDENTIFIER, ""),
}
_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}
_OPENED = {
    "/*": "a comment that is never closed by */",
    "'": "a string that is never closed by '",
    '"': 'a name that is never closed by "',
}


@dataclass(slots=True)
class Piece:
    """One statement: ``text`` begins at ``offset`` of the script, without blanks and comments around it.

    ``tokens`` count from there. Typographic quotes mean straight ones, as word processors make of IEP-133's
    example. ``unclosed`` is where in ``text`` something is opened and never closed, and what it is.
    """

    text: str
    offset: int
    tokens: list[Token] = field(default_factory=list)
    unclosed: tuple[int, str] | None = None


def split_script(
    text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER, lines: Lines | None = None
) -> Iterator[Piece]:
    """The statements in their order. Empty ones are left out, except one before all others: that is a mistake.

    Nothing is yielded for a text without statements and semicolons. Raises ParseError at the first place that
    is beyond ``limits``, and ReadingStoppedError.
    """
    return _Cutter(text, limits, stop, lines or Lines(text)).pieces()


def first_words(text: str, count: int) -> str:
    """The first words of a text, in upper case and without comments: no more of it is looked at."""
    words: list[str] = []
    for lexeme in _lexemes(text):
        if lexeme.lastgroup != "blank":
            words.append(lexeme.group().upper() if lexeme.lastgroup == "word" else "")
            if len(words) == count:
                break
    return " ".join(words).strip()


def update_type(text: str) -> str:
    """Return the clients' name of a statement that changes something: CREATE ZONE, GRANT."""
    words = first_words(text, 2)
    return words.split()[0] if words.startswith(("GRANT", "REVOKE")) else words


def unclosed(source: SourceMap) -> ParseError | None:
    """The first comment, string or quoted name that is opened and never closed, if there is one."""
    for piece in split_script(source.text, OWN_TEXT):
        if piece.unclosed:
            at, what = piece.unclosed
            return source.fail(piece.offset + at, f"{what} starts here")
    return None


def check_size(text: str, limits: ScriptLimits = DEFAULT_LIMITS) -> None:
    """Raises ParseError (TEXT_TOO_LARGE) for more text than is read."""
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    if size > limits.text_bytes_max:
        message = f"a text has at most {limits.text_bytes_max} bytes, this one has {size}"
        raise SourceMap(text[:1]).fail(0, message, ErrorKind.TEXT_TOO_LARGE)


def _lexemes(text: str) -> Iterator[re.Match[str]]:
    for lexeme in _LEXEME.finditer(text):
        yield lexeme
        if lexeme.lastgroup == "open" and lexeme.group() == "/*":
            yield from _BEHIND_OPEN_COMMENT.finditer(text, lexeme.end())
            return


class _Cutter:
    def __init__(self, text: str, limits: ScriptLimits, stop: StopFlag, lines: Lines) -> None:
        self._text = text
        self._limits = limits
        self._stop = stop
        self._source = SourceMap(text, lines)
        self._statements = 0

    def pieces(self) -> Iterator[Piece]:
        check_size(self._text, self._limits)
        check_characters(self._source)
        piece: Piece | None = None
        tokens = depth = 0
        first = True
        for count, lexeme in enumerate(_lexemes(self._text)):
            if not count % STOP_CHECK_LEXEMES:
                self._stop.check()
            kind = lexeme.lastgroup
            if kind == "blank":
                continue
            if kind == "semicolon":
                if piece is not None:
                    yield self._ended(piece)
                elif first:
                    yield Piece("", lexeme.start())
                piece, depth, first = None, 0, False
                continue
            if piece is None:
                piece = self._begun(lexeme.start())
            tokens += 1
            if tokens > self._limits.tokens_max:
                raise self._beyond(lexeme.start(), "tokens (words, numbers, signs)", self._limits.tokens_max)
            token = _token(lexeme, piece.offset)
            depth += _DEPTH.get(token.text, 0) if kind == "sign" else 0
            if depth > self._limits.nesting_max:
                message = f"parentheses and brackets are nested at most {self._limits.nesting_max} deep"
                raise self._failed(lexeme.start(), message, ErrorKind.TEXT_NESTED_TOO_DEEPLY)
            if kind == "open" and piece.unclosed is None:
                what = _OPENED.get(token.text, "a typographic quote that is never closed")
                piece.unclosed = (token.start, what)
            piece.tokens.append(token)
        if piece is not None:
            yield self._ended(piece)

    def _begun(self, offset: int) -> Piece:
        self._statements += 1
        if self._statements > self._limits.statements_max:
            raise self._beyond(offset, "statements", self._limits.statements_max)
        return Piece("", offset)

    def _ended(self, piece: Piece) -> Piece:
        piece.text = self._text[piece.offset : piece.offset + piece.tokens[-1].end + 1]
        return piece

    def _beyond(self, offset: int, what: str, limit: int) -> Exception:
        return self._failed(offset, f"a text has at most {limit} {what}", ErrorKind.TEXT_TOO_LARGE)

    def _failed(self, offset: int, message: str, kind: ErrorKind) -> Exception:
        error = self._source.fail(offset, message, kind)
        error.statement = self._statements
        return error


def _token(lexeme: re.Match[str], base: int) -> Token:
    kind, text = lexeme.lastgroup, lexeme.group()
    start, end = lexeme.span()
    token_type = TokenType.UNKNOWN
    if kind == "word":
        token_type = (
            TokenType.VAR if len(text) > KEYWORD_CHARS_MAX else _KEYWORDS.get(text.upper(), TokenType.VAR)
        )
    elif kind == "sign":
        token_type = _SIGN_TYPES.get(text, TokenType.UNKNOWN)
    elif kind == "number":
        token_type = TokenType.NUMBER
    elif kind in _QUOTED:
        token_type, quote = _QUOTED[kind]
        text = text[1:-1]
        text = text.replace(2 * quote, quote) if quote else text
    return Token(token_type, text, 1, 1, start - base, end - base - 1, _NO_COMMENTS)
