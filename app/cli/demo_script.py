"""The demo's script: one CREATE ZONE, one ALTER ZONE, run apart so that keys can be written in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from app.cli.exits import UsageError

# A link to examples/quickstart.sql, so that an installed package has the same text.
QUICKSTART = Path(__file__).with_name("quickstart.sql")
MODIFIERS = frozenset({"IF", "NOT", "EXISTS"})


@dataclass(frozen=True, slots=True)
class DemoScript:
    """Two statements and the zone's name, each as written in the file; ``replicas`` as the second asks."""

    zone: str
    create: str
    alter: str
    replicas: int


def read_demo_script(path: Path | None) -> DemoScript:
    """Raises UsageError when the file is not one CREATE ZONE and one ALTER ZONE."""
    source = path or QUICKSTART
    try:
        return parse_demo_script(source.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from error


def parse_demo_script(text: str) -> DemoScript:
    """Raises ValueError that says what was wanted."""
    try:
        statements = _split(text)
    except TokenError as error:
        raise ValueError(str(error)) from error
    heads = [tuple(token.text.upper() for token in statement[:2]) for statement in statements]
    if heads != [("CREATE", "ZONE"), ("ALTER", "ZONE")]:
        raise ValueError("the demo wants one CREATE ZONE, then one ALTER ZONE")
    create, alter = statements
    name = next((token for token in create[2:] if token.text.upper() not in MODIFIERS), None)
    if name is None:
        raise ValueError("CREATE ZONE names no zone")
    return DemoScript(_text(text, [name]), _text(text, create), _text(text, alter), _replicas(alter))


def _split(text: str) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in Tokenizer().tokenize(text):
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _replicas(alter: Sequence[Token]) -> int:
    for keyword, value in pairwise(token for token in alter if token.token_type is not TokenType.EQ):
        if keyword.text.upper() == "REPLICAS" and value.token_type is TokenType.NUMBER:
            return int(value.text)
    raise ValueError("the demo's ALTER ZONE sets REPLICAS to a number")


def _text(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1]
