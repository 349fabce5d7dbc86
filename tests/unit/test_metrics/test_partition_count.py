"""Counts that follow single changes are those of a walk over everything."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.counts.partition_count import PartitionCount
from app.counts.zone_tally import Reading, ZoneCounts, ZoneTally, number_of, states_of
from app.metrics.exposition import Exposition
from app.metrics.gauges import PartitionGauges
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import ZoneId
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState, ProcessRole
from rebalance.core.keyspace.txn import Delete, Txn
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import MoveState, partition_status
from rebalance.core.moves.partition_state import MoveStage, PartitionFacts
from rebalance.ports.metric_rows import ZONES_SHOWN_MAX
from tests.fixtures.scraped import samples, value
from tests.unit.sql_world import World, opened

ZONE = "CREATE ZONE {} WITH REPLICAS=3, PARTITIONS={}, STORAGE_PROFILES='default'"


@asynccontextmanager
async def counted(world: World) -> AsyncIterator[Exposition]:
    """Exposition of a server that counts its partitions before it answers."""
    exposition = Exposition((ProcessRole.SERVER,))
    ring = RingReader(world.mirror, world.keyspace)
    count = PartitionCount(world.mirror, world.keyspace, ring)
    exposition.ask(PartitionGauges(count, exposition).probe)
    running = asyncio.create_task(count.run())
    try:
        yield exposition
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(exposition: Exposition, name: str, wanted: float, **labels: str) -> None:
    async with asyncio.timeout(120):
        while value(exposition, name, **labels) != wanted:
            await asyncio.sleep(0.05)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as opened_world:
        yield opened_world


async def placed_zone(world: World, name: str, partitions: int) -> ZoneId:
    zone_id = (await world.run(ZONE.format(name, partitions))).zone_id
    assert zone_id is not None
    await world.serve(zone_id, partitions)
    return ZoneId(zone_id)


def walked(world: World, zones: dict[ZoneId, int]) -> Counter[str]:
    """The deliberately slow way."""
    views = KeyspaceViews(world.mirror, world.keyspace)
    states: Counter[str] = Counter()
    for zone_id, partitions in zones.items():
        placed, alive = views.placed(zone_id), views.alive()
        for number in range(partitions):
            view, _ = views.view(PartitionId(zone_id, number), placed)
            states[partition_status(view, alive).state.value] += 1
    return states


async def test_what_is_there_and_what_comes_is_counted(world: World) -> None:
    first = await placed_zone(world, "a", 5)
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_partitions", 5, state="DONE")
        second = await placed_zone(world, "b", 3)
        await until(exposition, "zonekeeper_partitions", 8, state="DONE")
        assert walked(world, {first: 5, second: 3}) == {"DONE": 8}
        assert value(exposition, "zonekeeper_zone_partitions", zone="B", state="DONE") == 3
        assert value(exposition, "zonekeeper_zones") == 2


async def test_a_majority_is_lost_with_nodes_or_with_members_that_do_not_run(world: World) -> None:
    zone = await placed_zone(world, "a", 4)
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_partitions_without_majority", 0)
        partition = PartitionId(zone, 1)
        for node in ("n1", "n2"):
            failed = MemberRecord(MemberState.FAILED, f"http://{node}:1", f"http://{node}:2", started=True)
            await world.put(world.keyspace.member(partition, node), failed.encode())
        await until(exposition, "zonekeeper_partitions_without_majority", 1)
        await world.set_nodes(world.nodes[0])
        await until(exposition, "zonekeeper_partitions_without_majority", 4)
        assert value(exposition, "zonekeeper_zone_partitions_without_majority", zone="A") == 4
        assert value(exposition, "zonekeeper_nodes", state="down") == 2
        assert value(exposition, "zonekeeper_node_up", node="n2") == 0
        await world.put(world.keyspace.drain("n2"), Drain("anna", "", 1).encode())
        async with asyncio.timeout(120):
            while value(exposition, "zonekeeper_node_up", node="n2") is not None:
                await asyncio.sleep(0.05)
        assert value(exposition, "zonekeeper_node_up", node="n3") == 0, "nobody drains it"


async def test_of_a_zone_with_a_damaged_target_a_lost_majority_is_known_all_the_same(world: World) -> None:
    zone_id = await placed_zone(world, "a", 4)
    placed = KeyspaceViews(world.mirror, world.keyspace).placed(zone_id)
    assert placed is not None
    await world.put(world.keyspace.target_chunk(zone_id, placed.pointer.event_revision, 0), b"damaged")
    await world.set_nodes(world.nodes[0])
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_partitions_without_majority", 4)
        assert value(exposition, "zonekeeper_moves", stage="PLACEMENT", cause="RECORD_NOT_READABLE") == 4


async def test_a_move_has_its_stage_and_its_cause(world: World) -> None:
    await placed_zone(world, "a", 2)
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_partitions", 2, state="DONE")
        await world.run("ALTER ZONE a SET REPLICAS=1")
        await until(exposition, "zonekeeper_partitions", 0, state="DONE")
        moves = {
            (labels["stage"], labels["cause"]): count
            for (name, pairs), count in samples(exposition).items()
            if name == "zonekeeper_moves" and (labels := dict(pairs))
        }
        assert sum(moves.values()) == 2
        assert all(stage in MoveStage.__members__ and cause for stage, cause in moves)
        stage = next(iter(moves))[0]
        age = value(exposition, "zonekeeper_move_oldest_seconds", stage=stage)
        assert age is not None
        assert age >= 0


async def test_the_series_of_a_dropped_zone_go(world: World) -> None:
    await placed_zone(world, "a", 2)
    await placed_zone(world, "b", 2)
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_zones", 2)
        await world.run("DROP ZONE a")
        await until(exposition, "zonekeeper_zones", 1)
        assert value(exposition, "zonekeeper_zone_bytes", zone="A") is None
        assert value(exposition, "zonekeeper_zone_bytes", zone="B") is not None
        await until(exposition, "zonekeeper_partitions", 2, state="DONE")


async def test_a_record_that_cannot_be_read_is_counted_and_the_others_are(world: World) -> None:
    zone = await placed_zone(world, "a", 3)
    async with counted(world) as exposition:
        await until(exposition, "zonekeeper_partitions", 3, state="DONE")
        key = world.keyspace.partition(PartitionId(zone, 2)).stable
        await world.put(key, b"no assignments")
        await until(exposition, "zonekeeper_partitions_unreadable", 1)
        assert value(exposition, "zonekeeper_partitions", state="DONE") == 2
        await world.metastore.commit(Txn((), (Delete(key),)))
        await until(exposition, "zonekeeper_partitions_unreadable", 0)


async def test_a_zone_whose_intent_cannot_be_read_is_counted_by_its_target(world: World) -> None:
    """A server that has just started counts it under its id; one that has read the intent before, under its
    name."""
    zone_id = await placed_zone(world, "a", 3)
    key = world.keyspace.intent(zone_id)
    intent = world.mirror.value(key)
    assert intent is not None
    async with counted(world) as before:
        await until(before, "zonekeeper_partitions", 3, state="DONE")
        await world.put(key, b"no intent")
        async with counted(world) as exposition:
            await until(exposition, "zonekeeper_zone_partitions", 3, zone=str(zone_id), state="DONE")
            assert value(before, "zonekeeper_zone_partitions", zone="A", state="DONE") == 3
            await world.put(key, intent)
            await until(exposition, "zonekeeper_zone_partitions", 3, zone="A", state="DONE")
            assert value(exposition, "zonekeeper_partitions", state="DONE") == 3
            assert value(exposition, "zonekeeper_zones") == 1


NODES = ["n1", "n2", "n3"]
STATES = [
    PartitionFacts(MoveState.DONE, MoveStage.REST),
    PartitionFacts(MoveState.WAITING, MoveStage.REST, Cause.NO_MAJORITY, lacks_majority=True),
    PartitionFacts(MoveState.WAITING, MoveStage.ADMISSION, Cause.PAUSED),
    PartitionFacts(MoveState.MOVING, MoveStage.JOINT, Cause.HEALTH_INTERVAL, lacks_leader=True),
]


@pytest.mark.parametrize("seed", range(20))
def test_a_tally_of_single_changes_is_the_count_of_the_whole(seed: int) -> None:
    chance, tally, now = random.Random(seed), ZoneCounts(), 0.0
    readings: dict[PartitionId, Reading] = {}
    since: dict[PartitionId, float] = {}
    for _ in range(400):
        now += chance.random()
        zone_id = ZoneId(chance.randrange(4))
        if chance.random() < 0.03:
            for _ in tally.forget(zone_id):
                pass
            for gone in [partition for partition in readings if partition.zone_id == zone_id]:
                del readings[gone], since[gone]
            continue
        if zone_id not in tally.zones:
            tally.zones[zone_id] = ZoneTally.of(f"Z{zone_id}", 3)
        partition = PartitionId(zone_id, chance.randrange(3))
        kept, full = (tally.bits.of(chance.sample(NODES, 2)) for _ in range(2))
        reading = Reading(chance.choice(STATES), kept, kept, full, chance.randrange(100))
        if partition not in readings or readings[partition].facts.stage is not reading.facts.stage:
            since[partition] = now
        readings[partition] = reading
        tally.note(partition, reading, now)
        tally.rank(zone_id)
    facts = [reading.facts for reading in readings.values()]
    assert tally.counts == Counter(facts)
    assert states_of(tally.counts) == Counter(each.state for each in facts)
    assert number_of(tally.counts, lambda each: each.lacks_leader) == sum(each.lacks_leader for each in facts)
    assert tally.bytes == sum(reading.size for reading in readings.values())
    names = tally.bits.names
    assert tally.replicas == Counter(node for each in readings.values() for node in names(each.kept))
    assert tally.full == Counter(node for each in readings.values() for node in names(each.full))
    lacking = Counter(f"Z{each.zone_id}" for each in readings if readings[each].facts.lacks_majority)
    assert tally.unserved() == lacking
    begins: dict[MoveStage, float] = {}
    for partition, each in readings.items():
        if each.facts.stage is not MoveStage.REST:
            begins[each.facts.stage] = min(begins.get(each.facts.stage, now), since[partition])
    assert tally.oldest(now) == {stage: now - begun for stage, begun in begins.items()}


async def test_the_worst_zones_have_series_and_the_others_are_one(world: World) -> None:
    ring = RingReader(world.mirror, world.keyspace)
    count, exposition = PartitionCount(world.mirror, world.keyspace, ring), Exposition((ProcessRole.SERVER,))
    exposition.ask(PartitionGauges(count, exposition).probe)
    await count.round()
    done, waiting, lacking = (Reading(facts, size=7) for facts in (STATES[0], STATES[2], STATES[1]))
    last = ZONES_SHOWN_MAX + 49
    for number in range(last + 1):
        zone_id = ZoneId(number)
        count.tally.zones[zone_id] = ZoneTally.of(f"Z{number:04d}", 1)
        count.tally.note(PartitionId(zone_id, 0), {last: lacking, last - 1: waiting}.get(number, done), 1.0)
        count.tally.rank(zone_id)
    series = {
        dict(labels)["zone"]: number
        for (name, labels), number in samples(exposition).items()
        if name == "zonekeeper_zone_bytes"
    }
    assert len(series) == ZONES_SHOWN_MAX + 1
    assert {f"Z{last:04d}", f"Z{last - 1:04d}", "Z0000"} <= series.keys()
    assert f"Z{ZONES_SHOWN_MAX:04d}" not in series
    assert series["_other"] == 50 * 7
    assert sum(series.values()) == (last + 1) * 7
    assert value(exposition, "zonekeeper_zone_partitions", zone="_other", state="DONE") == 50
    assert value(exposition, "zonekeeper_zone_partitions", zone="_other", state="WAITING") == 0
