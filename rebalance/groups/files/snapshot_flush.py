"""Writes a snapshot to disk while it arrives.

etcd writes what it receives into ``member/snap/tmp…`` and flushes the file once, when it is whole. On a disk
that members share, the flushes of everybody's log then wait behind the whole snapshot: with 100 MB, every put
of the group stands for 40 ms. Flushed in small parts beside the transfer, the same bytes cost a few
milliseconds each.

Linux reports a write error to each open file of its own, so that etcd still sees one that was met here first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.01
"""Between two looks whether a snapshot arrives."""
FLUSH_S = 0.002
"""Between two flushes of one that does."""
STALLED_S = 0.2
"""One that has not grown for so long is left until the next look."""


async def flush_while(arriving: Callable[[], bool], snapshots: Path) -> None:
    """Flush what grows in the directory ``snapshots`` of a member, while ``arriving``: until it has joined.

    In a thread of its own, which is started when something comes: a large snapshot takes seconds, and the few
    threads that everybody shares stop members and read their logs meanwhile.
    """
    loop, own, known = asyncio.get_running_loop(), ThreadPoolExecutor(1, "snapshot"), dict[str, int]()
    try:
        while arriving():
            for part, size in _parts(snapshots).items():
                if known.get(part) != size:
                    known[part] = await loop.run_in_executor(own, _flush_while_it_grows, part)
            await asyncio.sleep(LOOK_S)
    finally:
        own.shutdown(wait=False)


def size_of(snapshots: Path) -> int:
    """Bytes in the directory ``snapshots`` of a member, whole or not; what goes while it is looked at counts as
    nothing."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(snapshots) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


def _parts(snapshots: Path) -> dict[str, int]:
    """Sizes by path of the snapshots that are not whole."""
    try:
        with os.scandir(snapshots) as entries:
            return {entry.path: entry.stat().st_size for entry in entries if entry.name.startswith("tmp")}
    except FileNotFoundError:
        return {}


def _flush_while_it_grows(part: str) -> int:
    """Returns its size once it stands still, has become a snapshot, or was given up."""
    size, grew_at = 0, time.monotonic()
    try:
        descriptor = os.open(part, os.O_RDONLY)
    except FileNotFoundError:
        return size
    try:
        while os.path.exists(part) and time.monotonic() < grew_at + STALLED_S:
            size_now = os.fstat(descriptor).st_size
            if size_now > size:
                size, grew_at = size_now, time.monotonic()
                os.fdatasync(descriptor)
            time.sleep(FLUSH_S)
    except OSError:
        # etcd meets the same error, and ends with it.
        pass
    finally:
        os.close(descriptor)
    return size
