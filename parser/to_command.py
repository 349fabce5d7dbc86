"""Text to commands: the one entrance of this package for statements that change the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot.errors import SqlglotError

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Command
from parser.dialect import STATEMENTS, CommandNode, DialectRules, ZoneDdl
from parser.rules import RuleParser
from parser.script import Piece, split_script
from parser.text import DEFAULT_LIMITS, NEVER, Lines, ScriptLimits, SourceMap, StopFlag, check_characters

DIALECT = ZoneDdl()


def parse_ddl(text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER) -> tuple[Command, ...]:
    """All statements of a script, at least one, in order.

    The script is read whole before anything is returned: either every statement is understood or none is.
    Raises ParseError, always with line and column, and with the 1-based number of the statement.
    """
    commands: list[Command] = []
    for command, _ in parse_each(text, limits, stop):
        if isinstance(command, ParseError):
            raise command
        commands.append(command)
    return tuple(commands)


def parse_single(text: str, parameters: Sequence[object] = ()) -> Command:
    """The statement of a call that takes one; ``parameters`` are values beside the text, which has no place for
    them. Raises ParseError: MULTIPLE_STATEMENTS for more, PARAMETERS_MISMATCH."""
    first, *others = parse_ddl(text)
    if others:
        message = f"expected one statement, found {1 + len(others)}"
        raise ParseError(ErrorKind.MULTIPLE_STATEMENTS, message, others[0].position, statement=2)
    if parameters:
        message = f"the statement takes no parameters, {len(parameters)} given"
        raise ParseError(ErrorKind.PARAMETERS_MISMATCH, message, first.position, statement=1)
    return first


def parse_each(
    text: str, limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER
) -> Iterator[tuple[Command | ParseError, Piece]]:
    """Every statement for itself, at least one: what does not parse is an error in its place.

    Raises ParseError only for a text that is beyond ``limits`` or holds a character that no catalog can store.
    """
    lines = Lines(text)
    number = 0
    for number, piece in enumerate(split_script(text, limits, stop, lines), start=1):
        command: Command | ParseError
        try:
            command = read_command(piece, lines, stop)
        except ParseError as error:
            error.statement = number
            command = error
        yield command, piece
    if not number:
        yield nothing_found(text), Piece("", 0)


def nothing_found(text: str) -> ParseError:
    """Return the error of a text that holds no statement."""
    source = SourceMap(text)
    try:
        check_characters(source)
        error = source.fail(len(text), f"expected {STATEMENTS}, found nothing")
    except ParseError as unstorable:
        error = unstorable
    error.statement = 1
    return error


def read_command(piece: Piece, lines: Lines, stop: StopFlag = NEVER) -> Command:
    """One statement. Raises ParseError, and ReadingStoppedError."""
    source = SourceMap(piece.text, lines, piece.offset)
    check_characters(source)
    if not piece.text:
        raise source.fail(0, f"expected {STATEMENTS}, found ;")
    check_closed(piece, source)
    command: Command = read_node(DialectRules(dialect=DIALECT), piece, source, stop)
    return command


def read_node(rules: RuleParser, piece: Piece, source: SourceMap, stop: StopFlag) -> Any:
    """Read one statement by ``rules``. Raises ParseError, and ReadingStoppedError."""
    rules.source, rules.stop = source, stop
    try:
        (node,) = rules.parse(piece.tokens, piece.text)
    except SqlglotError as error:
        raise source.fail(0, "the statement cannot be read") from error
    if not isinstance(node, CommandNode):
        raise source.fail(0, "this statement is not supported", ErrorKind.STATEMENT_NOT_SUPPORTED)
    return node.args["this"]


def check_closed(piece: Piece, source: SourceMap) -> None:
    """Raises ParseError for what is opened and never closed."""
    if piece.unclosed:
        at, what = piece.unclosed
        raise source.fail(at, f"{what} starts here")
