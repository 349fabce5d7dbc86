"""A set of DDL files as one sequence of commands, in which nothing is used before it is made.

Which file comes first says nothing: a statement that names a zone or a table comes behind the one that makes
it, wherever that is written. Where no name decides, files count in the order of their names, and statements as
they are written; so the same files give the same sequence in whatever order they are handed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog.core.errors import ErrorKind, ParseError, StatementError
from catalog.core.messages import (
    AlterZone,
    CreateTable,
    CreateZone,
    PrincipalCommand,
    RenameZone,
    SchemaCommand,
    SetDefaultZone,
    TableCommand,
)
from parser.script import split_script
from parser.text_limits import DEFAULT_LIMITS, NEVER, OWN_TEXT, ScriptLimits, StopFlag
from parser.to_command import parse_each


@dataclass(frozen=True, slots=True)
class DdlFile:
    name: str
    text: str


class DdlFileError(Exception):
    """``cause`` is what is wrong with ``file``, with its place there."""

    def __init__(self, file: DdlFile, cause: StatementError) -> None:
        super().__init__(f"{file.name}: {cause.message}")
        self.file = file
        self.cause = cause


@dataclass(frozen=True, slots=True)
class FileCommand:
    """A statement of a file."""

    file: DdlFile
    command: SchemaCommand


@dataclass(frozen=True, slots=True)
class _Thing:
    """A zone or a table, by its name."""

    is_table: bool
    name: str


def read_files(
    files: Sequence[DdlFile], limits: ScriptLimits = DEFAULT_LIMITS, stop: StopFlag = NEVER
) -> tuple[FileCommand, ...]:
    """All statements of the files, at least one. ``limits`` hold for the files together.

    Raises DdlFileError for the first that does not parse, and ReadingStoppedError.
    """
    size, tokens = 0, 0
    read: list[FileCommand] = []
    for file in sorted(files, key=lambda file: (file.name, file.text)):
        size += len(file.text.encode(errors="surrogatepass"))
        _check(file, size, limits.text_bytes_max, "bytes")
        try:
            for command, piece in parse_each(file.text, limits, stop):
                tokens += len(piece.tokens)
                if isinstance(command, PrincipalCommand):
                    message = (
                        "DDL files declare zones and tables: send statements on users and grants by themselves"
                    )
                    raise ParseError(ErrorKind.STATEMENT_NOT_SUPPORTED, message, command.position)
                if not isinstance(command, ParseError):
                    read.append(FileCommand(file, command))
                elif piece.text or not _is_blank(file.text):
                    raise command
        except ParseError as error:
            raise DdlFileError(file, error) from error
        _check(file, len(read), limits.statements_max, "statements")
        _check(file, tokens, limits.tokens_max, "tokens (words, numbers, signs)")
    if not read:
        # With pruning, files of nothing would drop everything: more likely they are the wrong ones.
        message = "the files hold no statement, so they declare nothing"
        raise DdlFileError(files[0], ParseError(ErrorKind.INVALID_REQUEST, message))
    return tuple(in_order(read))


def in_order(commands: Sequence[FileCommand]) -> Iterator[FileCommand]:
    """Each behind what it waits for; otherwise as they come. Those that wait for each other in a circle come as
    written, to be refused for what is missing."""
    waits = _waits(commands)
    follow: dict[int, list[int]] = {}
    for at, makers in enumerate(waits):
        for maker in makers:
            follow.setdefault(maker, []).append(at)
    ready = [at for at, makers in enumerate(waits) if not makers]
    left = dict.fromkeys(range(len(commands)))
    while left:
        at = heapq.heappop(ready) if ready else next(iter(left))
        if at not in left:
            continue
        del left[at]
        yield commands[at]
        for follower in follow.get(at, ()):
            waits[follower].discard(at)
            if not waits[follower]:
                heapq.heappush(ready, follower)


def _waits(commands: Sequence[FileCommand]) -> list[set[int]]:
    """For each command the indexes of those that come before it wherever they are written."""
    makers: dict[_Thing, int] = {}
    defaults: list[int] = []
    for at, statement in enumerate(commands):
        thing = _made(statement.command)
        if thing is not None:
            makers.setdefault(thing, at)
        if isinstance(statement.command, SetDefaultZone):
            defaults.append(at)
    waits: list[set[int]] = []
    for at, statement in enumerate(commands):
        thing = _needed(statement.command)
        before = {makers[thing]} if thing in makers else set()
        if isinstance(statement.command, CreateTable) and statement.command.zone is None:
            # Its zone is the default, which another file may set.
            before.update(other for other in defaults if commands[other].file is not statement.file)
        waits.append(before - {at})
    return waits


def _made(command: SchemaCommand) -> _Thing | None:
    if isinstance(command, CreateZone | CreateTable):
        return _Thing(isinstance(command, CreateTable), command.name.text)
    return _Thing(False, command.new_name.text) if isinstance(command, RenameZone) else None


def _needed(command: SchemaCommand) -> _Thing | None:
    if isinstance(command, CreateTable):
        return None if command.zone is None else _Thing(False, command.zone.text)
    if isinstance(command, CreateZone):
        return None
    return _Thing(isinstance(command, TableCommand), command.name.text)


def zones_to_know(commands: Sequence[FileCommand]) -> frozenset[str]:
    """The zones that the commands use and do not make: those of the catalog, if it has them."""
    named = (_needed(statement.command) for statement in commands if isinstance(statement.command, _USES_ZONE))
    made = {_made(statement.command) for statement in commands}
    return frozenset(thing.name for thing in named if thing is not None and thing not in made)


_USES_ZONE = (CreateTable, AlterZone, SetDefaultZone)


def _is_blank(text: str) -> bool:
    return next(split_script(text, OWN_TEXT), None) is None


def _check(file: DdlFile, count: int, limit: int, what: str) -> None:
    if count > limit:
        message = f"the files together have at most {limit} {what}"
        raise DdlFileError(file, ParseError(ErrorKind.TEXT_TOO_LARGE, message))
