"""The small steps that every grammar rule is made of: look at a word, take it, or say what was expected.

A *word* is an unquoted token; a quoted one never stands for a keyword.
"""

from __future__ import annotations

from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Name, Position, shortened
from parser.errors import SourceMap
from parser.text_limits import NEVER, StopFlag

STOP_CHECK_TOKENS = 1_024
"""Every so many the parser looks whether anybody still waits."""

WORDS = frozenset({TokenType.VAR, TokenType.CREATE, TokenType.ALTER, TokenType.DROP})

_RESERVED = """
    ALL ALTER AND ANY AS BETWEEN BY CASE CAST CHECK COLUMN CONSTRAINT CREATE CROSS CURRENT DEFAULT DELETE
    DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FILTER FOR FOREIGN FROM FULL GRANT GROUP
    HAVING IF IN INDEX INNER INSERT INTERSECT INTERVAL INTO IS JOIN LEFT LIKE LIMIT MERGE NATURAL NOT
    NULL OFFSET ON OR ORDER OUTER PRIMARY REFERENCES RENAME REVOKE RIGHT SELECT SET SOME TABLE THEN TO
    TRUE UNION UNIQUE UPDATE USING VALUES WHEN WHERE WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that name a zone only in double quotes. ZONE, REPLICAS, STORAGE, QUORUM and others are free."""


class RuleParser(Parser):
    """sqlglot's token cursor with rules that end in our coded errors, each with its place."""

    source: SourceMap
    stop: StopFlag = NEVER
    is_secret: bool = False
    """Messages show nothing of the text from here on."""

    def _advance(self, times: int = 1) -> None:
        super()._advance(times)
        if not self._index % STOP_CHECK_TOKENS:
            self.stop.check()

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise what sqlglot itself would refuse, in our form."""
        raise ParseError(ErrorKind.SYNTAX_ERROR, message, self.place(token or self._curr))

    def _parse_as_command(self, start: Token) -> exp.Command:
        """sqlglot would keep a statement that it does not know as opaque text: here that is an error."""
        self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, "this statement is not supported", start)

    def _parse_command(self) -> exp.Command:
        return self._parse_as_command(self._prev)

    def place(self, token: Token | None) -> Position:
        """Return where a token starts; past the last token of the statement, where the statement ends."""
        if token:
            return self.source.position(token.start)
        return self.source.position(self._prev.end + 1 if self._prev else 0)

    def refuse(self, kind: ErrorKind, message: str, token: Token | None) -> NoReturn:
        raise ParseError(kind, message, self.place(token))

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        """Syntax error at the current token."""
        word = "the end of the statement"
        if self._curr:
            text = self.source.text[self._curr.start : self._curr.end + 1]
            word = "something else" if self.is_secret else shortened(text)
        message = f"expected {expected}, found {word}"
        self.refuse(ErrorKind.SYNTAX_ERROR, f"{message}: {hint}" if hint else message, self._curr)

    def word(self) -> str:
        """The current token as an upper-cased keyword; empty when it is none."""
        token = self._curr
        return token.text.upper() if token.token_type in WORDS else ""

    def take(self, token_type: TokenType) -> Token | None:
        taken = self._curr
        if taken.token_type is token_type:
            self._advance()
            return taken
        return None

    def keyword(self) -> str:
        """The current token as a word, whatever the tokenizer makes of it; empty for a quoted one."""
        quoted = (TokenType.IDENTIFIER, TokenType.STRING)
        if not self._curr or self._curr.token_type in quoted:
            return ""
        return self._curr.text.upper()

    def take_keyword(self, *words: str) -> bool:
        if self.keyword() not in words:
            return False
        self._advance()
        return True

    def take_word(self, word: str) -> Token | None:
        if self.word() == word:
            taken = self._curr
            self._advance()
            return taken
        return None

    def expect_words(self, *words: str) -> None:
        for word in words:
            if not self.take_word(word):
                self.fail(word)

    def expect_end(self, expected: str = "the end of the statement", hint: str = "") -> None:
        if self._curr:
            self.fail(expected, hint)

    def need(self, token_type: TokenType, expected: str) -> Token:
        taken = self.take(token_type)
        if not taken:
            self.fail(expected)
        return taken

    def origin(self) -> dict[str, Any]:
        """The statement's text and place, as every command takes them."""
        return {"source": self.source.text, "position": self.source.position(0)}

    def read_name(self, what: str = "a zone name", compound: bool = True) -> Name:
        """``name`` or ``schema.name``, of which the last part counts: zones and tables are not in schemas.

        Unquoted parts are upper-cased; parts in double or single quotes keep their case (the example of IEP-133
        names a zone in single quotes).
        """
        name = self._name_part(what)
        while compound and self.take(TokenType.DOT):
            name = self._name_part(what)
        return name

    def _name_part(self, what: str) -> Name:
        token = self._curr
        if token and token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            if not token.text:
                self.fail(what, "a quoted name is not empty")
            self._advance()
            return Name(token.text, self.place(token))
        word = self.word()
        if not word:
            self.fail(what)
        if word in RESERVED:
            self.fail(what, f'{word} is a reserved word, so write it as "{word}"')
        self._advance()
        return Name(word, self.place(token), malformed=not token.text.isidentifier())
