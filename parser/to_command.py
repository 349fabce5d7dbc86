"""Text to commands: the one entrance of this package."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import AlterZone, Command, CreateZone, DropZone
from parser.dialect import STATEMENTS, AlterZoneNode, CreateZoneNode, DropZoneNode, ZoneDdl, ZoneRules
from parser.errors import SourceMap, check_characters, unclosed

_DIALECT = ZoneDdl()


def parse_ddl(text: str) -> tuple[Command, ...]:
    """All statements of a script, at least one, in order.

    The script is read whole before anything is returned: either every statement is understood or none is.
    Raises ParseError, always with line and column, and with the 1-based number of the statement where the text
    could be cut into statements.
    """
    source = SourceMap(text)
    check_characters(source)
    tokens = _tokens(source)
    if not tokens:
        raise source.fail(len(text), f"expected {STATEMENTS}, found nothing")
    if tokens[0].token_type == TokenType.SEMICOLON:
        raise source.fail(tokens[0].start, f"expected {STATEMENTS}, found ;")
    commands: list[Command] = []
    for statement in _statements(tokens):
        try:
            commands.append(_command(source, statement))
        except ParseError as error:
            error.statement = len(commands) + 1
            raise
    return tuple(commands)


def _tokens(source: SourceMap) -> list[Token]:
    try:
        return _DIALECT.tokenize(source.text)
    except SqlglotError as error:
        raise unclosed(source) or source.fail(0, "the text cannot be read as SQL") from error


def _statements(tokens: list[Token]) -> list[list[Token]]:
    """Cuts at semicolons; several in a row, and one at the end, cut off nothing."""
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _command(source: SourceMap, tokens: list[Token]) -> Command:
    rules = ZoneRules(dialect=_DIALECT)
    rules.source = source
    try:
        (node,) = rules.parse(tokens, source.text)
    except SqlglotError as error:
        raise source.fail(tokens[0].start, "the statement cannot be read") from error
    return _from_node(source, node)


def _from_node(source: SourceMap, node: exp.Expr | None) -> Command:
    if not isinstance(node, (CreateZoneNode, AlterZoneNode, DropZoneNode)):
        raise source.fail(0, "this statement is not supported", ErrorKind.STATEMENT_NOT_SUPPORTED)
    args = node.args
    text = source.text[args["start"] : args["end"]]
    position = source.position(args["start"])
    if isinstance(node, CreateZoneNode):
        return CreateZone(args["this"], args["options"], args["exists"], text, position)
    if isinstance(node, AlterZoneNode):
        return AlterZone(args["this"], args["options"], args["exists"], text, position)
    return DropZone(args["this"], args["exists"], text, position)
