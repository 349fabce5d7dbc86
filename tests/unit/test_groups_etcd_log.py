"""Extent of a write-ahead log: frames as etcd writes them, whole, cut off, and begun anew."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.files.etcd_files import StoreFile, read_log_position

ENTRY, STATE, SNAPSHOT, METADATA = 2, 3, 5, 1


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def numbers(*pairs: tuple[int, int]) -> bytes:
    return b"".join(varint(field << 3) + varint(value) for field, value in pairs)


def frame(kind: int, data: bytes) -> bytes:
    record = numbers((1, kind), (2, 0xDEADBEEF)) + varint(3 << 3 | 2) + varint(len(data)) + data
    padding = -len(record) % 8
    length = len(record) | ((0x80 | padding) << 56 if padding else 0)
    return struct.pack("<Q", length) + record + b"\0" * padding


def entry(index: int, value: bytes = b"") -> bytes:
    return frame(ENTRY, numbers((1, 0), (2, 3), (3, index)) + varint(4 << 3 | 2) + varint(len(value)) + value)


def state(commit: int) -> bytes:
    return frame(STATE, numbers((1, 3), (2, 77), (3, commit)))


def write(directory: Path, number: int, *frames: bytes, zeros: int = 4096) -> None:
    (directory / f"{number:016x}-{0:016x}.wal").write_bytes(b"".join(frames) + b"\0" * zeros)


def test_the_last_entry_and_what_is_decided(tmp_path: Path) -> None:
    """Decision 19: entries above the commit index are counted; large values are stepped over."""
    write(tmp_path, 0, frame(METADATA, b"\x08\x01"), entry(1), entry(2, b"x" * 70_000), state(1), entry(3))
    found = read_log_position(tmp_path, orderly=False)
    assert found == LogPosition(1, 3, False)
    assert found.undecided == 2


def test_segments_follow_each_other_and_replaced_entries_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, 0, entry(1), entry(2), entry(3), entry(4), state(2))
    write(tmp_path, 1, frame(SNAPSHOT, numbers((1, 2), (2, 3))), entry(3), state(3))
    assert read_log_position(tmp_path, orderly=True) == LogPosition(3, 3, True)


def test_a_snapshot_is_decided(tmp_path: Path) -> None:
    """A member that has just taken a snapshot has no entry yet."""
    write(tmp_path, 0, frame(SNAPSHOT, numbers((1, 2_000), (2, 3))))
    assert read_log_position(tmp_path, orderly=True) == LogPosition(2_000, 2_000, True)


def test_an_entry_that_was_written_in_part_is_not_decided(tmp_path: Path) -> None:
    """A process that is killed leaves the head of a frame, and zeros for the rest: its copy tells all the same
    how far it goes."""

    def request(field: int, content: bytes) -> bytes:
        return varint(field << 3 | 2) + varint(len(content)) + content

    put, transaction = request(4, b"\x0a\x01k"), request(6, b"\x0a\x10" + b"\0" * 9)
    write(tmp_path, 0, entry(1, put), state(1), entry(2, transaction))
    position = read_log_position(tmp_path, orderly=False, store=StoreFile(revision=5, index=0))
    assert position == LogPosition(1, 2, False, 6)


@pytest.mark.parametrize("content", [b"", b"\0" * 512])
def test_no_log(tmp_path: Path, content: bytes) -> None:
    assert read_log_position(tmp_path, orderly=True) is None
    (tmp_path / "0.wal").write_bytes(content)
    assert read_log_position(tmp_path, orderly=True) is None


@settings(deadline=None)
@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=12), st.data())
def test_a_log_that_is_cut_off_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, commits: list[int], data: st.DataObject
) -> None:
    """Wherever the crash was: what is whole counts, in order."""
    directory = tmp_path_factory.mktemp("wal")
    frames = [each for index, commit in enumerate(sorted(commits), 1) for each in (entry(index), state(commit))]
    whole = data.draw(st.integers(1, len(frames)))
    cut = b"".join(frames[:whole])
    if whole < len(frames):
        cut += frames[whole][: data.draw(st.integers(0, len(frames[whole]) - 8))]
    write(directory, 0, cut, zeros=0)
    found = read_log_position(directory, orderly=False)
    assert found is not None
    last, committed = (whole + 1) // 2, sorted(commits)[whole // 2 - 1] if whole > 1 else 0
    assert found == LogPosition(committed, max(last, committed), False)
