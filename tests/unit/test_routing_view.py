"""The routing map that a server gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sortedcontainers import SortedList

from app.views.routing import BODIES_MAX, RoutingView
from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.ports.groups import Route

KEYSPACE = Keyspace("z/")
ZONE = Zone(ZoneId(7), "ORDERS", 2, 1, None, ("default",))


class Listed:
    def __init__(self, *voters: str, generation: int = 0) -> None:
        self.voters = voters
        self.generation = generation

    def route(self, partition: PartitionId) -> Route:
        return Route(self.voters, self.generation) if partition.partition else Route()

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        raise AssertionError

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        raise AssertionError

    def doubt(self, partition: PartitionId) -> None:
        raise AssertionError


def view(revision: int, *voters: str, epoch: int = 1, generation: int = 0) -> RoutingView:
    item = KeyValue(KEYSPACE.epoch, EpochRecord(epoch).encode(), 1, 1, 1)
    copy = KeyspaceCopy("z/", revision, {item.key: item}, SortedList([item.key]))
    return RoutingView(copy, KEYSPACE, Listed(*voters, generation=generation))


@pytest.mark.row("IEP-011", "R8")
def test_a_map_names_each_partitions_voters_in_order() -> None:
    """IEP-011: by partition; a group that is not founded has none. R8: with the generation of the group."""
    found = view(39, "http://b", "http://a", generation=17).document(ZONE)
    assert found.body == {
        "zone": "ORDERS",
        "zone_id": 7,
        "key_hash": "murmur3-32",
        "engine": "etcd",
        "partitions": [
            {"partition": 0, "voters": [], "generation": None},
            {"partition": 1, "voters": ["http://b", "http://a"], "generation": 17},
        ],
        "version": 39,
    }


def test_the_tag_changes_with_the_map_and_the_version_with_the_metastore() -> None:
    """A metastore that was restored counts anew: its maps are newer all the same."""
    old, later, other, reset, restored = (
        view(39, "http://a").document(ZONE),
        view(40, "http://a").document(ZONE),
        view(40, "http://b").document(ZONE),
        view(40, "http://a", generation=39).document(ZONE),
        view(7, "http://a", epoch=2).document(ZONE),
    )
    assert old.digest == later.digest == restored.digest
    assert len({old.digest, other.digest, reset.digest}) == 3
    assert old.version < later.version < restored.version


def test_a_map_that_is_made_anew_takes_no_other_ones_place() -> None:
    """A change in one of as many zones as maps are kept has no other map made anew."""
    zones = [replace(ZONE, zone_id=ZoneId(number)) for number in range(BODIES_MAX)]
    bases, made = dict.fromkeys((zone.zone_id for zone in zones), 0), list[ZoneId]()

    class Noted(Listed):
        def route(self, partition: PartitionId) -> Route:
            made.append(partition.zone_id)
            return super().route(partition)

    maps = RoutingView(KeyspaceCopy("z/", 1, {}, SortedList()), KEYSPACE, Noted("http://a"), bases.get)
    for zone in zones:
        maps.document(zone)
    made.clear()
    bases[ZoneId(5)] = 1
    for zone in (zones[5], *zones):
        maps.document(zone)
    assert set(made) == {ZoneId(5)}
