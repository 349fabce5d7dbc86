"""A store server's core by itself: what it asks for."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.partition_map import epoch_of
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import ResultState
from rebalance.store.core.disk_changes import KeepMark
from rebalance.store.core.disk_marks import FINISHED_MARK, FinishedMark
from rebalance.store.core.ring_records import RingState, StoreStart
from rebalance.store.core.store_effects import StopServer
from rebalance.store.core.store_inputs import Ticked
from rebalance.store.core.store_server import StoreServer
from simulator.store.store_disk import SimulatedDisk


def test_a_metastore_older_than_what_was_finished_stops_the_server() -> None:
    """The metastore was restored from a backup: the shell hears of it with the first step, and nothing else is
    done."""
    disk = SimulatedDisk()
    disk.commit((KeepMark(FINISHED_MARK, f"0 {epoch_of(TopologyVersion(7))}".encode()),))
    server = StoreServer("a", "a-1", disk, StoreStart(RingState(), ResultState()))
    assert [type(each) for each in server.step(Ticked(0))] == [StopServer]
    assert server.step(Ticked(100)) == []


def test_a_metastore_that_was_adopted_is_served_under() -> None:
    """An adopted metastore knows less, and an operator has said that this is what is true now."""
    disk = SimulatedDisk()
    disk.commit((KeepMark(FINISHED_MARK, f"1 {epoch_of(TopologyVersion(7))}".encode()),))
    for epoch, refuses in ((1, True), (2, False)):
        server = StoreServer("a", "a-1", disk, StoreStart(RingState(), ResultState(), epoch))
        assert (StopServer in map(type, server.step(Ticked(0)))) is refuses


@pytest.mark.parametrize(
    ("finished", "metastore_epoch", "told", "has_missed"),
    [
        *[("0 6", 0, "0.0", True), ("0 6", 0, "0.6", True), ("0 6", 0, "0.7", False), ("0 6", 0, "0.9", False)],
        *[("0 7", 0, "0.7", False), ("0 8", 0, "0.8", False), ("", 0, "0.0", False), ("0 6", 1, "0.6", False)],
    ],
)
def test_which_results_a_disk_has_missed(
    finished: str, metastore_epoch: int, told: str, has_missed: bool
) -> None:
    """That of epoch 7. A disk that is new, rolled back, or from before the metastore was adopted, says nothing
    of it."""
    disk = SimulatedDisk()
    if finished:
        disk.commit((KeepMark(FINISHED_MARK, finished.encode()),))
    start = StoreStart(RingState(), ResultState(), metastore_epoch, TopologyVersion.parse(told))
    mark = FinishedMark(disk, start)
    assert mark.has_missed(7) is has_missed
