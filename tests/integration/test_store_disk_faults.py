"""A store server's disk when processes are killed, room ends, and files are not what they should be."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.store.core.disk_changes import ClearBatch, KeepMark, KeepRows
from rebalance.store.core.log_records import PartitionKey, StoredRow, WriteId
from rebalance.store.core.store_check import check_copy
from rebalance.store.core.store_effects import WriteDisk
from rebalance.store.core.store_inputs import DiskDone, DiskRefused, RoomChanged
from rebalance.store.shell.lmdb_disk import DiskLimits, LmdbDisk, stored
from rebalance.store.shell.lmdb_transactions import (
    NoStoreError,
    StoreDamagedError,
    StoreFormatError,
    StoreInUseError,
)
from tests.fixtures import killed_writer
from tests.fixtures.store_disks import DrivenDisk, driven_disk

PARTITION: PartitionKey = (ZoneId(1), 0)
KILLS = 6


def rows_of_size(number: int, size: int) -> KeepRows:
    row = StoredRow(b"row-%d" % number, b"x" * size, StorePosition(1, number + 1))
    return KeepRows(PARTITION, (row,))


def rows_order(number: int) -> WriteDisk:
    return WriteDisk(number, (rows_of_size(number, 100_000),))


def clearing_order(number: int) -> WriteDisk:
    return WriteDisk(100 + number, (ClearBatch(PARTITION, StorePosition(1, number + 1), 1 << 20),))


def fill(driven: DrivenDisk) -> DiskRefused:
    """Writes rows of 100 KB until one is refused."""
    for number in range(1_000):
        answer = driven.carry_out([rows_of_size(number, 100_000), KeepMark("rows", b"%d" % (number + 1))])
        if isinstance(answer, DiskRefused):
            return answer
    pytest.fail("the disk never fills")


def assert_whole(driven: DrivenDisk) -> None:
    """Check that the disk has the rows of whole transactions alone."""
    rows = int(driven.disk.reader.mark("rows") or b"0")
    keys = {b"row-%d" % number for number in range(rows)}
    assert {row.key for row in driven.disk.reader.rows(PARTITION, b"", 1 << 40)} == keys


def until_killed(directory: Path, prefix: Sequence[str] = (), after: int = 0) -> None:
    """A writer that is killed, after so many transactions unless ``prefix`` does that, and what it leaves."""
    command = [*prefix, sys.executable, "-m", "tests.fixtures.killed_writer", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        if after:
            process.kill()
        lines += process.stdout.read().splitlines()
    with driven_disk(directory) as driven:
        reader = driven.disk.reader
        done = int(reader.mark("done") or b"0")
        assert not lines or done in (int(lines[-1]), int(lines[-1]) + 1)
        if not done:
            return
        head = reader.heads()[killed_writer.PARTITION]
        assert check_copy(reader, killed_writer.PARTITION, head).defects == ()
        records = reader.records(killed_writer.PARTITION, head.log_start, 1 << 40)
        assert head.tail == StorePosition(1, done * killed_writer.RECORDS) == records[-1].position
        ids = {entry.write for entry in reader.ids(killed_writer.PARTITION, b"", 1 << 40)}
        first = max(head.log_start.counter, 1)
        assert ids == {WriteId(f"w{counter}") for counter in range(first, head.tail.counter + 1)}


@pytest.mark.slow("a process is started and killed six times")
def test_a_writer_killed_at_any_moment_leaves_a_whole_transaction(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        until_killed(tmp_path, after=chance.randrange(1, 40))


def killed_at(call: str, number: int) -> list[str]:
    """Runs a command that dies when a thread of it makes its so-and-so many-th such call, instead of that."""
    quiet = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    return [*quiet, "-e", f"inject={call}:signal=KILL:when={number}"]


@pytest.mark.thorough("it is killed at any moment above")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace ends a process at a call: install strace")
@pytest.mark.parametrize(
    ("writes", "syncs"),
    [
        pytest.param(range(1, 13, 3), range(1, 3), marks=pytest.mark.slow("a process each, under strace")),
        pytest.param(range(1, 101), range(1, 31), marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_a_writer_killed_at_any_write_or_sync_leaves_a_whole_transaction(
    writes: range, syncs: range, tmp_path: Path
) -> None:
    """Each store is written from the beginning: a new one, and one that was written before."""
    until_killed(tmp_path / "used", after=30)
    points = [("pwrite64", number) for number in writes] + [("fdatasync", number) for number in syncs]
    for call, number in points:
        until_killed(tmp_path / f"{call}-{number}", killed_at(call, number))
        until_killed(tmp_path / "used", killed_at(call, number))
    print(f"{2 * len(points)} kills at a call")


def test_a_full_map_refuses_a_transaction_whole_and_takes_the_next(tmp_path: Path) -> None:
    with driven_disk(tmp_path, DiskLimits(map_bytes=2 << 20, low_water_bytes=0)) as driven:
        assert fill(driven).no_room
        assert_whole(driven)
        assert isinstance(
            driven.carry_out([ClearBatch(PARTITION, StorePosition(1, 5), 1 << 20), KeepMark("cleared", b"")]),
            DiskDone,
        )
        # Pages that a transaction frees are used by the one after the next.
        assert isinstance(driven.carry_out([KeepMark("next", b"")]), DiskDone)
        assert isinstance(driven.carry_out([rows_of_size(2_000, 100_000)]), DiskDone)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_full_file_system_refuses_a_transaction_whole(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no file system")
    try:
        with driven_disk(tmp_path / "store") as driven:
            assert fill(driven).no_room
            assert_whole(driven)
        with driven_disk(tmp_path / "store") as driven:
            assert_whole(driven)
            assert isinstance(driven.carry_out([ClearBatch(PARTITION, StorePosition(1, 5), 1 << 20)]), DiskDone)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_what_is_neither_done_nor_lack_of_room_ends_the_server(tmp_path: Path) -> None:
    """A limit of the process stands for a disk that fails: nothing of the transaction is there."""
    with driven_disk(tmp_path) as driven:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        try:
            refused = fill(driven)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not refused.no_room
        assert_whole(driven)


def test_the_low_water_mark_is_reported_both_ways(tmp_path: Path) -> None:
    limits = DiskLimits(map_bytes=4 << 20, low_water_bytes=2 << 20)
    with driven_disk(tmp_path, limits) as driven:
        for number in range(25):
            driven.disk.write(rows_order(number))
        for number in range(25):
            driven.disk.write(clearing_order(number))
        answers = [driven.answers.get(timeout=60)]
        while answers[-1] != RoomChanged(True):
            answers.append(driven.answers.get(timeout=60))
        assert [answer for answer in answers if isinstance(answer, RoomChanged)] == [
            RoomChanged(False),
            RoomChanged(True),
        ]
        assert not any(isinstance(answer, DiskRefused) for answer in answers)


def test_a_store_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    with driven_disk(tmp_path):
        pass
    with lmdb.Environment(str(tmp_path), max_dbs=8) as environment:
        about = environment.open_db(b"about")
        with environment.begin(write=True) as txn:
            txn.put(b"format", b"2", db=about)
    with pytest.raises(StoreFormatError, match="has format 2; this build reads up to 1"):
        LmdbDisk(tmp_path, print)
    with pytest.raises(StoreFormatError), stored(tmp_path):
        pass


def test_a_second_server_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    with driven_disk(tmp_path) as driven:
        driven.carry_out([KeepMark("name", b"n1")])
        with pytest.raises(StoreInUseError, match="another store server has this store open"):
            LmdbDisk(tmp_path, print)
    with stored(tmp_path) as reader:
        assert reader.mark("name") == b"n1"


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(NoStoreError, match=r"there is no store here, which would have a file data\.mdb"),
        stored(tmp_path),
    ):
        pass
    (tmp_path / "data.mdb").write_bytes(b"nothing of LMDB" * 1_000)
    with pytest.raises(StoreDamagedError, match=r"data\.mdb cannot be read: InvalidError"), stored(tmp_path):
        pass
    shutil.rmtree(tmp_path)
    lmdb.Environment(str(tmp_path), max_dbs=1).close()
    with pytest.raises(NoStoreError, match=r"data\.mdb is not a store's"), stored(tmp_path):
        pass


def test_pages_that_are_damaged_while_they_are_read_are_named(tmp_path: Path) -> None:
    with driven_disk(tmp_path) as driven:
        driven.carry_out([rows_of_size(0, 100)])
    with stored(tmp_path) as reader, (tmp_path / "data.mdb").open("r+b") as file:
        file.seek(8_192)
        file.write(bytes((tmp_path / "data.mdb").stat().st_size - 8_192))
        file.flush()
        with pytest.raises(StoreDamagedError, match=r"data\.mdb cannot be read: BadTxnError"):
            reader.row(PARTITION, b"row-0")


def test_the_files_are_their_owners_only(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with driven_disk(directory):
        modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())}
    assert modes == {"store": 0o700, "data.mdb": 0o600, "lock.mdb": 0o600, "server.lock": 0o600}
