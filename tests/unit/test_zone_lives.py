"""The token of each life of a zone's id: who has it, and what becomes of copies that have another one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from catalog.service import CatalogService
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Cluster, TopologyVersion, ZoneSpec
from rebalance.exchange.core.exchange_messages import ResultState
from rebalance.nodes.engine_hosts import NoMirrors
from rebalance.nodes.kept_copies import ForeignCopies
from rebalance.nodes.member_starts import ZoneNotes
from rebalance.nodes.own_records import OwnRecords
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from rebalance.store.core.copy_moves import CopyMoves
from rebalance.store.core.disk_changes import KeepHead, KeepMark
from rebalance.store.core.disk_marks import ZoneLives
from rebalance.store.core.log_records import CopyHead
from rebalance.store.core.ring_records import RingState, StoreStart, decode_ring, encode_ring
from rebalance.store.core.store_effects import StopServer
from rebalance.store.core.store_inputs import Ticked
from rebalance.store.core.store_server import StoreServer
from simulator.control.memory_metastore import MemoryMetastore
from simulator.store.store_disk import SimulatedDisk
from tests.fixtures.memory_unit_of_work import MemoryUnitOfWork
from tests.fixtures.mirrors import loaded_zones
from tests.fixtures.node_context import node_context
from tests.fixtures.script_runner import script_of
from tests.unit.catalog.commands import nodes

ID = ZoneId(7)
PARTITION = PartitionId(ID, 2)
ZONE = Zone(ID, "Z", 4, 3, None, ("default",), life="now")
INTENT = ZoneIntent(3, ZONE)


def test_a_zone_has_the_statement_that_created_it_for_life() -> None:
    store = MemoryUnitOfWork()
    sql = "CREATE ZONE a; ALTER ZONE a SET (REPLICAS 3); ALTER ZONE a RENAME TO b; DROP ZONE b; CREATE ZONE b"
    script = script_of(sql, nodes(3), statement_ids=["s1", "s2", "s3", "s4", "s5"])
    CatalogService(store).execute_together([script])
    lives = [{zone.name: zone.life for zone in snapshot.zones} for snapshot in store.snapshots[1:]]
    assert lives == [{"A": "s1"}, {"A": "s1"}, {"B": "s1"}, {}, {"B": "s5"}]


def test_an_intent_without_a_life_is_what_earlier_builds_wrote() -> None:
    old = ZoneIntent(3, replace(ZONE, life=""))
    assert b"life" not in old.encode()
    assert ZoneIntent.decode(INTENT.encode()).zone.life == "now"
    assert ZoneIntent.decode(old.encode()) == INTENT


@pytest.mark.parametrize(
    ("noted", "now", "is_foreign"),
    [
        ("then", "now", True),
        ("now", "now", False),
        ("", "now", False),
        ("then", "", False),
        ("then", None, False),
    ],
)
def test_which_copies_are_of_another_life(
    tmp_path: Path, noted: str, now: str | None, is_foreign: bool
) -> None:
    """A copy counts as foreign only if both lives are known; else what was served is served."""
    ZoneNotes(tmp_path).note(PARTITION, replace(INTENT, zone=replace(ZONE, life=noted)))
    intent = None if now is None else replace(INTENT, zone=replace(ZONE, life=now))
    cause = ZoneNotes(tmp_path).why_foreign(PARTITION, intent)
    assert cause.startswith("FOREIGN_COPY: ") is is_foreign
    assert ZoneNotes(tmp_path).why_foreign(PartitionId(ID, 3), intent) == ""


def test_what_is_noted_stays_until_nothing_is_here(tmp_path: Path) -> None:
    notes = ZoneNotes(tmp_path)
    notes.note(PARTITION, replace(INTENT, zone=replace(ZONE, life="then")))
    notes.note(PARTITION, INTENT)
    assert notes.why_foreign(PARTITION, INTENT)
    notes.forget(PARTITION)
    assert not ZoneNotes(tmp_path).why_foreign(PARTITION, INTENT)


@dataclass
class Held:
    """A host with one member."""

    life: MemberLife = MemberLife.RUNNING
    ended: list[bool] = field(default_factory=list)

    async def status(self, _: PartitionId) -> MemberStatus:
        return MemberStatus(self.life, MemberEndpoints("p", "c"))

    async def stop(self, _: PartitionId, *, destroy: bool) -> None:
        self.ended.append(destroy)
        self.life = MemberLife.STOPPED


async def test_a_foreign_member_is_stopped_and_named_and_stays(tmp_path: Path) -> None:
    """A copy of the new zone here makes no difference; a member whose directory was moved away is forgotten."""
    metastore, host = MemoryMetastore(), Held()
    await metastore.commit(Txn((), (Put(Keyspace().intent(ID), INTENT.encode()),)))
    notes, node = ZoneNotes(tmp_path), node_context(metastore, "n1", host)
    notes.note(PARTITION, replace(INTENT, zone=replace(ZONE, life="then")))
    async with loaded_zones(tmp_path, metastore) as zones:
        foreign = ForeignCopies(node, notes, zones, NoMirrors(), OwnRecords(node))
        for is_assigned in (True, False, True):
            assert await foreign.left_alone(PARTITION, holds=True, is_assigned=is_assigned)
            item = await metastore.get(Keyspace().member(PARTITION, "n1"))
            assert (item is not None) is is_assigned
        assert item is not None
        record = MemberRecord.decode(item.value)
        assert (record.state, record.started) == (MemberState.FAILED, False)
        assert record.reason.startswith("FOREIGN_COPY: ")
        assert host.ended == [False]
        assert await foreign.left_alone(PARTITION, holds=False, is_assigned=True) is None
        assert await foreign.left_alone(PARTITION, holds=True, is_assigned=True) is None
        assert not notes.why_foreign(PARTITION, INTENT)


def disk_with_a_copy(life: str) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.commit((KeepHead((ID, 2), CopyHead(CopyState.OWNING)),))
    if life:
        disk.commit((KeepMark(f"life {ID}", life.encode()),))
    return disk


def ring(life: str) -> RingState:
    return RingState(1, Cluster(TopologyVersion(1), zones={ID: ZoneSpec(ID, 4, 3, life=life)}))


@pytest.mark.parametrize(
    ("noted", "now", "is_refused"),
    [("then", "now", True), ("now", "now", False), ("", "now", False), ("then", "", False)],
)
def test_a_store_server_does_not_serve_copies_of_a_lost_zone(noted: str, now: str, is_refused: bool) -> None:
    server = StoreServer("a", "a-1", disk_with_a_copy(noted), StoreStart(ring(now), ResultState()))
    stops = [effect for effect in server.step(Ticked(0)) if isinstance(effect, StopServer)]
    assert bool(stops) is is_refused
    assert all(stop.reason.startswith("FOREIGN_COPY: ") for stop in stops)


def test_the_token_of_a_store_servers_copies_is_noted_once() -> None:
    lives = ZoneLives(SimulatedDisk(), (), {})
    spec = ZoneSpec(ID, 4, 3, life="now")
    assert lives.opened([spec, ZoneSpec(ZoneId(8), 1, 1)]) == [KeepMark(f"life {ID}", b"now")]
    assert lives.opened([spec]) == []


def test_copies_at_rest_are_not_dropped_before_the_ring_has_had_their_zone() -> None:
    """Neither store knows the zone, and it was not dropped."""
    server = StoreServer("a", "a-1", disk_with_a_copy("now"), StoreStart(RingState(), ResultState()))
    lives = ZoneLives(SimulatedDisk(), {ID}, server.shared.copies)
    moves = CopyMoves(server.shared)
    moves.prepare({}, (), lives.is_resting)
    assert (ID, 2) in server.shared.copies
    lives.opened([ZoneSpec(ID, 4, 3)])
    moves.prepare({}, (), lives.is_resting)
    assert (ID, 2) not in server.shared.copies


def test_a_ring_keeps_the_lives_of_its_zones() -> None:
    state = decode_ring(encode_ring(ring("now")))
    assert state.cluster.zones[ID].life == "now"
    assert b"life" not in encode_ring(ring(""))
