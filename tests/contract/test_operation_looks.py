"""Looks of the keeper at an operation's zone, and partitions that it gives up, over each metastore."""

from __future__ import annotations

import asyncio

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Node
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.withdrawal import CancelledPartitions
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.operations.operation import OperationState
from rebalance.ports.metastore import Metastore, Snapshot
from tests.fixtures.admission_world import DEADLINE_S, eventually
from tests.fixtures.operation_groups import ZONE_ID, OperationsWorld, operations_world


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    made = await operations_world(store, keyspace)
    await made.found()
    return made


class CountingMetastore:
    """Counts the ranges that are read."""

    def __init__(self, store: Metastore) -> None:
        self.store, self.ranges = store, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    async def range(self, prefix: str) -> Snapshot:
        self.ranges += 1
        return await self.store.range(prefix)


async def test_a_zone_in_which_nothing_happens_is_not_read(world: OperationsWorld) -> None:
    """An operation may wait for days; what then changes is seen: a member's record, a limit, a cancel."""
    limits = Limits()
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        counting = CountingMetastore(world.store)
        keeper = OperationKeeper(counting, world.keyspace, WallClock(), lambda: limits, look_s=0.02)
        tasks = [asyncio.create_task(keeper.mirror.run()), asyncio.create_task(keeper.run())]

        async def quiet() -> None:
            async with asyncio.timeout(DEADLINE_S):
                before = -1
                while counting.ranges != before:
                    before = counting.ranges
                    await asyncio.sleep(0.3)

        await eventually(lambda: counting.ranges > 0)
        await quiet()
        before = counting.ranges
        await world.put(world.keyspace.node("n9"), NodeRecord(Node("n9"), "i", 1).encode())
        await eventually(lambda: counting.ranges > before)
        await quiet()
        before = counting.ranges
        limits = Limits(operation_s=1_000_000)
        await eventually(lambda: counting.ranges >= before + 10)
        limits = Limits()
        await quiet()
        await world.end_moves()
        async with asyncio.timeout(DEADLINE_S):
            while (await world.newest()).state is not OperationState.DONE:
                await asyncio.sleep(0.01)
        assert (await world.newest()).operation_id == operation.operation_id
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.row("VOL-095", "M10")
async def test_some_partitions_are_cancelled(world: OperationsWorld) -> None:
    """VOL-095, M10: exactly those that are named stay where they are or go back, but for one whose voter of
    before is gone, whoever leads then; the others move, and the operation ends without them; the next change of
    the zone moves them, too."""
    await world.limit(Limits(cluster_moves=2))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        moving = await world.until(lambda found: len(found) == 2)
        begun, late = (each.partition for each in moving)
        await world.remove_voters_of_before(moving[1])
        waits = [number for number in range(6) if all(each.partition != number for each in moving)]
        name, asked = operation.operation_id, [waits[0], waits[1], begun, late]
        for _ in range(2):
            found = await world.control.cancel_partitions(name, asked, "dave", "a bad disk")
            assert found == CancelledPartitions(tuple(sorted(waits[:2])), (begun,), (late,))
        with pytest.raises(RefusedError) as refused:
            await world.control.cancel_partitions(name, [0, 6], "dave", "")
        assert refused.value.kind is ErrorKind.PARTITION_NOT_FOUND
    async with world.controllers() as later:
        assert await later.zones.reconcile([ZONE_ID]) == {}
        async with asyncio.timeout(DEADLINE_S):
            while not (await world.look(later)).is_over:
                await world.end_moves()
                await asyncio.sleep(0.05)
        over = await world.newest()
        assert (over.operation_id, over.state) == (name, OperationState.DONE)
        assert {(note.action, note.by, note.reason) for note in over.notes} == {
            ("CANCEL PARTITIONS", "dave", "a bad disk")
        }
        assert await voters(world) == [1 if number in (*waits[:2], begun) else 3 for number in range(6)]
        with pytest.raises(RefusedError) as refused:
            await world.control.cancel_partitions(name, [waits[0]], "dave", "")
        assert refused.value.kind is ErrorKind.OPERATION_STATE_ILLEGAL
        await world.limit(Limits())
        # Else the moves might be left to wait, and here nobody writes a zone anew when limits end.
        await later.obey(Limits())
        await world.begin(later, 2)
        await world.until(lambda found: len(found) == 6)
        await world.end_moves()
        assert await voters(world) == [2] * 6


async def voters(world: OperationsWorld) -> list[int]:
    """Numbers of voters by partition."""
    found = sorted((await world.observed()).items(), key=lambda each: each[0].partition)
    stable = [seen.stable for partition, seen in found if partition.zone_id == ZONE_ID]
    return [len(Assignments.decode(each.value).peers) for each in stable if each is not None]
