"""The demo's script: one CREATE ZONE, one ALTER ZONE, run apart so that keys can be written in between."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.cli.exits import UsageError
from catalog.core.errors import ParseError
from catalog.core.messages import AlterZone, CreateZone, ZoneOption
from parser.queries import Ddl, read_each
from parser.render_principals import render_name
from parser.text_limits import OWN_TEXT

# A link to examples/quickstart.sql, so that an installed package has the same text.
QUICKSTART = Path(__file__).with_name("quickstart.sql")


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
    """Raises ValueError that says what is expected."""
    pieces = list(read_each(text, OWN_TEXT))
    for piece in pieces:
        if isinstance(piece.statement, ParseError):
            raise ValueError(str(piece.statement)) from piece.statement
    commands = [piece.statement.command for piece in pieces if isinstance(piece.statement, Ddl)]
    match commands:
        case [CreateZone() as create, AlterZone() as alter] if len(pieces) == len(commands):
            values = [clause.value for clause in alter.options if clause.option is ZoneOption.REPLICAS]
        case _:
            raise ValueError("the demo expects one CREATE ZONE, then one ALTER ZONE")
    if not values or not isinstance(values[0], int):
        raise ValueError("the demo expects that ALTER ZONE sets REPLICAS to a number")
    return DemoScript(render_name(create.name), pieces[0].cut.text, pieces[1].cut.text, values[0])
