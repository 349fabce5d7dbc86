"""Contents and answers of a store's disk: LMDB and the simulated one alike."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.store.core.disk_changes import (
    ClearBatch,
    CutLog,
    DiskChange,
    DropCopy,
    DropTail,
    DropTombstones,
    KeepHead,
    KeepMark,
    KeepRecords,
    KeepRows,
    StoreReader,
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
from rebalance.store.core.store_effects import WriteDisk
from rebalance.store.core.store_inputs import DiskDone
from rebalance.store.shell.disk_format import WHOLE_KEY_BYTES_MAX
from simulator.store.store_disk import SimulatedDisk
from tests.fixtures.store_disks import driven_disk

PARTITIONS: tuple[PartitionKey, ...] = ((ZoneId(7), 3), (ZoneId(7), 4))
KEYS = (b"a", b"b", b"b\0", b"\xff", b"l" * (WHOLE_KEY_BYTES_MAX + 1))
WRITES = tuple(map(WriteId, ("w1", "w2", "ü")))
POSITIONS = tuple(StorePosition(epoch, counter) for epoch in (1, 2) for counter in (1, 2, 3))
LIMITS = (0, 3, 1 << 20)


def time_of(position: StorePosition) -> int:
    """Times of a log never go back."""
    return 1_000 * position.epoch + position.counter


def write_at(position: StorePosition) -> WriteId:
    """The one write at a position; a write that was repeated late has two positions."""
    return WRITES[POSITIONS.index(position) % len(WRITES)]


def record_of_size(size: int) -> LogRecord:
    """The first of a log."""
    return LogRecord(WRITES[0], POSITIONS[0], NO_RECORD, 1_000, (KeyChange(b"a", b"x" * size),))


partitions = st.sampled_from(PARTITIONS)
positions = st.sampled_from(POSITIONS)
values = st.sampled_from((None, b"", b"v", b"value"))
records = st.builds(
    lambda position, changes: LogRecord(write_at(position), position, NO_RECORD, time_of(position), changes),
    positions,
    st.lists(st.builds(KeyChange, st.sampled_from(KEYS), values), max_size=2).map(tuple),
)
rows = st.builds(StoredRow, st.sampled_from(KEYS), values, positions)
ids = st.builds(lambda position: StoredWriteId(write_at(position), position, time_of(position)), positions)
heads = st.builds(
    CopyHead,
    st.sampled_from([state for state in CopyState if state is not CopyState.OWNING]),
    positions,
    st.booleans(),
    positions,
    st.sampled_from(((), (EpochStart(1, 0), EpochStart(2, 7)))),
)


def lists(entries: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(entries, max_size=3).map(tuple)


changes = st.one_of(
    st.builds(KeepHead, partitions, heads),
    st.builds(KeepRecords, partitions, lists(records), st.booleans()),
    st.builds(KeepRows, partitions, lists(rows), lists(ids)),
    st.builds(DropTail, partitions, positions, positions, lists(st.sampled_from(KEYS))),
    st.builds(ClearBatch, partitions, positions, st.just(1 << 20)),
    st.builds(CutLog, partitions, positions, st.sampled_from((0, 1_002, 2_002, 9_000))),
    st.builds(DropTombstones, partitions, positions),
    st.builds(DropCopy, partitions),
    st.builds(KeepMark, st.sampled_from(("one", "two")), st.sampled_from((b"", b"x"))),
)
BEGINNING = tuple(KeepHead(partition, CopyHead(CopyState.MOVING)) for partition in PARTITIONS)


def with_heads(transaction: list[DiskChange]) -> tuple[DiskChange, ...]:
    """A copy without a head is changed by nothing but a head."""
    written: list[DiskChange] = []
    for change in transaction:
        written.append(change)
        if isinstance(change, DropCopy):
            written.append(KeepHead(change.partition, CopyHead(CopyState.MOVING)))
    return tuple(written)


transactions = st.lists(changes, min_size=1, max_size=4).map(with_heads)


def answers(reader: StoreReader, partition: PartitionKey) -> list[object]:
    """Everything that a reader can be asked about a copy."""
    return [
        [reader.row(partition, key) for key in KEYS],
        [reader.write_id(partition, write) for write in WRITES],
        [reader.records(partition, after, limit) for after in (NO_RECORD, *POSITIONS) for limit in LIMITS],
        [reader.rows(partition, after, limit) for after in (b"", *KEYS) for limit in LIMITS],
        [reader.ids(partition, after, limit) for after in (b"", b"w1") for limit in LIMITS],
        [reader.has_older(partition, until) for until in POSITIONS],
    ]


@settings(max_examples=50)
@given(st.lists(transactions, min_size=1, max_size=4))
def test_lmdb_and_the_simulated_disk_keep_and_answer_the_same(written: list[tuple[DiskChange, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory, driven_disk(Path(directory)) as driven:
        simulated = SimulatedDisk()
        for transaction in (BEGINNING, *written):
            simulated.commit(transaction)
            assert isinstance(driven.carry_out(transaction), DiskDone)
            reader = driven.disk.reader
            for partition in PARTITIONS:
                assert answers(reader, partition) == answers(simulated, partition)
            assert reader.heads() == simulated.heads()
            assert [reader.mark(name) for name in ("one", "two")] == [
                simulated.mark(name) for name in ("one", "two")
            ]


@settings(max_examples=30)
@given(st.lists(changes, min_size=1, max_size=8).map(with_heads), positions)
def test_a_copy_is_cleared_in_small_batches_as_in_one(
    contents: tuple[DiskChange, ...], until: StorePosition
) -> None:
    partition = PARTITIONS[0]
    with tempfile.TemporaryDirectory() as directory, driven_disk(Path(directory)) as driven:
        simulated = SimulatedDisk()
        simulated.commit((*BEGINNING, *contents, ClearBatch(partition, until, 1 << 20)))
        driven.carry_out((*BEGINNING, *contents))
        batches = 0
        while driven.disk.reader.has_older(partition, until):
            driven.carry_out([ClearBatch(partition, until, limit_bytes=1)])
            batches += 1
            assert batches <= 100
        assert answers(driven.disk.reader, partition) == answers(simulated, partition)


def test_rows_whose_keys_begin_alike_are_all_read_in_batches(tmp_path: Path) -> None:
    partition = PARTITIONS[0]
    beginning = b"k" * WHOLE_KEY_BYTES_MAX
    long_rows = tuple(StoredRow(beginning + b"%04d" % n, b"v", POSITIONS[0]) for n in range(50))
    with driven_disk(tmp_path) as driven:
        driven.carry_out([KeepRows(partition, long_rows)])
        batch = driven.disk.reader.rows(partition, b"", limit_bytes=1_500)
        rows_read = list(batch)
        while batch:
            batch = driven.disk.reader.rows(partition, batch[-1].key, limit_bytes=1_500)
            rows_read += batch
        assert sorted(rows_read, key=lambda row: row.key) == list(long_rows)
        assert [driven.disk.reader.row(partition, row.key) for row in long_rows] == list(long_rows)


@pytest.mark.parametrize("epochs", [(1, 1, 1), (1, 2, 2)])
def test_an_owners_head_goes_on_with_its_log(tmp_path: Path, epochs: tuple[int, ...]) -> None:
    partition = PARTITIONS[0]
    places = (NO_RECORD, *(StorePosition(epoch, counter) for counter, epoch in enumerate(epochs, 1)))
    log = tuple(
        LogRecord(WriteId(f"w{position}"), position, previous, 0, (KeyChange(b"k", b"v"),))
        for previous, position in pairwise(places)
    )
    head = CopyHead(CopyState.OWNING).appended(log[:1])
    with driven_disk(tmp_path) as driven:
        driven.carry_out([KeepRecords(partition, log[:1]), KeepHead(partition, head)])
        driven.carry_out([KeepRecords(partition, log[1:]), KeepRecords(PARTITIONS[1], log)])
        assert driven.disk.reader.heads() == {partition: head.appended(log[1:])}
        driven.carry_out([KeepHead(partition, replace(head, state=CopyState.MOVING))])
        assert driven.disk.reader.heads() == {partition: replace(head, state=CopyState.MOVING)}


def test_a_reader_sees_nothing_new_until_it_is_renewed(tmp_path: Path) -> None:
    with driven_disk(tmp_path) as driven:
        driven.carry_out([KeepMark("one", b"1")])
        driven.disk.write(WriteDisk(99, (KeepMark("one", b"2"),)))
        assert driven.answers.get(timeout=60) == DiskDone(99)
        assert driven.disk.reader.mark("one") == b"1"
        driven.disk.reader.renew()
        assert driven.disk.reader.mark("one") == b"2"


def test_a_small_write_is_on_the_disk_when_the_caller_has_carried_it_out(tmp_path: Path) -> None:
    partition, record = PARTITIONS[0], record_of_size(100)
    with driven_disk(tmp_path) as driven:
        driven.carry_out(BEGINNING)
        order = WriteDisk(7, (KeepRecords(partition, (record,)),))
        assert driven.disk.write_here(order) == DiskDone(7)
        assert driven.disk.reader.records(partition, NO_RECORD, 1) == ()
        driven.disk.reader.renew()
        assert driven.disk.reader.records(partition, NO_RECORD, 1) == (record,)


@pytest.mark.parametrize(
    "large",
    [
        (KeepRecords(PARTITIONS[0], tuple(record_of_size(20 << 10) for _ in range(4))),),
        (KeepRecords(PARTITIONS[0], (record_of_size(100),)),) * 5,
        (ClearBatch(PARTITIONS[0], POSITIONS[-1], 1),),
        (KeepRows(PARTITIONS[0], (StoredRow(b"a", b"v", POSITIONS[0]),)),),
    ],
)
def test_no_caller_waits_for_a_large_transaction(tmp_path: Path, large: tuple[DiskChange, ...]) -> None:
    with driven_disk(tmp_path) as driven:
        driven.carry_out(BEGINNING)
        assert driven.disk.write_here(WriteDisk(7, large)) is None
        driven.disk.reader.renew()
        assert driven.disk.reader.records(PARTITIONS[0], NO_RECORD, 1) == ()
