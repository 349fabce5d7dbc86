"""The feed against everything read anew: whatever changed, the arrays end the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.console.feed import PartitionFeed, Recount
from app.console.zone_grid import COPIES, CopyCell, read_partition
from app.console.zone_states import node_loads, zone_state, zone_states
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Node, ZoneId
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.keyspace.keys import PartitionId
from tests.fixtures.committed_ring import outcome
from tests.unit.sql_world import DEFAULT_NODES, World, opened
from tests.unit.store_world import PARTITIONS, stored_zone

ZONE = ZoneId(1)
CREATE = "CREATE ZONE a (PARTITIONS 6, REPLICAS 2) STORAGE PROFILES ['default']"


@asynccontextmanager
async def fed(directory: Path) -> AsyncIterator[tuple[World, PartitionFeed]]:
    async with opened(directory) as world:
        feed = PartitionFeed(world.mirror, world.keyspace)
        running = asyncio.create_task(feed.run())
        try:
            yield world, feed
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def caught_up(feed: PartitionFeed, world: World) -> None:
    """Wait until the arrays equal the views and nothing is unread; fails after a minute."""
    deadline = time.monotonic() + 60
    while True:
        feed.watch()
        await asyncio.sleep(0.01)
        if feed.unread == 0 and _as_read(feed) == _as_it_is(world):
            return
        assert time.monotonic() < deadline, (_as_read(feed), _as_it_is(world))


def _as_read(feed: PartitionFeed) -> dict:
    found = {}
    for zone_id, grid in feed.grids.items():
        for number in range(grid.partitions):
            cells = {node: int(grid.cells[number, at]) for at, node in enumerate(grid.nodes)}
            cells = {node: code for node, code in cells.items() if code}
            found[zone_id, number] = (
                cells,
                int(grid.moves[number]),
                int(grid.health[number]),
                grid.causes[number],
            )
    return found


def _as_it_is(world: World) -> dict:
    """Cells, move, health and cause of each partition, read from the views one after the other."""
    views = KeyspaceViews(world.mirror, world.keyspace)
    alive, found = frozenset(views.live_records()), {}
    for item in world.mirror.below(world.keyspace.intents):
        zone_id = ZoneId(int(item.key.rpartition("/")[2]))
        intent = views.intent(zone_id)
        if intent is None or intent.dropped:
            continue
        for number in range(intent.zone.partitions):
            view, _ = views.view(PartitionId(zone_id, number), views.placed(zone_id))
            read = read_partition(view, alive)
            found[zone_id, number] = (dict(read.cells), int(read.move), int(read.health), read.cause)
    return found


async def test_what_is_being_read_is_unread(tmp_path: Path) -> None:
    """The first turn of the loop at which nothing is unread has the arrays up to date."""
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        async with asyncio.timeout(60):
            while not feed.grids or feed.unread:
                feed.watch()
                await asyncio.sleep(0)
        assert _as_read(feed) == _as_it_is(world)


async def test_changes_of_zones_partitions_and_nodes_are_followed(tmp_path: Path) -> None:
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        await caught_up(feed, world)
        await world.serve(1, 6)
        await caught_up(feed, world)
        assert feed.grids[ZONE].move_counts().done == 6
        await world.run("ALTER ZONE a SET (REPLICAS 3)")
        await caught_up(feed, world)
        assert feed.grids[ZONE].move_counts().done == 0
        await world.run("CREATE ZONE b (PARTITIONS 2) STORAGE PROFILES ['default']")
        await caught_up(feed, world)
        await world.run("DROP ZONE a", reconcile=False)
        await world.relay.relay_once()
        await world.settle()
        await caught_up(feed, world)
        assert list(feed.grids) == [ZoneId(2)]


async def test_a_node_that_dies_changes_its_partitions_only(tmp_path: Path) -> None:
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        await world.serve(1, 6)
        await caught_up(feed, world)
        await world.set_nodes(*DEFAULT_NODES[:2])
        await caught_up(feed, world)
        grid = feed.grids[ZONE]
        down = {number for number in range(6) if CopyCell.DOWN in grid.cells[number] % COPIES}
        assert down == set(grid.held_by(["n3"]).tolist()) != set()
        await world.set_nodes(*DEFAULT_NODES, Node("n4"))
        await caught_up(feed, world)


async def test_what_waits_for_limits_names_them_and_follows_them(tmp_path: Path) -> None:
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        await world.serve(1, 6)
        held = Limits(pause=Pause("ada", "disks", 0))
        await world.put(world.keyspace.limits, held.encode())
        await world.settle()
        await world.run("ALTER ZONE a SET (REPLICAS 3)")
        await caught_up(feed, world)
        (state,) = zone_states(feed, KeyspaceViews(world.mirror, world.keyspace))
        assert state.causes == (("PAUSED: by ada: disks", 6),)
        await world.put(world.keyspace.limits, Limits().encode())
        await world.settle()
        await caught_up(feed, world)
        assert "TARGET_NOT_WRITTEN" in feed.grids[ZONE].causes


async def test_a_store_zone_follows_its_exchanges(tmp_path: Path) -> None:
    """Though no key of its partitions changes; and a server that fails changes the partitions that it had."""
    async with stored_zone(tmp_path) as stored:
        world, feed = stored.world, PartitionFeed(stored.world.mirror, stored.world.keyspace)
        running = asyncio.create_task(feed.run())
        try:
            await caught_up(feed, world)
            assert feed.grids[ZONE].move_counts().waiting == PARTITIONS
            await stored.commit(stored.owned)
            await caught_up(feed, world)
            grid = feed.grids[ZONE]
            assert (grid.move_counts().done, list(grid.causes)) == (PARTITIONS, [""] * PARTITIONS)
            loads = node_loads(feed.grids)
            assert sum(load.leaders for load in loads.values()) == PARTITIONS
            assert {load.voters for load in loads.values()} == {PARTITIONS}
            names = stored.lists[0]
            await stored.commit([outcome(*names[:2], filling=names[2:]), *stored.owned[1:]])
            await caught_up(feed, world)
            assert feed.grids[ZONE].causes[0] == f"FILLING: {names[2]}"
            await stored.commit(stored.owned, without=["n1"])
            await caught_up(feed, world)
            assert set(feed.grids[ZONE].causes) == {"SERVER_DOWN: n1"}
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_nothing_is_read_while_nobody_looks(tmp_path: Path) -> None:
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        await caught_up(feed, world)
        feed._watched_until = 0.0
        before = feed.version
        await world.serve(1, 6)
        await asyncio.sleep(0.05)
        assert (feed.unread, feed.version) == (6, before)
        await caught_up(feed, world)


async def test_a_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with fed(tmp_path) as (world, feed):
        await world.run(CREATE)
        await world.serve(1, 6)
        await caught_up(feed, world)
        keys = world.keyspace.partition(PartitionId(ZONE, 3))
        good = world.mirror.value(keys.configuration)
        await world.put(keys.configuration, b'{"v":99}')
        await world.settle()
        deadline = time.monotonic() + 60
        while not feed.grids[ZONE].causes[3].startswith("RECORD_NOT_READABLE: "):
            feed.watch()
            await asyncio.sleep(0.01)
            assert time.monotonic() < deadline
        assert feed.grids[ZONE].move_counts().done == 5
        await world.put(keys.configuration, good)
        await world.settle()
        await caught_up(feed, world)


@pytest.mark.parametrize("whole", ["", "NO_DATA_NODES"])
async def test_a_seeded_zone_counts_as_being_read(tmp_path: Path, whole: str) -> None:
    async with opened(tmp_path) as world:
        await world.run(CREATE)
        feed = PartitionFeed(world.mirror, world.keyspace)
        feed._begin()
        state = zone_state(feed.intents[ZONE].zone, feed.grids[ZONE], whole)
        assert state.word == ("waiting" if whole else "being read")
        assert sum(load.replicas for load in feed.grids[ZONE].loads().values()) == 12


async def test_limits_are_counted_when_they_change_and_else_seldom(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        recount = Recount(world.mirror, world.keyspace)
        assert not recount.is_due, "there are no limits"
        await world.put(world.keyspace.limits, Limits(cluster_moves=1).encode())
        await world.settle()
        assert recount.is_due
        await recount.count()
        assert recount.causes is not None
        assert not recount.is_due, "nothing has changed"
        recount.spent(3_600)
        await world.run(CREATE)
        assert not recount.is_due, "it took an hour, and the next one is not due for more than that"
        await world.put(world.keyspace.limits, Limits().encode())
        await world.settle()
        assert recount.is_due, "other limits"
        await recount.count()
        assert recount.causes is None
