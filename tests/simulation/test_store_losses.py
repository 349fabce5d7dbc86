"""Partitions of store servers whose owners all died, by the zone's policy."""

from __future__ import annotations

from copy import deepcopy

import pytest

from catalog.core.zone import LossPolicy
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import FullMessage
from tests.fixtures.store_scene import LIMITS, ZONE, StoreScene

LISTS = ("c", "a", "b", "ac")
"""Partition 0 is on c alone."""


def lost(policy: LossPolicy) -> StoreScene:
    """Partition 0 shall be on a, where nothing of it is."""
    scene = StoreScene("abc", LISTS, policy=policy)
    scene.fill(1)
    scene.crash("c")
    scene.settle()
    scene.set_targets(("a", "a", "b", "a"))
    scene.settle()
    return scene


def waiting() -> StoreScene:
    """Scene without a loss: partition 0 waits for c alone, and partition 3 for c, too, which went last."""
    scene = StoreScene("abc", LISTS)
    scene.fill(1)
    for name in "abc":
        scene.crash(name)
    for name in "ab":
        scene.join(name)
    assert not scene.worker("a").held.lost
    return scene


@pytest.mark.row("PME-094", "PME-095")
@pytest.mark.parametrize("policy", list(LossPolicy)[1:], ids=lambda policy: policy.value)
def test_all_owners_die(policy: LossPolicy) -> None:
    """PME-094: LOST. PME-095: what may be done follows the zone's policy; a reset makes what is left usable."""
    scene = lost(policy)
    assert scene.worker("b").held.lost == {ZONE: {0}}
    assert scene.own("a", 0) is CopyState.LOST
    is_safe, is_read_only = policy.value.endswith("SAFE"), policy.value.startswith("READ_ONLY")
    assert (scene.code(scene.get("a", 0)) == "LOST") is is_safe
    assert (scene.code(scene.put("a", 0)) == "LOST") is (is_safe or is_read_only)
    assert scene.code(scene.get("a", 1, "k0")) == "DONE"
    assert scene.code(scene.put("a", 1)) == ("LOST" if is_read_only else "DONE")
    if is_safe:
        assert "is lost" in scene.answers[scene.get("a", 0)].detail
    scene.custom(Trigger.LOSS_RESET)
    scene.settle()
    assert scene.own("a", 0) is CopyState.OWNING
    assert scene.done("a", 0).code.label == "DONE"


@pytest.mark.row("PME-096")
def test_a_loss_that_is_ignored() -> None:
    """PME-096: the new copy owns, empty, when the exchange ends, and is used without a reset."""
    scene = StoreScene("abc", ("ca", "a", "b", "a"), policy=LossPolicy.IGNORE)
    scene.set_targets(("c", "a", "b", "a"))
    scene.settle()
    scene.done("c", 0)
    scene.set_targets(("a", "a", "b", "a"))
    scene.hear()
    scene.crash("c")
    scene.exchange()
    assert scene.own("a", 0) is CopyState.OWNING
    assert not scene.keys("a", 0)
    assert not scene.worker("a").held.lost
    assert scene.code(scene.get("a", 0)) == "DONE"
    assert scene.done("a", 0).code.label == "DONE"


@pytest.mark.row("PME-097")
def test_a_loss_is_looked_for_when_somebody_goes() -> None:
    """PME-097: and only then: an owner that has not come back yet after all were away is waited for, also in
    the exchanges of a join, of new lists and of a switch, and when another server goes."""
    scene = waiting()
    for happens in (
        lambda: scene.announce("d"),
        lambda: scene.set_targets(("c", "a", "b", "ca")),
        lambda: scene.custom(Trigger.AFFINITY_CHANGE),
        lambda: scene.custom(Trigger.SNAPSHOT_CREATE),
        lambda: scene.crash("d"),
    ):
        happens()
        scene.exchange()
        assert scene.version("a") == scene.version_of_ring
        assert not scene.worker("a").held.lost
        waits = scene.get("a", 0, "k0")
        assert scene.code(waits) == "WAITING_FOR_OWNERS"
        assert scene.answers[waits].detail == "in-sync copies are on c"
    scene.join("c")
    assert scene.code(scene.get("c", 0, "k0")) == "DONE"
    scene.crash("c")
    scene.settle()
    assert scene.worker("a").held.lost == {ZONE: {0}}
    assert scene.own("a", 0) is None
    scene.join("d")
    assert scene.worker("d").held.lost == {ZONE: {0}}


@pytest.mark.parametrize("way_out", ["the disk returns", "reset"])
def test_the_last_owner_is_back_with_another_disk(way_out: str) -> None:
    """Report the partition as lost at once, as no other server can bring it, while an owner that is away is
    waited for. With its own disk the owner owns again by itself; a reset gives up what it had."""
    scene = StoreScene("abc", LISTS)
    scene.fill(1)
    for name in "abc":
        scene.crash(name)
    own = scene.disks.pop("c")
    for name in "ab":
        scene.join(name)
    assert not scene.worker("a").held.lost
    scene.join("c")
    # c went last, so it is the last one that had partition 3, too.
    assert scene.worker("a").held.lost == {ZONE: {0, 3}}
    assert scene.code(scene.get("c", 0, "k0")) == "LOST"
    if way_out == "reset":
        scene.custom(Trigger.LOSS_RESET)
        scene.settle()
    else:
        scene.crash("c")
        scene.disks["c"] = own
        scene.join("c")
    assert not scene.worker("a").held.lost
    assert scene.code(scene.get("c", 0, "k0")) == "DONE"
    assert scene.keys("c", 0) == (set() if way_out == "reset" else {"k0"})


@pytest.mark.parametrize(("disk", "is_lost"), [("its own", False), ("another", True), ("another, again", True)])
def test_an_owner_that_failed_before_it_heard_that_it_owns(disk: str, is_lost: bool) -> None:
    """Let an owner that failed before it heard of its ownership own the partition, empty: the result was
    committed, and nothing can have been written. With a disk that was not there when the result was made the
    partition is lost, also when that disk comes again."""
    scene = StoreScene("abc", ())
    scene.holds(FullMessage, to="c")
    scene.start_zone(("c",))
    scene.exchange()
    scene.crash("c")
    scene.settle()
    scene.release()
    assert scene.worker("a").held.lost == {ZONE: {0}}
    if disk != "its own":
        del scene.disks["c"]
    scene.join("c")
    if disk == "another, again":
        scene.crash("c")
        scene.settle()
        scene.join("c")
    assert bool(scene.worker("a").held.lost) is is_lost
    assert scene.code(scene.put("c", 0)) == ("LOST" if is_lost else "DONE")


def test_an_owner_whose_disk_was_rolled_back_to_before_the_zone_began() -> None:
    """Report a partition as lost instead of empty. Nothing was placed anew since the zone began, so the size of
    the set is not recorded: what the server had reported as finished shows that its disk has less."""
    scene = StoreScene("abc", ())
    before = deepcopy(scene.disks["c"])
    scene.start_zone(LISTS)
    scene.settle()
    scene.fill(1)
    scene.run(LIMITS.ttl_ms // 2)
    for name in "abc":
        scene.crash(name)
    scene.disks["c"] = before
    for name in "abc":
        scene.join(name)
    assert scene.worker("a").held.lost == {ZONE: {0, 3}}
    assert scene.code(scene.get("c", 0, "k0")) == "LOST"


def test_an_owner_that_left_before_it_reported_is_waited_for() -> None:
    """Wait for an owner that came back and left before the exchange that took it along had ended: its missing
    report does not mean that it has no copy."""
    scene = StoreScene("abc", LISTS)
    scene.fill(1)
    for name in "abc":
        scene.crash(name)
    scene.join("a")
    scene.announce("b")
    scene.announce("c")
    scene.hear("a", "b")
    while scene.network:
        scene.deliver()
    scene.leave("c")
    scene.settle()
    assert not scene.worker("a").held.lost
    scene.join("c")
    assert scene.code(scene.get("c", 0, "k0")) == "DONE"


@pytest.mark.parametrize("dead", ["", "b"])
def test_a_reset_leaves_partitions_that_wait_as_they_are(dead: str) -> None:
    """Keep partitions whose servers may come back with everything: only a reset that declares these dead gives
    them up."""
    scene = waiting()
    scene.custom(Trigger.LOSS_RESET, dead=dead)
    scene.settle()
    for number in (0, 3):
        assert scene.code(scene.get("a", number, "k0")) == "WAITING_FOR_OWNERS"
    scene.join("c")
    assert scene.code(scene.get("c", 0, "k0")) == scene.code(scene.get("a", 3, "k0")) == "DONE"
    assert scene.keys("c", 0) == scene.keys("c", 3) == {"k0"}


def test_a_reset_gives_up_what_waits_for_servers_that_are_dead() -> None:
    """The copy with most goes on: of partition 3 that of a. A server that was taken for dead brings nothing
    back."""
    scene = waiting()
    scene.set_targets(("a", "a", "b", "ac"))
    scene.settle()
    scene.custom(Trigger.LOSS_RESET, dead="c")
    scene.settle()
    assert not scene.worker("a").held.lost
    assert scene.code(scene.get("a", 3, "k0")) == "DONE"
    assert scene.done("a", 3, "later").code.label == "DONE"
    assert scene.done("a", 0, "later").code.label == "DONE"
    scene.join("c")
    assert scene.keys("a", 0) == {"later"}
    assert scene.keys("a", 3) == scene.keys("c", 3) == {"k0", "later"}


def test_a_server_that_is_back_is_not_given_up() -> None:
    """Keep the data of a server that joins in the exchange of the reset that takes it for dead."""
    scene = waiting()
    scene.custom(Trigger.LOSS_RESET, dead="c")
    scene.announce("c")
    scene.settle()
    assert scene.code(scene.get("c", 0, "k0")) == "DONE"
