"""Zones of store servers at rest, one by one."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.store.core.ring_keeper import JoinServer
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import AppendRecords
from tests.fixtures.store_scene import ZONE, StoreScene

OTHER = ZoneId(2)


def two_zones() -> StoreScene:
    scene = StoreScene("abc", ("ab", "bc"))
    scene.start_zone(("ab", "bc"), OTHER)
    scene.settle()
    for zone in (ZONE, OTHER):
        number = scene.put("a", 0, zone=zone)
        scene.exchange()
        assert scene.code(number) == "DONE"
    return scene


@pytest.mark.row("PME-007", "PME-008")
def test_one_zone_rests_and_the_other_goes_on() -> None:
    """PME-008: requests are refused with a code of their own, on every server. PME-007: activated, all is as it
    was."""
    scene = two_zones()
    assert scene.custom(Trigger.DEACTIVATE) == "3.3"
    scene.settle()
    for name in "abc":
        assert [scene.code(scene.get(name)), scene.code(scene.put(name))] == ["RESTING", "RESTING"]
        assert ZONE not in scene.worker(name).held.maps
    assert scene.answers[scene.get("a")].detail == "zone 1 is deactivated"
    assert scene.code(scene.get("a", zone=OTHER)) == "DONE"
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.answers[scene.get("a")].value == b"v"
    assert scene.done("a", value="w").code.label == "DONE"
    scene.all_equal()


def test_files_of_a_zone_at_rest_do_not_change() -> None:
    """Copies that were being filled or cleared wait, whatever happens around them."""
    scene = two_zones()
    scene.fill(20)
    before = {name: scene.keys(name) for name in "abc"}
    scene.set_targets(("ac", "bc"))
    scene.hear()
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    assert scene.own("c") is CopyState.MOVING
    assert {name: scene.keys(name) for name in "abc"} == before
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.own("c") is CopyState.OWNING
    assert scene.keys("c") == before["a"]
    assert scene.own("b") is not CopyState.OWNING


def test_a_copy_that_is_being_cleared_waits_for_the_zone() -> None:
    scene = StoreScene("abc", ("ab",), limits=StoreLimits(ttl_ms=60_000, batch_bytes=1))
    scene.fill(20)
    scene.processes["b"].disk_ms = (100, 100)
    scene.set_targets(("ac",))
    while scene.own("b") is not CopyState.RENTING:
        scene.exchange()
        scene.run(20)
    scene.run(500)
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    left = scene.keys("b")
    assert left
    scene.run(5_000)
    assert scene.keys("b") == left
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    scene.run(10_000)
    assert not scene.keys("b")


def test_members_that_go_while_a_zone_rests_have_everything_when_they_return() -> None:
    scene = two_zones()
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    scene.crash("a")
    scene.settle()
    scene.crash("b")
    scene.settle()
    assert scene.members() == "ab", "nothing was written that either of them has not"
    scene.join("b")
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.answers[scene.get("b")].value == b"v"
    scene.join("a")
    scene.settle()
    assert scene.states("b") == {"a": CopyState.OWNING, "b": CopyState.OWNING}


def test_a_zone_at_rest_may_be_dropped_and_a_server_that_joins_knows_of_it() -> None:
    scene = two_zones()
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    scene.crash("c")
    scene.join("c")
    assert scene.code(scene.get("c")) == "RESTING"
    scene.custom(Trigger.ZONE_STOP)
    scene.settle()
    assert scene.code(scene.get("c")) == "NO_ZONE"
    assert not scene.metastore.ring.cluster.resting


def test_who_fails_while_a_zone_is_closed_has_not_everything() -> None:
    """The primary served until then, and stopped waiting for both. They are back first, and do not own."""
    scene = StoreScene("abcd", ("abc",))
    scene.fill()
    scene.holds(AppendRecords, sender="a")
    write = scene.put("a", 0, "k0", "on a alone")
    scene.custom(Trigger.DEACTIVATE)
    for name in "bc":
        scene.crash(name)
    scene.settle()
    assert scene.code(write) == "DONE"
    assert scene.members() == "a"
    scene.crash("a")
    scene.release()
    scene.settle()
    for name in "bc":
        scene.join(name)
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.code(scene.get("b", 0, "k0")) == "WAITING_FOR_OWNERS"
    scene.join("a")
    primary = scene.primaries("b")[0]
    assert primary is not None
    assert scene.answers[scene.get(primary, 0, "k0")].value == b"on a alone"


def test_who_joins_while_a_zone_rests_learns_its_sets() -> None:
    """Correct what b read when it started, which says that it has everything; it joins much later, and then it
    is alone."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.kill("b")
    successor = scene.start("b")
    scene.fail("b")
    scene.settle()
    assert scene.done("a", 0, "k0", "without b").code.label == "DONE"
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    assert scene.metastore.act(JoinServer(scene.metastore.ring.number, "b", successor.incarnation))
    scene.settle()
    for name in "ac":
        scene.crash(name)
    scene.settle()
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.code(scene.get("b", 0, "k0")) == "WAITING_FOR_OWNERS"
    for name in "ca":
        scene.join(name)
    primary = scene.primaries("b")[0]
    assert primary is not None
    assert scene.answers[scene.get(primary, 0, "k0")].value == b"without b"
