"""What a zone's data nodes were: one entry for each change of the set, newest last, bounded.

The past does not change: an entry has the time at which the set was written, also when a timer was due earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Extensible, Record, listed

ENTRIES_MAX = 64
NAMES_MAX = 20_000
"""Names in all entries together: the value stays far below what the metastore takes."""


@dataclass(frozen=True, slots=True)
class HistoryEntry(Extensible):
    """``nodes`` since ``at_ms``. ``revision`` is the metastore's at which they were written; 0 in the newest
    entry, whose revision is the key's own ``mod_revision``: a value cannot name the revision that writes it."""

    at_ms: int
    nodes: tuple[str, ...]
    revision: int = 0


_ENTRY = Codec(HistoryEntry, required=("revision",))


@dataclass(frozen=True, slots=True)
class DataNodesHistory(Record):
    entries: tuple[HistoryEntry, ...] = ()

    def extended(self, nodes: tuple[str, ...], now_ms: int, mod_revision: int) -> DataNodesHistory:
        """With ``nodes`` since ``now_ms``; ``mod_revision`` is this history's own, as read.

        The oldest entries go when there are too many, the last one never. The same nodes again add nothing,
        and times never go back.
        """
        *older, last = self.entries or (None,)
        if last is None:
            return replace(self, entries=(HistoryEntry(now_ms, nodes),))
        if last.nodes == nodes:
            return self
        entry = HistoryEntry(max(now_ms, last.at_ms), nodes)
        kept = [entry, replace(last, revision=mod_revision), *reversed([past for past in older if past])]
        names = 0
        for count, kept_entry in enumerate(kept):
            names += len(kept_entry.nodes)
            if count and (count >= ENTRIES_MAX or names > NAMES_MAX):
                kept = kept[:count]
                break
        return replace(self, entries=tuple(reversed(kept)))

    def at_time(self, at_ms: int) -> tuple[str, ...] | None:
        """The nodes at a wall-clock time; None: before what is kept."""
        node_sets = [entry.nodes for entry in self.entries if entry.at_ms <= at_ms]
        return node_sets[-1] if node_sets else None

    def at_revision(self, revision: int, mod_revision: int) -> tuple[str, ...] | None:
        """The nodes at a metastore revision; ``mod_revision`` is this history's own. None: before what is
        kept."""
        node_sets = [entry.nodes for entry in self.entries if (entry.revision or mod_revision) <= revision]
        return node_sets[-1] if node_sets else None


DataNodesHistory.codec = Codec(
    DataNodesHistory,
    required=("entries",),
    forms={"entries": listed(_ENTRY.form)},
)
