"""Requests allowed while partitions of a zone are lost, by its policy, and the partitions after a reset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import LossPolicy
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.store.core.store_messages import SupplyBatch
from tests.fixtures.store_scene import ZONE, StoreScene

LISTS = ("c", "a", "b", "ac")
"""Partition 0 is on c alone."""

TABLE = """
policy            read 0  write 0  read 1  write 1
READ_ONLY_SAFE    LOST    LOST     DONE    LOST
READ_ONLY_ALL     DONE    LOST     DONE    LOST
READ_WRITE_SAFE   LOST    LOST     DONE    DONE
READ_WRITE_ALL    DONE    DONE     DONE    DONE
"""
"""Answers while partition 0 is lost and partition 1 is not. With IGNORE nothing is lost."""
POLICIES = [policy for policy in LossPolicy if policy is not LossPolicy.IGNORE]
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]


def lost(policy: LossPolicy) -> StoreScene:
    """Partition 0 shall be on a, where nothing of it is."""
    scene = StoreScene("abc", LISTS, policy=policy)
    scene.fill(1)
    scene.crash("c")
    scene.settle()
    scene.set_targets(("a", "a", "b", "a"))
    scene.settle()
    assert scene.own("a", 0) is CopyState.LOST
    return scene


def alter(scene: StoreScene, policy: LossPolicy) -> None:
    """Change the zone's policy as the leading controller does after ALTER ZONE."""
    spec = scene.metastore.ring.cluster.zones[ZONE]
    scene.metastore.custom(Trigger.TARGET_SET, (replace(spec, policy=policy),))
    scene.settle()


def codes(scene: StoreScene) -> list[str]:
    asked = [scene.get("a", 0), scene.put("a", 0), scene.get("a", 1, "k0"), scene.put("a", 1)]
    scene.settle()
    return [scene.code(number) for number in asked]


@pytest.mark.row("PME-095")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_requests_by_policy(row: list[str]) -> None:
    """PME-095: and an ALTER to it makes the same of a partition that is lost already."""
    scene = lost(LossPolicy(row[0]))
    assert codes(scene) == row[1:]
    other = lost(LossPolicy.READ_WRITE_SAFE if row[0] != "READ_WRITE_SAFE" else LossPolicy.READ_ONLY_ALL)
    alter(other, LossPolicy(row[0]))
    assert codes(other) == row[1:]


@pytest.mark.row("PME-096")
def test_a_policy_that_ignores_losses_ends_them() -> None:
    """PME-096: also one that is set while partitions are lost."""
    scene = lost(LossPolicy.READ_WRITE_SAFE)
    alter(scene, LossPolicy.IGNORE)
    assert not scene.worker("a").held.lost
    assert scene.own("a", 0) is CopyState.OWNING
    assert codes(scene) == ["DONE"] * 4


def behind(policy: LossPolicy) -> StoreScene:
    """Partition 0 was on c alone, with 5 keys: b has 4 of them, a has 3, and c is gone."""
    scene = StoreScene("abc", ("cab",), policy=policy)
    scene.fill(3)
    for name in "ab":
        scene.crash(name)
        scene.settle()
        assert scene.done("c", 0, f"without-{name}").code.label == "DONE"
    scene.holds(SupplyBatch)
    for name in "ab":
        scene.announce(name)
        scene.exchange()
    scene.crash("c")
    scene.settle()
    assert scene.worker("b").held.lost == {ZONE: {0}}
    return scene


def test_what_is_left_is_served_by_the_server_that_has_most_and_by_no_other() -> None:
    scene = behind(LossPolicy.READ_WRITE_ALL)
    assert scene.answers[scene.get("b", 0, "k0")].value == b"v"
    refused = scene.get("a", 0, "k0")
    assert scene.code(refused) == "NOT_PRIMARY"
    assert scene.answers[refused].primary == "b"


@pytest.mark.row("PME-094")
def test_an_owner_that_is_back_owns_after_a_reset_and_not_before() -> None:
    """PME-094: and what was written meanwhile gives way to what was acknowledged before."""
    scene = lost(LossPolicy.READ_WRITE_ALL)
    assert scene.code(scene.put("a", 0, "meanwhile")) == "DONE"
    scene.join("c")
    assert scene.own("c", 0) is CopyState.LOST
    scene.custom(Trigger.LOSS_RESET)
    scene.settle()
    assert not scene.worker("a").held.lost
    assert scene.states("a", 0)["a"] is CopyState.OWNING
    leader = scene.primaries("a")[0]
    assert leader is not None
    assert scene.answers[scene.get(leader, 0, "k0")].value == b"v"
    assert scene.keys("a", 0) == {"k0"}
    assert scene.done(leader, 0, "after").code.label == "DONE"


def test_without_its_owners_a_reset_partition_begins_with_what_is_left() -> None:
    scene = lost(LossPolicy.READ_WRITE_ALL)
    assert scene.code(scene.put("a", 0, "meanwhile")) == "DONE"
    scene.custom(Trigger.LOSS_RESET)
    scene.settle()
    assert scene.own("a", 0) is CopyState.OWNING
    assert scene.keys("a", 0) == {"meanwhile"}
    assert scene.done("a", 0).code.label == "DONE"


def test_an_owner_that_comes_back_without_its_disk_is_none() -> None:
    """Keep the data of living copies when an owner comes back without its disk."""
    scene = behind(LossPolicy.READ_WRITE_SAFE)
    scene.release()
    del scene.disks["c"]
    scene.join("c")
    for name in "ac":
        scene.crash(name)
        scene.settle()
        scene.join(name)
        assert scene.worker("b").held.lost == {ZONE: {0}}
    scene.custom(Trigger.LOSS_RESET)
    scene.settle()
    assert not scene.worker("b").held.lost
    assert [scene.keys(name, 0) for name in "abc"] == [{"k0", "k1", "k2", "without-a"}] * 3


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy is not LossPolicy.READ_WRITE_ALL])
def test_the_last_owner_ends_the_loss_when_it_comes_back_with_its_disk(policy: LossPolicy) -> None:
    """End the loss without a reset: the last owner has every write that was acknowledged, and nothing was
    written meanwhile."""
    scene = behind(policy)
    scene.release()
    scene.join("c")
    assert not scene.worker("b").held.lost
    assert scene.done(scene.primaries("a")[0] or "", 0, "k0").code.label == "DONE"
    assert [scene.keys(name, 0) for name in "abc"] == [{"k0", "k1", "k2", "without-a", "without-b"}] * 3


def test_nobody_but_the_last_owner_ends_the_loss() -> None:
    """Others have less, however often they come and go."""
    scene = behind(LossPolicy.READ_WRITE_SAFE)
    scene.release()
    for name in "ab":
        scene.crash(name)
        scene.settle()
        scene.join(name)
        assert scene.worker(name).held.lost == {ZONE: {0}}
    for name in "ab":
        scene.crash(name)
    for name in "bac":
        scene.join(name)
    assert [scene.keys(name, 0) for name in "abc"] == [{"k0", "k1", "k2", "without-a", "without-b"}] * 3


def test_an_empty_partition_is_lost_no_longer_once_its_owner_is_back_with_its_disk() -> None:
    """End an empty partition's loss with an owner that has its disk. One without a disk has as much, and is no
    owner: it cannot show that nothing was written."""
    for has_disk in (True, False):
        scene = StoreScene("abc", LISTS)
        scene.crash("c")
        scene.settle()
        assert scene.worker("a").held.lost == {ZONE: {0}}
        if not has_disk:
            del scene.disks["c"]
        scene.join("c")
        scene.client_joins("x")
        scene.set_targets(("ca", "a", "b", "ac"))
        scene.settle()
        assert scene.worker("a").held.lost == ({} if has_disk else {ZONE: {0}})
        if not has_disk:
            scene.custom(Trigger.LOSS_RESET)
            scene.settle()
        assert scene.done("c", 0).code.label == "DONE"


def test_what_was_written_while_a_partition_was_lost_is_given_up_by_a_reset_only() -> None:
    """Keep what was written while a partition was lost until a reset, also once the policy takes no such writes
    any more."""
    scene = lost(LossPolicy.READ_WRITE_ALL)
    assert scene.code(scene.put("a", 0, "meanwhile")) == "DONE"
    alter(scene, LossPolicy.READ_WRITE_SAFE)
    scene.join("c")
    assert scene.worker("a").held.lost == {ZONE: {0}}
    scene.custom(Trigger.LOSS_RESET)
    scene.settle()
    assert scene.keys("a", 0) == {"k0"}
