"""What a child writes, as lines of one form: ours as they are, etcd's with our names, other text as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from catalog.core.visible import visible_json

LINE_BYTES_MAX = 256 << 10
"""A longer line becomes several."""
OURS = frozenset({"timestamp", "level", "event", "process"})
OUTPUT = "output"
"""The module of text that no logger has written: a traceback, a dump of stacks."""
ZAP_LEVELS = {"warn": "warning", "dpanic": "critical", "panic": "critical", "fatal": "critical"}


class LineForm:
    """Of one child. ``process`` is its name, for lines that have none."""

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
