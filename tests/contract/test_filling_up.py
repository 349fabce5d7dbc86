"""Partitions that have fewer replicas than their zone asks for, over each metastore: who is asked, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from catalog.core.zone import ZoneId
from rebalance.controllers.cluster_control import DrainKeeper
from rebalance.controllers.joiners import JoinersAgain
from rebalance.controllers.zone import ZoneController
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.withdrawal import decide_on_call_back
from rebalance.core.causes.cause_table import row_of
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import GivenUpRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import shortfall_of
from rebalance.core.operations.operation import Operation
from rebalance.core.recovery.recovery_plan import ResetTerms
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore
from tests.fixtures.admission_world import eventually
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.recovery_world import P0, STRONG, ZONE, RecoveryWorld, strong_world


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> RecoveryWorld:
    return await strong_world(store, keyspace)


async def lose(world: RecoveryWorld, names: Iterable[str]) -> None:
    """Lose nodes for good, as far as is known: the partition is reset onto what is left."""
    await world.leave(*names)
    await world.recovery.reset(world.intent().zone, terms=ResetTerms(confirmed_dead=frozenset(names)))
    await world.carry_out()


@asynccontextmanager
async def joiners_again(world: RecoveryWorld) -> AsyncIterator[tuple[JoinersAgain, list[ZoneId]]]:
    """Joiners of a controller that has just taken the lead."""
    asked: list[ZoneId] = []
    nodes = KeyspaceMirror(world.store, world.keyspace.nodes)
    joiners = JoinersAgain(world.store, world.keyspace, nodes, world.clock, asked.append)
    tasks = [asyncio.create_task(task) for task in (nodes.run(), joiners.mirror.run())]
    try:
        await nodes.loaded()
        joiners.begin()
        yield joiners, asked
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("back", ["a", "ac"])
async def test_what_a_reset_left_out_is_asked_for_when_it_lives_again(world: RecoveryWorld, back: str) -> None:
    """The request comes then and not before, also from a controller that has not seen the reset. It is a new
    event, carried out under limits, and noted. A second one for the same is not made."""
    await lose(world, "ac")
    assert await world.stable() == "b"
    async with joiners_again(world) as (joiners, asked):
        assert joiners.due.due(10**12) == ()
    for name in back:
        await world.join(name)
    assert await world.stable() == "b", "their return alone asks for nothing"
    async with joiners_again(world) as (joiners, asked):
        await eventually(lambda: joiners.due.due(world.clock.ms) == (ZONE.zone_id,))
        for _ in range(2):
            await joiners.look(ZONE.zone_id)
        assert asked == [ZONE.zone_id]
    world.moves = False
    await world.reconcile()
    assert await world.assigned("pending") == Assignments(tuple("abc" if "c" in back else "ab"))


async def lead(world: RecoveryWorld, joiners: JoinersAgain) -> None:
    """A controller that has seen nothing of the zone looks at it."""
    assert world.controller is not None
    controller, engine = world.controller, LocalPlacementEngine()
    zones = ZoneController(
        *(world.store, world.keyspace, engine, controller.data_nodes), overtaken=joiners.note_left_out
    )
    assert await zones.reconcile([ZONE.zone_id]) == {}


async def test_what_an_earlier_build_left_short_is_filled_up(world: RecoveryWorld) -> None:
    """The build's resets left no record of the nodes that were left out; the next leader writes one, once."""
    await lose(world, "ac")
    key = world.keyspace.given_up(P0)
    await world.store.commit(Txn((), (Delete(key),)))
    async with joiners_again(world) as (joiners, asked):
        await lead(world, joiners)
        noted = await world.store.get(key)
        assert noted is not None
        assert GivenUpRecord.decode(noted.value).names() == ("a", "c")
        await lead(world, joiners)
        assert await world.store.get(key) == noted
        assert joiners.due.due(10**12) == ()
    await world.join("a")
    async with joiners_again(world) as (joiners, asked):
        await eventually(lambda: joiners.due.due(world.clock.ms) == (ZONE.zone_id,))
        await joiners.look(ZONE.zone_id)
        assert asked == [ZONE.zone_id]
    await world.reconcile()
    assert await world.stable() == "a,b"
    await world.join("c")
    assert await world.stable() == "a,b,c"


async def test_a_partition_that_cannot_be_read_holds_nobody_up(world: RecoveryWorld) -> None:
    """The partition's zone is reconciled all the same."""
    await lose(world, "ac")
    await world.store.commit(
        Txn((), (Delete(world.keyspace.given_up(P0)), Put(world.keyspace.member(P0, "b"), b"{")))
    )
    async with joiners_again(world) as (joiners, _):
        await lead(world, joiners)
    assert await world.store.get(world.keyspace.given_up(P0)) is None


async def test_what_was_cancelled_is_not_asked_for_again(store: Metastore, keyspace: Keyspace) -> None:
    """The next leader leaves it short, since a user wants it so, also where a reset came before. The cause
    says how short, and the way out."""
    world = RecoveryWorld(store, keyspace)
    await world.with_nodes(STRONG, "a", "b", "c")
    await lose(world, "ac")
    await world.store.commit(Txn((), (Delete(keyspace.given_up(P0)),)))
    for name in "ac":
        await world.join(name)
    world.moves = False
    await world.alter(replicas=2)
    reading = await world.recovery.read(ZONE.zone_id)
    assert reading.pointer is not None
    observed, configuration = reading.observed(P0), reading.keys.get(keyspace.partition(P0).configuration)
    event = reading.pointer.event_revision
    decision = decide_on_call_back(observed, configuration, event, reading.event)
    assert decision.transaction is not None
    assert (await store.commit(decision.transaction)).succeeded
    await world.carry_out()
    assert await world.stable() == "b"
    async with joiners_again(world) as (joiners, asked):
        await lead(world, joiners)
        await joiners.look(ZONE.zone_id)
        assert asked == []
    assert await store.get(keyspace.given_up(P0)) is None
    reading = await world.recovery.read(ZONE.zone_id)
    cause = shortfall_of(reading.view(P0), reading.alive).cause
    assert cause.startswith("REPLICAS_MISSING: 1 of 2 replicas, awaits ")
    row = row_of(cause)
    assert row is not None
    assert "`zonectl operations reverse`" in row.action


async def test_what_is_back_does_not_wait_for_what_is_not(world: RecoveryWorld) -> None:
    """A node that is still away keeps nobody from its copy, also under another controller; it is asked for when
    it is back, and until then the placement names it."""
    await lose(world, "ac")
    await world.join("a")
    async with joiners_again(world) as (joiners, _):
        await eventually(lambda: joiners.due.due(world.clock.ms) == (ZONE.zone_id,))
        await joiners.look(ZONE.zone_id)
    await world.reconcile()
    assert await world.stable() == "a,b"
    await world.start()
    assert await world.stable() == "a,b"
    reading = await world.recovery.read(ZONE.zone_id)
    assert reading.targets == (Assignments(tuple("abc")),)
    async with joiners_again(world) as (joiners, asked):
        await joiners.look(ZONE.zone_id)
        assert asked == []
    await world.join("c")
    assert await world.stable() == "a,b,c"
    operations = (await world.store.range(world.keyspace.zone_operations(ZONE.zone_id))).items
    newest = max((Operation.decode(item.value) for item in operations), key=lambda each: each.event_revision)
    assert newest.reason == "data nodes: c returned"


async def test_a_reset_that_leaves_nobody_out_asks_for_nobody(world: RecoveryWorld) -> None:
    """Other data nodes have taken the places; who returns is not missed."""
    lost = (await world.placed_with("d", "e"))[:2]
    await lose(world, lost)
    for name in lost:
        await world.join(name)
    async with joiners_again(world) as (joiners, _):
        assert joiners.due.due(10**12) == ()


async def whole_of_five(world: RecoveryWorld) -> tuple[str, list[str], list[str]]:
    """One survivor of five nodes, the others of the placement, which are lost, and the rest, away as well."""
    survivor, *lost = await world.placed_with("d", "e")
    others = sorted({*"abcde"} - {survivor, *lost})
    await world.leave(*others)
    await lose(world, lost)
    assert await world.stable() == survivor
    for name in others:
        await world.join(name)
    return survivor, lost, others


async def test_others_take_the_places_of_nodes_that_never_return(world: RecoveryWorld) -> None:
    """The others match the filter and live; the zone's timer says how long a node is awaited."""
    await world.alter(auto_scale_down=30)
    survivor, _, others = await whole_of_five(world)
    assert await world.stable() == survivor
    await world.advance(30)
    assert await world.stable() == ",".join(sorted((survivor, *others)))


async def test_without_that_time_they_do_once_the_nodes_are_drained(world: RecoveryWorld) -> None:
    """AUTO SCALE DOWN is OFF: nobody gives nodes up but people. Until then the partition names them."""
    survivor, lost, others = await whole_of_five(world)
    await world.advance(100_000)
    assert await world.stable() == survivor
    reading = await world.recovery.read(ZONE.zone_id)
    short = shortfall_of(reading.view(P0), reading.alive)
    assert short.detail.startswith("1 of 3 replicas, awaits ")
    assert sorted(short.awaited) == lost
    drains = DrainKeeper(world.store, world.keyspace)
    for name in lost:
        await drains.drain(name, Drain("alice", "", 0), lambda drained: None)
    await world.record()
    assert await world.stable() == ",".join(sorted((survivor, *others)))
