"""Moves of an operation, from where partitions are, also where an earlier one had not ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decide_on_configuration_applied
from rebalance.core.assignments.target import CopySizes
from tests.fixtures.observed_partitions import observe
from tests.unit.operations_world import OperationsWorld, operations_world

NODES = tuple(Node(f"n{number}") for number in range(1, 6))
ZONE = ZoneId(1)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.world.set_nodes(*NODES)
        yield made


async def stable_of(api: OperationsWorld) -> list[Assignments]:
    keyspace, store = api.world.keyspace, api.world.metastore
    seen = observe(keyspace, (await store.range(keyspace.zone_partitions(ZONE))).items)
    numbered = sorted((partition.partition, one) for partition, one in seen.items())
    return [Assignments.decode(one.stable.value) for _, one in numbered if one.stable is not None]


def targets_of(api: OperationsWorld) -> list[Assignments]:
    placed = KeyspaceViews(api.world.mirror, api.world.keyspace).placed(ZONE)
    assert placed is not None
    return list(placed.targets)


async def end_some_moves(api: OperationsWorld, count: int) -> None:
    keyspace, store = api.world.keyspace, api.world.metastore
    seen = observe(keyspace, (await store.range(keyspace.zone_partitions(ZONE))).items)
    for one in list(seen.values())[:count]:
        assert one.pending is not None
        decision = decide_on_configuration_applied(one, Assignments.decode(one.pending.value))
        assert decision.transaction is not None
        assert (await store.commit(decision.transaction)).succeeded
    await api.world.settle()


async def drain(api: OperationsWorld, name: str) -> dict:
    """Marked as leaving, and a data node of no zone any more."""
    answer = await api.http.put(f"/nodes/{name}/drain", json={"by": "ann", "reason": "new disks"})
    assert answer.status_code == 200, answer.text
    await api.world.set_nodes(*(Node(node.name, (), ()) if node.name == name else node for node in NODES))
    await api.reconcile()
    newest = await api.newest()
    assert newest["kind"] == "DRAIN"
    return await api.get(f"/operations/{newest['operation_id']}")


async def test_a_drain_takes_over_what_had_not_moved_yet(api: OperationsWorld) -> None:
    """The target before did not use the drained node any more, while its copy is still there."""
    await api.run("CREATE ZONE orders (PARTITIONS 1, REPLICAS 3)")
    await api.end_moves()
    (stable,) = await stable_of(api)
    await api.run("ALTER ZONE orders SET (REPLICAS 1)")
    (target,) = targets_of(api)
    leaving = next(name for name in stable.peers if name not in target.nodes)
    operation = await drain(api, leaving)
    (unchanged,) = targets_of(api)
    assert unchanged == target
    assert operation["partitions_to_move"] == 1
    assert {unit["donor"] for unit in operation["plan"]["units"]} == stable.nodes - target.nodes
    assert [batch["partitions"] for batch in operation["plan"]["first_batches"]] == [[0]]
    await api.end_moves()
    await api.look()
    (stable,) = await stable_of(api)
    assert stable == target
    assert (await api.newest())["state"] == "DONE"


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("done", [0, 7])
async def test_the_plan_is_from_where_each_partition_is(api: OperationsWorld, replicas: int, done: int) -> None:
    await api.run("CREATE ZONE orders (PARTITIONS 20, REPLICAS 3)")
    await api.end_moves()
    await api.run(f"ALTER ZONE orders SET (REPLICAS {replicas})")
    await end_some_moves(api, done)
    stood = await stable_of(api)
    operation = await drain(api, "n5")
    pairs = list(zip(stood, targets_of(api), strict=True))
    assert operation["partitions_to_move"] == sum(was != becomes for was, becomes in pairs)
    made = sum(len(becomes.nodes - was.nodes) for was, becomes in pairs)
    ended = sum(len(was.nodes) - len(was.nodes & becomes.nodes) for was, becomes in pairs)
    units = operation["plan"]["units"]
    assert sum(unit["copies"] for unit in units if unit["stealer"] not in (None, unit["donor"])) == made
    assert sum(unit["copies"] for unit in units if unit["donor"] not in (None, unit["stealer"])) == ended
    numbers = [number for batch in operation["plan"]["first_batches"] for number in batch["partitions"]]
    assert numbers == [number for number, (was, becomes) in enumerate(pairs) if was != becomes]


def test_where_partitions_stood_is_kept_beside_their_sizes() -> None:
    standing = ((3, Assignments(("n1", "n2"), ("n3",))), (4, Assignments(("n2",))))
    record = CopySizes(7, (1, 2, 3, 4, 5), standing)
    assert CopySizes.decode(record.encode()) == record
    assert b"standing" not in CopySizes(7, (1,)).encode(), "as builds before it read and write it"
