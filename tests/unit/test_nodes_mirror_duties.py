"""Destruction of a mirror: what the metastore says at that moment decides, not what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    GroupRecord,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.keyspace.txn import Delete, Put, Txn, TxnResult
from rebalance.nodes.kept_copies import RemovalJudge
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import Mirrors, NodePartitionView
from rebalance.nodes.registration import Registration
from rebalance.nodes.replica_duties import MirrorDuties
from rebalance.ports.groups import MemberLife
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.held_mirrors import HeldMirrors
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)
KEYSPACE = Keyspace()
KEYS = KEYSPACE.partition(P0)
LEARNS, GONE = Assignments(("n1",), ("n2",)), Assignments(("n1",))
VOTER = MemberRecord(MemberState.RUNNING, "http://n1:1", "http://n1:2", started=True)


class Interrupted(MemoryMetastore):
    """Metastore in which the learner is named again between the reading of the keys and its consequence."""

    armed = False

    async def commit(self, txn: Txn) -> TxnResult:
        if self.armed and not txn.compares:
            self.armed = False
            found = await super().commit(txn)
            await super().commit(Txn((), (Put(KEYS.pending, LEARNS.encode()),)))
            return found
        return await super().commit(txn)


class Learner:
    """Node n2 with a mirror that follows n1."""

    def __init__(self, directory: Path) -> None:
        self.store = Interrupted()
        self.mirrors = Mirrors.over(self.store, KEYSPACE)
        self.registration = Registration(self.store, KEYSPACE, NodeStart(Node("n2"), directory))
        self.host = HeldMirrors(MemberLife.RUNNING)
        self.records = OwnRecords(node_context(self.store, "n2", mirrors=self.mirrors))
        self.full = ""
        judge = RemovalJudge(self.store, KEYSPACE, self.registration)
        self.duties = MirrorDuties("n2", self.host, self.records, judge, lambda _partition: self.full)

    async def put(self, key: str, value: bytes) -> None:
        await self.store.commit(Txn((), (Put(key, value),)))

    async def view(self) -> NodePartitionView:
        """View of the partition once the mirrors hold everything that was written."""
        async with asyncio.timeout(60):
            for mirror in (self.mirrors.partitions, self.mirrors.members):
                while list(mirror.below(mirror.prefix)) != list(self.store.range_now(mirror.prefix).items):
                    await asyncio.sleep(0.01)
        return self.mirrors.view(P0)

    @property
    def is_kept(self) -> bool:
        return P0 in self.host.partitions()


@pytest.fixture
async def learner(tmp_path: Path) -> AsyncIterator[Learner]:
    made = Learner(tmp_path)
    following = asyncio.create_task(made.mirrors.run())
    await made.mirrors.loaded()
    member = ConfiguredMember("1", MemberRole.VOTER, VOTER.peer_url)
    for key, value in (
        (KEYS.stable, LEARNS.encode()),
        (KEYS.group, GroupRecord("t", {"n1": VOTER.peer_url}).encode()),
        (KEYS.configuration, ConfigurationRecord(1, "n1", Stage.NONE, {"n1": member}).encode()),
        (KEYSPACE.member(P0, "n1"), VOTER.encode()),
    ):
        await made.put(key, value)
    await made.duties.tend(await made.view())
    assert made.host.sources == {P0: (VOTER.client_url,)}
    yield made
    following.cancel()


@pytest.mark.row("I3-049")
async def test_it_goes_when_no_key_names_it(learner: Learner) -> None:
    """I3-049: the record goes first, and of a record that speaks of a member too only the mirror's part."""
    await learner.records.write_member(P0, VOTER)
    await learner.put(KEYS.stable, GONE.encode())
    assert await learner.duties.tend(await learner.view()) is None
    assert not learner.is_kept
    assert learner.records.of(P0) == VOTER
    await learner.records.write_member(P0, None)
    assert await learner.store.get(KEYSPACE.member(P0, "n2")) is None


async def test_a_view_that_is_old_destroys_nothing(learner: Learner) -> None:
    """The node's copy of the keys lags: asked again, they name it."""
    await learner.put(KEYS.stable, GONE.encode())
    old = await learner.view()
    await learner.put(KEYS.pending, LEARNS.encode())
    assert await learner.duties.tend(old) is not None
    assert learner.is_kept


async def test_a_key_that_is_written_meanwhile_destroys_nothing(learner: Learner) -> None:
    await learner.put(KEYS.stable, GONE.encode())
    view = await learner.view()
    learner.store.armed = True
    assert await learner.duties.tend(view) is not None
    assert not learner.store.armed
    assert learner.is_kept
    record = learner.records.of(P0)
    assert record is not None
    assert record.is_mirroring


async def test_a_metastore_that_went_back_destroys_nothing(learner: Learner) -> None:
    await learner.put(KEYS.stable, GONE.encode())
    view = await learner.view()
    learner.registration.saw(10**6)
    assert await learner.duties.tend(view) is not None
    assert learner.is_kept


async def test_an_adopted_metastore_waits_for_the_group(learner: Learner) -> None:
    """The copy may be the newest that is left, until the group has published its members after the adoption."""
    await learner.put(KEYSPACE.epoch, EpochRecord(2).encode())
    await learner.put(KEYS.stable, GONE.encode())
    zone = Zone(P0.zone_id, "Z", 1, 1, None, ("default",))
    await learner.put(KEYSPACE.intent(P0.zone_id), ZoneIntent(1, zone).encode())
    await learner.duties.tend(await learner.view())
    assert learner.is_kept
    found = await learner.store.get(KEYS.configuration)
    assert found is not None
    await learner.put(KEYS.configuration, found.value)
    await learner.duties.tend(await learner.view())
    assert not learner.is_kept


async def test_a_full_node_says_so(learner: Learner) -> None:
    await learner.host.stop(P0, destroy=True)
    learner.full = "NODE_MEMBER_LIMIT: 7 members and mirrors are held"
    await learner.duties.tend(await learner.view())
    record = learner.records.of(P0)
    assert record is not None
    assert record.mirror is not None
    assert (record.mirror.state, record.mirror.reason) == (MemberState.FAILED, learner.full)
    assert not learner.is_kept


async def test_while_stores_do_not_agree_a_mirror_goes_on(learner: Learner) -> None:
    """No assignment counts then, so none is begun and none is ended; one that stands still is started."""
    learner.host.life, learner.host.sources[P0] = MemberLife.STOPPED, ()
    await learner.duties.keep(await learner.view())
    assert learner.host.sources[P0] == (VOTER.client_url,)
    await learner.host.stop(P0, destroy=True)
    await learner.duties.keep(await learner.view())
    assert not learner.is_kept
    await learner.store.commit(Txn((), (Delete(KEYS.stable),)))
    learner.host.sources[P0] = ("kept",)
    await learner.duties.keep(await learner.view())
    assert learner.is_kept
