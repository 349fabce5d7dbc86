"""A node that starts: which of its members run at once, and which ask no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import GroupRecord
from rebalance.core.txn import Put, Txn
from rebalance.metastore.memory import MemoryMetastore
from rebalance.nodes import agent as agents
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.fences import why_fenced
from rebalance.ports.groups import GroupHost, MemberEndpoints, MemberLife, MemberStatus

PARTITIONS = [PartitionId(ZoneId(1), number) for number in range(4)]


@dataclass
class Disk:
    """A host that holds members of generation 5; those that it is asked to restart are kept."""

    restarted: list[PartitionId] = field(default_factory=list)

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(PARTITIONS)

    async def status(self, _: PartitionId) -> MemberStatus:
        return MemberStatus(MemberLife.STOPPED, MemberEndpoints("p", "c"), generation=5)

    async def restart(self, partition: PartitionId) -> None:
        self.restarted.append(partition)


def node(metastore: MemoryMetastore, disk: Disk, directory: Path) -> NodeAgent:
    return NodeAgent(Node("b"), metastore, Keyspace(), cast(GroupHost, disk), directory)


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


async def test_members_of_a_group_that_was_given_up_do_not_start(tmp_path: Path) -> None:
    """IEP-051: two of them together would be a majority of a group that nobody counts on any more."""
    metastore, disk = MemoryMetastore(), Disk()
    await written(metastore)
    await node(metastore, disk, tmp_path)._restart_members()
    assert disk.restarted == [PARTITIONS[0], PARTITIONS[3]]


async def test_a_silent_metastore_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data path does not need it: every member starts."""
    monkeypatch.setattr(agents, "ASK_FIRST_S", 0.05)
    metastore, disk = MemoryMetastore(), Disk()
    await written(metastore)
    metastore.pause()
    await node(metastore, disk, tmp_path)._restart_members()
    assert sorted(disk.restarted, key=str) == PARTITIONS


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
