"""The log of one child: what it writes comes through a pipe, and goes into a file of a bounded size."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import IO

from app.supervision.log_lines import LineForm
from rebalance.hosting.child import LOG_BYTES_MAX, LOGS_KEPT, rotate_log

PIPE_BYTES = 1 << 20
READ_BYTES = 1 << 16
READS_MAX = 64
"""In one turn: other children have logs, too."""


class ChildLog:
    """``pump`` it often. A child that writes while nobody reads, as when we are suspended, is not held up:
    beyond what the pipe takes its lines are lost. So are those that the disk has no room for, which are
    counted. A file that somebody has moved away is begun anew."""

    def __init__(
        self, process: str, path: Path, *, bytes_max: int = LOG_BYTES_MAX, kept: int = LOGS_KEPT
    ) -> None:
        """Raises OSError."""
        self._process = process
        self._path = path
        self._bytes_max = bytes_max
        self._kept = kept
        self._form = LineForm(process)
        self._lost = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        rotate_log(path, bytes_max, kept)
        self._file = _opened(path)
        self._reads, self._writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with suppress(OSError):
            fcntl.fcntl(self._writes, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def path(self) -> Path:
        return self._path

    def stream(self) -> IO[bytes]:
        """For a child to write into; close it once the child has it."""
        return os.fdopen(os.dup(self._writes), "wb")

    def pump(self) -> None:
        """Writes what has come."""
        for _ in range(READS_MAX):
            try:
                data = os.read(self._reads, READ_BYTES)
            except BlockingIOError:
                return
            self._write(self._form.take(data, _now()))

    def note_end(self) -> None:
        """The child has ended."""
        self.pump()
        self._write(self._form.end(_now()))

    def close(self) -> None:
        self.note_end()
        for descriptor in (self._reads, self._writes):
            os.close(descriptor)
        self._file.close()

    def _write(self, lines: Iterable[bytes]) -> None:
        with suppress(OSError):
            if _is_elsewhere(self._file, self._path):
                self._file.close()
                self._file = _opened(self._path)
        for line in lines:
            try:
                self._write_line(line)
            except OSError:
                self._lost += 1

    def _write_line(self, line: bytes) -> None:
        """Raises OSError."""
        if self._lost:
            text = f"{self._lost} lines of this log were lost: the disk had no room for them\n"
            self._write_whole(b"".join(LineForm(self._process).take(text.encode(), _now())))
            self._lost = 0
        self._write_whole(line)

    def _write_whole(self, line: bytes) -> None:
        """Raises OSError, with none of it written."""
        begin = os.fstat(self._file.fileno()).st_size
        if begin and begin + len(line) > self._bytes_max:
            self._file.close()
            rotate_log(self._path, 0, self._kept)
            self._file = _opened(self._path)
            begin = 0
        try:
            if self._file.write(line) != len(line):
                raise OSError("the disk is full")
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), begin)
            raise


def _opened(path: Path) -> FileIO:
    """Raises OSError."""
    return path.open("ab", buffering=0)


def _is_elsewhere(file: FileIO, path: Path) -> bool:
    """Raises OSError."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return True
    here = os.fstat(file.fileno())
    return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
