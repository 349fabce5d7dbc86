"""``zonectl store fsck``: a store that is in order, and one with each kind of defect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.main import main
from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.store.core.disk_changes import (
    ClearBatch,
    CutLog,
    DiskChange,
    DropTail,
    KeepHead,
    KeepMark,
    KeepRecords,
    KeepRows,
)
from rebalance.store.core.log_records import (
    CopyHead,
    EpochStart,
    KeyChange,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)
from tests.fixtures.store_disks import driven_disk

PARTITION: PartitionKey = (ZoneId(7), 3)
OTHER: PartitionKey = (ZoneId(8), 0)
PLACES = (NO_RECORD, *(StorePosition(1, n) for n in (1, 2, 3)), *(StorePosition(2, n) for n in (4, 5)))


def record(number: int, key: bytes, value: bytes | None) -> LogRecord:
    return LogRecord(
        WriteId(f"w{number}"), PLACES[number], PLACES[number - 1], number, (KeyChange(key, value),)
    )


LOG = (
    record(1, b"a", b"1"),
    record(2, b"b", b"2"),
    record(3, b"a", b"3"),
    record(4, b"b", None),
    record(5, b"c", b"5"),
)
HEAD = CopyHead(CopyState.OWNING).appended(LOG)
SOUND: tuple[DiskChange, ...] = (KeepRecords(PARTITION, LOG), KeepHead(PARTITION, HEAD))
CUT = (CutLog(PARTITION, PLACES[2], 0), KeepHead(PARTITION, replace(HEAD, log_start=PLACES[2])))


def fsck(directory: Path, *changes: DiskChange) -> int:
    with driven_disk(directory) as driven:
        driven.carry_out(changes)
    return main(["store", "fsck", str(directory)])


@pytest.mark.parametrize(
    "changes", [SOUND, (*SOUND, *CUT), (KeepMark("name", b""),)], ids=["whole log", "cut log", "empty"]
)
def test_a_store_in_order_has_no_defect(
    tmp_path: Path, changes: tuple[DiskChange, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsck(tmp_path, *changes) == 0
    assert capsys.readouterr().out.endswith(": 0 defects\n")


def test_counts_are_of_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck(tmp_path, *SOUND, KeepHead(OTHER, CopyHead(CopyState.MOVING))) == 0
    assert capsys.readouterr().out == "2 copies, 5 log records, 2 rows, 5 operation ids: 0 defects\n"


def test_a_copy_that_is_being_filled_may_have_newer_rows_and_a_gap_after_its_tail(tmp_path: Path) -> None:
    head = CopyHead(CopyState.MOVING).appended(LOG[:2])
    newer = KeepRows(
        PARTITION, (StoredRow(b"z", b"", PLACES[3]),), (StoredWriteId(WriteId("z"), PLACES[3], 0),)
    )
    records = KeepRecords(PARTITION, (*LOG[:2], LOG[4]), tombstones=True)
    assert fsck(tmp_path, records, KeepHead(PARTITION, head), newer) == 0


UNCLEAN = KeepHead(PARTITION, replace(HEAD, state=CopyState.MOVING, is_clean=False))
KEYS = (b"a", b"b", b"c")


@pytest.mark.parametrize(
    "change",
    [
        DropTail(PARTITION, PLACES[3], PLACES[5], KEYS),
        DropTail(PARTITION, PLACES[2], PLACES[5], KEYS),
        *(ClearBatch(PARTITION, PLACES[5], size) for size in (1, 10, 15)),
    ],
)
def test_a_copy_that_is_cleared_or_filled_anew_may_have_holes(
    tmp_path: Path, change: DiskChange, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of a tail that was dropped are fetched before the copy is clean again: a clean one has no holes."""
    assert fsck(tmp_path, *SOUND, UNCLEAN, change) == 0
    assert "1 copy (1 being cleared or filled), " in capsys.readouterr().out
    assert fsck(tmp_path, KeepHead(PARTITION, HEAD)) == 1


def test_rows_of_a_copy_that_is_filled_anew_are_what_their_records_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsck(tmp_path, KeepRows(PARTITION, (StoredRow(b"c", b"4", PLACES[5]),)), *SOUND, UNCLEAN) == 1
    assert "has another value than its record 0.2:5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            [KeepRecords(PARTITION, (*LOG[:2], *LOG[3:])), KeepHead(PARTITION, HEAD)],
            "7/3   LOG_GAP  0.2:4  follows 0.1:3; the one before is 0.1:2",
        ),
        (
            [KeepRecords(PARTITION, LOG[2:]), KeepHead(PARTITION, HEAD)],
            "7/3   LOG_GAP  0.1:3  follows 0.1:2; the one before is 0.0:0",
        ),
        (
            [*SOUND, KeepHead(PARTITION, replace(HEAD, state=CopyState.RENTING, tail=StorePosition(2, 6)))],
            "7/3   LOG_END  0.2:5  the log ends here; the head's last record is 0.2:6",
        ),
        (
            [*SOUND, KeepHead(PARTITION, replace(HEAD, log_start=PLACES[1]))],
            "7/3   LOG_END  0.1:1  a record of before the log's start 0.1:1",
        ),
        (
            [*SOUND, KeepHead(PARTITION, replace(HEAD, epochs=(EpochStart(1, 0), EpochStart(2, 4))))],
            "7/3   EPOCH_ORDER  0.2:4  by the head's epochs it is 0.1:4",
        ),
        (
            [*SOUND, KeepHead(PARTITION, replace(HEAD, epochs=(*HEAD.epochs, EpochStart(2, 9))))],
            "7/3   EPOCH_ORDER  epoch 2  the head has epoch 2 after 9, and 2 before it",
        ),
        (
            [KeepRows(PARTITION, (StoredRow(b"c", b"4", PLACES[5]),)), *SOUND],
            "7/3   ROW_DIFFERS  c      has another value than its record 0.2:5",
        ),
        (
            [*SOUND, KeepRows(PARTITION, (StoredRow(b"d", b"", PLACES[4]),))],
            "7/3   ROW_WITHOUT_RECORD  d      is of 0.2:4, which did not write it",
        ),
        (
            [KeepRows(PARTITION, (), (StoredWriteId(WriteId("w2"), PLACES[4], 0),)), *SOUND],
            "7/3   ID_WITHOUT_RECORD  w2     leads to 0.2:4",
        ),
        (
            [*SOUND, KeepRecords(OTHER, LOG)],
            "8/0   COPY_WITHOUT_HEAD  -      entries of a copy that has no head",
        ),
    ],
)
def test_each_kind_of_defect_is_named(
    tmp_path: Path, changes: list[DiskChange], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsck(tmp_path, *changes) == 1
    assert line.split() in [text.split() for text in capsys.readouterr().out.splitlines()]


def test_json_has_every_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsck(tmp_path, *SOUND, KeepRecords(OTHER, LOG))
    capsys.readouterr()
    assert main(["store", "fsck", str(tmp_path), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    defect = {
        "code": "COPY_WITHOUT_HEAD",
        "place": "-",
        "detail": "entries of a copy that has no head",
    }
    assert document == {
        "copies": [
            {
                "zone": 7,
                "partition": 3,
                "state": "OWNING",
                "is_clean": True,
                "log_start": "0.0:0",
                "tail": "0.2:5",
                "records": 5,
                "rows": 2,
                "ids": 5,
                "defects": [],
            },
            {
                "zone": 8,
                "partition": 0,
                "state": None,
                "is_clean": None,
                "log_start": None,
                "tail": None,
                "records": 0,
                "rows": 0,
                "ids": 0,
                "defects": [defect],
            },
        ],
        "defects": 1,
    }


@pytest.mark.parametrize(
    "prepare", [lambda path: None, lambda path: (path / "data.mdb").write_bytes(b"x" * 9_000)]
)
def test_what_is_no_store_is_one_line_and_exit_code_1(
    tmp_path: Path, prepare: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path)
    assert main(["store", "fsck", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"zonectl store fsck: {tmp_path}: ")
    assert error.count("\n") == 1


def test_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "fsck", "--help"]) == 0
    assert "zonectl store fsck zonekeeper-data/n1/store" in capsys.readouterr().out
