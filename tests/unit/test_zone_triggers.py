"""Zones, and changes of a zone, that make partitions move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.controllers.topology import DataNodesKeeper, KnownTopology
from rebalance.controllers.zone import ZoneController
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.local_engine import LocalPlacementEngine

KEYSPACE = Keyspace()
NODES = tuple(Node(f"n{number}") for number in range(5))


def zone(number: int, replicas: int, quorum: int | None = None) -> Zone:
    names = ("default",)
    return Zone(ZoneId(number), f"Z{number}", 2, replicas, quorum_size=quorum, storage_profiles=names)


async def handle(store: MemoryMetastore, version: int, wanted: Zone) -> None:
    intent = ZoneIntent(version, wanted)
    await store.commit(Txn((), (Put(KEYSPACE.intent(wanted.zone_id), intent.encode()),)))
    data_nodes = DataNodesKeeper(store, KEYSPACE, lambda: KnownTopology.of(*NODES))
    zones = ZoneController(store, KEYSPACE, LocalPlacementEngine(), data_nodes)
    assert await zones.reconcile([wanted.zone_id]) == {}


async def pending(store: MemoryMetastore, number: int) -> list[Assignments]:
    found = (await store.range(KEYSPACE.zone_partitions(ZoneId(number)))).items
    return [Assignments.decode(each.value) for each in found if each.key.endswith("/pending")]


@pytest.mark.row("I3-015")
async def test_one_zones_event_triggers_that_zone_alone() -> None:
    """S023, I3-015: pending for each partition of zone 1, none for zone 2."""
    store = MemoryMetastore()
    for number in (1, 2):
        await handle(store, number, zone(number, 1))
    await handle(store, 3, zone(1, 3))
    assert len(await pending(store, 1)) == 2
    assert await pending(store, 2) == []


@pytest.mark.row("I3-011")
async def test_quorum_size_alone_triggers() -> None:
    """S238, I3-011: another consensus size moves the group, though REPLICAS stay."""
    store = MemoryMetastore()
    await handle(store, 1, zone(1, 5, quorum=3))
    await handle(store, 2, replace(zone(1, 5), quorum_size=2))
    moves = await pending(store, 1)
    assert len(moves) == 2
    assert all(len(each.peers) == 3 for each in moves)
