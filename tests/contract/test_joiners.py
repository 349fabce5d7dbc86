"""Moves that went on without a joiner, over each metastore: what their operation says, who is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.controllers.joiners import JoinersAgain
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, Outcome
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.moves.joiners import decide_on_joiners_gone, joiners_of
from rebalance.core.operations.operation import OperationKind, OperationState, Step
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore
from tests.fixtures.admission_world import NODES, eventually
from tests.fixtures.operation_groups import ZONE_ID, OperationsWorld, operations_world

GONE = "n3"


class SetClock:
    """Goes on when a test says so."""

    def __init__(self) -> None:
        self.s = 1_000

    def now_ms(self) -> int:
        return self.s * 1_000

    async def sleep_until(self, at_ms: int) -> None:
        await asyncio.sleep(0.01)


def waits_for_it(seen: Observed) -> bool:
    stable, pending = (Assignments.decode(each.value) for each in (seen.stable, seen.pending) if each)
    return GONE in joiners_of(stable, pending)


async def give_up(world: OperationsWorld, partition: PartitionId) -> None:
    """Give a joiner up as its leader does when it was gone for too long, and end the move."""
    seen = (await world.observed())[partition]
    key = world.keyspace.given_up(partition)
    known = await world.store.get(key)
    decision = decide_on_joiners_gone(seen, {GONE: ""}, given_up=known, given_up_key=key)
    assert decision.outcome is Outcome.JOINERS_GIVEN_UP
    assert decision.transaction is not None
    assert (await world.store.commit(decision.transaction)).succeeded
    await world.end_move(partition)


async def give_up_all(world: OperationsWorld) -> list[PartitionId]:
    """All that wait for it; the other moves end as they should."""
    given_up = []
    for partition in await world.moving():
        if waits_for_it((await world.observed())[partition]):
            await give_up(world, partition)
            given_up.append(partition)
        else:
            await world.end_move(partition)
    await world.found()
    return given_up


async def live(world: OperationsWorld, incarnation: str) -> None:
    """Let the node live under a new incarnation; empty: not at all."""
    key = world.keyspace.node(GONE)
    node = next(each for each in NODES if each.name == GONE)
    operation = Put(key, NodeRecord(node, incarnation, 1).encode()) if incarnation else Delete(key)
    await world.store.commit(Txn((), (operation,)))


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    made = await operations_world(store, keyspace)
    await made.found()
    return made


@pytest.mark.row("M1")
async def test_its_operation_says_so(world: OperationsWorld) -> None:
    """M1: it goes on while something moves; then it has failed with who was gone and in how many partitions,
    and what is there counts as done."""
    async with world.controllers() as controllers:
        begun = await world.begin(controllers)
        observed = await world.observed()
        waiting = [each for each in await world.moving() if waits_for_it(observed[each])]
        first, others = waiting[0], [each for each in await world.moving() if each != waiting[0]]
        await give_up(world, first)
        assert (await world.look(controllers)).state is OperationState.RUNNING
        for each in others:
            await world.end_move(each)
        await world.found()
        over = await world.look(controllers)
    assert (over.operation_id, over.state, over.is_over) == (begun.operation_id, OperationState.FAILED, True)
    assert over.cause == Cause.JOINER_GONE.text(f"{GONE} (1 of 6 partitions)")
    assert over.tally.done == 5


@asynccontextmanager
async def asking(world: OperationsWorld, clock: SetClock) -> AsyncIterator[tuple[JoinersAgain, list[ZoneId]]]:
    asked: list[ZoneId] = []
    nodes = KeyspaceMirror(world.store, world.keyspace.nodes)
    joiners = JoinersAgain(world.store, world.keyspace, nodes, clock, asked.append)
    nodes.listen(joiners.notice)
    tasks = [asyncio.create_task(each) for each in (nodes.run(), joiners.mirror.run())]
    try:
        await nodes.loaded()
        yield joiners, asked
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.row("M2")
async def test_it_is_asked_again_when_it_lives_again(world: OperationsWorld) -> None:
    """M2: not while the node is away; a minute after it is back by an event of its own, once; after the second
    time two minutes."""
    clock = SetClock()
    async with world.controllers() as controllers, asking(world, clock) as (joiners, asked):
        await world.begin(controllers)
        await live(world, "")
        given_up = await give_up_all(world)
        assert given_up
        assert (await world.look(controllers)).state is OperationState.FAILED
        for times, delay_s in ((1, 60), (2, 120)):
            assert joiners.due.due(clock.now_ms() + 10**9) == ()
            await live(world, f"back {times}")
            await eventually(lambda: joiners.due.due(clock.now_ms() + 10**9) == (ZONE_ID,))
            assert joiners.due.due(clock.now_ms() + 1_000 * delay_s - 1) == ()
            clock.s += delay_s
            assert joiners.due.due(clock.now_ms()) == (ZONE_ID,)
            for _ in range(2):
                await joiners.look(ZONE_ID)
            assert asked == [ZONE_ID] * times
            assert await controllers.zones.reconcile([ZONE_ID]) == {}
            newest = await world.newest()
            assert (newest.kind, newest.state) == (OperationKind.NODES_CHANGED, OperationState.WAITING)
            assert newest.reason == "nodes are back that moves went on without"
            assert set(await world.moving()) == set(given_up)
            await live(world, "")
            await eventually(lambda: joiners.due.due(clock.now_ms() + 10**9) == ())
            await give_up_all(world)


@pytest.mark.row("M2")
async def test_what_was_cancelled_is_not_asked_again(world: OperationsWorld) -> None:
    """M2: whoever cancelled the operation does not want it, whoever lives."""
    clock = SetClock()
    async with world.controllers() as controllers, asking(world, clock) as (joiners, asked):
        begun = await world.begin(controllers)
        await live(world, "")
        await give_up_all(world)
        cancelled = replace(begun, state=OperationState.WAITING).after(Step.CANCELLED, 1)
        assert cancelled is not None
        await world.put(world.keyspace.operation(begun.operation_id), cancelled.encode())
        await live(world, "back")
        await eventually(lambda: joiners.due.due(clock.now_ms() + 10**9) == (ZONE_ID,))
        await joiners.look(ZONE_ID)
        assert asked == []
