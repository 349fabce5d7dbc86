"""The partition map of a store zone: nobody reports copies of it, since each result says who has which."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from app.views.published_map import PublishedMap, published_map
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.zone_map import ZoneMapPointer
from rebalance.exchange.core.result_record import PartitionOutcome
from rebalance.kernels.partition_map import LOST, MOVING, OWNING, SingleArrays, merge
from rebalance.kernels.partition_map_codec import MapHeader, encode_map
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership

CopyRow = tuple[int, int, int, int, bool]
"""Partition, state, counter, epoch, and whether it leads."""


def partition_map_of(
    keys: KeyspaceCopy, keyspace: Keyspace, ownership: StoreOwnership, zone_id: ZoneId
) -> PublishedMap | None:
    """Of any zone; None where there is none yet. Raises RecordNotReadableError."""
    if ownership.has(zone_id):
        return store_map(ownership, zone_id)
    return published_map(keys, keyspace, zone_id)


def store_map(ownership: StoreOwnership, zone_id: ZoneId) -> PublishedMap:
    """Of a zone of the ring, on servers that take part. Its version is that of the last result, its sequence
    the number of the ring's last event; a partition's term is the epoch of its primary. Counters are what every
    owner has at least; sizes are not known."""
    ring, count = ownership.ring, ownership.ring.cluster.zones[zone_id].partitions
    rows: dict[str, list[CopyRow]] = defaultdict(list)
    for number in range(count):
        outcome = ownership.outcome(zone_id, number)
        for name in {*outcome.in_sync, *outcome.effective, *outcome.filling} & ownership.servers:
            state = _state(outcome, name)
            counter = outcome.position.counter if state == OWNING else 0
            rows[name].append((number, state, counter, outcome.epoch, name in outcome.effective[:1]))
    names = sorted(rows)
    full = merge(names, [_single(rows[name]) for name in names], count)
    version = ownership.result
    header = MapHeader(zone_id, version.major, version.minor, 0, ring.number)
    data = encode_map(header, full)
    coordinator = ring.cluster.coordinator or ""
    pointer = ZoneMapPointer(version, ring.number, coordinator, 1, len(data), 0, 0, 0)
    return PublishedMap(pointer, data, full)


def _state(outcome: PartitionOutcome, name: str) -> int:
    if outcome.is_lost:
        return LOST
    return OWNING if name in outcome.effective or name in outcome.in_sync else MOVING


def _single(rows: list[CopyRow]) -> SingleArrays:
    numbers, states, counters, epochs, leads = zip(*rows, strict=True)
    return SingleArrays(
        np.array(numbers, dtype=np.int32),
        np.array(states, dtype=np.uint8),
        np.array(counters, dtype=np.int64),
        np.zeros(len(rows), dtype=np.int64),
        np.array(epochs, dtype=np.int64),
        np.array(leads, dtype=np.bool_),
    )
