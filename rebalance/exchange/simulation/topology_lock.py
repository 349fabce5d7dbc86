"""The topology lock of one node: many readers (operations) or one writer (an exchange)."""

from __future__ import annotations

from collections.abc import Hashable


class TopologyLock:
    """Nobody blocks: ``False`` means "not yet, ask again". A waiting writer lets no new reader in, so that an
    exchange is not put off for ever (PME-129, PME-130)."""

    def __init__(self) -> None:
        self.readers: set[Hashable] = set()
        self.writer: Hashable | None = None
        self.waiting: Hashable | None = None

    def read(self, who: Hashable) -> bool:
        if self.writer is not None or self.waiting is not None:
            return False
        self.readers.add(who)
        return True

    def end_read(self, who: Hashable) -> None:
        self.readers.discard(who)

    def write(self, who: Hashable) -> bool:
        """Granted when there is no reader and no other writer; until then ``who`` is the one that waits."""
        if self.writer not in (None, who):
            return False
        self.waiting = who
        if self.readers:
            return False
        self.writer, self.waiting = who, None
        return True

    def end_write(self, who: Hashable) -> None:
        if self.writer == who:
            self.writer = None
