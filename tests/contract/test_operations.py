"""Operations over each metastore: written with their target, brought forward, stopped, and ended once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Origin, ZoneIntent
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decide_on_forced_move
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.assignments.withdrawal import CancelledPartitions
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    Stage,
)
from rebalance.core.moves.drain import Drain
from rebalance.core.operations.operation import KEPT_MAX, Operation, OperationKind, OperationState
from rebalance.ports.metastore import Metastore
from tests.fixtures.admission_world import DEADLINE_S, IDS, ZONES, altered
from tests.fixtures.operation_groups import SIZE, ZONE, ZONE_ID, OperationsWorld, operations_world
from tests.fixtures.probe_stub import ProbeStub


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    return await operations_world(store, keyspace)


@pytest.mark.row("VOL-020", "VOL-089")
async def test_a_target_is_named_together_with_its_operation(world: OperationsWorld) -> None:
    """VOL-020, VOL-089: id, kind, who, why and from where; the one before is superseded by the same write; two
    controllers and a repeated event write one operation."""
    created = await world.newest()
    assert (created.kind, created.before, created.moves) == (OperationKind.CREATE_ZONE, 0, 6)
    origin = Origin("alice", True, "growth", "ALTER ZONE z1 SET (REPLICAS 3)")
    async with world.controllers() as one, world.controllers() as other:
        await world.publish(altered(ZONE), origin=origin)
        await asyncio.gather(one.zones.reconcile([ZONE_ID]), other.zones.reconcile([ZONE_ID]))
        for each in (one, other):
            assert await each.zones.reconcile([ZONE_ID]) == {}
    pointer = await world.store.get(world.keyspace.target_pointer(ZONE_ID))
    assert pointer is not None
    event = TargetPointer.decode(pointer.value).event_revision
    first, second = await world.operations()
    assert (first.state, first.cause) == (OperationState.SUPERSEDED, f"superseded by {second.operation_id}")
    assert second.operation_id == f"{ZONE_ID}-{event}"
    assert (second.kind, second.before) == (OperationKind.ALTER_ZONE, created.event_revision)
    assert (second.by, second.verified, second.reason) == ("alice", True, "growth")
    assert (second.statement, second.moves) == (origin.statement, 6)
    item = await world.store.get(world.keyspace.operation(second.operation_id))
    assert item is not None
    assert item.create_revision == pointer.mod_revision, "one transaction"


@pytest.mark.row("VOL-020", "VOL-088")
async def test_it_is_done_when_every_partition_is_there_and_not_before(world: OperationsWorld) -> None:
    """VOL-020, VOL-088: WAITING, RUNNING, DONE, with what is done of all, across three controllers."""
    await world.found()
    async with world.controllers() as first:
        assert (await world.look(first)).state is OperationState.DONE, "the creation"
        begun = await world.begin(first)
        assert begun.state is OperationState.WAITING
        assert (await world.look(first)).state is OperationState.RUNNING
    done = 0
    async with world.controllers() as second:
        for partition in (await world.moving())[:-1]:
            await world.end_move(partition)
            seen = await world.look(second)
            assert seen.state is OperationState.RUNNING
            assert done <= seen.tally.done < seen.tally.total == 6
            done = seen.tally.done
    async with world.controllers() as third:
        await world.end_moves()
        over = await world.look(third)
        assert (over.operation_id, over.state) == (begun.operation_id, OperationState.DONE)
        assert (over.tally.done, over.tally.bytes_done) == (6, 6 * 2 * SIZE)
        assert over.begun_ms is not None
        assert over.ended_ms is not None
        again = await world.look(third)
        assert again == over, "it ends once"


@pytest.mark.row("VOL-095")
async def test_pause_and_resume(world: OperationsWorld) -> None:
    """VOL-095: paused, nothing begins and it says who asked; a controller that comes later obeys; the pause and
    the state change together; what is over is not paused."""
    await world.found()
    await world.limit(Limits(cluster_moves=2))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        await world.until(lambda found: len(found) == 2)
        paused = await world.control.pause(operation.operation_id, Pause("bob", "backup", 1))
        assert (paused.state, paused.cause) == (OperationState.PAUSED, "PAUSED: the zone, by bob: backup")
        for partition in await world.moving():
            await world.end_move(partition)
    async with world.controllers() as later:
        assert await later.zones.reconcile([ZONE_ID]) == {}
        await asyncio.sleep(0.3)
        assert await world.moving() == []
        assert (await world.look(later)).state is OperationState.PAUSED
        resumed = await world.control.resume(operation.operation_id)
        assert resumed.state in (OperationState.WAITING, OperationState.RUNNING)
        while await world.until(bool):
            for partition in await world.moving():
                await world.end_move(partition)
            if all(len(each.peers) == 3 for each in await stable_of(world)):
                break
            await asyncio.sleep(0.1)
        await world.found()
        assert (await world.look(later)).state is OperationState.DONE
    with pytest.raises(RefusedError) as refused:
        await world.control.pause(operation.operation_id, Pause("bob", "", 1))
    assert refused.value.kind is ErrorKind.OPERATION_STATE_ILLEGAL


async def stable_of(world: OperationsWorld) -> list[Assignments]:
    found = (await world.observed()).items()
    return [
        Assignments.decode(seen.stable.value) for each, seen in found if each.zone_id == ZONE_ID and seen.stable
    ]


async def test_a_pause_ends_with_its_time_limit(world: OperationsWorld) -> None:
    await world.found()
    await world.limit(Limits(pause=Pause("night", "", 0)))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        await world.control.pause(operation.operation_id, Pause("bob", "", 1, until_ms=2))
        seen = await world.look(controllers)
        assert (seen.state, seen.cause) == (OperationState.PAUSED, "PAUSED: by night"), "the cluster's holds"
        await world.limit(Limits(zone_pauses={ZONE_ID: Pause("bob", "", 1, until_ms=2)}))
        async with asyncio.timeout(DEADLINE_S):
            while (await world.look(controllers)).state is OperationState.PAUSED:
                await asyncio.sleep(0.01)


@pytest.mark.row("VOL-095", "M10")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_cancel(world: OperationsWorld, is_killed: bool) -> None:
    """VOL-095, M10: of two that have begun one goes back, and the other goes on because a voter of before is
    gone; the rest stays where it is for good, and it is over when nothing is left. Where who cancels dies
    half-way, the controllers finish it."""
    await world.found()
    await world.limit(Limits(cluster_moves=2))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        begun = await world.until(lambda found: len(found) == 2)
        back, on = begun
        await world.remove_voters_of_before(on)
        if is_killed:
            operation = await die_after_the_record(world, operation)
        else:
            operation = await world.control.cancel(operation.operation_id, "carol", "wrong zone")
        assert (operation.state, operation.is_over) == (OperationState.CANCELLED, False)
        assert operation.cause == "cancelled by carol: wrong zone"
        assert not (await world.look(controllers)).is_over, "two move yet"
        found = await world.control.cancelled(operation)
        assert (found.goes_back, found.goes_on) == ((back.partition,), (on.partition,))
        assert len(found.stays) == 4
        await world.limit(Limits())
        for partition in begun:
            await world.end_move(partition)
        await world.found()
        await controllers.obey(Limits())
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
        assert await world.moving() == []
        over = await world.look(controllers)
        assert (over.state, over.is_over) == (OperationState.CANCELLED, True)
    sizes = sorted(len(each.peers) for each in await stable_of(world))
    assert sizes == [1, 1, 1, 1, 1, 3]
    async with world.controllers() as next_leader:
        assert await next_leader.zones.reconcile([ZONE_ID]) == {}
        assert await world.moving() == [], "also for who leads next"
        await world.begin(next_leader, 2)
        assert len(await world.moving()) == 6, "the next change takes all"


@pytest.mark.row("I3-021", "M10")
async def test_a_cancel_is_the_way_out_of_a_move_that_another_one_waits_for(world: OperationsWorld) -> None:
    """M10, I3-021: with ``queue`` a newer target waits in planned behind a move that cannot end; cancelled,
    both are gone, and the next change begins at once."""
    await world.found()
    async with world.controllers() as controllers:
        await world.begin(controllers)
        await world.until(lambda found: len(found) == 6)
        operation = await world.begin(controllers, 2)
        seen = [each for each in (await world.observed()).values() if each.planned is not None]
        assert len(seen) == 6
        operation = await world.control.cancel(operation.operation_id, "carol", "both")
        found = await world.control.cancelled(operation)
        assert found == CancelledPartitions(goes_back=tuple(range(6)))
        assert all(each.planned is None for each in (await world.observed()).values())
        await world.end_moves()
        assert {len(each.peers) for each in await stable_of(world)} == {1}
        over = await world.look(controllers)
        assert (over.state, over.is_over) == (OperationState.CANCELLED, True)
        await world.begin(controllers, 3)
        assert len(await world.moving()) == 6


async def die_after_the_record(world: OperationsWorld, operation: Operation) -> Operation:
    class Dies:
        def __getattr__(self, name: str) -> object:
            return getattr(world.store, name)

        async def range(self, prefix: str) -> object:
            raise ConnectionError("killed")

    dying = OperationControl(Dies(), world.keyspace, WallClock())
    with pytest.raises(ConnectionError):
        await dying.cancel(operation.operation_id, "carol", "wrong zone")
    return await world.newest()


async def test_a_cancel_that_races_with_the_end_has_one_winner(world: OperationsWorld) -> None:
    """Ten times: the end and the cancel are written at once, and exactly one of them is what happened."""
    await world.found()
    outcomes = set()
    async with world.controllers() as controllers:
        for replicas in (3, 1) * 5:
            operation = await world.begin(controllers, replicas)
            await world.end_moves()
            ended, cancelled = await asyncio.gather(
                world.look(controllers),
                world.control.cancel(operation.operation_id, "carol", ""),
                return_exceptions=True,
            )
            now = (await world.newest()).state
            outcomes.add(now)
            assert now in (OperationState.DONE, OperationState.CANCELLED)
            if isinstance(cancelled, RefusedError):
                assert cancelled.kind is ErrorKind.OPERATION_STATE_ILLEGAL
                assert now is OperationState.DONE
            else:
                assert now is OperationState.CANCELLED
            assert isinstance(ended, Operation)
    assert outcomes


@pytest.mark.row("VOL-093")
async def test_a_reverse_restores_the_target_before(world: OperationsWorld) -> None:
    """VOL-093: the stored target comes back under a new event, with an operation of its own that names the one
    reversed, which is REVERSED; and it can be reversed itself."""
    await world.found()
    before = await stable_of(world)
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        await world.end_moves()
        after = await stable_of(world)
        for wanted, state in ((before, 1), (after, 3)):
            found = await world.control.reversible(operation.operation_id)
            origin = Origin(
                "dave", False, "too slow", "", found.before.pointer.event_revision, operation.operation_id
            )
            reverse = await world.begin(controllers, state, origin)
            assert (reverse.kind, reverse.reverses) == (OperationKind.REVERSE, operation.operation_id)
            (earlier,) = [
                each for each in await world.operations() if each.operation_id == operation.operation_id
            ]
            assert (earlier.state, earlier.cause) == (
                OperationState.REVERSED,
                f"reversed by {reverse.operation_id}",
            )
            await world.end_moves()
            assert await stable_of(world) == wanted
            assert (await world.look(controllers)).state is OperationState.DONE
            operation = reverse


@pytest.mark.row("VOL-094")
async def test_what_cannot_be_reversed(world: OperationsWorld) -> None:
    """VOL-094: a creation, one that was overtaken, and one whose copies were given up: refused with the reason,
    and nothing is written."""
    await world.found()
    async with world.controllers() as controllers:
        created = await world.newest()
        first = await world.begin(controllers)
        await world.end_moves()
        second = await world.begin(controllers, 2)
        await world.end_moves()
        reset = next(iter(await world.observed()))
        record = ConfigurationRecord(1, "n1", Stage.NONE, {}, generation=second.event_revision + 1)
        await world.put(world.keyspace.partition(reset).configuration, record.encode())
        for operation, reason in (
            (created, "superseded by"),
            (first, "superseded by"),
            (second, "partitions 0 were reset since"),
        ):
            with pytest.raises(RefusedError) as refused:
                await world.control.reversible(operation.operation_id)
            assert refused.value.kind is ErrorKind.REVERSE_IMPOSSIBLE
            assert reason in refused.value.message
    for name, kind in (("1-999999", ErrorKind.OPERATION_NOT_FOUND), ("x", ErrorKind.INVALID_REQUEST)):
        with pytest.raises(RefusedError) as refused:
            await world.control.reversible(name)
        assert refused.value.kind is kind


@pytest.mark.row("VOL-010")
async def test_one_operation_at_a_time(world: OperationsWorld) -> None:
    """VOL-010: the second waits and names the first; it begins when that is over, whoever leads by then."""
    await world.found()
    await world.limit(Limits(one_operation=True))
    async with world.controllers() as controllers:
        for zone in (1, 2):
            assert (await world.look(controllers, zone)).is_over
        first = await world.begin(controllers)
        await world.until(lambda found: len(found) == 6)
        await world.publish(altered(ZONES[1]))
        assert await controllers.zones.reconcile([IDS[1]]) == {}
        await asyncio.sleep(0.3)
        assert {each.zone_id for each in await world.moving()} == {ZONE_ID}
    async with world.controllers() as later:
        assert await later.zones.reconcile(IDS) == {}
        for partition in await world.moving():
            await world.end_move(partition)
        await asyncio.sleep(0.3)
        assert await world.moving() == [], "the first one is not over yet"
        await world.found()
        over = await world.look(later)
        assert (over.operation_id, over.state) == (first.operation_id, OperationState.DONE)
        assert {each.zone_id for each in await world.until(lambda found: len(found) == 6)} == {IDS[1]}


@pytest.mark.row("VOL-099")
async def test_a_time_limit(world: OperationsWorld) -> None:
    """VOL-099: what takes longer has FAILED, and nothing more of it begins."""
    await world.found()
    await world.limit(Limits(cluster_moves=1, operation_s=1))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        item = await world.store.get(world.keyspace.operation(operation.operation_id))
        assert item is not None
        await world.put(item.key, replace(operation, started_ms=operation.started_ms - 5_000).encode())
        failed = await world.look(controllers)
        assert (failed.state, failed.cause.split(":")[0]) == (OperationState.FAILED, "TIME_LIMIT")
        await world.look(controllers)
        await world.end_moves()
        assert (await world.look(controllers)).is_over
    assert sorted(len(each.peers) for each in await stable_of(world)).count(3) <= 2


async def test_a_new_zone_has_no_time_limit(world: OperationsWorld) -> None:
    """A new zone moves no data under limits, and if given up, its partitions would never be founded."""
    await world.limit(Limits(operation_s=1))
    async with world.controllers() as controllers:
        await controllers.obey(Limits(operation_s=1))
        created = await world.newest()
        item = await world.store.get(world.keyspace.operation(created.operation_id))
        assert item is not None
        await world.put(item.key, replace(created, started_ms=created.started_ms - 5_000).encode())
        assert (await world.look(controllers)).state is OperationState.WAITING
        await world.found()
        assert (await world.look(controllers)).state is OperationState.DONE


@pytest.mark.row("VOL-003")
async def test_a_drain_is_told_as_one(world: OperationsWorld) -> None:
    """VOL-003: kind, who and why come from the node's mark."""
    await world.put(world.keyspace.drain("n3"), Drain("erin", "new disks", 5, verified=True).encode())
    before = await world.store.get(world.keyspace.data_nodes(ZONE_ID))
    assert before is not None
    async with world.controllers() as controllers:
        controllers.leave("n3")
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
    drained = await world.newest()
    assert (drained.kind, drained.by, drained.verified) == (OperationKind.DRAIN, "erin", True)
    assert drained.reason == "n3 is leaving: new disks"


async def test_a_rename_is_not_to_blame_for_what_nodes_do(world: OperationsWorld) -> None:
    """A version that moves nothing, then a node that goes: nobody asked for the moves."""
    async with world.controllers() as controllers:
        await world.publish(replace(ZONE, name="RENAMED"), origin=Origin("mallory", statement="ALTER ..."))
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
        assert len(await world.operations()) == 1
        controllers.leave("n3")
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
    changed = await world.newest()
    assert (changed.kind, changed.zone) == (OperationKind.NODES_CHANGED, "RENAMED")
    assert (changed.by, changed.reason, changed.statement) == ("", "data nodes: n3 went", "")


async def test_the_newest_are_kept_and_a_dropped_zone_keeps_none(world: OperationsWorld) -> None:
    old = replace(await world.newest(), state=OperationState.DONE, ended_ms=1)
    for number in range(1, KEPT_MAX + 2):
        each = replace(old, event_revision=number)
        await world.put(world.keyspace.operation(each.operation_id), each.encode())
    async with world.controllers() as controllers:
        await world.begin(controllers)
        kept = await world.operations()
        assert len(kept) <= KEPT_MAX + 1
        assert kept[0].event_revision > 1
        dropped = ZoneIntent(99, ZONE, dropped=True)
        await world.put(world.keyspace.intent(ZONE_ID), dropped.encode())
        assert await controllers.zones.reconcile([ZONE_ID]) == {}
        assert await world.operations() == []


@pytest.mark.row("IEP-059", "VOL-089")
async def test_a_reset_is_an_operation(world: OperationsWorld) -> None:
    """IEP-059, VOL-089: the partitions that were reset, who asked, and its end; written once, and superseded by
    nothing but a later target."""
    await world.found()
    async with world.controllers() as controllers:
        assert (await world.look(controllers)).is_over
        recovery = PartitionRecovery(world.store, world.keyspace, ProbeStub())
        reading = await recovery.read(ZONE_ID)
        partition = PartitionId(ZONE_ID, 2)
        forced = decide_on_forced_move(reading.observed(partition), Assignments(("n2",)), reading.event)
        assert forced.transaction is not None
        assert (await world.store.commit(forced.transaction)).succeeded
        for _ in range(2):
            await recovery.note(reading, [2], Origin("frank", reason="lost"))
        reset = await world.newest()
        assert (reset.kind, reset.partitions, reset.by) == (OperationKind.RESET, (2,), "frank")
        assert not (await world.look(controllers)).is_over
        with pytest.raises(RefusedError) as refused:
            await world.control.cancel(reset.operation_id, "frank", "")
        assert refused.value.kind is ErrorKind.OPERATION_STATE_ILLEGAL
        await world.end_moves()
        over = await world.look(controllers)
        assert (over.operation_id, over.state, over.tally.done) == (reset.operation_id, OperationState.DONE, 1)
