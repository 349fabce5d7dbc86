"""Controllers under limits, over each metastore: what begins, what waits, and what nobody holds back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.controllers.clock import WallClock
from rebalance.core.admission.limit_options import Window
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import (
    decide_on_forced_move,
    decode_trigger,
)
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, Stage
from rebalance.core.keyspace.txn import Put, Txn, TxnResult
from rebalance.ports.metastore import Metastore
from tests.fixtures.admission_world import DEADLINE_S, IDS, NODES, ZONES, World, altered, eventually


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> World:
    made = World(store, keyspace)
    await made.publish(*ZONES)
    async with made.controllers() as controllers:
        assert await controllers.zones.reconcile([zone.zone_id for zone in ZONES]) == {}
    return made


async def test_caps_hold_at_every_revision_and_everything_moves(world: World) -> None:
    """Cap 2 of the cluster: twelve partitions of two zones move two at a time, both zones taking part, and the
    sum is never above at any revision; what waits keeps its trigger."""
    # Paused until both zones wait: else the first one to do so would have all the room for a moment.
    await world.limit(Limits(cluster_moves=2, pause=Pause("alice", "", 0)))
    before = {partition: seen.trigger for partition, seen in (await world.observed()).items()}
    async with world.watching() as seen, world.controllers() as controllers:
        await world.publish(*map(altered, ZONES))
        assert await controllers.zones.reconcile(IDS) == {}
        await world.limit(Limits(cluster_moves=2))
        ended: list[PartitionId] = []
        while len(ended) < 12:
            moving = await world.until(lambda found: len(found) == min(2, 12 - len(ended)))
            if len(ended) < 10:
                assert {partition.zone_id for partition in moving} == set(IDS), "fair"
            for partition, now in (await world.observed()).items():
                if partition not in ended and partition not in moving:
                    assert now.trigger == before[partition]
            ended.append(moving[len(ended) % len(moving)])
            await world.end_move(ended[-1])
        assert len(set(ended)) == 12
        await world.until(lambda found: not found)
    assert max(seen) == 2
    assert all(len(Assignments.decode(each.stable.value).peers) == 3
               for each in (await world.observed()).values() if each.stable)  # fmt: skip


async def test_two_controllers_and_a_restart_pass_no_cap(world: World) -> None:
    """Two controllers admit at once, and neither knows of the other; then both are gone, and a third goes
    on."""
    await world.limit(Limits(zone_moves=1, receiver_moves=2))
    await world.publish(*map(altered, ZONES))
    ended = 0
    async with world.watching() as seen:
        async with world.controllers() as one, world.controllers() as other:
            for each in (one, other):
                assert await each.zones.reconcile(IDS) == {}
            while ended < 6:
                moving = await world.until(lambda found: len(found) == 2)
                assert {partition.zone_id for partition in moving} == set(IDS)
                await world.end_move(moving[ended % 2])
                ended += 1
        async with world.controllers() as third:
            assert await third.zones.reconcile(IDS) == {}
            while ended < 12:
                moving = await world.until(bool)
                await world.end_move(moving[0])
                ended += 1
            await world.until(lambda found: not found)
    assert max(seen) == 2


async def test_batches(world: World) -> None:
    """The next batch begins when nothing of the last one moves any more; each zone has its own."""
    await world.limit(Limits(batch_size=4))
    async with world.controllers() as controllers:
        await world.publish(altered(ZONES[0]))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        first = await world.until(lambda found: len(found) == 4)
        for partition in first[:3]:
            await world.end_move(partition)
            await asyncio.sleep(0.1)
            assert await world.moving() == [each for each in first[:4] if each in await world.moving()]
        await world.publish(altered(ZONES[1]))
        assert await controllers.zones.reconcile([IDS[1]]) == {}
        await world.until(lambda found: len(found) == 5)
        await world.end_move(first[3])
        await world.until(lambda found: len([each for each in found if each.zone_id == IDS[0]]) == 2)


@pytest.mark.row("VOL-090")
async def test_a_run_goes_in_cycles(world: World) -> None:
    """VOL-090: a batch is picked; each of its partitions gets its transition, from the node that has the copy
    to the one that takes it over; once that is carried out the next batch is picked."""
    before = {
        partition: Assignments.decode(seen.stable.value).peers
        for partition, seen in (await world.observed()).items()
        if seen.stable is not None
    }
    donated = [
        partition for partition in before if partition.zone_id == IDS[0] and before[partition] == ("n1",)
    ]
    assert len(donated) > 1
    await world.limit(Limits(batch_size=1))
    trace = []
    async with world.controllers() as controllers:
        controllers.leave("n1")
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        for _ in donated:
            (picked,) = await world.until(lambda found: len(found) == 1 and found[0] not in trace)
            trace.append(picked)
            seen = (await world.observed())[picked]
            assert seen.stable is not None
            assert seen.pending is not None
            donor, stealer = (Assignments.decode(key.value).peers for key in (seen.stable, seen.pending))
            assert (donor, stealer) in [(("n1",), ("n2",)), (("n1",), ("n3",))]
            await world.end_move(picked)
            after = (await world.observed())[picked].stable
            assert after is not None
            assert Assignments.decode(after.value).peers == stealer
        await world.until(lambda found: not found)
    assert trace == donated


async def test_limits_change_while_it_runs(world: World) -> None:
    """A cap is raised, then taken away: each is obeyed without anything else happening."""
    await world.limit(Limits(cluster_moves=1))
    async with world.controllers() as controllers:
        await world.publish(*map(altered, ZONES))
        assert await controllers.zones.reconcile(IDS) == {}
        await world.until(lambda found: len(found) == 1)
        await world.limit(Limits(cluster_moves=3))
        await world.until(lambda found: len(found) == 3)
        await world.limit(Limits())
        await eventually(lambda: controllers.again == set(IDS))
        assert await controllers.zones.reconcile(IDS) == {}
        assert len(await world.moving()) == 12


async def test_a_newer_target_replaces_what_waits_and_is_planned_for_what_moves(world: World) -> None:
    """An event on a partition that moves is never held back, also while everything is paused; one that waits
    gets nothing at all, and later the newest target at once."""
    await world.limit(Limits(cluster_moves=1))
    async with world.controllers() as controllers:
        await world.publish(altered(ZONES[0]))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        (moving,) = await world.until(lambda found: len(found) == 1)
        before = await world.observed()
        await world.limit(Limits(cluster_moves=1, pause=Pause("alice", "new disks", 0)))
        await eventually(lambda: controllers.admission.limits.pause is not None)
        await world.publish(altered(ZONES[0], 2))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        after = await world.observed()
        assert {partition for partition in after if after[partition] != before[partition]} == {moving}
        planned = after[moving].planned
        assert planned is not None
        assert len(Assignments.decode(planned.value).peers) == 2
        await world.limit(Limits())
        await eventually(lambda: bool(controllers.again))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        pending = [each.pending for partition, each in (await world.observed()).items() if partition != moving]
        sizes = {len(Assignments.decode(item.value).peers) for item in pending if item}
        assert sizes == {2}, "nobody ever saw the target that was replaced"


async def test_a_waiting_partition_that_recovery_moves_takes_the_target_as_planned(world: World) -> None:
    """Recovery asks nobody; as the partition moves then, its event is not held back any longer."""
    await world.limit(Limits(pause=Pause("alice", "", 0)))
    async with world.controllers() as controllers:
        await world.publish(altered(ZONES[0]))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        await asyncio.sleep(0.2)
        assert await world.moving() == []
        partition = PartitionId(IDS[0], 3)
        seen = (await world.observed())[partition]
        assert seen.trigger is not None
        elsewhere = Assignments(("n1", "n2"))
        forced = decide_on_forced_move(seen, elsewhere, decode_trigger(seen.trigger.value) + 1)
        assert forced.transaction is not None
        assert (await world.store.commit(forced.transaction)).succeeded
        async with asyncio.timeout(DEADLINE_S):
            while (await world.observed())[partition].planned is None:
                await asyncio.sleep(0.01)
        assert await world.moving() == [partition]


class SetClock(WallClock):
    """Stands until it is set; sleepers look at it often."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms

    async def sleep_until(self, at_ms: int) -> None:
        await asyncio.sleep(0.01)


async def test_a_pause_ends_by_itself_and_restarts_do_not_matter(world: World) -> None:
    """The deadline is stored: a controller that starts while it is paused waits for the same moment."""
    clock = SetClock(50_000)
    pauses = {IDS[1]: Pause("bob", "the zone only", 40_000, 90_000)}
    await world.limit(Limits(pause=Pause("alice", "new disks", 40_000, 60_000), zone_pauses=pauses))
    await world.publish(*map(altered, ZONES))
    for at_ms in (50_000, 59_999):
        clock.at_ms = at_ms
        async with world.controllers(clock) as controllers:
            assert await controllers.zones.reconcile(IDS) == {}
            await asyncio.sleep(0.3)
            assert await world.moving() == []
    async with world.controllers(clock) as controllers:
        assert await controllers.zones.reconcile(IDS) == {}
        clock.at_ms = 60_000
        first = await world.until(lambda found: len(found) == 6)
        assert {partition.zone_id for partition in first} == {IDS[0]}
        clock.at_ms = 90_000
        await eventually(lambda: bool(controllers.again))
        assert await controllers.zones.reconcile(IDS) == {}
        assert len(await world.moving()) == 12


async def test_moves_begin_while_a_window_is_open(world: World) -> None:
    """The controller wakes by itself when the window opens; when it closes, what moves goes on and nothing
    more begins."""
    clock = SetClock(0)
    await world.limit(Limits(cluster_moves=4, windows=(Window.parse("01:00-02:00"),)))
    async with world.controllers(clock) as controllers:
        await world.publish(altered(ZONES[0]))
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        await asyncio.sleep(0.3)
        assert await world.moving() == []
        clock.at_ms = 3_600_000
        begun = await world.until(lambda found: len(found) == 4)
        clock.at_ms = 7_200_000
        await world.end_move(begun[0])
        await asyncio.sleep(0.3)
        assert await world.moving() == begun[1:]
        clock.at_ms = 86_400_000 + 3_600_000
        await world.until(lambda found: len(found) == 4)


async def test_bandwidth_by_the_sizes_that_nodes_report(world: World) -> None:
    """Copies of 5,000 bytes at 1,000 a second for the cluster, two to a move: the first begins though it is
    larger than a second's worth, the second nine seconds later, each next one ten, whoever leads by then."""
    clock = SetClock(1_000_000)
    for number in range(6):
        configuration = ConfigurationRecord(1, "n1", Stage.NONE, size_bytes=5_000)
        key = world.keyspace.partition(PartitionId(IDS[0], number)).configuration
        await world.store.commit(Txn((), (Put(key, configuration.encode()),)))
    await world.limit(Limits(cluster_bytes_s=1_000))
    await world.publish(altered(ZONES[0]))
    for begun, waits_ms in ((1, 8_999), (2, 9_998), (3, 9_998)):
        async with world.controllers(clock) as controllers:
            assert await controllers.zones.reconcile([IDS[0]]) == {}
            await world.until(lambda found, begun=begun: len(found) == begun)
            clock.at_ms += waits_ms
            controllers.admission.look_again()
            await asyncio.sleep(0.2)
            assert len(await world.moving()) == begun
        clock.at_ms += 2
    async with world.controllers(clock) as controllers:
        assert await controllers.zones.reconcile([IDS[0]]) == {}
        await world.until(lambda found: len(found) == 4)
        clock.at_ms += 10_000
        await world.until(lambda found: len(found) == 5)
        await world.limit(Limits(cluster_bytes_s=1_000_000))
        await world.until(lambda found: len(found) == 6)


async def test_copies_of_a_store_zone_need_no_room_for_members(world: World) -> None:
    """Each node has room for the members of one zone. Who learns later that a zone is stored writes it anew."""
    limits = Limits(cluster_moves=100)
    await world.limit(limits)
    async with world.controllers() as controllers:
        controllers.member_limits = {node.name: ZONES[0].partitions for node in NODES}
        await controllers.obey(limits)
        await world.publish(*map(altered, ZONES))
        assert await controllers.zones.reconcile(IDS) == {}
        # Of the first zone alone, where its moves are admitted before the other zone's target is written.
        await world.until(lambda moving: len(moving) > 0)
        await asyncio.sleep(0.2)
        assert len(await world.moving()) < 2 * ZONES[0].partitions, "each node has room for one of them"
        controllers.stored = {IDS[0]}
        controllers.admission.on_stored(IDS[:1])
        await eventually(lambda: IDS[0] in controllers.again)
        assert await controllers.zones.reconcile(IDS) == {}
        await world.until(lambda moving: len(moving) == 2 * ZONES[0].partitions)


async def test_what_is_no_move_is_not_held_back(world: World) -> None:
    """A new zone's groups are created while everything is paused."""
    await world.limit(Limits(pause=Pause("alice", "", 0)))
    created = replace(ZONES[0], zone_id=ZoneId(9), name="NEW", replicas=3)
    async with world.controllers() as controllers:
        await world.publish(created)
        assert await controllers.zones.reconcile([created.zone_id]) == {}
        stable = [
            p for p, seen in (await world.observed()).items() if seen.stable and p.zone_id == created.zone_id
        ]
        assert len(stable) == 6


class LateLimits:
    """Another metastore; limits are set just before its first large transaction is done."""

    def __init__(self, world: World, limits: Limits) -> None:
        self._world = world
        self._limits = limits

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.store, name)

    async def commit(self, txn: Txn) -> TxnResult:
        if any(isinstance(each, Txn) for each in txn.success):
            await self._world.limit(self._limits)
        return await self._world.store.commit(txn)


async def test_a_write_that_was_on_its_way_when_limits_were_set_is_refused(world: World) -> None:
    """The limits that were read are a guard: from the revision of a pause on nothing begins."""
    late = World(LateLimits(world, Limits(pause=Pause("alice", "", 0))), world.keyspace)
    async with late.controllers() as controllers:
        await world.publish(altered(ZONES[0]))
        failures = await controllers.zones.reconcile([IDS[0]])
        assert "limits" in str(failures[IDS[0]])
        assert await world.moving() == []


class HeldAdmissions:
    """Another metastore; admissions wait at a gate before they are done."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.answers: list[bool] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.store, name)

    async def commit(self, txn: Txn) -> TxnResult:
        key = self._world.keyspace.admissions
        if not any(isinstance(each, Put) and each.key == key for each in txn.success):
            return await self._world.store.commit(txn)
        self.arrived.set()
        await self.gate.wait()
        result = await self._world.store.commit(txn)
        self.answers.append(result.succeeded)
        return result


async def test_an_admission_that_another_one_overtook_is_refused(world: World) -> None:
    """Each of two controllers counts the same room, for a partition of its own: the second is refused."""
    await world.limit(Limits(cluster_moves=1))
    await world.publish(*map(altered, ZONES))
    held = HeldAdmissions(world)
    async with World(held, world.keyspace).controllers() as slow, world.controllers() as fast:
        assert await slow.zones.reconcile([IDS[0]]) == {}
        async with asyncio.timeout(DEADLINE_S):
            await held.arrived.wait()
        assert await fast.zones.reconcile([IDS[1]]) == {}
        (moving,) = await world.until(bool)
        assert moving.zone_id == IDS[1]
        held.gate.set()
        await eventually(lambda: bool(held.answers))
        assert held.answers[0] is False
        assert await world.moving() == [moving]


async def test_an_admission_that_a_pause_overtook_is_refused(world: World) -> None:
    await world.limit(Limits(cluster_moves=1))
    await world.publish(altered(ZONES[0]))
    held = HeldAdmissions(world)
    async with World(held, world.keyspace).controllers() as slow:
        assert await slow.zones.reconcile([IDS[0]]) == {}
        async with asyncio.timeout(DEADLINE_S):
            await held.arrived.wait()
        await world.limit(Limits(cluster_moves=1, pause=Pause("alice", "", 0)))
        held.gate.set()
        await eventually(lambda: bool(held.answers))
        # It may be tried again before the pause is known there.
        assert not any(held.answers)
        assert await world.moving() == []
        await world.limit(Limits(cluster_moves=1))
        assert len(await world.until(bool)) == 1
