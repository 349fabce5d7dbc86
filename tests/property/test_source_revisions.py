"""A group's history, cut into answers and fragments in any way, comes out as the same revisions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.core.moves.source_revisions import (
    RevisionChange,
    SourceRevision,
    batches,
    join_events,
    still_to_repeat,
)

changes = st.builds(
    RevisionChange, st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([None, b"", b"x", b"y" * 200])
)
histories = st.lists(st.lists(changes, min_size=1, max_size=4), max_size=12).map(
    lambda found: tuple(SourceRevision(5 + n, tuple(each)) for n, each in enumerate(found))
)


def answers(
    history: Sequence[SourceRevision], cuts: Sequence[int]
) -> list[tuple[list[tuple[int, RevisionChange]], bool]]:
    """The events in pieces, cut after the given numbers of events. A piece is continued when its last revision
    goes on in the next one: an answer may be cut between revisions, a revision only into fragments."""
    events = [(each.revision, change) for each in history for change in each.changes]
    edges = sorted({0, len(events), *(cut % (len(events) + 1) for cut in cuts)})
    return [
        (events[first:last], last < len(events) and events[last][0] == events[last - 1][0])
        for first, last in itertools.pairwise(edges)
    ]


@settings(deadline=None)
@given(histories, st.lists(st.integers(0, 50), max_size=8))
def test_a_revision_is_told_once_and_whole(history: tuple[SourceRevision, ...], cuts: list[int]) -> None:
    told: list[SourceRevision] = []
    begun: SourceRevision | None = None
    for events, continued in answers(history, cuts):
        complete, begun = join_events(begun, events, continued=continued)
        told += complete
    assert tuple(told) == history
    assert begun is None


@settings(deadline=None)
@given(histories, st.lists(st.integers(0, 50), max_size=8))
def test_fragments_of_one_answer_are_told_early(history: tuple[SourceRevision, ...], cuts: list[int]) -> None:
    """All of it is one answer in fragments: only the last revision waits for the next fragment."""
    told: list[SourceRevision] = []
    begun: SourceRevision | None = None
    pieces = answers(history, cuts)
    for number, (events, _) in enumerate(pieces):
        complete, begun = join_events(begun, events, continued=number + 1 < len(pieces))
        told += complete
        last = events[-1][0]
        assert [each.revision for each in told] == list(range(5, last if begun else last + 1))
    assert tuple(told) == history


def test_a_progress_answer_completes_nothing() -> None:
    """An answer without events says nothing of what was delivered."""
    half = SourceRevision(7, (RevisionChange(b"a", b"1"),))
    assert join_events(None, [], continued=False) == ((), None)
    assert join_events(half, [], continued=True) == ((), half)
    assert join_events(half, [], continued=False) == ((half,), None)


@settings(deadline=None)
@given(histories, st.integers(1, 5), st.integers(1, 600))
def test_batches_keep_order_and_limits(
    history: tuple[SourceRevision, ...], revisions_max: int, bytes_max: int
) -> None:
    runs = list(batches(history, revisions_max, bytes_max))
    assert tuple(each for run in runs for each in run) == history
    for run in runs:
        assert 1 <= len(run) <= revisions_max
        assert len(run) == 1 or sum(each.size_bytes for each in run) <= bytes_max
    # No run could have taken the first of the next one.
    for run, later in itertools.pairwise(runs):
        size = sum(each.size_bytes for each in (*run, later[0]))
        assert len(run) == revisions_max or size > bytes_max


@settings(deadline=None)
@given(histories, st.integers(0, 20), st.sets(st.integers(0, 11)))
def test_only_what_follows_without_a_gap_is_repeated(
    history: tuple[SourceRevision, ...], position: int, lost: set[int]
) -> None:
    """Never twice, never with a revision left out."""
    told = tuple(each for number, each in enumerate(history) if number not in lost)
    lacking = still_to_repeat(position, told)
    newer = [each.revision for each in told if each.revision > position]
    gapless = newer == list(range(position + 1, position + 1 + len(newer)))
    if not gapless:
        assert lacking is None
    else:
        assert lacking is not None
        assert [each.revision for each in lacking] == newer
