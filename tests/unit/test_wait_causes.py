"""Causes of what limits hold back: in SHOW, in progress, in EXPLAIN PARTITION."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.views.keyspace_views import KeyspaceViews
from app.views.waits import WaitCauses
from catalog.core.zone import STORE_ENGINE, Node, ZoneId
from rebalance.core.admission.limit_options import Window
from rebalance.core.admission.move_admission import Limits, Move, Pause
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from tests.unit.sql_world import DEFAULT_NODES, World, opened

ALICE = Pause("alice", "new disks", 0)


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[SandboxPool]:
    pool = SandboxPool(QueryLimits())
    yield pool
    await pool.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)")
        yield made


async def limit(world: World, limits: Limits) -> None:
    await world.put(world.keyspace.limits, limits.encode())
    await world.settle()
    while world.admission.limits != limits:
        await world.settle()


async def move(world: World, number: int, *nodes: str) -> None:
    """A partition that moves to these nodes already."""
    keys = world.keyspace.partition(PartitionId(ZoneId(1), number))
    await world.put(keys.pending, Assignments(nodes).encode())


async def causes(world: World) -> list[str]:
    """Causes of the four partitions, as SHOW PARTITIONS gives them."""
    result = await world.run("SHOW PARTITIONS FROM orders")
    names = [column.name for column in result.columns]
    return [str(row[names.index("CAUSE")]) for row in result.rows]


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (Limits(pause=ALICE), "PAUSED: by alice: new disks"),
        (
            Limits(pause=Pause("bob", "", 0, 4_102_444_800_000)),
            "PAUSED: by bob, until 2100-01-01T00:00:00Z",
        ),
        (Limits(zone_pauses={ZoneId(1): ALICE}), "PAUSED: the zone, by alice: new disks"),
        (Limits(cluster_moves=1), "CLUSTER_CAP: 1/1"),
        (Limits(zone_moves=1), "ZONE_CAP: 1/1"),
        (Limits(batch_size=2), "BATCH: 1 of the last batch move"),
    ],
)
async def test_the_cause_of_each_wait(world: World, limits: Limits, cause: str) -> None:
    """SHOW PARTITIONS gives the cause, and so does the progress that `--wait` and `status` show; partition 0
    moves already."""
    await limit(world, limits)
    await move(world, 0, "n1", "n2", "n3")
    await world.run("ALTER ZONE orders SET (REPLICAS 3)")
    assert (await causes(world))[1:] == [cause] * 3
    views = KeyspaceViews(world.mirror, world.keyspace)
    found = {each["cause"]: each["partitions"] for each in views.progress(ZoneId(1), 2)["causes"]}
    assert found[cause] == 3
    shown = views.partition(PartitionId(ZoneId(1), 2))["status"]
    assert shown == {"state": "WAITING", "cause": cause, "since": None}


@pytest.mark.parametrize("chunk", [b"\xff\xfe", b'{"v":2}', b"\xff" * 16])
async def test_a_damaged_target_is_named(world: World, chunk: bytes) -> None:
    """A target is damaged by the wrong size as a whole, or by rows that name no node; never a wait without a
    cause."""
    (stored,) = world.mirror.below(world.keyspace.zone_targets(ZoneId(1)))
    await world.put(stored.key, chunk)
    await world.settle()
    progress = KeyspaceViews(world.mirror, world.keyspace).progress(ZoneId(1), 1)
    assert progress["state"] == "MOVING"
    assert {each["cause"].partition(":")[0] for each in progress["causes"]} == {"RECORD_NOT_READABLE"}
    assert sum(each["partitions"] for each in progress["causes"]) == 4


async def test_what_waits_for_a_window_names_it_and_when_it_opens(world: World) -> None:
    await limit(world, Limits(windows=(Window.parse("Sat,Sun 22:00-04:00"),)))
    await world.run("ALTER ZONE orders SET (REPLICAS 3)")
    views = KeyspaceViews(world.mirror, world.keyspace, lambda: 0)
    told = "OUTSIDE_WINDOW: Sat,Sun 22:00-04:00 UTC opens 1970-01-03T22:00:00Z"
    assert views.progress(ZoneId(1), 2)["causes"] == [{"cause": told, "partitions": 4}]


@pytest.mark.row("VOL-010")
async def test_what_waits_for_another_operation_names_it(world: World) -> None:
    """VOL-010: one operation at a time: the second waits, and says for which; with nothing else in the way the
    first may begin. What another zone has begun before must end first, too."""
    await world.run("CREATE ZONE other (PARTITIONS 2, REPLICAS 1)")
    await limit(world, Limits(one_operation=True))
    await world.run("ALTER ZONE orders SET (REPLICAS 3)")
    await world.run("ALTER ZONE other SET (REPLICAS 3)")
    result = await world.run("SELECT OPERATION_ID FROM OPERATION_HISTORY WHERE ZONE_NAME = 'ORDERS'")
    first = result.rows[0][0]
    views = KeyspaceViews(world.mirror, world.keyspace)
    (waits,) = views.progress(ZoneId(2), 3)["causes"]
    assert waits == {"cause": f"OPERATION_RUNS: {first} goes first, one at a time", "partitions": 2}
    assert {each["cause"] for each in views.progress(ZoneId(1), 3)["causes"]} == {"TARGET_NOT_WRITTEN"}
    keys = world.keyspace.partition(PartitionId(ZoneId(2), 0))
    await world.put(keys.pending, Assignments(("n1", "n2")).encode())
    await world.settle()
    views = KeyspaceViews(world.mirror, world.keyspace)
    (waits,) = views.progress(ZoneId(1), 3)["causes"]
    assert waits["cause"] == "OPERATION_RUNS: 1 partitions of other zones move, one operation at a time"


async def test_members_are_counted(world: World) -> None:
    """A node with all the members that it may hold is named, and what is on its way to it counts."""
    await world.set_nodes(*(Node(each.name, each.attributes, each.profiles, 4) for each in DEFAULT_NODES))
    await limit(world, Limits(cluster_moves=9))
    for number in range(4):
        keys = world.keyspace.partition(PartitionId(ZoneId(1), number))
        await world.put(keys.stable, Assignments(("n1",)).encode())
    await move(world, 0, "n2", "n3")
    await world.settle()
    rooms = WaitCauses(world.mirror, world.keyspace, lambda: 0).rooms()
    assert rooms is not None
    assert rooms.cause(ZoneId(1), Move((), ("n1",), ("n1",))) == "NODE_MEMBER_LIMIT: n1 4/4"
    assert [rooms.member_room(node) for node in ("n1", "n2", "n3")] == [0, 3, 3]
    # The same copies are no members where store servers keep them.
    bulk = tuple((profile, STORE_ENGINE) for profile in DEFAULT_NODES[0].profiles)
    nodes = (Node(each.name, each.attributes, each.profiles, 4, engines=bulk) for each in DEFAULT_NODES)
    await world.set_nodes(*nodes)
    rooms = WaitCauses(world.mirror, world.keyspace, lambda: 0).rooms()
    assert rooms is not None
    assert [rooms.member_room(node) for node in ("n1", "n2", "n3")] == [4, 4, 4]


async def test_the_moves_of_few_partitions_are_counted_soon(world: World) -> None:
    """Moves of four partitions are counted after four milliseconds: a cap that is reached for a moment is named
    then."""
    now_ms = 0
    waits = WaitCauses(world.mirror, world.keyspace, lambda: now_ms)
    await limit(world, Limits(cluster_moves=1))
    to_other = Move((), ("n2",), ("n2",))

    def cause() -> str:
        rooms = waits.rooms()
        assert rooms is not None
        return rooms.cause(ZoneId(1), to_other)

    assert cause() == ""
    await move(world, 0, "n2", "n3")
    await world.settle()
    assert cause() == ""
    now_ms = 4
    assert cause() == "CLUSTER_CAP: 1/1"


async def test_explain_partition_says_what_a_node_waits_for(world: World) -> None:
    await limit(world, Limits(pause=ALICE))
    await world.run("ALTER ZONE orders SET (REPLICAS 3)")
    result = await world.run("EXPLAIN PARTITION orders.1")
    reasons = [str(row[-1]) for row in result.rows]
    waits = "the newest target is not written to this partition yet: PAUSED: by alice: new disks"
    assert sum(waits in reason for reason in reasons) == 2, reasons
    operations = await world.run("SELECT STATE, WAITING, CAUSES FROM system.operations")
    ((state, waiting, told),) = operations.rows
    assert (state, waiting) == ("WAITING", 4)
    assert json.loads(str(told)) == [{"cause": "PAUSED: by alice: new disks", "partitions": 4}]


async def test_a_pause_that_is_over_holds_nothing_back(world: World) -> None:
    """The end of a pause writes nothing: the views know by their clock, as the controllers do by theirs."""
    now_ms = time.time_ns() // 1_000_000
    await limit(world, Limits(pause=Pause("alice", "", now_ms, now_ms + 3_600_000)))
    await world.run("ALTER ZONE orders SET (REPLICAS 3)")
    clock = [now_ms]
    views = KeyspaceViews(world.mirror, world.keyspace, lambda: clock[0])
    partition = PartitionId(ZoneId(1), 1)
    assert views.partition(partition)["status"]["cause"].startswith("PAUSED: by alice, until ")
    clock[0] = now_ms + 3_600_000
    assert views.partition(partition)["status"]["cause"] == "TARGET_NOT_WRITTEN"
