"""A world with one store zone: placed by the controllers, owned as the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app.views.keyspace_views import KeyspaceViews
from app.views.partition_map import PublishedMap, partition_map_of
from app.views.routing import ZoneEndpoints
from catalog.core.zone import STORE_ENGINE, Node, ZoneId
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.keys import PartitionId
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.nodes.partition_view import MirroredEndpoints, Mirrors
from rebalance.store.shell.store_client import server_url
from tests.fixtures.committed_ring import CommittedRing, incarnation_of, outcome
from tests.unit.sql_world import World, opened

ZONE = ZoneId(1)
NAMES = ("n1", "n2", "n3")
STORE_NODES = tuple(Node(name, profiles=("bulk",), engines=(("bulk", STORE_ENGINE),)) for name in NAMES)
PARTITIONS = 4


class Stored:
    """A zone of four partitions whose stable lists are those of placement."""

    def __init__(self, world: World, lists: Sequence[tuple[str, ...]]) -> None:
        self.world = world
        self.lists = lists
        self.ring = CommittedRing(world.keyspace)
        reader = RingReader(world.mirror, world.keyspace)
        self.views = KeyspaceViews(world.mirror, world.keyspace, ownership=lambda: reader.shown)
        groups = MirroredEndpoints(Mirrors(world.mirror, world.mirror, world.mirror, world.keyspace))
        self.endpoints = ZoneEndpoints(world.mirror, reader, groups, self.views.is_store)

    @property
    def owned(self) -> list[PartitionOutcome]:
        """Outcomes in which each partition is owned by the nodes of its stable list."""
        return [outcome(*names) for names in self.lists]

    @property
    def map(self) -> PublishedMap | None:
        world = self.world
        return partition_map_of(world.mirror, world.keyspace, self.views.ownership, ZONE)

    async def commit(self, outcomes: Sequence[PartitionOutcome], **changes: Any) -> None:
        await self.world.metastore.commit(self.ring.after(NAMES, {ZONE: outcomes}, **changes))
        await self.world.settle()

    def status(self, number: int = 0) -> tuple[str, str]:
        status = self.views.partition(PartitionId(ZONE, number))["status"]
        return status["state"], status["cause"]

    def progress(self) -> tuple[str, dict[str, int]]:
        progress = self.views.progress(ZONE, 1)
        return progress["state"], {entry["cause"]: entry["partitions"] for entry in progress["causes"]}

    def url(self, name: str) -> str:
        return server_url("127.0.0.1", self.ring.ports[name], name, incarnation_of(name))

    async def column(self, sql: str, *names: str) -> list[tuple[object, ...]]:
        result = await self.world.run(sql)
        places = [[column.name for column in result.columns].index(name) for name in names]
        return [tuple(row[place] for place in places) for row in result.rows]

    async def objects(self, sql: str) -> list[dict[str, Any]]:
        result = await self.world.run(sql)
        names = [column.name for column in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.rows]


@asynccontextmanager
async def stored_zone(directory: Path) -> AsyncIterator[Stored]:
    """``KEPT``, with three copies of each partition."""
    async with opened(directory, nodes=STORE_NODES) as world:
        yield await created(world)


async def created(world: World) -> Stored:
    """Nodes have the profile ``bulk``."""
    await world.run("CREATE ZONE kept (PARTITIONS 4, REPLICAS 3) STORAGE PROFILES ['bulk']")
    keys = (world.keyspace.partition(PartitionId(ZONE, number)) for number in range(PARTITIONS))
    lists = [assigned.peers for key in keys if (assigned := await world.assignments(key.stable)) is not None]
    return Stored(world, lists)
