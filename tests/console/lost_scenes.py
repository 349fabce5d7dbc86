"""Scenes of zones that have lost majorities, and what their groups do when they are founded anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.guarded_write import Observed, decide_on_configuration_applied
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition, MemberRecord
from rebalance.core.keyspace.txn import Get, Txn
from tests.console.scenes import NASTY_NODE, NASTY_ZONES, SMALL_NODES, Scene, empty, kill_node
from tests.unit.sql_world import World

AVAILABLE = "HIGH_AVAILABILITY"
DEAD = 2
"""Nodes that are gone, the first ones."""
KNOWN, LEARNED = 4_120, 4_117
"""Data revisions of voters' copies, and of learners'."""


async def lost(world: World) -> None:
    """Five nodes, of which n1 and n2 are gone: groups of three that had both have lost their majority, as has
    every one of CACHE, which is highly available; groups of five have not. Learners of REFERENCE have a copy
    of what its voters knew."""
    await empty(world)
    await _zones(world, SMALL_NODES[:5], "ORDERS", "CACHE")


async def lost_names(world: World) -> None:
    """The same with names that would be markup or props if anything took them for such."""
    await empty(world)
    nodes = tuple(replace(each, name=f"{each.name}{NASTY_NODE}") for each in SMALL_NODES[:5])
    await _zones(world, nodes, NASTY_ZONES[0], NASTY_ZONES[1])


async def _zones(world: World, nodes: Sequence[Node], strong: str, available: str) -> None:
    await world.set_nodes(*nodes)
    dead = [node.name for node in nodes[:DEAD]]
    for name, partitions, replicas, options in (
        (strong, 6, "3", ""),
        ("LEDGER", 2, "5", ", QUORUM SIZE 3"),
        ("REFERENCE", 4, "ALL", ", QUORUM SIZE 2"),
        (available, 2, "3", f", NODES FILTER '$[?(@.region == \"EU\")]', CONSISTENCY MODE '{AVAILABLE}'"),
    ):
        quoted = name.replace('"', '""')
        sql = f'CREATE ZONE "{quoted}" (PARTITIONS {partitions}, REPLICAS {replicas}{options})'
        result = await world.run(f"{sql} STORAGE PROFILES ['default']")
        assert result.zone_id is not None
        await world.serve(result.zone_id, partitions, dead)
        await _tell_revisions(world, ZoneId(result.zone_id), partitions)
    for name in dead:
        await kill_node(world, name)


async def _tell_revisions(world: World, zone_id: ZoneId, partitions: int) -> None:
    """Report revisions as nodes do while a group has no leader."""
    for number in range(partitions):
        prefix = world.keyspace.member(PartitionId(zone_id, number), "")
        for item in (await world.metastore.range(prefix)).items:
            member = MemberRecord.decode(item.value)
            if member.mirror is not None:
                member = replace(member, mirror=replace(member.mirror, complete_revision=LEARNED))
            else:
                member = replace(member, position=LogPosition(4_131, 4_133, True, revision=KNOWN))
            await world.put(item.key, member.encode())
    await world.settle()


async def found_anew(world: World, zone: str) -> None:
    """Groups of the zone do what pending asks for: forced first, then the full set."""
    known = (await world.catalog.snapshot()).zone(zone)
    assert known is not None
    for number in range(known.partitions):
        keys = world.keyspace.partition(PartitionId(known.zone_id, number))
        names = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock)
        while pending := await world.assignments(keys.pending):
            reading = await world.metastore.commit(Txn((), tuple(Get(name) for name in names)))
            observed = Observed(keys, *(reading.only(index) for index in range(len(names))))
            decision = decide_on_configuration_applied(observed, pending)
            assert decision.transaction is not None
            assert (await world.metastore.commit(decision.transaction)).succeeded
    await world.serve(known.zone_id, known.partitions)


LOST_SCENES: Mapping[str, Scene] = {"lost": lost, "lost-names": lost_names}
