"""Sources of a script's text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.output import say

STDIN = "-"
SUFFIX = ".sql"


@dataclass(frozen=True)
class Script:
    """A script; ``name``: its name in error messages: the file, ``-e`` or ``<stdin>``."""

    name: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines, split once, however many errors are shown."""
        return self.text.split("\n")


def read_script(text: str | None, file: Path | None, argument: str | None) -> Script:
    """Read the script from exactly one of ``-e``, ``-f`` and ``-``. Raises UsageError."""
    if argument is not None and argument != STDIN:
        raise UsageError(f"unexpected argument {argument!r}: give SQL with -e, a file with -f, or - for stdin")
    if sum(source is not None for source in (text, file, argument)) != 1:
        raise UsageError("give exactly one of -e SQL, -f FILE and - (stdin)")
    if text is not None:
        _warn_of_secrets(text)
        return Script("-e", text)
    if file is None or str(file) == STDIN:
        return Script("<stdin>", _decoded("<stdin>", sys.stdin.buffer.read()))
    try:
        return Script(str(file), _decoded(str(file), file.read_bytes()))
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"cannot read {file}: {error.strerror}") from error


def _warn_of_secrets(text: str) -> None:
    if "PASSWORD" not in text.upper():
        return
    from parser.hidden_secrets import hide_secrets

    if hide_secrets(text) != text:
        warning = "other users of this machine can read the password in -e, and the shell keeps it"
        say(f"warning: {warning}: give such statements with -f or -", out=sys.stderr)


def _decoded(name: str, raw: bytes) -> str:
    try:
        # A byte order mark, as some editors write it, is not part of the SQL.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})") from error


def read_ddl_files(source: str) -> tuple[Script, ...]:
    """Read a file, ``-`` for stdin, or every ``*.sql`` in a folder and below it, by path. Raises UsageError."""
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return (read_script(None, path, None),)
    files = sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
    if not files:
        raise UsageError(f"there is no {SUFFIX} file in {path} or below it")
    return tuple(read_script(None, file, None) for file in files)
