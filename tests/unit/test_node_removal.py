"""A node that is gone for good: what counts as held by it, its removal, and what becomes of its directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Node, ZoneId
from rebalance.core.admission.removed_node import RemovedNode
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import KeptRecord, RestartRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.registration import NodeRemovedError, Registration, cause_of_removal
from simulator.control.memory_metastore import MemoryMetastore
from tests.unit.operations_world import OperationsWorld, operations_world
from tests.unit.sql_world import DEFAULT_NODES

KEYS = Keyspace()
REMOVAL = "/nodes/n3/removal"
ASKED = {"by": "ann", "reason": "burnt"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    """n3 is gone; its zone waits for it without end."""
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 3)")
        await made.end_moves()
        await made.world.set_nodes(*DEFAULT_NODES[:2])
        yield made


async def moved(api: OperationsWorld) -> None:
    """Do what the groups and controllers do when n3 leaves the data nodes."""
    await api.run("ALTER ZONE orders SET (AUTO SCALE DOWN 0)")
    await api.end_moves()
    await api.world.settle()


async def n3(api: OperationsWorld) -> dict:
    nodes = (await api.get("/nodes"))["nodes"]
    return next(node for node in nodes if node["name"] == "n3")


def keys_of_n3(api: OperationsWorld) -> list[str]:
    keys = [item.key.removeprefix(api.world.keyspace.prefix) for item in api.world.mirror.below("")]
    return [key for key in keys if "n3" in key.split("/")[-1].split("@")[0]]


async def test_a_dead_node_is_drained_once_no_partition_counts_on_it(api: OperationsWorld) -> None:
    """A dead node can delete no record of its members itself: `drain --wait` waits for what counts on them."""
    await api.http.put("/nodes/n3/drain", json=ASKED)
    await api.world.settle()
    assert ((await n3(api))["members"], (await n3(api))["drain"]["state"]) == (4, "DRAINING")
    await moved(api)
    assert ((await n3(api))["members"], (await n3(api))["drain"]["state"]) == (0, "DRAINED")
    result = await api.world.run("SELECT node_name, members, drain_state FROM nodes ORDER BY 1")
    assert [tuple(row) for row in result.rows] == [("n1", 4, None), ("n2", 4, None), ("n3", 0, "DRAINED")]
    assert (await api.get("/nodes/n3/can-stop"))["members"] == 0
    states = (await api.get("/zones/orders/recovery/states"))["partitions"]
    assert {replica["node"] for state in states for replica in state["replicas"]} == {"n1", "n2"}


async def test_a_dry_run_says_what_counts_on_it_and_changes_nothing(api: OperationsWorld) -> None:
    before = await api.world.dump()
    plan = await api.post(REMOVAL, {**ASKED, "dry_run": True})
    assert plan == {"node": "n3", "state": "PLANNED", "zones": {"ORDERS": 4}, "losses": {}, "partitions": []}
    assert await api.world.dump() == before


async def test_its_replicas_move_and_then_its_records_go(api: OperationsWorld) -> None:
    world, keys = api.world, api.world.keyspace
    partition = PartitionId(ZoneId(1), 2)
    kept, restart = KeptRecord(3, "http://n3"), RestartRecord(False)
    await world.put(keys.kept(partition, "n3"), kept.encode())
    await world.put(keys.kept(partition, "n3", 4), kept.encode())
    await world.put(keys.restart(partition, "n3"), restart.encode())
    for key in (keys.fence("n3"), keys.node_map("n3"), keys.finished("n3"), keys.fence("n2")):
        await world.put(key, b"{}")
    draining = await api.post(REMOVAL, ASKED)
    assert (draining["state"], draining["zones"]) == ("DRAINING", {"ORDERS": 4})
    assert (await n3(api))["drain"]["by"] == "ann"
    await moved(api)
    assert len(keys_of_n3(api)) > 8
    removed = await api.post(REMOVAL, ASKED)
    assert (removed["state"], removed["zones"]) == ("REMOVED", {})
    assert keys_of_n3(api) == ["removed/n3"]
    assert world.mirror.get(keys.fence("n2")) is not None
    assert [node["name"] for node in (await api.get("/nodes"))["nodes"]] == ["n1", "n2"]
    audited = [
        (each["action"], each["subject"], each["reason"]) for each in (await api.get("/audit"))["records"]
    ]
    assert [each for each in audited if "NODE" in each[0]] == [
        ("REMOVE NODE", "n3", "burnt"),
        ("DRAIN NODE", "n3", "burnt"),
    ]
    again = await api.post(REMOVAL, ASKED, 404)
    assert again["name"] == "NODE_NOT_FOUND"


async def test_what_is_refused(api: OperationsWorld) -> None:
    """A node that lives, one that partitions need, and one that came back on the way."""
    alive = await api.post("/nodes/n2/removal", ASKED, 409)
    assert (alive["name"], "`zonectl node drain n2 --wait`" in alive["detail"]) == ("NODE_ALIVE", True)
    await api.world.set_nodes(DEFAULT_NODES[0])
    plan = await api.post(REMOVAL, {**ASKED, "dry_run": True})
    assert (plan["losses"], plan["partitions"][0]["zone"]) == ({"MAJORITY": 4}, "ORDERS")
    needed = await api.post(REMOVAL, ASKED, 409)
    assert needed["name"] == "NODE_NEEDED"
    assert "without n3, partition ORDERS.0, and 3 more would be left" in needed["detail"]
    assert "`zonectl recovery reset ORDERS --confirm-dead n3`" in needed["detail"]
    await api.world.set_nodes(*DEFAULT_NODES[:2])
    assert (await n3(api))["drain"] is None
    await api.post(REMOVAL, ASKED)
    await api.world.set_nodes(*DEFAULT_NODES)
    assert (await api.post(REMOVAL, ASKED, 409))["name"] == "NODE_ALIVE"


class Machine:
    """A node's directory, over a metastore in memory."""

    def __init__(self, store: MemoryMetastore, path: Path) -> None:
        self.store, self.path = store, path

    async def start(self) -> Registration:
        registration = Registration(self.store, KEYS, NodeStart(Node("n3"), self.path))
        await registration.register()
        return registration

    async def die(self) -> None:
        await self.store.commit(Txn((), (Delete(KEYS.node("n3")),)))

    async def cause(self) -> str:
        return await cause_of_removal(self.store, KEYS, "n3", self.path)


async def remove(store: MemoryMetastore, epoch: int = 1) -> None:
    record = RemovedNode("ann", "burnt", 1_000, epoch)
    await store.commit(Txn((), (Put(KEYS.removed_node("n3"), record.encode()),)))


@pytest.fixture
def store() -> MemoryMetastore:
    return MemoryMetastore()


async def test_the_directory_of_a_removed_node_is_not_used_again(
    store: MemoryMetastore, tmp_path: Path
) -> None:
    """An empty one joins as a new node, and goes on being one; the old one stays out for good."""
    old, new = Machine(store, tmp_path / "old"), Machine(store, tmp_path / "new")
    await old.start()
    await old.die()
    assert await old.cause() == ""
    await remove(store)
    assert await old.cause() == (
        f"NODE_REMOVED: {tmp_path / 'old'} is the directory that node n3 had before it was removed for good at "
        "1970-01-01T00:00:01Z by ann: burnt; nothing in it is started, and what it held is on other nodes: "
        "move it away and start the node again, which then joins as a new one"
    )
    with pytest.raises(NodeRemovedError):
        await old.start()
    assert await store.get(KEYS.node("n3")) is None
    for _ in range(2):
        assert await new.cause() == ""
        await new.start()
        await new.die()
    assert (await old.cause()).startswith("NODE_REMOVED: ")
    await remove(store)
    assert (await new.cause()).startswith("NODE_REMOVED: ")


async def test_a_process_that_was_cut_off_meanwhile_does_not_register_again(
    store: MemoryMetastore, tmp_path: Path
) -> None:
    """Nor does one that has seen what came after the removal before it knew that its lease is gone."""
    machine = Machine(store, tmp_path)
    registration = await machine.start()
    await machine.die()
    await remove(store)
    await store.commit(Txn((), (Put(KEYS.limits, b"{}"),)))
    registration.saw((await store.range(KEYS.prefix)).revision)
    with pytest.raises(NodeRemovedError):
        await registration.register()


async def test_a_removal_counts_in_its_epoch(store: MemoryMetastore, tmp_path: Path) -> None:
    """Revisions begin again in a metastore that was restored: what was in use before it was adopted is older
    than a removal after, whatever its revision."""
    before, after = Machine(store, tmp_path / "before"), Machine(store, tmp_path / "after")
    await remove(store, epoch=2)
    await before.start()
    await before.die()
    assert (await before.cause()).startswith("NODE_REMOVED: ")
    (await after.start()).adopted(2, (await store.range(KEYS.prefix)).revision)
    await after.die()
    assert await after.cause() == ""


async def test_a_removal_that_cannot_be_read_holds_the_node(store: MemoryMetastore, tmp_path: Path) -> None:
    """The removal may be of this directory; every server names the key."""
    machine = Machine(store, tmp_path)
    await machine.start()
    await machine.die()
    await store.commit(Txn((), (Put(KEYS.removed_node("n3"), b"?"),)))
    assert (await machine.cause()).startswith("RECORD_NOT_READABLE: ")


async def test_servers_name_a_removal_that_cannot_be_read(api: OperationsWorld) -> None:
    key = api.world.keyspace.removed_node("n3")
    await api.world.put(key, b"?")
    await api.world.settle()
    unreadable = KeyspaceViews(api.world.mirror, api.world.keyspace).unreadable()
    assert [record.key for record in unreadable] == [key]
