"""Text to commands: the one entrance of this package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Command
from parser.dialect import STATEMENTS, CommandNode, ZoneDdl, ZoneRules
from parser.errors import Lines, SourceMap, check_characters
from parser.script import Piece, split_script

_DIALECT = ZoneDdl()


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """One statement of a script, understood or not; ``sql`` is its text without what surrounds it, and begins
    at ``offset`` of the script."""

    sql: str
    command: Command | ParseError
    offset: int = 0


def parse_ddl(text: str) -> tuple[Command, ...]:
    """All statements of a script, at least one, in order.

    The script is read whole before anything is returned: either every statement is understood or none is.
    Raises ParseError, always with line and column, and with the 1-based number of the statement.
    """
    commands: list[Command] = []
    for read in parse_each(text):
        if isinstance(read.command, ParseError):
            raise read.command
        commands.append(read.command)
    return tuple(commands)


def parse_single(text: str) -> Command:
    """The statement of a call that takes one. Raises ParseError, MULTIPLE_STATEMENTS for more."""
    first, *others = parse_ddl(text)
    if others:
        message = f"expected one statement, found {1 + len(others)}"
        error = ParseError(ErrorKind.MULTIPLE_STATEMENTS, message, others[0].position)
        error.statement = 2
        raise error
    return first


def parse_each(text: str) -> Iterator[ReadStatement]:
    """Every statement for itself, at least one: what does not parse is an error in its place."""
    lines = Lines(text)
    number = 0
    for number, piece in enumerate(split_script(text), start=1):
        command: Command | ParseError
        try:
            command = _command(SourceMap(piece.text, lines, piece.offset), piece)
        except ParseError as error:
            error.statement = number
            command = error
        yield ReadStatement(piece.text, command, piece.offset)
    if not number:
        source = SourceMap(text, lines)
        try:
            check_characters(source)
            nothing = source.fail(len(text), f"expected {STATEMENTS}, found nothing")
        except ParseError as error:
            nothing = error
        nothing.statement = 1
        yield ReadStatement("", nothing)


def _command(source: SourceMap, piece: Piece) -> Command:
    check_characters(source)
    if not piece.text:
        raise source.fail(0, f"expected {STATEMENTS}, found ;")
    rules = ZoneRules(dialect=_DIALECT)
    rules.source = source
    try:
        (node,) = rules.parse(_tokens(source, piece), piece.plain)
    except SqlglotError as error:
        raise source.fail(0, "the statement cannot be read") from error
    if not isinstance(node, CommandNode):
        raise source.fail(0, "this statement is not supported", ErrorKind.STATEMENT_NOT_SUPPORTED)
    command: Command = node.args["this"]
    return command


def _tokens(source: SourceMap, piece: Piece) -> list[Token]:
    if piece.unclosed:
        at, what = piece.unclosed
        raise source.fail(at - piece.offset, f"{what} starts here")
    try:
        return _DIALECT.tokenize(piece.plain)
    except SqlglotError as error:
        raise source.fail(0, "the text cannot be read as SQL") from error
