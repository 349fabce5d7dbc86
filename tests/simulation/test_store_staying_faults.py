"""Faults of store servers that stay: what is left serves on."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.store.core.store_inputs import RoomChanged
from rebalance.store.core.store_messages import ReadRequest
from simulator.store.store_run import LIMITS, ZONE, StoreRun, StoreShape
from simulator.store.store_world import StoreWorld
from tests.fixtures.simulated_trio import tail_of, trio


def acknowledged_later(run: StoreRun, wait_ms: int) -> int:
    """Number of acknowledged writes among those that begin after the wait, within 30 s."""
    world = run.world
    world.time.run_until(world.time.now + wait_ms)
    begin_ms = world.time.now
    world.time.run_until(begin_ms + 30_000)
    return sum(each.invoked_ms >= begin_ms for each in run.clients.history.acknowledged)


def test_owners_that_never_reach_each_other_are_levelled_by_an_eviction() -> None:
    """Kill the primary of two owners that differ and have no link. The coordinator reaches both and has no
    copy, so the exchange ends; nothing is pending, as no server serves."""
    run, (primary, ahead, behind) = trio(seed=9, servers=4)
    coordinator = run.world.metastore.ring.cluster.coordinator
    assert coordinator not in (primary.name, ahead.name, behind.name)
    run.world.cut(ahead.name, behind.name)
    run.world.cut(primary.name, behind.name)
    run.world.time.run_until(run.world.time.now + 1_200)
    assert tail_of(ahead) > tail_of(behind)
    run.world.restarts = False
    run.world.kill(primary.name)
    assert acknowledged_later(run, 15_000) > 20


def test_a_suspicion_that_was_lost_is_said_again() -> None:
    """The primary is cut from a backup for good, and from the metastore while it first suspects it."""
    run, (primary, _, behind) = trio()
    run.world.restarts = False
    run.world.cut(primary.name, behind.name)
    run.world.time.run_until(run.world.time.now + 1_700)
    run.world.cut_from_metastore.add(primary.name)
    run.world.time.run_until(run.world.time.now + 1_500)
    run.world.cut_from_metastore.discard(primary.name)
    assert acknowledged_later(run, 15_000) > 20


def test_a_primary_whose_disk_hangs_gives_way() -> None:
    """Let a primary with a hanging disk give way, though it heartbeats on and owes no answer: only itself sees
    it."""
    run, (primary, *_) = trio()
    run.world.restarts = False
    primary.disk_ms = (10**9, 10**9)
    assert acknowledged_later(run, 30_000) > 20


def test_reads_that_wait_for_a_write_are_bounded() -> None:
    """Bound the reads that wait at a primary with a slow disk, while a client reads both keys again and
    again."""
    run, (primary, *_) = trio()
    primary.disk_ms = (1_500, 1_500)
    for number in range(10_000):
        request = ReadRequest(10**6 + number, ZONE, 0, b"k%d" % (number % 2))
        run.world.time.after(number // 5, lambda request=request: run.world.ask(99, primary.name, request))  # type: ignore[misc]  # mypy has no type for defaults of a lambda
    most = 0
    for _ in range(40):
        run.world.time.run_until(run.world.time.now + 50)
        leading = primary.server.shared.copies[ZONE, 0].leading
        assert leading is not None
        most = max([most, *(len(each.reads) for each in leading.pending)])
    assert most == LIMITS.pending_max


OTHER = ZoneId(2)


def assign(world: StoreWorld, trigger: Trigger, lists: dict[ZoneId, Lists]) -> None:
    revision = world.metastore.set_targets(lists)
    specs = tuple(ZoneSpec(zone, len(each), 3, targets=revision) for zone, each in lists.items())
    world.metastore.custom(trigger, specs)


def stuck_run() -> tuple[StoreRun, tuple[str, ...], str]:
    """Partition 0 has rows on three servers, and the fourth, which has no room, is about to get a copy. Another
    partition of the zone is on two servers, and another zone on the first one."""
    shape = StoreShape(servers=4, partitions=2, copies=3, clients=4, keys=2, faults_ms=0)
    run = StoreRun(3, shape)
    run.begin()
    names, full = ("n1", "n2", "n3"), "n4"
    assign(run.world, Trigger.TARGET_SET, {ZONE: (names, ("n1", "n2"))})
    assign(run.world, Trigger.ZONE_START, {OTHER: (("n1",),)})
    run.world.time.run_until(run.world.time.now + 20_000)
    outcomes = run.world.metastore.result_state.outcomes
    assert [each.in_sync for each in outcomes[ZONE]] == [names, ("n1", "n2")]
    run.world.processes[full].give(RoomChanged(has_room=False))
    return run, names, full


@pytest.mark.row("PME-134", "PME-138")
@pytest.mark.parametrize(("zone", "number"), [(OTHER, 0), (ZONE, 1)], ids=["zone", "partition"])
def test_a_copy_that_is_never_filled_holds_up_no_other(zone: ZoneId, number: int) -> None:
    """PME-134, PME-138: another zone switches as soon as it is ready, and a partition of the same zone after
    some time. The copy without room is filled as soon as there is some."""
    run, names, full = stuck_run()
    world = run.world
    moved: dict[ZoneId, Lists] = {ZONE: ((*names[:2], full), ("n1", "n3"))}
    if zone == OTHER:
        moved = {ZONE: ((*names[:2], full), ("n1", "n2")), OTHER: (("n3",),)}
    assign(world, Trigger.TARGET_SET, moved)
    world.time.run_until(world.time.now + 25_000)
    outcomes = world.metastore.result_state.outcomes
    assert outcomes[zone][number].in_sync == moved[zone][number]
    assert outcomes[ZONE][0].in_sync == names
    world.processes[full].give(RoomChanged(has_room=True))
    world.time.run_until(world.time.now + 25_000)
    assert world.metastore.result_state.outcomes[ZONE][0].in_sync == ("n1", "n2", full)


def test_a_link_that_is_cut_for_good_costs_one_eviction() -> None:
    """One of its two ends goes, and stays out until there is a link again: with it everybody would stand still
    for each of its joins."""
    run, servers = trio()
    world = run.world
    world.cut(servers[0].name, servers[1].name)
    world.time.run_until(world.time.now + 60_000)
    failed = [item for item in world.metastore.events if item.event.trigger is Trigger.NODE_FAILED]
    assert len(failed) == 1
    assert acknowledged_later(run, 0) > 100
    world.heal()
    world.time.run_until(world.time.now + 10_000)
    assert world.metastore.ring.cluster.servers.keys() == {process.name for process in servers}
