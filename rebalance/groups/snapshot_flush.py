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
from collections.abc import Callable
from pathlib import Path

LOOK_S = 0.02
"""Between two looks whether a snapshot arrives."""
FLUSH_S = 0.002
"""Between two flushes of one that does."""


async def flush_while(arriving: Callable[[], bool], snapshots: Path) -> None:
    """Flush what grows in the directory ``snapshots`` of a member, while ``arriving``: until it has joined."""
    while arriving():
        flushed = False
        for part in _parts(snapshots):
            flushed |= await asyncio.to_thread(_flush, part)
        await asyncio.sleep(FLUSH_S if flushed else LOOK_S)


def _parts(snapshots: Path) -> list[str]:
    try:
        with os.scandir(snapshots) as entries:
            return [each.path for each in entries if each.name.startswith("tmp")]
    except FileNotFoundError:
        return []


def _flush(part: str) -> bool:
    """False when it became a snapshot, or was given up, in this moment."""
    try:
        descriptor = os.open(part, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fdatasync(descriptor)
    except OSError:
        # etcd meets the same error, and ends with it.
        return False
    finally:
        os.close(descriptor)
    return True
