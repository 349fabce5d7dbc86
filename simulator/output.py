"""Common parts of the simulator's commands: their options, and the end of a broken run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

PROGRAM = "python -m simulator"


class SimulationFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of all random choices.")]
FormatOption = Annotated[SimulationFormat, typer.Option("--format", help="Output format.")]


def print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False, indent=2))


def end_broken(reason: str, command: str) -> NoReturn:
    """End with exit code 1, a line that says what broke, and the ``command`` that shows it again."""
    typer.echo(f"{reason}\nto reproduce: {PROGRAM} {command}", err=True)
    raise typer.Exit(1)
