"""Up to where a replica may be read: the pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.core.moves.safe_time import (
    Beat,
    ReadPoint,
    ReplicaProgress,
    decode_time,
    encode_time,
    next_time_ms,
    revision_to_read,
)

small = st.integers(0, 6)
beats = st.builds(Beat, small, small)


@settings(deadline=None)
@given(st.lists(small, max_size=8))
def test_safe_time_never_goes_back(clocks: list[int]) -> None:
    """Safe time keeps its order whatever the clocks of the leaders that follow one another show."""
    last, times = Beat(), []
    for revision, clock_ms in enumerate(clocks, start=1):
        last = Beat(next_time_ms(clock_ms, last), revision)
        times.append(last.time_ms)
    assert times == sorted(times)
    assert all(now >= clock_ms for now, clock_ms in zip(times, clocks, strict=True))


@pytest.mark.row("IEP-058")
@settings(deadline=None)
@given(st.integers(1, 6), small, beats)
def test_a_read_at_a_time_waits_for_the_beat(time_ms: int, safe: int, beat: Beat) -> None:
    """IEP-058: not before safe time has come, and then at the beat: nothing newer is claimed to be of then."""
    found = revision_to_read(ReadPoint(time_ms=time_ms), ReplicaProgress(safe, beat))
    assert found == (beat.revision if beat.time_ms >= time_ms else None)


@pytest.mark.row("IEP-058")
@settings(deadline=None)
@given(st.integers(1, 6), small, beats)
def test_a_read_at_a_revision_waits_for_it(revision: int, safe: int, beat: Beat) -> None:
    """IEP-058: at exactly this revision, once it is safe."""
    found = revision_to_read(ReadPoint(revision=revision), ReplicaProgress(safe, beat))
    assert found == (revision if safe >= revision else None)


@settings(deadline=None)
@given(st.integers(0, 1 << 62))
def test_times_survive_and_anything_else_is_none(time_ms: int) -> None:
    assert decode_time(encode_time(time_ms)) == time_ms
    for other in (b"", b"-1", b"1.5", b"soon", "٣".encode()):
        assert decode_time(other) == 0
