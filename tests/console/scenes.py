"""Scenes for the console: what a metastore and a catalog hold, written by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.requests.context import acting
from catalog.core.audit import Actor, Channel
from catalog.core.snapshot import EntryKind, ZoneEntry
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import encode_trigger
from rebalance.core.assignments.target import TargetPointer, cut_into_chunks
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    EngineRecord,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.keyspace.txn import Delete, Operation, Put, Txn
from rebalance.core.moves.drain import Drain
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.kernels.rendezvous import place
from tests.fixtures.committed_ring import outcome
from tests.fixtures.script_runner import new_version
from tests.unit.sql_world import World
from tests.unit.store_world import STORE_NODES, created

LARGE_PARTITIONS, LARGE_NODES, LARGE_REPLICAS = 65_000, 100, 3
WIDE_PARTITIONS = 13_000
"""Many more than a map has columns and a table has rows."""
AT_MS = 1_795_000_000_000
WRITES_MAX = 100
SEEN_S = 60.0

NASTY_ZONES = (
    'y" :data-x="alert(1)" b="',
    "<img src=x onerror=alert(1)>",
    ":onclick='alert(1)' {{7*7}} `${alert(1)}` \\'-alert(1)-'",
)
STORED_ZONES = ("\u202eevil\u2066\u200b", "two\nlines")
NASTY_NODE = """"><img:onclick='alert(1)'>"""
NASTY_PERSON = """"><img src=x onerror=alert(1)>"""

Scene = Callable[[World], Awaitable[None]]


def node(number: int, region: str, weight: float = 1.0) -> Node:
    attributes = (("disk", "nvme" if number % 2 else "ssd"), ("region", region))
    return Node(f"n{number}", attributes, ("default",), 60, weight, f"{region.lower()}-{number % 3 + 1}")


SMALL_NODES = tuple(
    node(number, region)
    for number, region in enumerate(("EU", "EU", "EU", "US", "US", "US", "AP", "AP"), start=1)
)


async def empty(world: World) -> None:
    """Nodes and a controller, and no zone."""
    await world.set_nodes(*SMALL_NODES)
    await _lead(world)


async def small(world: World) -> None:
    """Three zones at rest, one that moves under a limit, one node that is leaving and one that is down."""
    await empty(world)
    for sql, partitions in (
        ("CREATE ZONE orders (PARTITIONS 8, REPLICAS 3, DISTRIBUTION ALGORITHM 'balanced')", 8),
        ("CREATE ZONE sessions (PARTITIONS 24, REPLICAS 3)", 24),
        ("CREATE ZONE reference (PARTITIONS 4, REPLICAS ALL, QUORUM SIZE 2)", 4),
        ("CREATE ZONE telemetry (PARTITIONS 48, REPLICAS 3, DISTRIBUTION ALGORITHM 'balanced')", 48),
    ):
        with acting(Actor("grace", True, Channel.SQL)):
            result = await world.run(f"{sql} STORAGE PROFILES ['default']")
        assert result.zone_id is not None
        await world.serve(result.zone_id, partitions)
    with acting(Actor("ada", False, Channel.CONSOLE)):
        await world.run("ALTER /* ada: one region may be lost */ ZONE sessions SET (REPLICAS 5, QUORUM SIZE 3)")
    await _begin_moves(world, ZoneId(2), 9)
    await world.put(
        world.keyspace.limits,
        Limits(
            cluster_moves=8, pause=None, zone_pauses={ZoneId(4): Pause("ada", "backup runs", AT_MS)}
        ).encode(),
    )
    await world.put(world.keyspace.drains + "n8", Drain("grace", "new disks", AT_MS).encode())
    await kill_node(world, "n7")


async def large(world: World, partitions: int = LARGE_PARTITIONS) -> None:
    """A zone on 100 nodes, all at rest."""
    nodes = tuple(Node(f"node-{number:03d}", member_limit=10_000) for number in range(LARGE_NODES))
    for start in range(0, LARGE_NODES, WRITES_MAX // 2):
        await world.set_nodes(*nodes[: start + WRITES_MAX // 2])
    await _lead(world)
    names = tuple(each.name for each in nodes)
    zone = Zone(ZoneId(1), "LARGE", partitions, LARGE_REPLICAS, None, ("default",))
    await _store_zone(world, zone)
    matrix = place(names, range(partitions), LARGE_REPLICAS)
    keys, pointer = world.keyspace, _pointer(names, partitions)
    data_nodes = DataNodes(names, 2, LARGE_REPLICAS)
    writes: list[Operation] = [
        Put(keys.intent(zone.zone_id), ZoneIntent(1, zone).encode()),
        Put(keys.data_nodes(zone.zone_id), data_nodes.encode()),
    ]
    for at, chunk in enumerate(cut_into_chunks(matrix.astype("<i4").tobytes(), LARGE_REPLICAS)):
        writes.append(Put(keys.target_chunk(zone.zone_id, pointer.event_revision, at), chunk))
    for number, row in enumerate(matrix.tolist()):
        writes += at_rest(keys, PartitionId(zone.zone_id, number), [names[at] for at in row])
    writes.append(Put(keys.target_pointer(zone.zone_id), pointer.encode()))
    await _write(world, writes)


async def _store_zone(world: World, zone: Zone) -> None:
    """Write the zone past the statement and its checks, as an earlier release, or a user with access to the
    database, wrote it."""
    base = await world.catalog.snapshot()
    entries = (ZoneEntry(EntryKind.WRITTEN, zone),)
    version = new_version(base, entries, f"{zone.zone_id:032x}", f"CREATE ZONE {zone.name}")
    world.catalog._store.unit_of_work.commit(base, [version])


async def names(world: World) -> None:
    """Names that would be markup, props or scripts if anything took them for such. Those that a statement may
    not give any more are stored."""
    await world.set_nodes(*(replace(each, name=f"{each.name}{NASTY_NODE}") for each in SMALL_NODES[:3]))
    await _lead(world)
    for zone in NASTY_ZONES:
        with acting(Actor(NASTY_PERSON, False, Channel.SQL)):
            sql = f'CREATE ZONE "{zone.replace(chr(34), 2 * chr(34))}" (PARTITIONS 2, REPLICAS 2)'
            result = await world.run(f"{sql} STORAGE PROFILES ['default']")
        assert result.zone_id is not None
        await world.serve(result.zone_id, 2)
    for number, name in enumerate(STORED_ZONES, start=len(NASTY_ZONES) + 1):
        await _store_zone(world, Zone(ZoneId(number), name, 2, 2, None, ("default",)))
        await world.relay.relay_once()
        assert await world.zones.reconcile([ZoneId(number)]) == {}
        await world.serve(number, 2)
    paused = Pause(NASTY_PERSON, NASTY_PERSON, AT_MS)
    await world.put(world.keyspace.limits, Limits(zone_pauses={ZoneId(2): paused}).encode())


async def wide(world: World) -> None:
    await large(world, WIDE_PARTITIONS)


def _pointer(names: tuple[str, ...], partitions: int) -> TargetPointer:
    return TargetPointer(1, 1, 1, partitions, LARGE_REPLICAS, LARGE_REPLICAS, names, "spark", "rendezvous")


def at_rest(keys: Keyspace, partition: PartitionId, nodes: list[str], term: int = 1) -> list[Operation]:
    """A partition whose group is what stable says; the first node leads."""
    names = keys.partition(partition)
    members = {name: ConfiguredMember(name, MemberRole.VOTER, f"http://{name}:1") for name in nodes}
    return [
        Put(names.stable, Assignments(tuple(nodes)).encode()),
        Put(names.trigger, encode_trigger(1)),
        Put(names.configuration, ConfigurationRecord(term, nodes[0], Stage.NONE, members).encode()),
        *(
            Put(
                keys.member(partition, name),
                MemberRecord(MemberState.RUNNING, f"http://{name}:1", f"http://{name}:2", True).encode(),
            )
            for name in nodes
        ),
    ]


async def touch(world: World, count: int) -> None:
    """Partitions of the first zone, spread over all of it, change their leaders."""
    writes: list[Operation] = []
    zone_id = ZoneId(1)
    intent = world.mirror.value(world.keyspace.intent(zone_id))
    assert intent is not None
    partitions = ZoneIntent.decode(intent).zone.partitions
    for at in range(count):
        key = world.keyspace.partition(PartitionId(zone_id, at * partitions // count)).configuration
        value = world.mirror.value(key)
        assert value is not None
        found = ConfigurationRecord.decode(value)
        others = sorted(found.members)
        leader = others[(others.index(found.leader) + 1) % len(others)]
        writes.append(Put(key, replace(found, term=found.term + 1, leader=leader).encode()))
    await _write(world, writes)


async def stored(world: World) -> None:
    """A zone that store servers keep: one copy of its partition 0 is being filled, and its partition 3 is
    lost."""
    await world.set_nodes(*STORE_NODES)
    await _lead(world)
    zone = await created(world)
    names = zone.lists[0]
    lost = PartitionOutcome(in_sync=names[:1], is_lost=True)
    await zone.commit([outcome(*names[:2], filling=names[2:]), *zone.owned[1:3], lost])


async def kill_node(world: World, name: str) -> None:
    """End the node's lease; its members stay written."""
    await world.metastore.commit(Txn((), (Delete(world.keyspace.node(name)),)))
    await world.settle()


async def _begin_moves(world: World, zone_id: ZoneId, count: int) -> None:
    """Some of the partitions that have pending are on their way: a new member is filled."""
    begun = 0
    for number in range(64):
        keys = world.keyspace.partition(PartitionId(zone_id, number))
        stable, pending = await world.assignments(keys.stable), await world.assignments(keys.pending)
        if stable is None or pending is None or begun >= count:
            continue
        begun += 1
        joining = sorted(pending.nodes - stable.nodes)
        voters = {name: ConfiguredMember(name, MemberRole.VOTER, f"http://{name}:1") for name in stable.peers}
        learner = {name: ConfiguredMember(name, MemberRole.LEARNER, f"http://{name}:1") for name in joining[:1]}
        stage = Stage.CATCHING_UP if begun % 3 else Stage.JOINT
        record = ConfigurationRecord(2, stable.primary, stage, voters | learner, "", 40 << 20)
        await world.put(keys.configuration, record.encode())
        for name in joining:
            state = MemberState.RUNNING if name in learner else MemberState.READY
            member = MemberRecord(state, f"http://{name}:1", f"http://{name}:2", name in learner)
            await world.put(world.keyspace.member(PartitionId(zone_id, number), name), member.encode())
    await world.settle()


async def _lead(world: World) -> None:
    """A controller leads, and its Spark is ready."""
    await world.put(world.keyspace.controller_leader, b"controller-1")
    status = EngineRecord("ready", "local[*], Spark 4.3", 1)
    await world.put(world.keyspace.engine_status, status.encode())
    await world.settle()


async def _write(world: World, writes: list[Operation]) -> None:
    """Ends when the mirror has it; to ask the store for its revision would read all of it, at each change of a
    large scene."""
    revision = 0
    for start in range(0, len(writes), WRITES_MAX):
        done = await world.metastore.commit(Txn((), tuple(writes[start : start + WRITES_MAX])))
        revision = done.revision
    assert await world.mirror.wait_until(lambda: world.mirror.revision >= revision, SEEN_S)


SCENES: dict[str, Scene] = {
    "empty": empty,
    "small": small,
    "wide": wide,
    "large": large,
    "names": names,
    "stored": stored,
}
