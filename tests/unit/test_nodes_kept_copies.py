"""A copy is kept only on keys that were not written since, and destroyed before its key goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import KeptRecord
from rebalance.core.keyspace.txn import Put, Txn, unchanged
from rebalance.nodes.kept_copies import KeptCopies, Removal, RemovalJudge, RemovalVerdict
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import NodePartitionView, Recorded
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)
KEYSPACE = Keyspace()
KEYS, KEPT = KEYSPACE.partition(P0), KEYSPACE.kept(P0, "n1")


@dataclass
class Disk:
    """A host of one member; ``stops`` says of each stop whether it destroyed."""

    metastore: MemoryMetastore
    stops: list[bool] = field(default_factory=list)
    key_at_stop: list[bool] = field(default_factory=list)

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset((P0,))

    async def stop(self, _: PartitionId, *, destroy: bool) -> None:
        self.stops.append(destroy)
        self.key_at_stop.append(await self.metastore.get(KEPT) is not None)


class World:
    def __init__(self) -> None:
        self.metastore = MemoryMetastore()
        self.disk = Disk(self.metastore)
        node = node_context(self.metastore, "n1", self.disk)
        self.copies = KeptCopies(node, OwnRecords(node), cast(RemovalJudge, None))

    async def put(self, key: str, value: bytes) -> int:
        return (await self.metastore.commit(Txn((), (Put(key, value),)))).revision

    async def kept(self) -> KeptRecord | None:
        found = await self.metastore.get(KEPT)
        return KeptRecord.decode(found.value) if found is not None else None


@pytest.mark.row("I3-049", "VOL-093")
@pytest.mark.parametrize("written_since", [False, True])
async def test_keeping_is_guarded_as_deleting_is(*, written_since: bool) -> None:
    """VOL-093, I3-049: pending names the node again before the copy is written down: nothing happens to it."""
    world = World()
    revision = await world.put(KEYS.stable, Assignments(("n2",)).encode())
    removal = Removal(
        RemovalVerdict.MAY_GO, (unchanged(KEYS.stable, revision), unchanged(KEYS.pending, 0)), event=7
    )
    if written_since:
        await world.put(KEYS.pending, Assignments(("n1", "n2")).encode())
    assert await world.copies.keep(P0, "http://n1:1", removal) is not written_since
    assert await world.kept() == (None if written_since else KeptRecord(7, "http://n1:1"))
    assert world.disk.stops == ([] if written_since else [False])
    assert world.disk.key_at_stop == ([] if written_since else [True]), "found again if the node dies here"


@pytest.mark.row("VOL-094")
async def test_a_copy_is_destroyed_before_its_key_goes() -> None:
    """VOL-094: a node that dies in between does it again; a key that was written since stays."""
    world = World()
    record = KeptRecord(7, "http://n1:1", discard=True)
    revision = await world.put(KEPT, record.encode())
    kept = {"n1": Recorded(record, revision, revision)}
    view = NodePartitionView(P0, KEYS, None, None, None, None, {}, frozenset(), kept=kept)
    await world.copies.discard(view)
    assert (world.disk.stops, world.disk.key_at_stop) == ([True], [True])
    assert await world.kept() is None
    await world.put(KEPT, record.encode())
    await world.copies.discard(view)
    assert await world.kept() == record
