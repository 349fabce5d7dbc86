"""Writes of a moment ago that are not in the mirror yet: so that nothing is written twice."""

from __future__ import annotations

import asyncio

from rebalance.metastore.mirror import KeyspaceMirror

TRUSTED_S = 5.0
"""A mirror that has not caught up by then shows another history (a restored store): it is believed again."""


class RecentWrites:
    def __init__(self) -> None:
        self._written: dict[str, tuple[int, bytes | None, float]] = {}

    def note(self, key: str, revision: int, value: bytes | None) -> None:
        self._written[key] = (revision, value, asyncio.get_running_loop().time())

    def current(self, key: str, mirror: KeyspaceMirror) -> bytes | None:
        """The newest value of ``key`` that this process knows."""
        newer = self._newer(key, mirror)
        return newer[1] if newer else mirror.value(key)

    def revision(self, key: str, mirror: KeyspaceMirror) -> int:
        """The mod revision that a guard on ``current`` must name; 0 for an absent key."""
        newer = self._newer(key, mirror)
        if newer:
            return newer[0] if newer[1] is not None else 0
        item = mirror.get(key)
        return item.mod_revision if item else 0

    def forget(self, key: str) -> None:
        self._written.pop(key, None)

    def _newer(self, key: str, mirror: KeyspaceMirror) -> tuple[int, bytes | None] | None:
        entry = self._written.get(key)
        if entry is None:
            return None
        revision, value, at = entry
        if revision <= mirror.revision or asyncio.get_running_loop().time() - at > TRUSTED_S:
            del self._written[key]
            return None
        return revision, value
