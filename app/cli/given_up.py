"""Writes of earlier commands whose outcome nobody was told: the next write of the key abandons them.

They are in a file of the user's own, beside the contexts. It is a help, not a record: what cannot be read there
is as if it were not.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from app.cli.contexts import contexts_file, origin_of
from app.cli.say import say
from rebalance.core.keyspace.write_terms import ABANDONED_MAX
from rebalance.hosting.private_files import replace_privately

FILE_NAME = "given-up-writes.json"
KEPT_S = 900.0
"""For so long a store zone keeps operation ids, and groups for less."""

Writes = dict[str, dict[str, float]]
"""By place: the time (UTC, seconds) of each operation id."""


class GivenUpWrites:
    """Of one key at one server."""

    def __init__(self, url: str, zone: str, key: str) -> None:
        self._place = json.dumps([origin_of(url), zone, key])

    def of(self, but: str) -> tuple[str, ...]:
        """The newest, oldest first, without ``but``, which is being sent again."""
        ids = [operation for operation in _read().get(self._place, {}) if operation != but]
        return tuple(ids[-ABANDONED_MAX:])

    def add(self, operation: str) -> None:
        _change(lambda writes: writes.setdefault(self._place, {}).update({operation: time.time()}))

    def settle(self, operations: Iterable[str]) -> None:
        settled = set(operations)
        if not _read().get(self._place, {}).keys() & settled:
            return

        def settle(writes: Writes) -> None:
            ids = writes.get(self._place, {})
            writes[self._place] = {name: at for name, at in ids.items() if name not in settled}

        _change(settle)


def _file() -> Path:
    return contexts_file().with_name(FILE_NAME)


def _read() -> Writes:
    """Those that may still matter."""
    now = time.time()
    try:
        body = json.loads(_file().read_text())
        return {
            place: {name: at for name, at in ids.items() if 0 <= now - float(at) <= KEPT_S}
            for place, ids in body.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _change(change: Callable[[Writes], object]) -> None:
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.with_name(f"{FILE_NAME}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            writes = _read()
            change(writes)
            kept = {place: ids for place, ids in writes.items() if ids}
            replace_privately(path, json.dumps(kept).encode())
    except OSError as error:
        say(f"warning: {path}: {error.strerror}; the next put does not abandon this one", out=sys.stderr)
