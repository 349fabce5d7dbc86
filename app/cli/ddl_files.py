"""The files that ``zonectl plan`` and ``zonectl apply`` are given."""

from __future__ import annotations

from pathlib import Path

from app.cli.exits import UsageError
from app.cli.sql_source import STDIN, Script, read_script

SUFFIX = ".sql"


def read_ddl_files(source: str) -> tuple[Script, ...]:
    """A file, ``-`` for stdin, or every ``*.sql`` in a folder and below it, by path. Raises UsageError."""
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return (read_script(None, path, None),)
    files = sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
    if not files:
        raise UsageError(f"there is no {SUFFIX} file in {path} or below it")
    return tuple(read_script(None, file, None) for file in files)
