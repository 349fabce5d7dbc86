"""The watch beside a leader: when it gives a joiner up, and what stops it in the last moment (M1, M3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import GivenUpRecord, MemberRecord, MemberRole, MemberState, NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn, TxnResult
from rebalance.nodes.copy_attempts import CopyRules
from rebalance.nodes.joiner_watch import JoinerWatch
from rebalance.nodes.partition_view import NodePartitionView, Recorded
from rebalance.nodes.registration import HeardTime
from rebalance.ports.groups import GroupMember
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)
KEYSPACE = Keyspace()
KEYS = KEYSPACE.partition(P0)
STABLE, PENDING = Assignments(("a", "b", "c")), Assignments(("a", "b", "d"))
TIMEOUT_S = 60


def member(name: str, state: MemberState = MemberState.RUNNING) -> MemberRecord:
    return MemberRecord(state, f"http://{name}", "c", started=True)


@dataclass
class ContendedMetastore(MemoryMetastore):
    """``meanwhile`` is committed between a reading and the next write."""

    meanwhile: Txn | None = None

    def __post_init__(self) -> None:
        super().__init__()

    async def commit(self, txn: Txn) -> TxnResult:
        if self.meanwhile is not None and txn.compares:
            txn_before, self.meanwhile = self.meanwhile, None
            await super().commit(txn_before)
        return await super().commit(txn)


@dataclass
class World:
    """World whose mirror shows that ``d`` is gone and that a group of three lists it as a learner."""

    metastore: ContendedMetastore = field(default_factory=ContendedMetastore)
    heard: HeardTime = field(default_factory=lambda: HeardTime(5.0))

    def __post_init__(self) -> None:
        self.watch = JoinerWatch(
            node_context(self.metastore), lambda: CopyRules(joiner_s=TIMEOUT_S), self.heard
        )
        self.members = [GroupMember(name, name, MemberRole.VOTER, f"http://{name}") for name in "abc"]
        self.members.append(GroupMember("d", "d", MemberRole.LEARNER, "http://d"))
        records = {name: Recorded(member(name), 1, 1) for name in "abcd"}
        stable, pending = Recorded(STABLE, 1, 1), Recorded(PENDING, 1, 1)
        self.view = NodePartitionView(P0, KEYS, stable, pending, None, None, records, frozenset("abc"))

    async def put(self, key: str, value: bytes) -> None:
        await self.metastore.commit(Txn((), (Put(key, value),)))

    async def begin(self, pending: Assignments = PENDING) -> None:
        await self.put(KEYS.stable, STABLE.encode())
        await self.put(KEYS.pending, pending.encode())
        await self.put(KEYSPACE.member(P0, "d"), member("d").encode())

    async def look_for(self, seconds: float, *, living: str = "abc") -> bool:
        """Rounds while the agent hears the metastore for so long; whether one gave up."""
        view = replace(self.view, living=frozenset(living))
        given_up = await self.watch.look(view, self.members)
        self.heard.now_s += seconds
        return await self.watch.look(view, self.members) or given_up

    async def pending(self) -> Assignments | None:
        found = await self.metastore.get(KEYS.pending)
        return Assignments.decode(found.value) if found else None


@pytest.fixture
async def world() -> World:
    made = World()
    await made.begin()
    return made


@pytest.mark.row("M1", "M3")
async def test_it_is_given_up_after_the_time_and_not_before(world: World) -> None:
    """M1, M3: pending is what is stable again, the lock is gone, and the record names it."""
    await world.put(KEYS.lock, PendingLock(2).encode())
    assert not await world.look_for(TIMEOUT_S - 1)
    assert await world.look_for(1)
    assert await world.pending() == STABLE
    assert await world.metastore.get(KEYS.lock) is None
    found = await world.metastore.get(KEYSPACE.given_up(P0))
    assert found is not None
    assert GivenUpRecord.decode(found.value).names() == ("d",)


@pytest.mark.row("M3")
async def test_a_break_begins_anew(world: World) -> None:
    """M3: it was seen alive in between."""
    await world.look_for(TIMEOUT_S - 1)
    await world.look_for(0, living="abcd")
    assert not await world.look_for(TIMEOUT_S - 1)
    assert await world.look_for(1)


@pytest.mark.row("M3")
async def test_a_new_leadership_begins_anew(world: World) -> None:
    """M3: what was seen before another leadership says nothing."""
    await world.look_for(TIMEOUT_S - 1)
    world.watch.forget(P0)
    assert not await world.look_for(TIMEOUT_S - 1)


@pytest.mark.row("M3")
async def test_a_node_that_is_back_is_not_given_up(world: World) -> None:
    """M3: the mirror may be old; the store is asked."""
    await world.put(KEYSPACE.node("d"), NodeRecord(Node("d"), "i").encode())
    assert not await world.look_for(2 * TIMEOUT_S)
    assert await world.pending() == PENDING


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    "meanwhile",
    [
        Put(KEYSPACE.node("d"), NodeRecord(Node("d"), "i").encode()),
        Put(KEYSPACE.member(P0, "d"), member("d", MemberState.STARTING).encode()),
        Put(KEYS.planned, Assignments(("a",)).encode()),
        Put(KEYS.lock, PendingLock(2).encode()),
        Put(KEYS.trigger, b'{"v":1,"revision":9}'),
        Put(KEYS.stable, STABLE.encode()),
        Put(KEYSPACE.given_up(P0), GivenUpRecord(1).encode()),
        Delete(KEYS.pending),
    ],
    ids=lambda operation: operation.key.rpartition("zonekeeper/")[2],
)
async def test_nothing_is_written_on_what_has_changed(world: World, meanwhile: Put | Delete) -> None:
    """M1: each key that the decision was made from is guarded, those that say that it is gone as well."""
    await world.look_for(0)
    world.heard.now_s += TIMEOUT_S
    world.metastore.meanwhile = Txn((), (meanwhile,))
    assert not await world.watch.look(world.view, world.members)
    assert await world.pending() in (PENDING, None)


@pytest.mark.row("M1")
async def test_forced_pending_is_recoverys(world: World) -> None:
    """M1: it may name a node that is gone, and is never touched."""
    forced = replace(PENDING, forced=9)
    await world.begin(forced)
    world.view = replace(world.view, pending=Recorded(forced, 5, 5))
    assert not await world.look_for(2 * TIMEOUT_S)
    assert await world.pending() == forced
