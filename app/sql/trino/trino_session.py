"""The session of the SQL protocol: what its headers say, its properties, and the statements about it (PREPARE,
USE, SET SESSION, ...), which are recognised by their first words.

Parameters are put into a prepared text as literals: each ``?`` that is a sign of its own (one
inside a string, a quoted name or a comment is none) is replaced by the canonical text of a literal that was
parsed as such, so a value can never become anything but a value.

DESCRIBE INPUT and DESCRIBE OUTPUT of a prepared statement are an engine that runs it with nothing known.
Drivers ask for both before they bind values. A parameter's type is decided by the value that comes, so it is
``unknown``. The columns of a query are had by running it with NULL for each parameter; what changes zones has
none and is not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote_plus

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from app.sql.statements.results import (
    BIGINT,
    BOOLEAN,
    VARCHAR,
    AnswerColumn,
    ResultSet,
    SessionContext,
    StatementEngine,
)
from app.sql.trino.pages import type_signature
from catalog.core.audit import checked_reason
from catalog.core.errors import ErrorKind, ParseError, RefusedError
from parser.queries import QUERY_WORDS, QUESTION_WORDS
from parser.query_values import is_not_finite
from parser.script import Piece, check_size, first_words, split_script
from parser.select import QueryDialect, TooManyStepsError
from parser.text import DEFAULT_LIMITS, NEVER, ScriptLimits, StopFlag

PARAMETER_TOKENS_MAX = 10_000
"""Tokens of all the values of one statement together, at most."""


_DIALECT = QueryDialect()
_NUMBER = re.compile(
    r" ?CAST\('(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)' AS (?:DECIMAL|DOUBLE|REAL|(?:TINY|SMALL|BIG)?INT|INTEGER)\)"
)
_LITERALS = (exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.UnicodeString)
_CONSTRUCTORS = (exp.Array, exp.Struct, exp.Map, exp.VarMap, exp.ToMap)


class ControlKind(Enum):
    PREPARE = "PREPARE"
    EXECUTE = "EXECUTE"
    DEALLOCATE = "DEALLOCATE PREPARE"
    DESCRIBE_INPUT = "DESCRIBE INPUT"
    DESCRIBE_OUTPUT = "DESCRIBE OUTPUT"
    USE = "USE"
    SET_SESSION = "SET SESSION"
    RESET_SESSION = "RESET SESSION"
    START_TRANSACTION = "START TRANSACTION"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


@dataclass(frozen=True, slots=True)
class Control:
    """``name``: of the prepared statement, property or schema. ``text``: the SQL or value. EXECUTE has a name
    or, for EXECUTE IMMEDIATE, the text."""

    kind: ControlKind
    name: str = ""
    text: str = ""
    catalog: str = ""
    parameters: tuple[str, ...] = ()


def parse_control(sql: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> Control | None:
    """None for any statement that is not about the session. Raises ParseError for one that is cut short."""
    check_size(sql, limits)
    words = sql.split(None, 2)
    first = words[0].upper().rstrip(";") if words else ""
    second = words[1].upper().rstrip(";") if len(words) > 1 else ""
    if first in _READERS:
        return _READERS[first](_ControlReader(sql, limits, stop))
    if first == "DEALLOCATE":
        return _of_prepared(_ControlReader(sql, limits, stop), ControlKind.DEALLOCATE)
    if first in ("SET", "RESET") and second == "SESSION":
        return _session(_ControlReader(sql, limits, stop), first)
    if first == "START" and second == "TRANSACTION":
        return Control(ControlKind.START_TRANSACTION)
    if first in ("COMMIT", "ROLLBACK") and second in ("", "WORK"):
        return Control(ControlKind(first))
    if first == "DESCRIBE" and second in ("INPUT", "OUTPUT") and len(words) > 2:
        return _of_prepared(_ControlReader(sql, limits, stop), ControlKind(f"DESCRIBE {second}"))
    return None


def bind(sql: str, parameters: tuple[str, ...]) -> str:
    """``sql`` with its placeholders replaced by ``parameters`` in order. Raises RefusedError."""
    if first_words(sql, 1) not in QUERY_WORDS:
        parameters = tuple(plain(parameter) for parameter in parameters)
    places = [token for token in _tokens(sql) if token.token_type is TokenType.PLACEHOLDER]
    if len(places) != len(parameters):
        message = f"the statement has {len(places)} parameters, {len(parameters)} were given"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    parts: list[str] = []
    end = 0
    for place, literal in zip(places, parameters, strict=True):
        parts += (sql[end : place.start], literal)
        end = place.end + 1
    return "".join((*parts, sql[end:]))


def placeholders(sql: str) -> int:
    return sum(token.token_type == TokenType.PLACEHOLDER for token in _tokens(sql))


def literal(text: str) -> str:
    """The canonical text of one literal. Raises ParseError for anything else."""
    pieces = _pieces(text)
    if len(pieces) != 1 or ";" in text[len(pieces[0].text) + pieces[0].offset :]:
        raise _expected("a literal", text)
    _check_count(len(pieces[0].tokens))
    try:
        node = _DIALECT.parse(text)
    except (RecursionError, TooManyStepsError) as error:
        message = "a literal is nested too deeply"
        raise ParseError(ErrorKind.TEXT_NESTED_TOO_DEEPLY, message) from error
    except SqlglotError as error:
        raise _expected("a literal", text) from error
    if len(node) != 1 or node[0] is None or not _is_literal(node[0]):
        raise _expected("a literal", text)
    return _text(node[0])


def _text(node: exp.Expr) -> str:
    """A space before a minus: behind another one it would begin a comment."""
    text = node.sql(dialect=_DIALECT)
    return f" {text}" if text.startswith("-") else text


def plain(literal: str) -> str:
    """A typed number as its digits: what is no query knows numbers without a type only."""
    number = _NUMBER.fullmatch(literal)
    return literal if number is None else f" {number[1]}" if number[1].startswith("-") else number[1]


def _is_literal(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal) or is_not_finite(node.this)
    if isinstance(node, exp.Cast | exp.ParseJSON):
        return _is_literal(node.this)
    if isinstance(node, exp.Interval):
        return node.this is not None and _is_literal(node.this)
    if isinstance(node, _CONSTRUCTORS):
        return all(_is_literal(part) for part in node.iter_expressions())
    return isinstance(node, _LITERALS) or is_not_finite(node)


def _pieces(sql: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> list[Piece]:
    """The statements of a text, whose tokens count from the text's start."""
    pieces = list(split_script(sql, limits, stop))
    for piece in pieces:
        if piece.unclosed:
            raise ParseError(ErrorKind.SYNTAX_ERROR, "the text ends inside a string, a name or a comment")
    return pieces


def _tokens(sql: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> list[Token]:
    """Tokens of all statements, at their places in the whole text; semicolons are none of them."""
    return [
        Token(token.token_type, token.text, 1, 1, piece.offset + token.start, piece.offset + token.end)
        for piece in _pieces(sql, limits, stop)
        for token in piece.tokens
    ]


def _check_count(tokens: int) -> None:
    if tokens > PARAMETER_TOKENS_MAX:
        message = f"the values of a statement have at most {PARAMETER_TOKENS_MAX} tokens, here are {tokens}"
        raise ParseError(ErrorKind.TEXT_TOO_LARGE, message)


def _expected(what: str, word: str) -> ParseError:
    return ParseError(ErrorKind.SYNTAX_ERROR, f"expected {what}, found {word[:60] or 'the end'}")


class _ControlReader:
    """Takes a statement's tokens one after another."""

    def __init__(self, sql: str, limits: ScriptLimits, stop: StopFlag) -> None:
        self.sql = sql
        self._tokens = _tokens(sql, limits, stop)
        self._next = 0

    def word(self) -> str:
        return self._tokens[self._next].text.upper() if self._next < len(self._tokens) else ""

    def take(self, *words: str) -> None:
        for word in words:
            if self.word() != word:
                raise _expected(word, self.word())
            self._next += 1

    def skip(self, word: str) -> bool:
        is_next = self.word() == word
        self._next += is_next
        return is_next

    def name(self) -> str:
        """An identifier; unquoted ones are lower-cased, as SQL clients of this protocol expect."""
        if self._next >= len(self._tokens):
            raise _expected("a name", "")
        token = self._tokens[self._next]
        self._next += 1
        quoted = token.token_type == TokenType.IDENTIFIER
        literal_token = token.token_type in (TokenType.STRING, TokenType.NUMBER)
        if literal_token or (not quoted and not token.text.replace("_", "a").isalnum()):
            raise _expected("a name", token.text)
        return token.text if quoted else token.text.lower()

    def string(self) -> str:
        token = self._tokens[self._next] if self._next < len(self._tokens) else None
        if token is None or token.token_type != TokenType.STRING:
            raise _expected("a string", token.text if token else "")
        self._next += 1
        return token.text

    def rest(self) -> str:
        if self._next >= len(self._tokens):
            return ""
        return self.sql[self._tokens[self._next].start : self._tokens[-1].end + 1]

    def finish(self) -> None:
        if self._next < len(self._tokens):
            raise _expected("the end", self._tokens[self._next].text)

    def listed(self) -> tuple[str, ...]:
        """The texts between the top-level commas of the rest."""
        parts: list[list[Token]] = [[]]
        depth = 0
        _check_count(len(self._tokens) - self._next)
        for token in self._tokens[self._next :]:
            depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
            depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
            if token.token_type == TokenType.COMMA and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        if not all(parts):
            raise _expected("a literal", "")
        return tuple(self.sql[part[0].start : part[-1].end + 1] for part in parts)


def _prepare(reader: _ControlReader) -> Control:
    reader.take("PREPARE")
    name = reader.name()
    reader.take("FROM")
    if not reader.rest():
        raise _expected("a statement", "")
    return Control(ControlKind.PREPARE, name, reader.rest())


def _execute(reader: _ControlReader) -> Control:
    reader.take("EXECUTE")
    immediate = reader.skip("IMMEDIATE")
    text = reader.string() if immediate else ""
    name = "" if immediate else reader.name()
    parameters: tuple[str, ...] = ()
    if reader.skip("USING"):
        parameters = tuple(literal(parameter) for parameter in reader.listed())
    else:
        reader.finish()
    return Control(ControlKind.EXECUTE, name, text, parameters=parameters)


def _use(reader: _ControlReader) -> Control:
    reader.take("USE")
    name, catalog = reader.name(), ""
    if reader.skip("."):
        name, catalog = reader.name(), name
    reader.finish()
    return Control(ControlKind.USE, name, catalog=catalog)


def _of_prepared(reader: _ControlReader, kind: ControlKind) -> Control:
    reader.take(*kind.value.split())
    control = Control(kind, reader.name())
    reader.finish()
    return control


def _session(reader: _ControlReader, first: str) -> Control:
    reader.take(first, "SESSION")
    name = reader.name()
    if reader.skip("."):
        name = reader.name()
    if first == "RESET":
        reader.finish()
        return Control(ControlKind.RESET_SESSION, name)
    reader.take("=")
    return Control(ControlKind.SET_SESSION, name, reader.rest())


_READERS = {"PREPARE": _prepare, "EXECUTE": _execute, "USE": _use}


NO_TRANSACTION = "NONE"
WAIT = "wait"
TIMEOUT = "timeout"
RUN_TIME = "query_max_run_time"
REASON = "reason"
TIMEOUT_S_MAX = 7 * 86_400.0

PROPERTIES = {
    WAIT: "true: a statement that changes a zone ends when its data is where it belongs",
    TIMEOUT: "how long a statement may take, as 30, 30s, 5m or 2h",
    RUN_TIME: "the same, as drivers name what a program sets for one statement",
    REASON: "why: kept with the changes that follow, and shown in audit and operations",
}
_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)\s*", re.I)


@dataclass(frozen=True, slots=True)
class TrinoSession:
    """``prepared`` maps names to texts: they travel with each request, so the server keeps none."""

    user: str = ""
    catalog: str = "zonekeeper"
    schema: str = "system"
    source: str = ""
    time_zone: str = "UTC"
    transaction_id: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    prepared: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> SessionContext:
        return SessionContext(
            self.user,
            self.catalog,
            self.schema,
            self.transaction_id is not None,
            dict(self.properties),
            self.time_zone,
        )

    @property
    def wait(self) -> bool:
        return self.properties.get(WAIT, "false").lower() == "true"

    @property
    def reason(self) -> str:
        """Raises RefusedError."""
        return checked_reason(self.properties.get(REASON, ""))

    @property
    def timeout_s(self) -> float | None:
        """The shorter of both, where both are set. Raises RefusedError."""
        texts = (self.properties.get(name) for name in (TIMEOUT, RUN_TIME))
        return min((seconds(text) for text in texts if text is not None), default=None)


def read_session(headers: Iterable[tuple[str, str]]) -> TrinoSession:
    """Header names in any case; those that may hold several values may also be repeated."""
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered.startswith("x-trino-"):
            fields.setdefault(lowered[len("x-trino-") :], []).append(value)

    def one(name: str, default: str = "") -> str:
        return fields.get(name, [default])[-1].strip() or default

    transaction = one("transaction-id", NO_TRANSACTION)
    return TrinoSession(
        user=one("user"),
        catalog=one("catalog", "zonekeeper"),
        schema=one("schema"),
        source=one("source"),
        time_zone=one("time-zone", "UTC"),
        transaction_id=None if transaction.upper() == NO_TRANSACTION else transaction,
        properties={
            name.lower().rsplit(".", 1)[-1]: value for name, value in _pairs(fields.get("session", ()))
        },
        prepared=dict(_pairs(fields.get("prepared-statement", ()))),
    )


def check_property(name: str, value: str) -> None:
    """Raises RefusedError for an unknown property and for a value that it does not take."""
    if name not in PROPERTIES:
        known = ", ".join(sorted(PROPERTIES))
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"there is no session property {name}; known: {known}")
    if name == WAIT and value.lower() not in ("true", "false"):
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"session property wait is true or false, not {value}")
    if name in (TIMEOUT, RUN_TIME):
        seconds(value)
    if name == REASON:
        checked_reason(value)


def seconds(text: str) -> float:
    """A length of time as SQL clients write it. Raises RefusedError."""
    match = _DURATION.fullmatch(text)
    timeout_s = float(match[1]) * _UNITS_S[match[2].lower()] if match else 0.0
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"a timeout is as 30, 30s, 5m or 2h, not {text[:40]}")
    return timeout_s


def _pairs(values: Iterable[str]) -> Iterable[tuple[str, str]]:
    for value in values:
        for pair in value.split(","):
            name, equals, text = pair.strip().partition("=")
            if equals:
                yield name, _decoded(name, text)


def _decoded(name: str, text: str) -> str:
    """The text behind percent-encoded UTF-8. Raises RefusedError (TEXT_NOT_UTF8)."""
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        message = f"the value of {name!a} in a header is not UTF-8, percent-encoded"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message) from error


_INPUT = (AnswerColumn("Position", BIGINT), AnswerColumn("Type", VARCHAR))
_OUTPUT = (
    *(AnswerColumn(name, VARCHAR) for name in ("Column Name", "Catalog", "Schema", "Table", "Type")),
    AnswerColumn("Type Size", BIGINT),
    AnswerColumn("Aliased", BOOLEAN),
)

_TYPE_BYTES = {
    **dict.fromkeys(("boolean", "tinyint"), 1),
    "smallint": 2,
    **dict.fromkeys(("integer", "real", "date", "interval year to month"), 4),
    **dict.fromkeys(("bigint", "double", "time", "timestamp", "interval day to second"), 8),
    **dict.fromkeys(("time with time zone", "timestamp with time zone"), 8),
    "uuid": 16,
}
"""Bytes of the fixed-size types; the others have size 0 in this protocol."""


class PreparedDescriber:
    """A StatementEngine whose only answer is the description of ``prepared``."""

    def __init__(self, kind: ControlKind, prepared: str, engine: StatementEngine) -> None:
        """Reads ``prepared``: call it in a reader's thread. Raises StatementError."""
        self._kind = kind
        self._engine = engine
        self._count = placeholders(prepared)
        asks = first_words(prepared, 1) in QUERY_WORDS | QUESTION_WORDS
        describes_rows = kind is ControlKind.DESCRIBE_OUTPUT and asks
        self._query = bind(prepared, ("NULL",) * self._count) if describes_rows else ""

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """Raises StatementError as the prepared query would."""
        if self._kind is ControlKind.DESCRIBE_INPUT:
            return ResultSet(_INPUT, [(position, "unknown") for position in range(self._count)])
        if not self._query:
            return ResultSet(_OUTPUT)
        described = await self._engine.execute(self._query, session)
        return ResultSet(_OUTPUT, [_described(column) for column in described.columns])


def _described(column: AnswerColumn) -> tuple[object, ...]:
    """Row that describes a column. The table that it came from is left out: it may be the result of any
    expression."""
    kind = column.type.value
    return column.name, "", "", "", kind, _TYPE_BYTES.get(type_signature(kind)["rawType"], 0), False
