"""Records that an owner sends to a copy that is being filled."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.disk_changes import CutLog, KeepHead, KeepRecords
from rebalance.store.core.filling import supply
from rebalance.store.core.log_records import CopyHead, EpochStart, KeyChange, LogRecord, PartitionKey, WriteId
from rebalance.store.core.store_messages import SupplyRequest, SupplyStage
from simulator.store.store_disk import SimulatedDisk

PARTITION: PartitionKey = (ZoneId(1), 0)
BASIS = TopologyVersion(3)
PLACES = (NO_RECORD, *(StorePosition(1, number) for number in range(1, 8)))
LOG = tuple(
    LogRecord(WriteId(f"w{number}"), PLACES[number], PLACES[number - 1], number, (KeyChange(b"k", b"v"),))
    for number in range(1, 8)
)
HEAD = CopyHead(CopyState.OWNING).appended(LOG)
ALL_BYTES = 1 << 20


def owner() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.commit((KeepHead(PARTITION, HEAD), KeepRecords(PARTITION, LOG)))
    return disk


def request(tail: int, until: int) -> SupplyRequest:
    epochs = (EpochStart(1, 0),) if tail else ()
    return SupplyRequest(
        *(PARTITION, BASIS, False, PLACES[until], PLACES[tail], epochs, SupplyStage.LOG),
        after=b"",
        keys=(),
    )


@pytest.mark.parametrize(("tail", "until"), [(2, 5), (2, 7), (4, 5), (5, 5)])
def test_records_go_from_the_askers_tail_to_where_its_stream_begins(tail: int, until: int) -> None:
    """The primary sends the asker what comes after that."""
    batch = supply(owner(), PARTITION, HEAD, request(tail, until), ALL_BYTES)
    assert batch is not None
    assert (batch.stage, batch.common) == (SupplyStage.LOG, PLACES[tail])
    assert batch.records == LOG[tail:until]


def test_records_go_in_batches() -> None:
    batch = supply(owner(), PARTITION, HEAD, request(1, 6), LOG[0].size * 2)
    assert batch is not None
    assert batch.records == LOG[1:3]
    assert batch.next_after is not None


def test_nothing_is_supplied_across_a_cut() -> None:
    disk = owner()
    head = CopyHead(HEAD.state, HEAD.tail, log_start=PLACES[3], epochs=HEAD.epochs)
    disk.commit((CutLog(PARTITION, PLACES[3], 0), KeepHead(PARTITION, head)))
    batch = supply(disk, PARTITION, head, request(2, 6), ALL_BYTES)
    assert batch is not None
    assert batch.stage is SupplyStage.RELOAD


def test_an_owner_that_lacks_the_askers_goal_supplies_nothing() -> None:
    head = CopyHead(CopyState.OWNING).appended(LOG[:4])
    assert supply(owner(), PARTITION, head, request(2, 6), ALL_BYTES) is None
