"""The log of one child: what it writes comes through a pipe, and goes into a file of a bounded size as lines of
one form. Ours stay as they are, etcd's get our names, and other text becomes events."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import IO, Any

from catalog.core.visible import visible_json
from rebalance.hosting.child import LOG_BYTES_MAX, LOGS_KEPT, rotate_log

LINE_BYTES_MAX = 256 << 10
"""A longer line becomes several."""
OURS = frozenset({"timestamp", "level", "event", "process"})
OUTPUT = "output"
"""The module of text that no logger has written: a traceback, a dump of stacks."""
ZAP_LEVELS = {"warn": "warning", "dpanic": "critical", "panic": "critical", "fatal": "critical"}


class LineForm:
    """Form of the lines of one child's log. ``process`` is the child's name, for lines without one."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._rest = b""

    def take(self, data: bytes, now: str) -> Iterator[bytes]:
        """Lines of JSON, each with its end; what has no end yet is kept. ``now``: UTC, ISO 8601."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from self._whole(line, now)
        while len(self._rest) > LINE_BYTES_MAX:
            part, self._rest = self._rest[:LINE_BYTES_MAX], self._rest[LINE_BYTES_MAX:]
            yield self._formed(part, now)

    def end(self, now: str) -> Iterator[bytes]:
        """The child has ended, perhaps in the middle of a line."""
        rest, self._rest = self._rest, b""
        yield from self._whole(rest, now)

    def _whole(self, line: bytes, now: str) -> Iterator[bytes]:
        if line.strip():
            yield self._formed(line, now)

    def _formed(self, line: bytes, now: str) -> bytes:
        event = _json(line)
        if event is not None and event.keys() >= OURS:
            return line + b"\n"
        if event is not None and "msg" in event:
            return _line(self._of_zap(event, now))
        text = line.decode(errors="replace").rstrip()
        return _line(
            {"event": text, "process": self._process, "level": "info", "timestamp": now, "module": OUTPUT}
        )

    def _of_zap(self, event: dict[str, Any], now: str) -> dict[str, Any]:
        level = str(event.pop("level", "info"))
        return {
            "event": event.pop("msg"),
            "process": self._process,
            "level": ZAP_LEVELS.get(level, level),
            "timestamp": event.pop("ts", now),
            "module": event.pop("logger", "etcd"),
            **event,
        }


def _json(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _line(event: dict[str, Any]) -> bytes:
    return visible_json(json.dumps(event, ensure_ascii=False)).encode(errors="replace") + b"\n"


PIPE_BYTES = 1 << 20
READ_BYTES = 1 << 16
READS_MAX = 64
"""Limit of reads in one turn, because other children have logs, too."""


class ChildLog:
    """``pump`` it often. A child that writes while the log is not read, as when we are suspended, is not held
    up: its lines are lost once the pipe is full. So are those for which the disk has no room, which are
    counted. A file that was moved away is begun anew."""

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
        """Open a stream for a child to write its log into; close it once the child has it."""
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
