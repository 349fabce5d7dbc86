"""A group's revisions one by one, as a mirror repeats them, read from the answers of a watch.

One answer may hold many revisions, and a large revision may come in several answers (fragments). A mirror must
repeat each revision as one transaction, so events are put together again first: a revision is complete once an
event of a later one has come, or the answer that is not continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CHANGE_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class RevisionChange:
    """One key of a revision; ``value`` is None when it was deleted."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value or b"") + CHANGE_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class SourceRevision:
    """All that a group's store changed at ``revision``, in its order; a key occurs once."""

    revision: int
    changes: tuple[RevisionChange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)


def still_to_repeat(position: int, revisions: Sequence[SourceRevision]) -> tuple[SourceRevision, ...] | None:
    """Return those of ``revisions`` that a mirror at revision ``position`` lacks; None when some between are
    missing.

    A store numbers its revisions without a gap, and each has at least one event, whatever has caused it.
    """
    lacking = tuple(revision for revision in revisions if revision.revision > position)
    expected = range(position + 1, position + 1 + len(lacking))
    return lacking if [revision.revision for revision in lacking] == list(expected) else None


def join_events(
    begun: SourceRevision | None, events: Sequence[tuple[int, RevisionChange]], *, continued: bool
) -> tuple[tuple[SourceRevision, ...], SourceRevision | None]:
    """The revisions that an answer completes, and the one that it has only begun.

    ``begun`` is what the answer before left; ``events`` are (revision, change), revisions ascending;
    ``continued``: another fragment of the same answer follows. Without it nothing is left over.
    """
    complete: list[SourceRevision] = []
    revision = begun.revision if begun else 0
    changes = list(begun.changes) if begun else []
    for number, change in events:
        if number != revision and changes:
            complete.append(SourceRevision(revision, tuple(changes)))
            changes = []
        revision = number
        changes.append(change)
    rest = SourceRevision(revision, tuple(changes)) if changes else None
    if rest is not None and not continued:
        complete.append(rest)
        rest = None
    return tuple(complete), rest


def batches(
    revisions: Sequence[SourceRevision], revisions_max: int, bytes_max: int
) -> Iterator[Sequence[SourceRevision]]:
    """The same revisions in runs of at most so many and so large; one that is larger is a run of its own."""
    start, size = 0, 0
    for index, revision in enumerate(revisions):
        too_much = index - start >= revisions_max or size + revision.size_bytes > bytes_max
        if index > start and too_much:
            yield revisions[start:index]
            start, size = index, 0
        size += revision.size_bytes
    if start < len(revisions):
        yield revisions[start:]
