"""Environment variables that set options of commands in earlier releases, and set nothing now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PREFIX = "ZONEKEEPER_"


def former_variables(
    command: Any, arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Those that are set and belong to an option of the command which ``arguments`` name, with what to type
    instead; not of an option that is typed. ``command``: ``zonectl`` itself."""
    present = {name for name in environment if name.startswith(PREFIX)}
    if not present:
        return
    words: list[str] = []
    for word in arguments:
        commands = getattr(command, "commands", None)
        if commands is None:
            break
        if word in commands:
            command = commands[word]
            words.append(word)
    for option in command.params:
        if option.param_type_name != "option":
            continue
        for flag in (flag for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")):
            if any(argument.partition("=")[0] == flag for argument in arguments):
                continue
            name = flag.removeprefix("--").replace("-", "_").upper()
            names = (PREFIX + name, *(f"{PREFIX}{word.upper()}_{name}" for word in words))
            for variable in present.intersection(names) - {option.envvar, *_settings()}:
                yield variable, flag if option.is_flag else f"{flag} {option.metavar or 'VALUE'}"


def _settings() -> frozenset[str]:
    """Variables that are settings of processes."""
    # It takes long to import, and there is hardly ever such a variable.
    from app.configuration.settings import Settings

    return frozenset(PREFIX + field.upper() for field in Settings.model_fields)
