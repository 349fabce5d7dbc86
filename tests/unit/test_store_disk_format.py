"""Bytes on a store server's disk: format 1 stays what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyState, StorePosition
from rebalance.store.core.log_records import (
    CopyHead,
    EpochStart,
    KeyChange,
    LogRecord,
    StoredRow,
    StoredWriteId,
    WriteId,
)
from rebalance.store.shell.disk_format import (
    DISK_FORMAT,
    LMDB_KEY_BYTES_MAX,
    WHOLE_KEY_BYTES_MAX,
    bare_id_of,
    bare_id_value,
    encoded,
    head_of,
    id_of,
    id_value,
    partition_of,
    partition_prefix,
    position_after,
    position_bytes,
    position_of,
    record_of,
    row_key,
    row_of,
    row_value,
)

PREFIX = partition_prefix((ZoneId(7), 3))
POSITION = StorePosition(5 << 32 | 1, 2)


def test_keys_are_as_they_were() -> None:
    assert DISK_FORMAT == 1
    assert PREFIX.hex() == "000000000000000700000003"
    assert partition_of(PREFIX + b"rest") == (7, 3)
    assert position_bytes(POSITION).hex() == "00000005000000010000000000000002"
    assert position_of(PREFIX + position_bytes(POSITION)) == POSITION
    assert position_bytes(POSITION) < position_after(POSITION) < position_bytes(StorePosition(6 << 32, 0))


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (StoredRow(b"k", b"v", POSITION), "000000050000000100000000000000020076"),
        (StoredRow(b"k", b"", POSITION), "0000000500000001000000000000000200"),
        (StoredRow(b"k", None, POSITION), "0000000500000001000000000000000201"),
        (
            StoredRow(b"l" * WHOLE_KEY_BYTES_MAX + b"xyz", b"v", POSITION),
            "00000005000000010000000000000002020000000378797a76",
        ),
        (
            StoredRow(b"l" * WHOLE_KEY_BYTES_MAX + b"xyz", None, POSITION),
            "00000005000000010000000000000002030000000378797a",
        ),
    ],
)
def test_rows_are_written_as_they_were_and_read_again(row: StoredRow, value: str) -> None:
    assert row_value(row).hex() == value
    assert row_of(PREFIX + row_key(row.key), bytes.fromhex(value)) == row


def test_keys_of_any_length_fit_and_differ() -> None:
    whole = b"k" * WHOLE_KEY_BYTES_MAX
    keys = {row_key(whole), row_key(whole + b"a"), row_key(whole + b"b"), row_key(whole + b"a" * 4_000)}
    assert len(keys) == 4
    assert max(len(PREFIX + key) for key in keys) == LMDB_KEY_BYTES_MAX


def test_ids_are_written_as_they_were_and_read_again() -> None:
    entry = StoredWriteId(WriteId("wü"), POSITION, 9)
    assert id_value(entry).hex() == "000000050000000100000000000000020000000000000009"
    assert id_of(PREFIX + "wü".encode(), id_value(entry)) == entry
    assert bare_id_value(entry.write, 9).hex() == "000000000000000977c3bc"
    assert bare_id_of(bare_id_value(entry.write, 9)) == ("wü", 9)


def test_heads_and_records_are_written_as_they_were_and_read_again() -> None:
    head = CopyHead(
        CopyState.MOVING, POSITION, False, StorePosition(1, 1), (EpochStart(1, 0), EpochStart(5, 1)), 9
    )
    assert encoded(head).hex() == HEAD
    assert head_of(bytes.fromhex(HEAD)) == head
    record = LogRecord(
        WriteId("w"), POSITION, StorePosition(1, 1), 9, (KeyChange(b"k", b"v"), KeyChange(b"d", None))
    )
    assert encoded(record).hex() == RECORD
    assert record_of(bytes.fromhex(RECORD)) == record


def test_heads_of_before_a_field_was_added_are_read() -> None:
    assert head_of(bytes.fromhex(HEAD_WITHOUT_TIME)) == replace(head_of(bytes.fromhex(HEAD)), last_ms=0)


HEAD = (
    "86a57374617465a64d4f56494e47a47461696c92cf000000050000000102a869735f636c65616ec2a96c6f675f7374617274"
    "920101a665706f63687392920100920501a76c6173745f6d7309"
)
HEAD_WITHOUT_TIME = (
    "85a57374617465a64d4f56494e47a47461696c92cf000000050000000102a869735f636c65616ec2a96c6f675f7374617274"
    "920101a665706f63687392920100920501"
)
RECORD = (
    "85a57772697465a177a8706f736974696f6e92cf000000050000000102a870726576696f7573920101a774696d655f6d7309"
    "a76368616e6765739282a36b6579c4016ba576616c7565c4017682a36b6579c40164a576616c7565c0"
)
