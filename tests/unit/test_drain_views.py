"""A node that is leaving, as SQL shows it and as DDL counts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.views.keyspace_views import KeyspaceViews
from app.views.node_stop import can_stop
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.txn import Delete, Txn
from rebalance.core.moves.drain import Drain
from tests.unit.sql_world import World, opened


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 3)")
        await made.serve(1, 4)
        await made.put(made.keyspace.drain("n3"), Drain("alice", "new disks", 1_000).encode())
        await made.settle()
        yield made


async def drain_states(world: World) -> dict[str, object]:
    result = await world.run("SHOW NODES")
    names = [column.name for column in result.columns]
    return {str(row[0]): row[names.index("DRAIN_STATE")] for row in result.rows}


async def test_the_node_is_shown_as_leaving_until_it_holds_nothing(world: World) -> None:
    assert await drain_states(world) == {"n1": None, "n2": None, "n3": "DRAINING"}
    node = next(each for each in KeyspaceViews(world.mirror, world.keyspace).nodes() if each["name"] == "n3")
    assert node["drain"] == {
        "state": "DRAINING",
        "by": "alice",
        "reason": "new disks",
        "since": "1970-01-01T00:00:01Z",
    }
    members = [item for item in world.mirror.below(world.keyspace.members) if item.key.endswith("/n3")]
    assert len(members) == 4
    await world.metastore.commit(Txn((), tuple(Delete(item.key) for item in members)))
    await world.settle()
    assert (await drain_states(world))["n3"] == "DRAINED"


async def test_ddl_counts_it_out(world: World) -> None:
    """A quorum that only the drained node would make possible is refused."""
    with pytest.raises(StatementError) as refused:
        await world.run("CREATE ZONE wide (REPLICAS 5, QUORUM SIZE 3)")
    assert refused.value.kind is ErrorKind.QUORUM_EXCEEDS_DATA_NODES
    assert refused.value.message == "QUORUM SIZE 3 needs 3 data nodes, but 2 data nodes match now"


async def test_what_stops_with_a_node(world: World) -> None:
    """Three voters each: any one may stop, and the leader's partitions say so; two may not."""
    views = KeyspaceViews(world.mirror, world.keyspace)
    told = can_stop("n1", views, {ZoneId(1): "ORDERS"})
    assert (told["can_stop"], told["members"]) == (True, 4)
    assert set(told["losses"]) <= {"LEADER"}
    await world.set_nodes(*world.nodes[1:])
    told = can_stop("n2", views, {ZoneId(1): "ORDERS"})
    assert (told["can_stop"], told["losses"]["MAJORITY"]) == (False, 4)
    assert told["partitions"][0]["zone"] == "ORDERS"
    assert can_stop("n2", views, {})["losses"] == {}, "of a zone that is being dropped nothing is lost"
