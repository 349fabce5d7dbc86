"""Copies that are emptied and filled anew on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.partition_maps.partition_map import CopyState, StorePosition
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.store.core.log_records import StoredRow
from rebalance.store.core.store_inputs import CopiesAsked
from rebalance.store.core.store_messages import CopiesRequest
from simulator.store.store_run import StoreRun, StoreShape
from tests.fixtures.store_scene import CLIENT, ZONE, StoreScene

LISTS = ("ab", "bc", "c")


def spoiled() -> StoreScene:
    """Scene in which a's copy of partition 0 has a value that was never written, at a position that was never
    given."""
    scene = StoreScene("abc", LISTS)
    scene.fill(3)
    rows = scene.disks["a"].partitions[ZONE, 0].rows
    rows[b"k1"] = StoredRow(b"k1", b"not written", StorePosition(1 << 40, 7))
    assert scene.keys("a") == {"k0", "k1", "k2"}
    return scene


def ask(scene: StoreScene, name: str, partition: int = 0) -> None:
    request = CopiesRequest(1, ((ZONE, partition),))
    scene.processes[name].give(CopiesAsked(CLIENT, request))


def outcomes(scene: StoreScene, partition: int = 0) -> list[str]:
    """The in-sync sets of that partition, as committed, one after the other."""
    changes = [record.changed.get(ZONE, {}) for record in scene.metastore.results]
    sets = [outcome.in_sync for each in changes if isinstance(outcome := each.get(partition), PartitionOutcome)]
    return ["".join(names) for names in sets]


def values(scene: StoreScene, name: str) -> set[bytes | None]:
    return {row.value for row in scene.disks[name].rows((ZONE, 0), b"", 1 << 30)}


@pytest.mark.parametrize("name", ["a", "b"], ids=["primary", "backup"])
def test_a_copy_leaves_the_set_by_a_result_is_emptied_and_filled_again(name: str) -> None:
    scene = spoiled()
    other = "b" if name == "a" else "a"
    before = len(outcomes(scene))
    ask(scene, name)
    assert scene.own(name) is CopyState.OWNING
    scene.settle()
    scene.run(15_000)
    scene.settle()
    assert outcomes(scene)[before:] == [other, "ab"]
    assert scene.own(name) is CopyState.OWNING
    assert (values(scene, name) == {b"v"}) is (name == "a")
    assert scene.done(scene.effective("c")[0], 0, "more").code.label == "DONE"
    assert "more" in scene.keys("a") & scene.keys("b")


def test_the_last_copy_in_sync_is_never_emptied() -> None:
    """Neither when it is asked for, nor when the other one goes before the exchange."""
    scene = spoiled()
    ask(scene, "c", 2)
    scene.settle()
    assert scene.keys("c", 2) == {"k0", "k1", "k2"}
    ask(scene, "a")
    scene.crash("b")
    scene.settle()
    assert scene.own("a") is CopyState.OWNING
    assert scene.keys("a") == {"k0", "k1", "k2"}
    assert scene.members() == "a"
    assert not scene.worker("a").held.lost


def test_two_copies_that_are_asked_for_at_once_are_not_both_emptied() -> None:
    scene = spoiled()
    ask(scene, "a")
    ask(scene, "b")
    scene.settle()
    assert scene.members() == "ab"
    assert scene.keys("a") == scene.keys("b") == {"k0", "k1", "k2"}
    assert not scene.worker("a").held.lost


@pytest.mark.parametrize("seed", range(3))
def test_refills_under_faults(seed: int) -> None:
    """Refill copies without losing an acknowledged write, with any server killed, paused or cut off
    meanwhile."""
    run = StoreRun(seed, replace(StoreShape.of(seed), refills=True))
    run.run()
    assert len(run.clients.history.acknowledged) > 20
    assert any("is to be filled anew" in line for line in run.world.trace)
