"""Statements that ask (SELECT, SHOW, DESCRIBE, EXPLAIN), CALL, and scripts of statements of any kind.

CALL has the procedures that bring partitions back, and those that put zones of store servers at rest::

    CALL [system.]reset_partitions ('zone' [, ARRAY[number, ...] [, ARRAY['node', ...] [, 'node']]])
    CALL [system.]restart_partitions ('zone' [, ARRAY[number, ...] [, ARRAY['node', ...]]])
    CALL [system.]reset_lost_partitions | activate_zone | deactivate_zone ('zone')

Without numbers the call covers every partition that needs it, or every one. Nodes of a reset are those that are
known to be dead, and the last argument is the one whose copy is used; without nodes of a restart every living
one is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Command, Position
from catalog.core.messages import Name as WrittenName
from parser.dialect import CommandNode
from parser.hidden_secrets import hide_secrets
from parser.rules import RuleParser
from parser.script import Piece as CutPiece
from parser.script import split_script
from parser.text import DEFAULT_LIMITS, NEVER, Lines, ScriptLimits, SourceMap, StopFlag, check_characters
from parser.to_command import DIALECT, check_closed, nothing_found, read_command, read_node

T = TypeVar("T")

SCHEMA = "SYSTEM"
DIGITS_MAX = 9


class Procedure(Enum):
    """Procedures that CALL knows, all in the schema SYSTEM."""

    RESET_PARTITIONS = "RESET_PARTITIONS"
    RESTART_PARTITIONS = "RESTART_PARTITIONS"
    RESET_LOST_PARTITIONS = "RESET_LOST_PARTITIONS"
    ACTIVATE_ZONE = "ACTIVATE_ZONE"
    DEACTIVATE_ZONE = "DEACTIVATE_ZONE"

    @property
    def is_of_groups(self) -> bool:
        """Check that it is about partitions that are replication groups; the others are about zones of store
        servers."""
        return self in (Procedure.RESET_PARTITIONS, Procedure.RESTART_PARTITIONS)


@dataclass(frozen=True, slots=True)
class PlacedArgument(Generic[T]):
    """An argument and where it stands."""

    value: T
    position: Position


@dataclass(frozen=True, slots=True)
class Call:
    """``partitions`` and ``nodes`` are empty when they are not given. ``nodes``: of a reset those that are
    known to be dead. ``source``: whose copy a reset uses; None: the best."""

    procedure: Procedure
    zone: PlacedArgument[str]
    partitions: tuple[PlacedArgument[int], ...]
    nodes: tuple[PlacedArgument[str], ...]
    position: Position
    source: PlacedArgument[str] | None = None


class CallRules(RuleParser):
    """Reads what follows CALL."""

    def call(self) -> Call:
        position = self.place(self._curr)
        procedure = self._procedure()
        self.need(TokenType.L_PAREN, "(")
        zone = self._text("a zone's name in single quotes")
        partitions: tuple[PlacedArgument[int], ...] = ()
        nodes: tuple[PlacedArgument[str], ...] = ()
        source: PlacedArgument[str] | None = None
        if procedure.is_of_groups and self.take(TokenType.COMMA):
            partitions = self._array(self._number)
            if self.take(TokenType.COMMA):
                nodes = self._array(self._node)
                if procedure is Procedure.RESET_PARTITIONS and self.take(TokenType.COMMA):
                    source = self._node()
        self.need(TokenType.R_PAREN, ")")
        self.expect_end()
        return Call(procedure, zone, partitions, nodes, position, source)

    def _procedure(self) -> Procedure:
        known = {member.value: member for member in Procedure}
        expected = " or ".join(f"system.{name.lower()}" for name in known)
        start = self._curr
        if self.word() == SCHEMA and self._next is not None and self._next.token_type is TokenType.DOT:
            self._advance()
            self._advance()
        procedure = known.get(self.word())
        if procedure is None:
            if self._curr and self._curr.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
                message = f"unknown procedure; accepted: {expected}"
                self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, message, start)
            self.fail(expected)
        self._advance()
        return procedure

    def _array(self, element: Callable[[], PlacedArgument[T]]) -> tuple[PlacedArgument[T], ...]:
        if not self.take_word("ARRAY"):
            self.fail("ARRAY[...]")
        self.need(TokenType.L_BRACKET, "[")
        if self.take(TokenType.R_BRACKET):
            return ()
        elements = self.several(element)
        self.need(TokenType.R_BRACKET, "]")
        return tuple(elements)

    def _number(self) -> PlacedArgument[int]:
        token = self._curr
        if token is None or token.token_type is not TokenType.NUMBER:
            self.fail("a partition's number")
        if not token.text.isdigit() or len(token.text) > DIGITS_MAX:
            self.fail("a partition's number", "it has digits only")
        self._advance()
        return PlacedArgument(int(token.text), self.place(token))

    def _node(self) -> PlacedArgument[str]:
        return self._text("a node's name in single quotes")

    def _text(self, what: str) -> PlacedArgument[str]:
        token = self.need(TokenType.STRING, what)
        return PlacedArgument(token.text, self.place(token))


QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
QUESTION_WORDS = frozenset({"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "CALL"})


class ShowKind(Enum):
    ZONES = "ZONES"
    NODES = "NODES"
    TABLES = "TABLES"
    PARTITIONS = "PARTITIONS"
    CREATE_ZONE = "CREATE ZONE"
    SCHEMAS = "SCHEMAS"
    CATALOGS = "CATALOGS"
    USERS = "USERS"
    ROLES = "ROLES"
    GRANTS = "GRANTS"
    COLUMNS = "COLUMNS"


@dataclass(frozen=True, slots=True)
class QueryName:
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
    """Neither a question nor a CALL."""

    command: Command


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT, WITH, VALUES or TABLE, not read yet."""

    source: SourceMap


@dataclass(frozen=True, slots=True)
class Show:
    """``name`` is what FROM, FOR or CREATE ZONE names; ``like`` a LIKE pattern with ``escape``."""

    kind: ShowKind
    name: QueryName | None = None
    like: str | None = None
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeZone:
    name: QueryName


@dataclass(frozen=True, slots=True)
class DescribeTable:
    name: QueryName


@dataclass(frozen=True, slots=True)
class ExplainDdl:
    """``command`` is the statement behind EXPLAIN."""

    command: Command


@dataclass(frozen=True, slots=True)
class ExplainPartition:
    zone: QueryName
    partition: int
    position: Position


Statement = Ddl | Query | Show | DescribeZone | DescribeTable | ExplainDdl | ExplainPartition | Call


@dataclass(frozen=True, slots=True)
class QueryPiece:
    """One statement of a script, as written, and where it begins."""

    n: int
    source: str
    offset: int
    statement: Statement

    @property
    def changes(self) -> bool:
        """Check that it would change the catalog or the partitions."""
        return isinstance(self.statement, Ddl | Call)


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """A statement, understood or not; ``cut`` is what it was read from, in ``lines``."""

    statement: Statement | ParseError
    cut: CutPiece
    lines: Lines


def parse_statement(text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> QueryPiece:
    """The one statement of ``text``. Raises ParseError, MULTIPLE_STATEMENTS when there are more."""
    pieces = cut_script(text, limits, stop)
    if not pieces:
        raise nothing_found(text)
    if len(pieces) > 1:
        message = f"expected one statement, found {len(pieces)}"
        raise ParseError(ErrorKind.MULTIPLE_STATEMENTS, message, SourceMap(text).position(pieces[1].offset))
    return pieces[0]


def cut_script(
    text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER
) -> tuple[QueryPiece, ...]:
    """The statements in order, each understood; none for a text that holds none. A query is not read yet.

    Raises ParseError for the first that is not understood, with its number in the script.
    """
    pieces: list[QueryPiece] = []
    for read in read_each(text, limits, stop):
        if isinstance(read.statement, ParseError):
            raise read.statement
        pieces.append(QueryPiece(len(pieces) + 1, hide_secrets(read.cut.text), read.cut.offset, read.statement))
    return tuple(pieces)


def read_each(text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> Iterator[ReadPiece]:
    """Every statement for itself; none for a text that holds none.

    Raises ParseError only for a text that is beyond ``limits``.
    """
    lines = Lines(text)
    for number, cut in enumerate(split_script(text, limits, stop, lines), start=1):
        statement: Statement | ParseError
        try:
            statement = _read(cut, lines, stop)
        except ParseError as error:
            error.statement = number
            statement = error
        yield ReadPiece(statement, cut, lines)


def _read(piece: CutPiece, lines: Lines, stop: StopFlag) -> Statement:
    first = next((token for token in piece.tokens if token.token_type is not TokenType.L_PAREN), None)
    word = first.text.upper() if first is not None and first.token_type is TokenType.VAR else ""
    source = SourceMap(piece.text, lines, piece.offset)
    is_question = word in QUESTION_WORDS and first is piece.tokens[0]
    if word not in QUERY_WORDS and not is_question:
        return Ddl(read_command(piece, lines, stop))
    check_characters(source)
    check_closed(piece, source)
    if not is_question:
        return Query(source)
    rules = QuestionRules(dialect=DIALECT)
    rules.piece, rules.lines = piece, lines
    statement: Statement = read_node(rules, piece, source, stop)
    return statement


class QuestionRules(CallRules):
    """SHOW, DESCRIBE, EXPLAIN and CALL, with the token cursor of zone DDL."""

    piece: CutPiece
    lines: Lines

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
        return CommandNode(this=rules[word]())

    def _show(self) -> Statement:
        if self.take_word("CREATE"):
            if not self.take_word("ZONE"):
                self.fail("ZONE")
            name = self.name("a zone name")
            self.expect_end()
            return Show(ShowKind.CREATE_ZONE, name)
        kinds = {kind.value: kind for kind in ShowKind if kind is not ShowKind.CREATE_ZONE}
        kind = kinds.get(self.word())
        if kind is None:
            self.fail(f"{', '.join(kinds)} or CREATE ZONE")
        self._advance()
        named = None
        if kind is ShowKind.GRANTS and self.take_word("FOR"):
            named = self.name("a user or role name")
        elif self.take_word("FROM", "IN"):
            named = self.name("a name")
        elif kind is ShowKind.COLUMNS:
            self.fail("FROM and the name of a table")
        like = escape = None
        if self.take_word("LIKE"):
            like = self.need(TokenType.STRING, "a pattern in single quotes").text
            if self.take_word("ESCAPE"):
                token = self.need(TokenType.STRING, "one character in single quotes")
                escape = token.text
                if len(escape) != 1:
                    self.refuse(ErrorKind.SYNTAX_ERROR, "ESCAPE takes one character", token)
        self.expect_end()
        return Show(kind, named, like, escape)

    def _describe(self) -> Statement:
        following = self._next
        is_zone = self.word() == "ZONE" and following is not None and following.token_type != TokenType.DOT
        if is_zone:
            self._advance()
            name = self.name("a zone name")
            self.expect_end()
            return DescribeZone(name)
        self.take_word("TABLE")
        name = self.name("ZONE and a name, or the name of a table")
        self.expect_end()
        return DescribeTable(name)

    def _explain(self) -> Statement:
        if self.word() == "PARTITION":
            return self._explain_partition()
        if not self._curr:
            self.fail("a statement or PARTITION")
        if self.word() in QUERY_WORDS | QUESTION_WORDS:
            message = "EXPLAIN accepts zone statements only: a query changes nothing"
            self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, message, self._curr)
        explained = _behind(self.piece, self._curr)
        while self._curr:
            self._advance()
        return ExplainDdl(read_command(explained, self.lines, self.stop))

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

    def name(self, what: str, *, number_follows: bool = False) -> QueryName:
        """``a.b.c``; with ``number_follows`` a dot before a number ends it."""
        position = self.place(self._curr)
        parts = [self._part(what).text]
        while self.take(TokenType.DOT):
            if number_follows and self._curr and self._curr.token_type == TokenType.NUMBER:
                break
            parts.append(self._part(what).text)
        return QueryName(tuple(parts), position)

    def _part(self, what: str) -> WrittenName:
        """A part of a name. Outside zone DDL, words that it reserves for options name tables and columns."""
        token = self._curr
        if token and token.token_type is TokenType.VAR and token.text.isidentifier():
            self._advance()
            return WrittenName(token.text.upper(), self.place(token))
        return self.read_name(what, compound=False)


def _behind(piece: CutPiece, first: Token) -> CutPiece:
    """The part of a statement that begins with the token ``first``."""
    start = first.start
    tokens = [
        Token(token.token_type, token.text, 1, 1, token.start - start, token.end - start)
        for token in piece.tokens
        if token.start >= start
    ]
    return CutPiece(piece.text[start:], piece.offset + start, tokens)
