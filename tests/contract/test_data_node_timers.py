"""Timers of data nodes over a real etcd and over the metastore in memory: controllers die, two lead, events are
stale. The clock is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import TIMER_OFF, ZoneId
from rebalance.controllers.clock import Clocks
from rebalance.controllers.cluster_control import DrainKeeper
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.moves.drain import Drain
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.core.topology.node_presence import NO_HOLD
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.timer_world import ZONE, Controller, TimerWorld

TIMED = replace(ZONE, auto_scale_up=50, auto_scale_down=20)
WAIT_S = 60.0


async def world_of(store: Metastore, keyspace: Keyspace, *names: str) -> TimerWorld:
    world = TimerWorld(store, keyspace)
    for name in names:
        await world.join(name)
    await world.start()
    return world


async def assignments(world: TimerWorld, field: str) -> dict[int, Assignments]:
    found = {}
    for number in range(ZONE.partitions):
        keys = world.keyspace.partition(PartitionId(ZONE.zone_id, number))
        value = await world.store.get(getattr(keys, field))
        if value is not None:
            found[number] = Assignments.decode(value.value)
    return found


@pytest.mark.row("IEP-039", "IEP-040")
async def test_a_node_that_joined_gets_replicas_when_its_time_is_over(
    store: Metastore, keyspace: Keyspace
) -> None:
    """IEP-039, IEP-040: pending is written at join + t for the partitions that gain the node, and only then."""
    world = await world_of(store, keyspace, "A", "B")
    await world.publish(replace(TIMED, replicas=3))
    await world.join("C")
    await world.advance(49.999)
    assert await assignments(world, "pending") == {}
    await world.advance(50)
    pending = await assignments(world, "pending")
    assert len(pending) == ZONE.partitions
    assert all("C" in each.nodes for each in pending.values())


@pytest.mark.row("IEP-045", "IEP-046", "IEP-048")
async def test_who_stays_does_not_move_when_another_leaves(store: Metastore, keyspace: Keyspace) -> None:
    """IEP-045, IEP-046, IEP-048 (decision 6): partitions without the departed node have no pending; in the
    others the survivors keep their place, and nothing happens before the time or a second time."""
    world = await world_of(store, keyspace, "A", "B", "C", "D")
    await world.publish(TIMED)
    stable = await assignments(world, "stable")
    await world.leave("D")
    await world.advance(19.999)
    assert await assignments(world, "pending") == {}
    await world.advance(20)
    pending = await assignments(world, "pending")
    touched = {number for number, each in stable.items() if "D" in each.nodes}
    assert pending.keys() == touched
    assert 0 < len(touched) < ZONE.partitions
    for number, each in pending.items():
        survivors = tuple(name for name in stable[number].peers if name != "D")
        assert tuple(name for name in each.peers if name in survivors) == survivors
        assert len(each.peers) == len(stable[number].peers)
        assert "D" not in each.nodes
        assert each.learners == ()
    revision = (await store.range(keyspace.prefix)).items
    await world.advance(1_000)
    await world.start()
    assert (await store.range(keyspace.prefix)).items == revision


@pytest.mark.row("IEP-048")
async def test_without_another_data_node_the_departed_is_only_dropped(
    store: Metastore, keyspace: Keyspace
) -> None:
    """IEP-048 (decision 6): three voters on three nodes; one leaves: the other two, in the same order."""
    world = await world_of(store, keyspace, "A", "B", "C")
    await world.publish(replace(TIMED, replicas=3))
    stable = await assignments(world, "stable")
    await world.leave("C")
    await world.advance(20)
    assert await assignments(world, "pending") == {
        number: Assignments(tuple(name for name in each.peers if name != "C"))
        for number, each in stable.items()
    }
    assert await assignments(world, "planned") == {}
    assert await assignments(world, "stable") == stable


@pytest.mark.row("IEP-003")
async def test_a_zone_on_all_nodes_grows_without_an_alter(store: Metastore, keyspace: Keyspace) -> None:
    """IEP-003: each node that joins is wanted as a replica of every partition, in the version of the zone that
    was there before, and nobody who has one loses it."""
    world = await world_of(store, keyspace, "A", "B")
    await world.publish(replace(TIMED, replicas=ALL_REPLICAS, auto_scale_up=0))
    intent = await store.get(keyspace.intent(ZONE.zone_id))
    for nodes in ("ABC", "ABCD"):
        await world.join(nodes[-1])
        targets = await assignments(world, "pending") | await assignments(world, "planned")
        assert {number: each.nodes for number, each in targets.items()} == dict.fromkeys(
            range(ZONE.partitions), frozenset(nodes)
        )
    assert await store.get(keyspace.intent(ZONE.zone_id)) == intent


async def test_a_drained_node_loses_its_replicas_at_once(store: Metastore, keyspace: Keyspace) -> None:
    """No timer is waited for; a restart of the node and of the controller changes nothing; back, it is a data
    node again as one that joined when it did."""
    world = await world_of(store, keyspace, "A", "B", "C")
    await world.publish(replace(TIMED, auto_scale_down=TIMER_OFF))
    stable = await assignments(world, "stable")
    keeper = DrainKeeper(store, keyspace)
    assert await keeper.drain("C", Drain("alice", "", 0), lambda drained: None) > 0
    assert await keeper.drain("C", Drain("bob", "", 0), lambda drained: None) == 0
    await world.record()
    assert await world.nodes() == "A,B"
    pending = await assignments(world, "pending")
    assert pending.keys() == {number for number, each in stable.items() if "C" in each.nodes}
    assert all(each.nodes == {"A", "B"} for each in pending.values())
    await world.leave("C")
    await world.join("C")
    await world.start()
    await world.advance(1_000)
    assert await world.nodes() == "A,B"
    assert await keeper.undrain("C") > 0
    assert await keeper.undrain("C") == 0
    await world.record()
    assert await world.nodes() == "A,B,C"


async def test_two_drains_at_once_are_judged_one_after_the_other(store: Metastore, keyspace: Keyspace) -> None:
    """Each of two nodes may go, not both: whoever writes second is judged again, with the first drained."""
    judged: list[frozenset[str]] = []

    def not_both(drained: frozenset[str]) -> None:
        judged.append(drained)
        if len(drained) == 2:
            raise RuntimeError("no data node would be left")

    keeper = DrainKeeper(store, keyspace)
    results = await asyncio.gather(
        *(keeper.drain(name, Drain("alice", "", 0), not_both) for name in ("A", "B")), return_exceptions=True
    )
    assert sorted(isinstance(each, RuntimeError) for each in results) == [False, True]
    assert frozenset({"A", "B"}) in judged
    assert len((await store.range(keyspace.drains)).items) == 1


async def test_empty_data_nodes_leave_what_is_placed(store: Metastore, keyspace: Keyspace) -> None:
    """S137, S166, S171, S172: no pending is ever written, stable stays, whatever is altered; S170: a filter
    that selects again is followed at once."""
    world = await world_of(store, keyspace, "A", "B")
    await world.publish(TIMED)
    stable = await assignments(world, "stable")
    await world.alter(nodes_filter="$[?(@.none == 'x')]")
    assert await world.nodes() == "-"
    for changed in ({"replicas": 1}, {"auto_scale_up": 3}, {"auto_scale_down": 4}, {"quorum_size": 1}):
        await world.alter(**changed)
        assert await assignments(world, "pending") == {}
        assert await assignments(world, "stable") == stable
    await world.alter(nodes_filter=ZONE.nodes_filter)
    assert len(await assignments(world, "pending")) == ZONE.partitions


async def test_thirteen_orders_without_timers(store: Metastore, keyspace: Keyspace) -> None:
    """S153: with both timers 0 the result is set arithmetic in the order of events."""
    orders = (
        "-C +D -D",
        "+D -D",
        "+D -C",
        "-C +D",
        "-B -C",
        "+D +E",
        "-B +D +E",
        "+D -B +E",
        "-C +C",
        "+D -C +C",
    )
    orders += ("+D +E -D -E", "-B -C +D +E", "+E -B +B -C")
    for order in orders:
        world = TimerWorld(MemoryMetastore(), keyspace) if isinstance(store, MemoryMetastore) else None
        world = world or TimerWorld(store, Keyspace(f"{keyspace.prefix}{order.replace(' ', '')}/"))
        expected = {"A", "B", "C"}
        for name in sorted(expected):
            await world.join(name)
        await world.start()
        await world.publish(replace(ZONE, auto_scale_down=0))
        for event in order.split():
            await (world.join if event[0] == "+" else world.leave)(event[1])
            expected = expected | {event[1]} if event[0] == "+" else expected - {event[1]}
        assert await world.nodes() == ",".join(sorted(expected)), order


async def test_many_controllers_see_one_event_once(store: Metastore, keyspace: Keyspace) -> None:
    """S154, S149, S150: each event is recorded once, and a controller that is behind writes nothing."""
    world = await world_of(store, keyspace, "A", "B")
    await world.publish(replace(ZONE, auto_scale_down=0))
    many = [Controller(store, keyspace, world.clock, NO_HOLD) for _ in range(8)]
    for each in many:
        await each.topology.record()
    stale = Controller(store, keyspace, world.clock, NO_HOLD)
    await stale.topology.record()
    world.kill()
    await world.join("C")
    await world.leave("A")
    await asyncio.gather(*(each.topology.record() for each in many))
    topology = await world.topology()
    assert topology.version == 2
    assert [(each.kind.value, each.node) for each in topology.events[2:]] == [("JOINED", "C"), ("LEFT", "A")]
    await asyncio.gather(*(each.zones.reconcile([ZONE.zone_id]) for each in many))
    await many[0].zones.reconcile([ZONE.zone_id])
    assert await world.nodes() == "B,C"
    history, key = await world.history_key()
    assert (len(history.entries), key.version) == (2, 2)
    before = (await store.range(keyspace.prefix)).items
    assert "topology changed" in str(await stale.zones.reconcile([ZONE.zone_id]))
    assert (await store.range(keyspace.prefix)).items == before
    assert await stale.topology.record()
    assert await stale.zones.reconcile([ZONE.zone_id]) == {}


async def test_a_zone_dropped_while_it_is_made_is_not_made(store: Metastore, keyspace: Keyspace) -> None:
    """S148: the data nodes of a dropped zone are not written again. S161: a creation that nobody saw is made
    by the next leader. S152: with the topology as it is by then."""
    world = await world_of(store, keyspace, "A")
    world.kill()
    await world.publish(TIMED)
    await world.join("B")
    await world.start()
    assert await world.nodes() == "A,B"
    intent = await store.get(keyspace.intent(ZONE.zone_id))
    assert intent is not None
    late = Controller(store, keyspace, world.clock, NO_HOLD)
    await late.topology.record()
    await world.publish(TIMED, dropped=True)
    with pytest.raises(Exception, match="changed while they were read"):
        await late.data_nodes.bring_up_to_date(ZONE.zone_id, intent, None)
    assert await store.get(keyspace.data_nodes(ZONE.zone_id)) is None
    assert await store.get(keyspace.data_nodes_history(ZONE.zone_id)) is None


async def test_the_past_by_revision(store: Metastore, keyspace: Keyspace) -> None:
    """S139: data nodes at a revision of the metastore."""
    world = await world_of(store, keyspace, "A")
    await world.publish(ZONE)
    revisions = []
    for name in "BCD":
        _, key = await world.history_key()
        revisions.append(key.mod_revision)
        await world.advance(world.clock.ms / 1_000 + 1)
        await world.join(name)
    history, key = await world.history_key()
    past = [history.at_revision(each, key.mod_revision) for each in (*revisions, key.mod_revision)]
    assert past == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "B", "C", "D")]
    assert history.at_revision(revisions[0] - 1, key.mod_revision) is None


@asynccontextmanager
async def running(world: TimerWorld, name: str) -> AsyncIterator[None]:
    """A whole controller process, which is killed at the end."""
    runtime = ControllerRuntime(
        *(world.store, world.keyspace, LocalPlacementEngine()),
        ControllerRules(name, 2, NO_HOLD),
        clocks=Clocks(world.clock),
    )
    task = asyncio.create_task(runtime.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("IEP-039")
async def test_controllers_killed_between_event_and_due_time(store: Metastore, keyspace: Keyspace) -> None:
    """S144, S147, IEP-039: a controller dies after the join is recorded; another one, which has only the
    metastore, waits for the rest of the time: not a millisecond less."""
    world = TimerWorld(store, keyspace)
    await world.join("A")
    await world.publish(TIMED)
    mirror = KeyspaceMirror(store, keyspace.prefix)
    watching = asyncio.create_task(mirror.run())

    def data_nodes(zone_id: int = ZONE.zone_id) -> tuple[str, ...]:
        value = mirror.value(keyspace.data_nodes(ZoneId(zone_id)))
        return DataNodes.decode(value).nodes if value is not None else ()

    async def ticking(until: asyncio.Event) -> None:
        """Merge windows need a clock that moves; it never passes the second that the test is at."""
        while not until.is_set():
            world.clock.set(min(world.clock.ms + 50, limit_ms))
            await asyncio.sleep(0.005)

    limit_ms, over = 10_000, asyncio.Event()
    ticker = asyncio.create_task(ticking(over))
    try:
        async with running(world, "first"):
            assert await mirror.wait_until(lambda: data_nodes() == ("A",), WAIT_S)
            await world.join("B")
            assert await mirror.wait_until(
                lambda: b'"name":"B"' in (mirror.value(keyspace.topology) or b""), WAIT_S
            )
        (joined_ms,) = (each.joined_ms for each in (await world.topology()).nodes if each.node.name == "B")
        limit_ms = joined_ms + 50_000 - 1
        world.clock.set(limit_ms)
        async with running(world, "second"):
            # A zone that is made now is placed after the others were looked at.
            await world.publish(replace(ZONE, zone_id=ZoneId(2)))
            assert await mirror.wait_until(lambda: data_nodes(2) == ("A", "B"), WAIT_S)
            assert data_nodes() == ("A",)
            limit_ms += 1
            assert await mirror.wait_until(lambda: data_nodes() == ("A", "B"), WAIT_S)
    finally:
        over.set()
        watching.cancel()
        await asyncio.gather(watching, ticker, return_exceptions=True)
