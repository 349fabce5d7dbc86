"""Real maps: what nodes report, what the leading controller makes of it, and what SQL and JSON show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import structlog.testing

from app.sql.statements.results import SessionContext
from app.views.partition_map import map_json, published_map
from catalog.core.zone import Node, ZoneId
from rebalance.controllers import partition_map
from rebalance.controllers.partition_map import PartitionMapKeeper
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, ZoneMapPointer, next_version
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.core.topology.node_presence import Topology
from rebalance.kernels.partition_map import decode_map, split_maps
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.partition_view import Mirrors
from rebalance.nodes.reports import QUIET_PERIODS, MapReporter, encode_report
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from tests.unit.sql_world import World, opened

OWNING, MOVING = CopyState.OWNING, CopyState.MOVING
Z1 = ZoneId(1)
UNREAD = "a node's partition map cannot be read"


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path, nodes=[Node(f"n{number}") for number in range(1, 4)]) as made:
        await made.run("CREATE ZONE z (PARTITIONS 3, REPLICAS 2)")
        yield made


async def report(world: World, node: str, copies: dict[int, CopyReport], incarnation: str = "i") -> None:
    by_id = {PartitionId(Z1, number): each for number, each in copies.items()}
    await world.put(world.keyspace.node_map(node), encode_report(node, incarnation, 1, by_id))


class Coordinator:
    """A keeper with mirrors of its own; ``topology`` is what it believes in."""

    def __init__(self, world: World, name: str = "c1") -> None:
        self.topology = Topology(version=5)
        self.intents = KeyspaceMirror(world.metastore, world.keyspace.intents)
        self.nodes = KeyspaceMirror(world.metastore, world.keyspace.nodes)
        self.world = world
        self.keeper = PartitionMapKeeper(
            world.metastore, world.keyspace, name, self.intents, self.nodes, lambda: self.topology, 0.01
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(each.run()) for each in (self.intents, self.nodes)]
        await self.intents.loaded()
        await self.nodes.loaded()
        tasks.append(asyncio.create_task(self.keeper.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, sequence: int) -> ZoneMapPointer:
        key, mirror = self.world.keyspace.zone_map(Z1), self.world.mirror

        def reached() -> bool:
            value = mirror.value(key)
            return value is not None and ZoneMapPointer.decode(value).sequence >= sequence

        assert await mirror.wait_until(reached, 60)
        value = mirror.value(key)
        assert value is not None
        return ZoneMapPointer.decode(value)


LED = CopyReport(OWNING, 9, 64, 3, leads=True)
FOLLOWS = CopyReport(OWNING, 9, 64, 3)


@pytest.mark.row("PME-001", "PME-017", "PME-063", "PME-065", "PME-100", "PME-111")
async def test_reports_become_one_map(world: World) -> None:
    """PME-001, PME-017, PME-098, PME-100: nodes report, the leading controller merges and publishes; SQL and
    JSON show the same. PME-063, PME-065: state, counter, size and version of each copy. PME-111: node ->
    partition -> state."""
    coordinator = Coordinator(world)
    async with coordinator.leading():
        await report(world, "n1", {0: LED, 1: FOLLOWS})
        await report(world, "n2", {0: FOLLOWS, 1: LED, 2: CopyReport(MOVING, 4, 16, 3)})
        await asyncio.sleep(0.05)
        await report(world, "n3", {2: LED})

        def has_all_reports() -> bool:
            found = published_map(world.mirror, world.keyspace, Z1)
            return found is not None and found.full.copies == 6

        assert await world.mirror.wait_until(has_all_reports, 60)
        pointer = await coordinator.until(1)
    assert pointer.version.major == 5
    assert pointer.coordinator == "c1"
    columns = (
        "partition_id, node_name, partition_state, update_counter, size_bytes, is_primary, topology_version"
    )
    found = await world.engine.execute(
        f"SELECT {columns} FROM system.partition_map ORDER BY 1, 2", SessionContext()
    )
    version = str(pointer.version)
    assert list(found.rows) == [
        (0, "n1", "OWNING", 9, 64, True, version),
        (0, "n2", "OWNING", 9, 64, False, version),
        (1, "n1", "OWNING", 9, 64, False, version),
        (1, "n2", "OWNING", 9, 64, True, version),
        (2, "n2", "MOVING", 4, 16, False, version),
        (2, "n3", "OWNING", 9, 64, True, version),
    ]
    zone = (await world.catalog.snapshot()).zones[-1]
    published = published_map(world.mirror, world.keyspace, Z1)
    assert published is not None
    shown = json.loads(json.dumps(map_json(zone, published)))
    assert shown["version"] == version
    assert [each["primary"] for each in shown["partitions"]] == ["n1", "n2", "n3"]
    assert shown["partitions"][2]["copies"]["n2"] == {"state": "MOVING", "counter": 4, "size_bytes": 16}
    header, full = decode_map(published.data)
    assert (header.major, header.minor, header.sequence) == (5, pointer.version.minor, pointer.sequence)
    assert full.copies == 6


@pytest.mark.row("PME-019")
async def test_versions_of_published_maps(world: World) -> None:
    """PME-019: another topology is another major version. PME-131: a change of primaries counts the minor one
    up. PME-121: any other change only the sequence; no change is no write."""
    coordinator = Coordinator(world)
    await report(world, "n1", {0: LED})
    await report(world, "n2", {0: FOLLOWS})
    async with coordinator.leading():
        first = await coordinator.until(1)
        await report(world, "n2", {0: CopyReport(OWNING, 12, 64, 3)})
        counted = await coordinator.until(2)
        assert counted.version == first.version == TopologyVersion(5)
        await report(world, "n2", {0: CopyReport(OWNING, 12, 64, 4, leads=True)})
        switched = await coordinator.until(3)
        assert switched.version == TopologyVersion(5, 1)
        coordinator.topology = Topology(version=6)
        await world.set_nodes(*(node for node in world.nodes if node.name != "n1"))
        left = await coordinator.until(4)
        assert left.version == TopologyVersion(6)
        published = published_map(world.mirror, world.keyspace, Z1)
        assert published is not None
        assert published.full.names == ("n2",)
        before = (await world.metastore.range(world.keyspace.prefix)).revision
        await coordinator.keeper.publish_all()
        assert (await world.metastore.range(world.keyspace.prefix)).revision == before
    # A successor that has seen an older topology does not take the version back, and writes nothing either.
    successor = Coordinator(world, "c2")
    async with successor.leading():
        await successor.keeper.publish_all()
        await report(world, "n2", {0: CopyReport(OWNING, 13, 64, 4, leads=True)})
        taken = await successor.until(5)
    assert (taken.version, taken.coordinator) == (TopologyVersion(6), "c2")


async def test_two_coordinators_do_not_write_over_each_other(world: World) -> None:
    """PME-110: only one of them replaces the pointer, whatever both believe."""
    await report(world, "n1", {0: LED})
    one, other = Coordinator(world, "c1"), Coordinator(world, "c2")
    async with one.leading(), other.leading():
        for counter in range(20, 24):
            await report(world, "n1", {0: CopyReport(OWNING, counter, 64, 3, leads=True)})
            await asyncio.sleep(0.05)

        def last_one_published() -> bool:
            found = published_map(world.mirror, world.keyspace, Z1)
            return found is not None and found.full.counters.tolist() == [23]

        assert await world.mirror.wait_until(last_one_published, 60)
    published = published_map(world.mirror, world.keyspace, Z1)
    assert published is not None
    chunks = [item.key for item in world.mirror.below(f"{world.keyspace.zone_maps}1/chunks/")]
    assert len(chunks) == published.pointer.chunks == 1


async def test_whose_report_counts(world: World) -> None:
    """A node that is gone, one that has not written since it started again, bytes that are no map, and
    partitions that the zone does not have."""
    coordinator = Coordinator(world)
    await report(world, "n1", {0: LED})
    await report(world, "n2", {0: FOLLOWS}, incarnation="earlier")
    await world.put(world.keyspace.node_map("n3"), b"\x05\0\0\0abc")
    await report(world, "gone", {0: FOLLOWS})
    with structlog.testing.capture_logs() as logs:
        async with coordinator.leading():
            await coordinator.until(1)
            await report(world, "n3", {7: FOLLOWS})
            async with asyncio.timeout(60):
                while not any(each["event"] == UNREAD for each in logs):
                    await asyncio.sleep(0.01)
            await world.put(world.keyspace.node("gone"), NodeRecord(Node("gone"), "i").encode())
            pointer = await coordinator.until(2)
    published = published_map(world.mirror, world.keyspace, Z1)
    assert published is not None
    assert published.full.names == ("gone", "n1")
    assert pointer.sequence == 2
    unread = [each for each in logs if each["event"] == UNREAD]
    assert unread[0]["node"] == "n3"
    assert "ends inside" in unread[0]["error"]


async def test_a_dropped_zone_has_no_map(world: World) -> None:
    coordinator = Coordinator(world)
    await report(world, "n1", {0: LED})
    async with coordinator.leading():
        await coordinator.until(1)
        await world.run("DROP ZONE z")
        await coordinator.intents.wait_until(lambda: True)
        await coordinator.keeper.publish_all()
    await world.settle()
    assert published_map(world.mirror, world.keyspace, Z1) is None
    assert not list(world.mirror.below(f"{world.keyspace.zone_maps}1/"))


def test_the_version_never_goes_back() -> None:
    before = ZoneMapPointer(TopologyVersion(6, 2), 9, "c", 1, 10, 77, 78, 79)
    assert next_version(None, 4, 77) == TopologyVersion(4)
    assert next_version(before, 5, 77) == TopologyVersion(6, 2)
    assert next_version(before, 6, 78) == TopologyVersion(6, 3)
    assert next_version(before, 7, 77) == TopologyVersion(7)
    assert ZoneMapPointer.decode(before.encode()) == before
    with pytest.raises(ValueError, match="this build reads 1"):
        ZoneMapPointer.decode(before.encode().replace(b'"v":1', b'"v":9'))


def status(index: int, leads: bool = False, term: int = 3) -> MemberStatus:
    return MemberStatus(
        MemberLife.RUNNING,
        MemberEndpoints("p", "c"),
        is_leader=leads,
        term=term,
        applied_index=index,
        size_bytes=1000,
    )


async def test_a_node_writes_what_changed(world: World) -> None:
    """PME-117, PME-120: not more than once a period, however much changed within it; what routing does not need
    is written later, and nothing when nothing changed."""
    await world.serve(1, 3)
    mirrors = Mirrors.over(world.metastore, world.keyspace)
    watching = asyncio.create_task(mirrors.run())
    await mirrors.loaded()
    first, second = (mirrors.view(PartitionId(Z1, number)) for number in (0, 1))
    node = sorted(first.assigned)[0]
    reporter = MapReporter(node, "i", world.metastore, world.keyspace, 1.0)
    assert await reporter.write_if_changed()
    reporter.note(first, status(5))
    assert await reporter.write_if_changed()
    assert not await reporter.write_if_changed()
    reporter.note(first, status(6))
    written = [await reporter.write_if_changed() for _ in range(QUIET_PERIODS)]
    assert written.count(True) == 1
    assert not written[0]
    reporter.note(first, status(6, leads=True, term=4))
    assert await reporter.write_if_changed()
    reporter.note(first, None)
    reporter.note(second, status(6))
    assert await reporter.write_if_changed()
    found = await world.metastore.get(world.keyspace.node_map(node))
    assert found is not None
    incarnation, encoded = split_maps(found.value)
    header, full = decode_map(encoded)
    assert incarnation == b"i"
    assert header.sequence == 5
    assert full.owners_of_copies.tolist() == [1]
    assert full.sizes.tolist() == [1024]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_node_that_is_removed_from_the_store_reports_again(world: World) -> None:
    """The key is the node's alone: who deletes it gets it back with the next change."""
    reporter = MapReporter("n1", "i", world.metastore, world.keyspace, 1.0)
    await reporter.write_if_changed()
    await world.metastore.commit(Txn((), (Delete(world.keyspace.node_map("n1")), Put("other", b"x"))))
    await world.serve(1, 1)
    mirrors = Mirrors.over(world.metastore, world.keyspace)
    watching = asyncio.create_task(mirrors.run())
    await mirrors.loaded()
    reporter.note(mirrors.view(PartitionId(Z1, 0)), status(1))
    assert await reporter.write_if_changed()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_large_map_is_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are named by the pointer, those of the map before go with it, and a map is shown whole or not at
    all."""
    monkeypatch.setattr(partition_map, "CHUNK_BYTES", 50)
    await report(world, "n1", {0: LED, 1: LED})
    await report(world, "n2", {0: FOLLOWS})
    coordinator = Coordinator(world)
    async with coordinator.leading():
        await coordinator.until(1)
        await report(world, "n2", {0: FOLLOWS, 1: FOLLOWS})
        pointer = await coordinator.until(2)
    keys = [item.key for item in world.mirror.below(f"{world.keyspace.zone_maps}1/chunks/")]
    assert len(keys) == pointer.chunks > 5
    published = published_map(world.mirror, world.keyspace, Z1)
    assert published is not None
    assert published.full.copies == 4
    await world.metastore.commit(Txn((), (Delete(keys[2]),)))
    await world.settle()
    assert published_map(world.mirror, world.keyspace, Z1) is None
