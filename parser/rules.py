"""The small steps that every grammar rule is made of, and the options of CREATE ZONE and ALTER ZONE.

A step looks at a word, takes it, or says what was expected. A *word* is an unquoted token; a quoted one never
stands for a keyword.

Options have two forms. New form: ``(PARTITIONS 8, REPLICAS ALL, QUORUM SIZE 2)``, each option with its own
grammar, then ``STORAGE PROFILES ['p', ...]``. Old form: ``KEY=value, ...`` where a value is any literal or ALL,
and a literal of the wrong type is not a syntax error but is refused later. The forms do not mix.

The whole grammar is read here; what the engine does not do is refused by the catalog's checks, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import (
    Keyword,
    Name,
    OptionClause,
    OptionValue,
    OtherLiteral,
    Position,
    ProfileName,
    UnknownOption,
    ZoneOption,
    shortened,
)
from catalog.core.zone import TIMER_OFF
from catalog.core.zone_options import OLD_FORM_KEYS, ZONE_OPTIONS, OptionKind, ZoneOptionRow
from parser.text import NEVER, SourceMap, StopFlag

T = TypeVar("T")

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

    def take_word(self, *words: str) -> bool:
        if self.word() not in words:
            return False
        self._advance()
        return True

    def expect_words(self, *words: str) -> None:
        for word in words:
            if not self.take_word(word):
                self.fail(word)

    def expect_end(self, expected: str = "the end of the statement", hint: str = "") -> None:
        if self._curr:
            self.fail(expected, hint)

    def several(self, element: Callable[[], T]) -> list[T]:
        """Read elements with commas between them, at least one."""
        elements = [element()]
        while self.take(TokenType.COMMA):
            elements.append(element())
        return elements

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


NUMBER_MAX = 10**18
"""Larger numbers are read as this one: far out of every range, and small enough to handle at no cost."""

IN_PARENTHESES = tuple(row for row in ZONE_OPTIONS if row.kind is not OptionKind.NAMES)
NEW_FORM = ", ".join((*(row.grammar for row in IN_PARENTHESES), "AUTO SCALE OFF"))
_DIGITS = re.compile("[0-9]+")
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
DATED_LITERALS = ("DATE", "TIME", "TIMESTAMP", "INTERVAL")


def cut_number(digits: str) -> int:
    """The value of a run of digits, at most ``NUMBER_MAX``. Leading zeros count for nothing."""
    significant = digits.lstrip("0") or "0"
    return NUMBER_MAX if len(significant) > 18 else int(significant)


class OptionRules(RuleParser):
    """Rules for options. A rule starts at its first token and ends behind its last one."""

    def new_form_options(self) -> list[OptionClause]:
        """Read options behind the opening parenthesis, up to and with the closing one."""
        clauses = list(chain.from_iterable(self.several(self.new_form_option)))
        self.need(TokenType.R_PAREN, '"," or ")"')
        return clauses

    def new_form_option(self) -> list[OptionClause]:
        """One option; AUTO SCALE OFF is two clauses."""
        rows = [row for row in IN_PARENTHESES if row.words[0] == self.word()]
        if not rows:
            self._no_such_option(self.word())
        position = self.place(self._curr)
        if len(rows) == 1:
            self.expect_words(*rows[0].words)
            return [self._new_form_value(rows[0], position)]
        self.expect_words("AUTO", "SCALE")
        if self.take_word("OFF"):
            return [OptionClause(row.option, TIMER_OFF, position) for row in rows]
        row = next((row for row in rows if self.take_word(row.words[-1])), None)
        if row is None:
            self.fail("UP, DOWN or OFF")
        return [self._new_form_value(row, position)]

    def _no_such_option(self, word: str) -> NoReturn:
        if word == "STORAGE":
            hint = "STORAGE PROFILES is given behind the options of CREATE ZONE, and only there"
            self.fail("an option", hint)
        if not word:
            self.fail(f"an option ({NEW_FORM})")
        # Ends the parsing, for only an option's own rule knows where its value ends; named for what it is.
        message = f"there is no option {shortened(word)}; accepted: {NEW_FORM}"
        self.refuse(ErrorKind.OPTION_UNKNOWN, message, self._curr)

    def _new_form_value(self, row: ZoneOptionRow, position: Position | None) -> OptionClause:
        """Read what stands behind the words of an option."""
        name = row.option.value
        if row.kind is not OptionKind.NUMBER:
            return OptionClause(row.option, self.text(f"a single-quoted string for {name}"), position)
        written = self._curr.text if self._curr else ""
        value = row.word_value
        if not row.word or not self.take_word(row.word):
            value = self.digits(name, f" or {row.word}" if row.word else "")
        return OptionClause(row.option, value, position, written)

    def digits(self, what: str, alternative: str = "") -> int:
        """Digits only: a sign, a decimal point, an exponent or a hexadecimal number is a syntax error."""
        token = self._curr
        if not token or token.token_type != TokenType.NUMBER or not _DIGITS.fullmatch(token.text):
            self.fail(f"a whole number{alternative} for {what}", "digits only")
        self._advance()
        return cut_number(token.text)

    def text(self, what: str) -> str:
        """A single-quoted string that is not blank, without the blanks around it."""
        token = self._curr
        if not token or token.token_type != TokenType.STRING:
            self.fail(what)
        if not token.text.strip():
            self.fail(what, "it is not blank")
        self._advance()
        return token.text.strip()

    def storage_profiles(self) -> OptionClause:
        """``STORAGE PROFILES ['p', ...]``; a repeated name counts once."""
        position = self.place(self._curr)
        self.expect_words("STORAGE", "PROFILES")
        self.need(TokenType.L_BRACKET, '"["')
        names = self.several(self._profile)
        self.need(TokenType.R_BRACKET, '"," or "]"')
        return OptionClause(ZoneOption.STORAGE_PROFILES, distinct(names), position)

    def _profile(self) -> ProfileName:
        token = self._curr
        return ProfileName(self.text("a storage profile in single quotes"), self.place(token))

    def old_form_options(self) -> list[OptionClause]:
        """``KEY=value, ...``. A repeated STORAGE_PROFILES adds to the earlier; it comes last in the result."""
        clauses: list[OptionClause] = []
        names: list[ProfileName] = []
        first_profiles: OptionClause | None = None
        for clause in self.several(self._old_form_option):
            if isinstance(clause.value, tuple):
                names += clause.value
                first_profiles = first_profiles or clause
            else:
                clauses.append(clause)
        if first_profiles:
            clauses.append(replace(first_profiles, value=distinct(names)))
        return clauses

    def _old_form_option(self) -> OptionClause:
        token = self._curr
        quoted = bool(token) and token.token_type == TokenType.IDENTIFIER
        key = token.text.upper() if quoted else self.word()
        if not key:
            self.fail("an option's key, as in REPLICAS=3")
        self._advance()
        self.need(TokenType.EQ, f'"=" behind {shortened(key)}')
        option = OLD_FORM_KEYS.get(key) or UnknownOption(key)
        first, position = self._curr, self.place(self._curr)
        value = self.literal()
        written = self.source.text[first.start : self._prev.end + 1] if isinstance(value, int) else ""
        if option is ZoneOption.STORAGE_PROFILES and isinstance(value, str):
            parts = (part.strip() for part in value.split(","))
            value = tuple(ProfileName(part, position) for part in parts if part)
        return OptionClause(option, value, self.place(token), written)

    def literal(self) -> OptionValue:
        """A literal of any type, or ALL. Numbers that are whole count as whole: +3, 3.0, 3e0."""
        start = self._curr
        if self.take_word("ALL"):
            return Keyword.ALL
        if self.word() in ("TRUE", "FALSE", "NULL", *DATED_LITERALS):
            dated = self.word() in DATED_LITERALS
            unit = self.word() == "INTERVAL"
            self._advance()
            if dated and not self.take(TokenType.STRING):
                self.fail("a single-quoted string")
            if unit and self.word():
                self._advance()
            return OtherLiteral(self.source.text[start.start : self._prev.end + 1])
        string = self.take(TokenType.STRING)
        if string:
            return string.text
        sign = self.take(TokenType.DASH)
        if not sign:
            self.take(TokenType.PLUS)
        number = self.need(TokenType.NUMBER, "a number, a single-quoted string or ALL")
        text = self.source.text[start.start : number.end + 1]
        if not NUMBER.fullmatch(number.text):
            self.refuse(ErrorKind.SYNTAX_ERROR, f"{shortened(text)} is not a number", number)
        value = whole_number(number.text)
        if value is None:
            return OtherLiteral(text)
        return -value if sign else value


def distinct(names: Iterable[ProfileName]) -> tuple[ProfileName, ...]:
    """The names in their order, each once."""
    return tuple({name.text: name for name in reversed(list(names))}.values())[::-1]


def whole_number(text: str) -> int | None:
    """The value of an unsigned numeric literal that is whole, at most ``NUMBER_MAX``; None for a fraction.

    An exponent is never expanded: 1e999999999 costs nothing.
    """
    mantissa, _, exponent = text.lower().partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = (integer + fraction).lstrip("0")
    if not digits:
        return 0
    significant = digits.rstrip("0")
    shift = (-1 if exponent.startswith("-") else 1) * cut_number(exponent.lstrip("+-"))
    zeros = len(digits) - len(significant) - len(fraction) + shift
    if zeros < 0:
        return None
    return NUMBER_MAX if len(significant) + zeros > 18 else int(significant) * 10**zeros
