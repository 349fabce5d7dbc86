"""A node that starts: which of its members run at once, and which ask no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.core.zone import ConsistencyMode, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import GroupRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.member_starts import MemberStarts, StrongZones, ZoneNotes
from rebalance.nodes.replica_decision import why_fenced
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

ZONE = Zone(ZoneId(1), "Z", 4, 1, None, ("default",))
PARTITIONS = [PartitionId(ZoneId(1), number) for number in range(4)]


@dataclass
class Disk:
    """A host that holds members of generation 5; those that it is asked to restart are kept."""

    restarted: list[PartitionId] = field(default_factory=list)
    held: list[PartitionId] = field(default_factory=lambda: PARTITIONS)

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(self.held)

    async def status(self, _: PartitionId) -> MemberStatus:
        return MemberStatus(MemberLife.STOPPED, MemberEndpoints("p", "c"), generation=5)

    async def restart(self, partition: PartitionId) -> None:
        self.restarted.append(partition)


def starts(
    metastore: MemoryMetastore, disk: Disk, directory: Path, *, without_metastore: bool = False
) -> MemberStarts:
    """Member starts of a node that begins on ``directory``."""
    strong, notes = StrongZones(directory, metastore, Keyspace()), ZoneNotes(directory)
    node = node_context(metastore, "b", disk)
    return MemberStarts(node, UnreadableLog(), strong, notes, without_metastore=without_metastore)


async def written(metastore: MemoryMetastore) -> None:
    """0: at rest. 1: founded anew without this member. 2: being founded on a. 3: being founded here."""
    keys = [Keyspace().partition(partition) for partition in PARTITIONS]
    puts = (
        Put(keys[0].group, GroupRecord("t", {"b": "p"}, 5).encode()),
        Put(keys[1].group, GroupRecord("t", {"a": "q"}, 9).encode()),
        Put(keys[2].pending, Assignments(("a",), forced=9).encode()),
        Put(keys[3].pending, Assignments(("b",), forced=9).encode()),
    )
    await metastore.commit(Txn((), puts))


@pytest.mark.row("IEP-051")
async def test_members_of_a_group_that_was_given_up_do_not_start(tmp_path: Path) -> None:
    """IEP-051: two of them together would be a majority of a group that nothing counts on any more."""
    metastore, disk = MemoryMetastore(), Disk()
    await written(metastore)
    await starts(metastore, disk, tmp_path).restart_members()
    assert disk.restarted == [PARTITIONS[0], PARTITIONS[3]]


async def test_members_of_a_lost_zone_do_not_start(tmp_path: Path) -> None:
    """The metastore has another zone of their id; what is not known to be of a lost one starts."""
    metastore, disk = MemoryMetastore(), Disk()
    notes = ZoneNotes(tmp_path)
    notes.note(PARTITIONS[1], ZoneIntent(1, replace(ZONE, life="lost")))
    notes.note(PARTITIONS[2], ZoneIntent(1, replace(ZONE, life="now")))
    intent = ZoneIntent(9, replace(ZONE, life="now"))
    await metastore.commit(Txn((), (Put(Keyspace().intent(ZONE.zone_id), intent.encode()),)))
    await starts(metastore, disk, tmp_path).restart_members()
    assert disk.restarted == [PARTITIONS[0], PARTITIONS[2], PARTITIONS[3]]
    assert "FOREIGN_COPY" in await starts(metastore, disk, tmp_path).clearance(PARTITIONS[1], 5)


async def has_heard_of_zones(metastore: MemoryMetastore, directory: Path) -> None:
    """A node ran on ``directory`` while there were zones: 1 is strong, 2 is not. It never heard of others."""
    zones = (ZONE, replace(ZONE, zone_id=ZoneId(2), consistency_mode=ConsistencyMode.HIGH_AVAILABILITY))
    for zone in zones:
        put = Put(Keyspace().intent(zone.zone_id), ZoneIntent(1, zone).encode())
        await metastore.commit(Txn((), (put,)))
    strong = StrongZones(directory, metastore, Keyspace())
    following = asyncio.create_task(strong.intents.run())
    async with asyncio.timeout(30):
        while ZONE.zone_id not in strong:
            await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize("without_metastore", [False, True])
async def test_who_starts_while_the_metastore_is_silent(tmp_path: Path, *, without_metastore: bool) -> None:
    """A group may have been founded anew meanwhile. An operator may vouch for zones that are never founded anew
    by themselves, as far as the node knows them."""
    metastore = MemoryMetastore()
    await written(metastore)
    await has_heard_of_zones(metastore, tmp_path)
    metastore.pause()
    of_zones = [PartitionId(ZoneId(zone), 0) for zone in (1, 2, 3)]
    disk = Disk(held=of_zones)
    await starts(metastore, disk, tmp_path, without_metastore=without_metastore).restart_members()
    assert disk.restarted == (of_zones[:1] if without_metastore else [])


async def test_a_damaged_note_of_zones_vouches_for_none(tmp_path: Path) -> None:
    (tmp_path / "strong_zones.json").write_text('{"v":1,"zones":[1')
    assert ZONE.zone_id not in StrongZones(tmp_path, MemoryMetastore(), Keyspace())


@pytest.mark.parametrize(
    ("generation", "pending", "group", "fenced"),
    [
        (0, None, None, False),
        (0, None, 0, False),
        (7, None, 7, False),
        (8, None, 7, False),
        (6, None, 7, True),
        (7, Assignments(("a",), forced=9), 7, True),
        (7, Assignments(("b",), forced=9), 7, False),
        (7, Assignments(("a",)), 7, False),
    ],
)
def test_who_may_run(generation: int, pending: Assignments | None, group: int | None, fenced: bool) -> None:
    record = GroupRecord("t", {}, group) if group is not None else None
    assert bool(why_fenced("b", generation, pending, record)) == fenced
