"""Operations by kind of change: which one begins, who asked for it, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.core.zone import Node, Origin, ZoneIntent
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.operations.operation import Operation, OperationKind
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.timer_world import ZONE, TimerWorld
from tests.unit.operations_world import OperationsWorld, operations_world

BEGUN = "CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run(BEGUN)
        await made.run("CREATE TABLE t (id INT PRIMARY KEY) ZONE orders")
        await settled(made)
        yield made


async def settled(api: OperationsWorld) -> None:
    for zone in (await api.world.catalog.snapshot()).zones:
        await api.end_moves(zone.zone_id)
    await api.look()


async def listed(api: OperationsWorld) -> list[tuple[str, str, str]]:
    """Kind, state and statement, the newest first."""
    found = (await api.get("/operations"))["operations"]
    return [(each["kind"], each["state"], each["statement"] or "") for each in found]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE ZONE more (PARTITIONS 2)", "CREATE_ZONE"),
        ("CREATE ZONE IF NOT EXISTS orders (PARTITIONS 9)", None),
        ("ALTER ZONE orders SET (REPLICAS 2)", "ALTER_ZONE"),
        ("ALTER ZONE orders SET (REPLICAS 3, QUORUM SIZE 2)", "ALTER_ZONE"),
        ("""ALTER ZONE orders SET (NODES FILTER '$[?(@.region == "EU")]')""", "ALTER_ZONE"),
        ("ALTER ZONE orders SET (REPLICAS 1)", None),
        ("ALTER ZONE orders SET (AUTO SCALE UP 7, AUTO SCALE DOWN OFF)", None),
        ("ALTER ZONE orders SET (REBALANCE STRATEGY 'update')", None),
        ("ALTER ZONE IF EXISTS nowhere SET (REPLICAS 2)", None),
        ("ALTER ZONE orders RENAME TO sales", None),
        ("ALTER ZONE orders SET DEFAULT", None),
        ("CREATE TABLE more (id INT PRIMARY KEY) ZONE orders", None),
        ("CREATE TABLE more (id INT PRIMARY KEY)", "CREATE_ZONE"),
        ("ALTER TABLE t ADD COLUMN note VARCHAR", None),
        ("DROP TABLE t", None),
        ("DROP TABLE IF EXISTS nothing", None),
        ("DROP ZONE IF EXISTS nowhere", None),
    ],
)
async def test_each_statement_begins_its_operation_or_none(
    api: OperationsWorld, sql: str, kind: str | None
) -> None:
    assert await listed(api) == [("CREATE_ZONE", "DONE", BEGUN)]
    await api.run(sql)
    begun = (await listed(api))[:-1]
    assert [(each[0], each[2]) for each in begun] == ([(kind, sql)] if kind else [])
    await settled(api)
    assert [each[1] for each in (await listed(api))[:-1]] == ["DONE"] * len(begun)


@pytest.mark.parametrize(
    ("script", "kind", "statement"),
    [
        ("CREATE ZONE a (PARTITIONS 2); ALTER ZONE a RENAME TO b", "CREATE_ZONE", 0),
        ("CREATE ZONE a (PARTITIONS 2); ALTER ZONE a SET (REBALANCE STRATEGY 'update')", "CREATE_ZONE", 0),
        ("ALTER ZONE orders SET (REPLICAS 2); ALTER ZONE orders RENAME TO b", "ALTER_ZONE", 0),
        ("ALTER ZONE orders RENAME TO b; ALTER ZONE b SET (REPLICAS 2)", "ALTER_ZONE", 1),
    ],
)
async def test_what_is_taken_up_together_is_told_by_what_asked_for_it(
    api: OperationsWorld, script: str, kind: str, statement: int
) -> None:
    """The controllers see the last version only; a new name is not what asks for a placement."""
    await api.post("/statements", {"sql": script, "reason": "growth"})
    await api.reconcile()
    newest = await api.newest()
    assert (newest["kind"], newest["statement"]) == (kind, script.split("; ")[statement])
    assert newest["reason"] == "growth"


async def test_a_dropped_zone_takes_its_operation_along(api: OperationsWorld) -> None:
    """One that runs, too: nothing of it is left to be told, and none begins for the drop."""
    await api.run("ALTER ZONE orders SET (REPLICAS 3)")
    await api.run("DROP TABLE t")
    dropped = (await api.world.catalog.snapshot()).zones[0].zone_id
    await api.post("/statements", {"sql": "DROP ZONE orders"})
    await api.world.relay.relay_once()
    assert await api.world.zones.reconcile([dropped]) == {}
    await api.world.settle()
    await api.look()
    assert await listed(api) == []


async def test_nodes_that_come_and_go_are_told_as_nodes(api: OperationsWorld) -> None:
    await api.run("ALTER ZONE orders SET (AUTO SCALE UP 0)")
    await api.run("ALTER ZONE orders RENAME TO sales")
    await api.world.set_nodes(*api.world.nodes, Node("n4", profiles=("default", "rocks")))
    await api.reconcile()
    newest = await api.newest()
    assert (newest["kind"], newest["reason"]) == ("NODES_CHANGED", "data nodes: n4 came")
    assert (newest["by"], newest["statement"]) == (None, None)


class TimedOperations(TimerWorld):
    """Timer world with statements that a user has asked for."""

    async def ask(self, statement: str, **changed: object) -> None:
        before = self.intents[ZONE.zone_id]
        origin = Origin("ann", False, "growth", statement)
        intent = ZoneIntent(before.version + 1, replace(before.zone, **changed), origin=origin)
        self.intents[ZONE.zone_id] = intent
        put = Put(self.keyspace.intent(ZONE.zone_id), intent.encode())
        await self.store.commit(Txn((), (put,)))
        await self.reconcile()

    async def newest(self) -> Operation:
        items = (await self.store.range(self.keyspace.operations)).items
        return max((Operation.decode(item.value) for item in items), key=lambda each: each.event_revision)


async def timed() -> TimedOperations:
    """Two data nodes, and a third that waits for 60 seconds."""
    world = TimedOperations(MemoryMetastore(), Keyspace("test/"))
    await world.join("n1")
    await world.join("n2")
    await world.start()
    await world.publish(replace(ZONE, auto_scale_up=60))
    await world.join("n3")
    assert await world.nodes() == "n1,n2"
    return world


async def test_a_shorter_timer_is_what_asks_for_its_moves() -> None:
    world = await timed()
    await world.ask("ALTER ZONE z SET (AUTO SCALE UP 0)", auto_scale_up=0)
    newest = await world.newest()
    assert (newest.kind, newest.by, newest.reason) == (OperationKind.ALTER_ZONE, "ann", "growth")


@pytest.mark.parametrize("changed", [{"name": "Y"}, {"auto_scale_up": 90}, {"nodes_filter": "$[?(@.x != 1)]"}])
async def test_a_statement_is_not_to_blame_for_nodes_that_come_later(changed: dict[str, object]) -> None:
    """The statement moved nothing when it was taken up; the node that joins afterwards does."""
    world = await timed()
    await world.ask("ALTER ZONE z SET DEFAULT", auto_scale_up=0)
    await world.ask("ALTER ZONE z", **changed)
    await world.join("n4")
    await world.advance(200)
    assert await world.nodes() == "n1,n2,n3,n4"
    newest = await world.newest()
    assert (newest.kind, newest.by, newest.reason) == (OperationKind.NODES_CHANGED, "", "data nodes: n4 came")
