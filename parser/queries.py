"""Statements that ask (SELECT, SHOW, DESCRIBE, EXPLAIN), CALL, and how a script of any statements is cut.

A script is cut at top-level semicolons with the tokens of zone DDL, so that comments and quotes mean the same
everywhere. A piece keeps its place: it is the script with everything else blanked, so that whatever reads it
finds the lines and columns of the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Name as WrittenName
from catalog.core.messages import Position
from parser.calls import Call, CallRules
from parser.dialect import ZoneDdl
from parser.errors import SourceMap, check_characters
from parser.script import unclosed

QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
QUESTION_WORDS = frozenset({"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "CALL"})

_DIALECT = ZoneDdl()
_ASKS = re.compile(r"\b(?:SELECT|WITH|VALUES|TABLE|SHOW|DESC|DESCRIBE|EXPLAIN|CALL)\b", re.IGNORECASE)
_VISIBLE = re.compile(r"[^\r\n]")


class ShowKind(Enum):
    ZONES = "ZONES"
    NODES = "NODES"
    TABLES = "TABLES"
    PARTITIONS = "PARTITIONS"
    CREATE_ZONE = "CREATE ZONE"
    SCHEMAS = "SCHEMAS"
    CATALOGS = "CATALOGS"
    COLUMNS = "COLUMNS"


@dataclass(frozen=True, slots=True)
class Name:
    """A name in parts, each upper-cased unless it was quoted: ``("SYSTEM", "ZONES")``."""

    parts: tuple[str, ...]
    position: Position

    @property
    def last(self) -> str:
        return self.parts[-1]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Ddl:
    """Neither a question nor a CALL; ``text`` is the piece for ``parse_ddl``."""

    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT, WITH, VALUES or TABLE, not read yet."""

    text: str


@dataclass(frozen=True, slots=True)
class Show:
    """``name`` is what FROM or CREATE ZONE names; ``like`` a LIKE pattern with ``escape``."""

    kind: ShowKind
    name: Name | None = None
    like: str | None = None
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeZone:
    name: Name


@dataclass(frozen=True, slots=True)
class DescribeTable:
    name: Name


@dataclass(frozen=True, slots=True)
class ExplainDdl:
    """``text`` is the statement behind EXPLAIN, in its place."""

    text: str


@dataclass(frozen=True, slots=True)
class ExplainPartition:
    zone: Name
    partition: int
    position: Position


Statement = Ddl | Query | Show | DescribeZone | DescribeTable | ExplainDdl | ExplainPartition | Call


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a script: ``source`` as written, ``text`` with the rest of the script blanked."""

    n: int
    source: str
    text: str
    statement: Statement


def asks(text: str) -> bool:
    """False when no statement of the text can be a question: a quick look, without reading it."""
    return _ASKS.search(text) is not None


def parse_statement(text: str) -> Statement:
    """The one statement of ``text``. Raises ParseError, MULTIPLE_STATEMENTS when there are more."""
    pieces = cut_script(text)
    if not pieces:
        # The words for nothing, or for a text that cannot be cut, are those of the DDL parser.
        return Ddl(text)
    if len(pieces) > 1:
        message = f"there are {len(pieces)} statements where one is expected"
        second = pieces[1].text
        raise ParseError(
            ErrorKind.MULTIPLE_STATEMENTS,
            message,
            SourceMap(text).position(len(second) - len(second.lstrip())),
        )
    return pieces[0].statement


def cut_script(text: str) -> tuple[Piece, ...]:
    """The statements in order; none for a text that holds none, or that has no question and cannot be cut.

    Raises ParseError for a question that is not understood, with its number in the script.
    """
    source = SourceMap(text)
    check_characters(source)
    try:
        tokens = _DIALECT.tokenize(text)
    except SqlglotError as error:
        if not _ASKS.match(text.lstrip(" \t\r\n(")):
            return ()
        raise unclosed(source) or source.fail(0, "the text cannot be read as SQL") from error
    if tokens and tokens[0].token_type == TokenType.SEMICOLON:
        return ()
    pieces: list[Piece] = []
    for statement in _statements(tokens):
        start, end = statement[0].start, statement[-1].end + 1
        masked = text if len(tokens) == len(statement) else _masked(text, start, end)
        try:
            read = _read(source, statement, masked)
        except ParseError as error:
            error.statement = len(pieces) + 1
            raise
        pieces.append(Piece(len(pieces) + 1, text[start:end], masked, read))
    return tuple(pieces)


def _statements(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _masked(text: str, start: int, end: int) -> str:
    """Blanks before, nothing behind: places count from the start."""
    return _VISIBLE.sub(" ", text[:start]) + text[start:end]


def _read(source: SourceMap, tokens: list[Token], text: str) -> Statement:
    first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), tokens[0])
    word = first.text.upper() if first.token_type is not TokenType.IDENTIFIER else ""
    if word in QUERY_WORDS:
        return Query(text)
    if word not in QUESTION_WORDS or first is not tokens[0]:
        return Ddl(text)
    rules = QuestionRules(dialect=_DIALECT)
    rules.source = source
    rules.masked = text
    try:
        (node,) = rules.parse(tokens, source.text)
    except SqlglotError as error:
        raise source.fail(tokens[0].start, "the statement cannot be read") from error
    assert isinstance(node, _Question)
    found: Statement = node.args["this"]
    return found


class _Question(exp.Expression):
    """``this`` is a statement of this module."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class QuestionRules(CallRules):
    """SHOW, DESCRIBE, EXPLAIN and CALL, with the token cursor of zone DDL."""

    masked: str

    def _parse_statement(self) -> exp.Expr | None:
        rules: dict[str, Callable[[], Statement]] = {
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "EXPLAIN": self._explain,
            "CALL": self.call,
        }
        word = self._curr.text.upper() if self._curr else ""
        self._advance()
        return _Question(this=rules[word]())

    def _show(self) -> Statement:
        if self.take_keyword("CREATE"):
            if not self.take_keyword("ZONE"):
                self.fail("ZONE")
            name = self.name("a zone name")
            self.expect_end()
            return Show(ShowKind.CREATE_ZONE, name)
        kinds = {kind.value: kind for kind in ShowKind if kind is not ShowKind.CREATE_ZONE}
        kind = kinds.get(self.keyword())
        if kind is None:
            self.fail(f"{', '.join(kinds)} or CREATE ZONE")
        self._advance()
        named = None
        if self.take_keyword("FROM", "IN"):
            named = self.name("a name")
        elif kind is ShowKind.COLUMNS:
            self.fail("FROM and the name of a table")
        like = escape = None
        if self.take_keyword("LIKE"):
            like = self._string("a pattern in single quotes")
            if self.take_keyword("ESCAPE"):
                token = self._curr
                escape = self._string("one character in single quotes")
                if len(escape) != 1:
                    self.refuse(ErrorKind.SYNTAX_ERROR, "ESCAPE names one character", token)
        self.expect_end()
        return Show(kind, named, like, escape)

    def _describe(self) -> Statement:
        following = self._next
        is_zone = self.keyword() == "ZONE" and following is not None and following.token_type != TokenType.DOT
        if is_zone:
            self._advance()
            name = self.name("a zone name")
            self.expect_end()
            return DescribeZone(name)
        self.take_keyword("TABLE")
        name = self.name("ZONE and a name, or the name of a table")
        self.expect_end()
        return DescribeTable(name)

    def _explain(self) -> Statement:
        if self.keyword() == "PARTITION":
            return self._explain_partition()
        if not self._curr:
            self.fail("a statement or PARTITION")
        if self.keyword() in QUERY_WORDS | QUESTION_WORDS:
            message = "EXPLAIN shows what a zone statement would change; of a query there is nothing to show"
            self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, message, self._curr)
        start = self._curr.start
        while self._curr:
            self._advance()
        return ExplainDdl(_VISIBLE.sub(" ", self.masked[:start]) + self.masked[start:])

    def _explain_partition(self) -> Statement:
        self._advance()
        expected = "a zone and a partition number, as in ORDERS.3"
        start = self._curr
        zone = self.name(expected, number_follows=True)
        token = self._curr
        if not token or token.token_type != TokenType.NUMBER:
            self.fail(expected)
        digits = token.text.removeprefix(".")
        if not digits.isdigit() or len(digits) > 9:
            self.fail(expected, "a partition number has digits only")
        self._advance()
        self.expect_end()
        return ExplainPartition(zone, int(digits), self.place(start))

    def _string(self, what: str) -> str:
        token = self.take(TokenType.STRING)
        if token is None:
            self.fail(what)
        return token.text

    def name(self, what: str, *, number_follows: bool = False) -> Name:
        """``a.b.c``; with ``number_follows`` a dot before a number ends it."""
        position = self.place(self._curr)
        parts = [self._part(what).text]
        while self.take(TokenType.DOT):
            if number_follows and self._at_number():
                break
            parts.append(self._part(what).text)
        return Name(tuple(parts), position)

    def _at_number(self) -> bool:
        return bool(self._curr) and self._curr.token_type == TokenType.NUMBER

    def _part(self, what: str) -> WrittenName:
        """A part of a name. Outside zone DDL, words that it reserves for options name tables and columns."""
        token = self._curr
        if token and token.token_type is TokenType.VAR and token.text.isidentifier():
            self._advance()
            return WrittenName(token.text.upper(), self.place(token))
        return self.read_name(what, compound=False)
