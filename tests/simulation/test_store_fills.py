"""Snapshots of store servers on their way: batches that follow each other, the disk behind them, who leads
meanwhile."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import AppendRecords, SupplyBatch, SupplyRequest, SupplyStage
from tests.fixtures.store_scene import ZONE, StoreScene

ONE_BY_ONE = StoreLimits(
    ttl_ms=60_000, log_keep=2, log_reserved=40, batch_bytes=4, bulk_bytes=4, fill_batches_max=3
)
"""A batch has one row, a transaction one batch; histories do not reach back far enough."""
KEYS = {f"k{number}" for number in range(9)}
DISK_MS = 40


def about_to_be_filled() -> StoreScene:
    """c waits for its copy, and its disk is slow from now on."""
    scene = StoreScene("abc", ("ab",), limits=ONE_BY_ONE)
    scene.fill(len(KEYS))
    scene.holds(SupplyRequest)
    scene.set_targets(("ac",))
    scene.exchange()
    scene.processes["c"].disk_ms = (DISK_MS, DISK_MS)
    return scene


def requests(scene: StoreScene) -> list[tuple[SupplyStage, bytes]]:
    messages = [flight.message for flight in scene.messages(SupplyRequest, "c")]
    return [(each.stage, each.after) for each in messages if isinstance(each, SupplyRequest)]


def test_batches_are_sent_while_earlier_ones_are_written_and_only_so_many() -> None:
    scene = about_to_be_filled()
    scene.release()
    scene.exchange()
    assert requests(scene) == [(SupplyStage.ROWS, after) for after in (b"", b"k0", b"k1")]
    assert not scene.keys("c")
    scene.run(DISK_MS)
    scene.exchange()
    assert scene.keys("c") == {"k0"}
    assert requests(scene)[3:] == [(SupplyStage.ROWS, b"k2")]


def test_a_copy_owns_only_after_all_its_batches_are_on_the_disk() -> None:
    scene = about_to_be_filled()
    scene.release()
    sent_early = False
    for _ in range(400):
        scene.exchange()
        if scene.disks["c"].heads()[ZONE, 0].state is CopyState.OWNING:
            break
        filling = scene.copy("c").filling
        sent_early |= filling is not None and filling.is_sent and filling.storing > 0
        scene.run(DISK_MS // 2)
    assert scene.disks["c"].heads()[ZONE, 0].state is CopyState.OWNING
    assert sent_early
    assert scene.keys("c") == KEYS
    ids = [scene.disks[name].ids((ZONE, 0), b"", 1 << 30) for name in "ac"]
    assert ids[0] == ids[1]


def test_a_batch_that_arrives_twice_is_taken_once() -> None:
    scene = about_to_be_filled()
    scene.release()
    for _ in range(400):
        while scene.network:
            flight = scene.network.pop(0)
            for _ in range(2 if isinstance(flight.message, SupplyBatch) else 1):
                scene.arrive(flight)
        if scene.own("c") is CopyState.OWNING:
            break
        scene.run(DISK_MS // 2)
    assert scene.own("c") is CopyState.OWNING
    assert len(requests(scene)) == len(set(requests(scene))) > len(KEYS)
    assert scene.keys("c") == KEYS


def test_an_answer_to_a_request_that_was_repeated_drops_no_tail_again() -> None:
    """Bring a back with a put of k0 that no other server has. As the answer is late it asks twice, and both
    answers name the end of the good part of its log: the second one arrives after it has dropped its tail."""
    scene = StoreScene("ab", ("ab",))
    scene.fill()
    scene.holds(AppendRecords, sender="a")
    scene.put("a", 0, "k0", "on a alone")
    scene.exchange()
    scene.crash("a")
    scene.release()
    scene.settle()
    scene.holds(SupplyBatch, to="a")
    scene.announce("a")
    scene.exchange()
    for _ in range(20):
        scene.run(100)
        scene.exchange()
        if len(scene.held) == 2:
            break
    first, second = (flight.message for flight in scene.held)
    assert isinstance(first, SupplyBatch)
    assert first == second
    assert first.stage is SupplyStage.REWIND
    flights = [*scene.held]
    for flight in flights:
        scene.arrive(flight)
    scene.release()
    scene.settle()
    assert scene.own("a") is CopyState.OWNING
    assert scene.disks["a"].rows((ZONE, 0), b"", 1 << 30) == scene.disks["b"].rows((ZONE, 0), b"", 1 << 30)


def test_an_answer_that_comes_twice_is_no_reason_to_ask_twice_from_then_on() -> None:
    scene = StoreScene("abc", ("abc",), limits=StoreLimits(ttl_ms=60_000, batch_bytes=4))
    scene.fill()
    scene.crash("c")
    scene.settle()
    for key in KEYS:
        scene.done("a", 0, key, "missed")
    scene.holds(SupplyBatch, to="c")
    scene.announce("c")
    scene.exchange()
    for _ in range(40):
        scene.run(100)
        scene.exchange()
        suppliers = {flight.sender.name for flight in scene.held}
        if len(scene.held) > len(suppliers):
            break
    before = len(scene.messages(SupplyRequest, "c"))
    scene.release()
    scene.exchange()
    assert scene.own("c") is CopyState.OWNING
    asked = [flight.message for flight in scene.messages(SupplyRequest, "c")][before:]
    tails = [each.tail for each in asked if isinstance(each, SupplyRequest)]
    assert len(tails) == len(set(tails)) > 2
    assert scene.disks["c"].rows((ZONE, 0), b"", 1 << 30) == scene.disks["a"].rows((ZONE, 0), b"", 1 << 30)


@pytest.mark.row("PME-084")
def test_an_owner_leads_while_the_ideal_primary_does_not_own() -> None:
    """PME-084: let another owner of the list lead, with the ideal primary as its backup, or one outside of the
    list where none in it owns. Also when a server leaves, where primaries are chosen anew."""
    scene = StoreScene("abcd", ("ab", "c"))
    scene.fill(len(KEYS))
    scene.crash("a")
    scene.settle()
    assert scene.done("b", 0, "more").code.label == "DONE"
    scene.holds(SupplyRequest)
    scene.announce("a")
    scene.set_targets(("ab", "ab"))
    scene.exchange()
    for leaves in (False, True):
        if leaves:
            scene.leave("d")
            scene.exchange()
        for name in "abc":
            assert [scene.effective(name, number) for number in (0, 1)] == ["ba", "cab"]
            assert scene.states(name, 0) == {"a": CopyState.MOVING, "b": CopyState.OWNING}
            assert [scene.states(name, 1)[node] for node in "abc"] == [
                *(CopyState.MOVING, CopyState.MOVING, CopyState.OWNING),
            ]
    assert scene.done("c", 1, "last").code.label == "DONE"
    scene.release()
    scene.settle()
    assert [scene.effective("a", number) for number in (0, 1)] == ["ab", "ab"]
    assert scene.keys("a", 1) == scene.keys("b", 1) == {*KEYS, "last"}
