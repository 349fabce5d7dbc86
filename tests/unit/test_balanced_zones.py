"""A balanced zone through catalog, controllers and EXPLAIN, with the metastore in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.sql.statements.results import SessionContext
from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.target import TargetPointer
from tests.unit.sql_world import World, opened

PARTITIONS = 21
NODES = tuple(Node(f"n{number}") for number in range(1, 6))
CREATE = f"CREATE ZONE even (PARTITIONS {PARTITIONS}, REPLICAS 3, DISTRIBUTION ALGORITHM 'balanced')"


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path, nodes=NODES) as made:
        await made.run(CREATE)
        yield made


async def targets(world: World, zone_id: int = 1) -> list[tuple[str, ...]]:
    """Nodes by partition, the primary first, as the stored target has them."""
    pointer = await world.metastore.get(world.keyspace.target_pointer(ZoneId(zone_id)))
    assert pointer is not None
    target = await world.zones._targets.read(ZoneId(zone_id), pointer)
    return [each.peers for each in target.assignments()]


async def rows(world: World, sql: str) -> list[tuple[Any, ...]]:
    return list((await world.engine.execute(sql, SessionContext())).rows)


def spread(counts: Counter[str]) -> int:
    return max(counts.values()) - min(counts.values())


@pytest.mark.row("IEP-036", "IEP-037")
async def test_even_and_the_least_moves_when_a_node_joins(world: World) -> None:
    """IEP-036, IEP-037: replicas and primaries of nodes differ by one at most; only the joined one gets."""
    before = await targets(world)
    assert spread(Counter(node for peers in before for node in peers)) <= 1
    assert spread(Counter(peers[0] for peers in before)) <= 1
    await world.set_nodes(*NODES, Node("n6"))
    assert await world.zones.reconcile([ZoneId(1)]) == {}
    after = await targets(world)
    held = Counter(node for peers in after for node in peers)
    assert spread(held) <= 1
    assert spread(Counter(peers[0] for peers in after)) <= 1
    gained = [set(now) - set(was) for was, now in zip(before, after, strict=True)]
    assert {node for nodes in gained for node in nodes} == {"n6"}
    assert sum(map(len, gained)) == held["n6"]


async def test_what_is_placed_is_not_placed_again(world: World) -> None:
    """``balanced(previous=t) == t``: a rename, and a controller that knows nothing, move nothing."""
    key = world.keyspace.target_pointer(ZoneId(1))
    before = await world.metastore.get(key)
    await world.run("ALTER ZONE even RENAME TO still_even")
    world.zones.forget()
    assert await world.zones.reconcile([ZoneId(1)]) == {}
    assert await world.metastore.get(key) == before


@pytest.mark.row("IEP-011")
async def test_explain_tells_what_happens(world: World) -> None:
    """IEP-011: the plan is the result."""
    before = await targets(world)
    told = await rows(world, "EXPLAIN ALTER ZONE even SET (REPLICAS 2)")
    removed = {row[1]: row[5 - 1] for row in told if row[0] == "REMOVE"}
    assert not [row for row in told if row[0] in ("MOVE", "ADD")]
    await world.run("ALTER ZONE even SET (REPLICAS 2)")
    after = await targets(world)
    lost = Counter(node for was, now in zip(before, after, strict=True) for node in set(was) - set(now))
    assert dict(lost) == removed
    assert spread(Counter(node for peers in after for node in peers)) <= 1


async def test_zones_know_of_each_other(world: World) -> None:
    """The ceilings of two zones go to different nodes: 63 replicas on five nodes leave three over."""
    await world.run(CREATE.replace("even", "other"))
    every = [*await targets(world, 1), *await targets(world, 2)]
    totals = Counter(node for peers in every for node in peers)
    assert spread(totals) <= 1
    pointer = await world.metastore.get(world.keyspace.target_pointer(ZoneId(2)))
    assert pointer is not None
    surplus = TargetPointer.decode(pointer.value).surplus
    assert [len(row) for row in surplus] == [5, 5, 5]
    assert all(abs(sum(row)) < 0.01 for row in surplus)


async def test_each_choice_is_explained(world: World) -> None:
    await world.serve(1, PARTITIONS)
    peers = (await targets(world))[4]
    told = {row[0]: (row[1], row[2], row[7]) for row in await rows(world, "EXPLAIN PARTITION even.4")}
    for rank, name in enumerate(peers, start=1):
        verdict, shown, reason = told[name]
        assert (verdict, shown) == ("VOTER", rank)
        assert reason.startswith("balanced: voter, where it was; it holds 1")
    for name in set(told) - set(peers):
        verdict, shown, reason = told[name]
        assert (verdict, shown) == ("CANDIDATE", None)
        assert "data nodes hold 12 to 13, so this partition's replicas are on others" in reason


def racks(weights: dict[str, float]) -> tuple[Node, ...]:
    """Six nodes in three racks."""
    return tuple(
        Node(f"n{n}", weight=weights.get(f"n{n}", 1.0), failure_domain=f"r{n % 3}") for n in range(1, 7)
    )


@pytest.mark.row("IEP-036")
async def test_voters_are_in_different_failure_domains(world: World) -> None:
    """IEP-036: with three racks no two of three voters share one, and the nodes of a rack are even."""
    await world.set_nodes(*racks({}))
    assert await world.zones.reconcile([ZoneId(1)]) == {}
    placed = await targets(world)
    for peers in placed:
        assert len({int(name[1:]) % 3 for name in peers}) == 3
    held = Counter(node for peers in placed for node in peers)
    assert {held[name] for name in held} <= {10, 11}
    assert spread(Counter(peers[0] for peers in placed)) <= 1
    told = await rows(world, "EXPLAIN PARTITION even.4")
    assert any("its failure domain r1" in row[7] for row in told)
    # A rack that is lost keeps its nodes' places: nothing is known of them, and nothing moves.
    await world.set_nodes(*(node for node in racks({}) if node.failure_domain != "r0"))
    assert await world.zones.reconcile([ZoneId(1)]) == {}
    assert await targets(world) == placed


async def test_a_changed_weight_moves_shares(world: World) -> None:
    """A node that comes back with twice the weight gets twice the share; a rendezvous zone does not care."""
    await world.run("CREATE ZONE hashed (PARTITIONS 8, REPLICAS 3)")
    pointer = await world.metastore.get(world.keyspace.target_pointer(ZoneId(2)))
    await world.set_nodes(Node("n1", weight=2.0), *NODES[1:])
    assert await world.zones.reconcile([ZoneId(1), ZoneId(2)]) == {}
    held = Counter(node for peers in await targets(world) for node in peers)
    assert held.pop("n1") == PARTITIONS  # 63 * 2/6, and no partition twice
    assert set(held.values()) <= {10, 11}
    assert await world.metastore.get(world.keyspace.target_pointer(ZoneId(2))) == pointer
    shown = await rows(world, "SELECT node_name, weight FROM system.nodes ORDER BY node_name LIMIT 2")
    assert shown == [("n1", 2.0), ("n2", 1.0)]
    explained = await rows(world, "EXPLAIN ALTER ZONE even SET (REPLICAS 2)")
    after = {row[1]: row[3] for row in explained if row[0] == "BALANCE" and row[1].endswith(" replicas")}
    assert after["n1 replicas"] == "14"
