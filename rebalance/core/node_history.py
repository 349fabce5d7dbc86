"""What a zone's data nodes were: one entry for each change of the set, newest last, bounded.

The past does not change: an entry has the time at which the set was written, also when a timer was due earlier.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

HISTORY_FORMAT = 1
ENTRIES_MAX = 64
NAMES_MAX = 20_000
"""Names in all entries together: the value stays far below what the metastore takes."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """``nodes`` since ``at_ms``. ``revision`` is the metastore's at which they were written; 0 in the newest
    entry, whose revision is the key's own ``mod_revision``: a value cannot name the revision that writes it."""

    at_ms: int
    nodes: tuple[str, ...]
    revision: int = 0


@dataclass(frozen=True, slots=True)
class DataNodesHistory:
    entries: tuple[HistoryEntry, ...] = ()

    def extended(self, nodes: tuple[str, ...], now_ms: int, mod_revision: int) -> DataNodesHistory:
        """With ``nodes`` since ``now_ms``; ``mod_revision`` is this history's own, as read.

        The oldest entries go when there are too many, the last one never. The same nodes again add nothing,
        and times never go back.
        """
        *older, last = self.entries or (None,)
        if last is None:
            return DataNodesHistory((HistoryEntry(now_ms, nodes),))
        if last.nodes == nodes:
            return self
        entry = HistoryEntry(max(now_ms, last.at_ms), nodes)
        kept = [entry, replace(last, revision=mod_revision), *reversed([each for each in older if each])]
        names = 0
        for count, each in enumerate(kept):
            names += len(each.nodes)
            if count and (count >= ENTRIES_MAX or names > NAMES_MAX):
                kept = kept[:count]
                break
        return DataNodesHistory(tuple(reversed(kept)))

    def at_time(self, at_ms: int) -> tuple[str, ...] | None:
        """The nodes at a wall-clock time; None: before what is kept."""
        found = [each.nodes for each in self.entries if each.at_ms <= at_ms]
        return found[-1] if found else None

    def at_revision(self, revision: int, mod_revision: int) -> tuple[str, ...] | None:
        """The nodes at a metastore revision; ``mod_revision`` is this history's own. None: before what is
        kept."""
        found = [each.nodes for each in self.entries if (each.revision or mod_revision) <= revision]
        return found[-1] if found else None

    def encode(self) -> bytes:
        document = {"v": HISTORY_FORMAT, "entries": [asdict(each) for each in self.entries]}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> DataNodesHistory:
        """Raises ValueError for a format that this build does not know."""
        found = json.loads(value)
        if found["v"] != HISTORY_FORMAT:
            raise ValueError(
                f"data nodes history format {found['v']} is not known; this build reads {HISTORY_FORMAT}"
            )
        entries = ((each["at_ms"], tuple(each["nodes"]), each["revision"]) for each in found["entries"])
        return cls(tuple(HistoryEntry(*each) for each in entries))
