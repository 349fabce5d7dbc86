"""Faults of store servers that stay: what is left serves on."""

from __future__ import annotations

from rebalance.store.core.store_messages import ReadRequest
from rebalance.store.simulation.store_run import LIMITS, ZONE, StoreRun
from tests.fixtures.simulated_trio import tail_of, trio


def acknowledged_later(run: StoreRun, wait_ms: int) -> int:
    """How many writes are acknowledged of those that begin after the wait, in 30 s."""
    world = run.world
    world.time.run_until(world.time.now + wait_ms)
    begin_ms = world.time.now
    world.time.run_until(begin_ms + 30_000)
    return sum(each.invoked_ms >= begin_ms for each in run.clients.history.acknowledged)


def test_owners_that_never_reach_each_other_are_levelled_by_an_eviction() -> None:
    """The primary dies, and the two that are left differ and have no link. The coordinator reaches both and has
    no copy, so the exchange ends; nothing is pending, as nobody serves."""
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
    """It heartbeats on, and nobody owes it anything: only itself sees it."""
    run, (primary, *_) = trio()
    run.world.restarts = False
    primary.disk_ms = (10**9, 10**9)
    assert acknowledged_later(run, 30_000) > 20


def test_reads_that_wait_for_a_write_are_bounded() -> None:
    """The primary's disk is slow, and somebody reads one key again and again."""
    run, (primary, *_) = trio()
    primary.disk_ms = (1_500, 1_500)
    for number in range(5_000):
        request = ReadRequest(10**6 + number, ZONE, 0, b"k0")
        run.world.time.after(number // 5, lambda request=request: run.world.ask(99, primary.name, request))  # type: ignore[misc]  # mypy has no type for defaults of a lambda
    most = 0
    for _ in range(30):
        run.world.time.run_until(run.world.time.now + 50)
        leading = primary.server.books.copies[ZONE, 0].leading
        assert leading is not None
        most = max([most, *(len(each.reads) for each in leading.pending)])
    assert most == LIMITS.pending_max
