"""Resets and restarts by hand over each metastore: what is written, under which guards, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneIntent
from rebalance.controllers.planned_resets import ShownReset
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace
from rebalance.core.records import RestartRecord
from rebalance.core.txn import Put, Txn
from rebalance.ports.metastore import Metastore
from tests.recovery_world import P0, STRONG, RecoveryWorld


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> RecoveryWorld:
    running = RecoveryWorld(store, keyspace)
    running.positions = {"a": 5, "b": 9, "c": 9}
    await running.with_nodes(STRONG, "a", "b", "c")
    return running


async def refused(world: RecoveryWorld, *numbers: int, **how: Any) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        await world.recovery.reset(world.intent().zone, numbers, **how)
    return error.value


async def test_two_phases(world: RecoveryWorld) -> None:
    """S191, S201, IEP-059: pending is the most advanced copy, planned the full set with other data nodes, and
    the trigger advances; a dry run shows the same and writes nothing."""
    await world.join("d")
    await world.join("e")
    zone, before = world.intent().zone, await world.trigger()
    await world.carry_out()
    stable = await world.assigned("stable")
    assert stable is not None
    lost = sorted(stable.nodes)[:2]
    (survivor,) = stable.nodes - set(lost)
    await world.leave(*lost)
    (shown,) = await world.recovery.reset(zone, dry_run=True)
    assert shown.plan is not None
    assert (shown.plan.survivor, shown.written) == (survivor, False)
    assert await world.assigned("pending") is None
    world.moves = False
    lost_entries = shown.plan.possibly_lost_entries
    accepted = ShownReset(0, survivor, False, lost_entries)
    for stale in (
        (),
        (replace(accepted, partition=1),),
        (replace(accepted, survivor=lost[0]),),
        (replace(accepted, empty=True),),
        (replace(accepted, possibly_lost_entries=lost_entries - 1),),
    ):
        changed = await refused(world, 0, shown=stale)
        assert changed.kind is ErrorKind.SHOWN_STATE_CHANGED
        assert await world.assigned("pending") is None
    (done,) = await world.recovery.reset(zone, (0,), shown=(accepted,))
    assert done.written
    assert done.plan == shown.plan
    pending, planned = await world.assigned("pending"), await world.assigned("planned")
    assert pending == Assignments((survivor,))
    assert pending.forced == await world.trigger() > before
    assert planned is not None
    assert planned.nodes == set("abcde") - set(lost)
    await world.carry_out()
    assert await world.stable() == ",".join(sorted(planned.nodes))


@pytest.mark.parametrize("running", ["", "ab", "b"])
async def test_a_reset_replaces_whatever_runs(world: RecoveryWorld, running: str) -> None:
    """S192, S201: pending absent, equal or different, and planned: all give way, and the trigger advances; a
    second reset is forced again, in another generation."""
    keys = world.keyspace.partition(P0)
    await world.leave("a", "c")
    if running:
        puts = (Put(keys.pending, Assignments(tuple(running)).encode()),)
        await world.store.commit(Txn((), (*puts, Put(keys.planned, Assignments(("a", "c")).encode()))))
    before = await world.trigger()
    await world.recovery.reset(world.intent().zone)
    first = await world.assigned("pending")
    assert first == Assignments(("b",))
    assert await world.assigned("planned") is None
    assert await world.trigger() == first.forced > before
    await world.recovery.reset(world.intent().zone)
    second = await world.assigned("pending")
    assert second is not None
    assert second.forced > first.forced


async def test_an_ordinary_change_replaces_what_a_reset_has_planned(world: RecoveryWorld) -> None:
    """S193: the forced set runs, and a statement that follows takes the place of what was planned."""
    await world.join("d")
    await world.join("e")
    await world.carry_out()
    stable = await world.assigned("stable")
    assert stable is not None
    lost = sorted(stable.nodes)[:2]
    await world.leave(*lost)
    world.moves = False
    await world.recovery.reset(world.intent().zone)
    planned = await world.assigned("planned")
    assert planned is not None
    await world.alter(auto_scale_down=0)
    after = await world.assigned("planned")
    assert after is not None
    assert after.nodes == set("abcde") - set(lost)
    assert not after.forced
    pending = await world.assigned("pending")
    assert pending is not None
    assert pending.forced


async def test_refusals(world: RecoveryWorld) -> None:
    """S189, S200, S204, S211: each with a kind of its own, and nothing is written."""
    before = await world.trigger()
    zone = world.intent().zone
    assert (await refused(world)).kind is ErrorKind.RECOVERY_NOT_NEEDED
    kept = await refused(world, 0)
    assert kept.kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert kept.message.startswith("partition 0: 3 of 3 voters live")
    for wrong in (-1, 1):
        missing = await refused(world, wrong)
        assert missing.kind is ErrorKind.PARTITION_NOT_FOUND
        assert missing.message == f"zone Z has partitions 0 to 0, not {wrong}"
    await world.leave("a", "b", "c")
    assert (await refused(world, 0)).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    assert (await refused(world, 0, empty=True)).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    await world.join("d")
    (begun,) = await world.recovery.reset(zone, (0,), empty=True, dry_run=True)
    assert begun.plan is not None
    assert (begun.plan.survivor, begun.plan.empty) == ("d", True)
    pending = await world.assigned("pending")
    assert pending is None or not pending.forced
    with pytest.raises(RefusedError, match="zone Z: its newest change is not published yet"):
        await world.recovery.reset(replace(zone, replicas=2), (0,), empty=True)
    # S204: a version that is committed and not carried out yet.
    intent = ZoneIntent(9, replace(zone, replicas=1))
    await world.store.commit(Txn((), (Put(world.keyspace.intent(zone.zone_id), intent.encode()),)))
    late = await refused(world, 0, empty=True)
    assert late.kind is ErrorKind.CLUSTER_NOT_IDLE
    assert late.message == "zone Z: its newest change is not placed yet"
    assert await world.trigger() >= before


async def test_a_plan_that_was_overtaken_writes_nothing(world: RecoveryWorld) -> None:
    """S204: every key that it was made from is a guard."""
    await world.leave("a", "c")
    zone = world.intent().zone
    keys = world.keyspace
    for touched in (
        keys.intent(zone.zone_id),
        keys.data_nodes(zone.zone_id),
        keys.target_pointer(zone.zone_id),
        keys.partition(P0).configuration,
        keys.partition(P0).stable,
        keys.partition(P0).trigger,
    ):
        reading = await world.recovery.read(zone.zone_id)
        (planned,) = world.recovery.plan(reading, (0,))
        assert planned.plan is not None
        found = await world.store.get(touched)
        assert found is not None
        await world.store.commit(Txn((), (Put(touched, found.value),)))
        assert not await world.recovery.force(reading, P0, planned.plan)
    assert await world.assigned("pending") is None
    assert await world.recovery.force(await world.recovery.read(zone.zone_id), P0, planned.plan)


async def test_restarts_are_asked_for_by_key(world: RecoveryWorld) -> None:
    """S206, S211: a key for each member; refused ones leave none."""
    zone = world.intent().zone
    asked = world.keyspace.restarts(P0)
    with pytest.raises(RefusedError) as error:
        await world.recovery.restart(zone, (0,), ("x",))
    assert error.value.kind is ErrorKind.NODE_NOT_FOUND
    await world.alter(auto_scale_up=100_000)
    await world.join("d")
    for nodes, cleanup in ((("d",), False), (("a", "b"), True)):
        with pytest.raises(RefusedError) as error:
            await world.recovery.restart(zone, (0,), nodes, cleanup=cleanup)
        assert error.value.kind is ErrorKind.NODE_SET_ILLEGAL
    await world.recovery.restart(zone, (0,), dry_run=True)
    assert (await world.store.range(asked)).items == ()
    (done,) = await world.recovery.restart(zone, (0,), ("b",), cleanup=True)
    assert done.plan.nodes == ("b",)
    (item,) = (await world.store.range(asked)).items
    assert item.key == world.keyspace.restart(P0, "b")
    assert RestartRecord.decode(item.value).cleanup
