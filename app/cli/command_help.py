"""Commands and their help, with usage lines and types as other command lines write them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import wraps
from typing import Any

import typer

# Typer brings its own Click along, and exports no formatter.
from typer._click.formatting import HelpFormatter as BaseFormatter
from typer.core import TyperCommand, TyperGroup

_TYPE = re.compile(r"<([^<>]+)>")
_KINDS = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT"}
"""Metavars by type, for options that name none."""


class HelpFormatter(BaseFormatter):
    """Formatter without Typer's marks: an argument is ZONE, not {ZONE} or ZONE <str>, a value N, not
    <int range>."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        bare = re.sub(r"\{([^{}]+)\}", r"\1", args)
        super().write_usage(prog, re.sub(r"\[\[(.+?)\]\]", r"[\1]", bare), prefix)

    def write_dl(self, rows: Sequence[tuple[str, str]], *places: Any, **more: Any) -> None:
        super().write_dl([(_plain(first), _limits(second)) for first, second in rows], *places, **more)


class _Context(typer.Context):
    formatter_class = HelpFormatter


class Command(TyperCommand):
    context_class = _Context


class CommandGroup(TyperGroup):
    """Group of commands, whose list has the whole first line of each command's help."""

    context_class = _Context

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, (command.help or "").partition("\n\n")[0].replace("\n", " "))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Commands(typer.Typer):
    """An app of commands that are described in this way; their options may be grouped (``with_groups``)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": CommandGroup, "add_completion": False, "rich_markup_mode": None, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        register = super().command(name, **{"cls": Command, **settings})
        return lambda function: register(with_groups(function))

    def callback(self, **settings: Any) -> Callable[..., Any]:
        register = super().callback(**settings)
        return lambda function: register(with_groups(function))


def with_groups(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Make a command of a function: a parameter that is a dataclass stands for its fields as options; those of
    ``api`` come last."""
    signature = inspect.signature(function, eval_str=True)
    groups = {
        name: inspect.signature(each.annotation, eval_str=True).parameters
        for name, each in signature.parameters.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    @wraps(function)
    def command(**given: Any) -> int | None:
        for name, options in groups.items():
            group = signature.parameters[name].annotation
            given[name] = group(**{option: given.pop(option) for option in options})
        return function(**given)

    def options() -> Iterator[inspect.Parameter]:
        for name, parameter in sorted(signature.parameters.items(), key=lambda item: item[0] == "api"):
            yield from groups[name].values() if name in groups else (parameter,)

    apart = [option.replace(kind=option.KEYWORD_ONLY) for option in options()]
    vars(command)["__signature__"] = signature.replace(parameters=apart)
    command.__annotations__ = {option.name: option.annotation for option in apart}
    return command


def _plain(first: str) -> str:
    """The first column of a row of options or arguments."""
    if not first.startswith("-"):
        return re.sub(r" <[^<>]+>(\.\.\.)?$", r"\1", first)
    return _TYPE.sub(lambda found: _KINDS.get(found[1], found[1]), first)


def _limits(second: str) -> str:
    """The second column of such a row: the default without brackets, and limits in words."""
    second = re.sub(r"default: \(([^()]*)\)", r"default: \1", second)
    second = re.sub(r"(\S+)<=x<=(\S+)(?=[];])", r"\1 to \2", second)
    return re.sub(r"x>=(\S+)(?=[];])", r"at least \1", second)
