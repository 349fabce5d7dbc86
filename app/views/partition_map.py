"""The partition map of a zone, for the REST API and for SQL: the published one, as the keyspace mirror has it;
for a store zone, whose copies are not reported, one made from the exchange's results.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.partition_maps.partition_map import ZoneMapPointer
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.kernels.partition_map import (
    LOST,
    MOVING,
    OWNING,
    STATE_NAMES,
    DamagedMapError,
    FullArrays,
    MapHeader,
    SingleArrays,
    decode_map,
    encode_map,
    merge,
)
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership

MAP_MEDIA_TYPE = "application/vnd.zonekeeper.partition-map"


@dataclass(frozen=True, slots=True)
class PublishedMap:
    """A map that is complete; ``data`` are the bytes as stored (``rebalance/tech-notes/partition-map.md``)."""

    pointer: ZoneMapPointer
    data: bytes
    full: FullArrays


def published_map(keys: KeyspaceCopy, keyspace: Keyspace, zone_id: ZoneId) -> PublishedMap | None:
    """The map that was published for the zone; None when there is none, or when its chunks are not all in the
    mirror yet. Raises RecordNotReadableError."""
    pointer = readable(keys.get(keyspace.zone_map(zone_id)), ZoneMapPointer.decode)
    if pointer is None:
        return None
    prefix = keyspace.zone_map_chunks(zone_id, pointer.sequence)
    chunks = list(keys.below(prefix))[: pointer.chunks]
    if len(chunks) < pointer.chunks:
        return None
    data = b"".join(chunk.value for chunk in chunks)
    try:
        if len(data) != pointer.size_bytes:
            raise DamagedMapError(f"{len(data)} bytes, not the {pointer.size_bytes} of the map")
        return PublishedMap(pointer, data, _decoded(data))
    except DamagedMapError as error:
        raise RecordNotReadableError(str(error), prefix) from error


@lru_cache(maxsize=16)
def _decoded(data: bytes) -> FullArrays:
    return decode_map(data)[1]


def map_json(zone: Zone, published: PublishedMap) -> dict[str, Any]:
    """One entry for each partition of the map."""
    pointer, full = published.pointer, published.full
    nodes, states = full.nodes.tolist(), full.states.tolist()
    counters, sizes = full.counters.tolist(), full.sizes.tolist()
    starts, leaders, terms = full.starts.tolist(), full.leaders.tolist(), full.terms.tolist()
    return {
        "zone": zone.name,
        "zone_id": zone.zone_id,
        "version": str(pointer.version),
        "sequence": pointer.sequence,
        "coordinator": pointer.coordinator,
        "partitions": [
            {
                "partition": number,
                "primary": full.names[leaders[number]] if leaders[number] >= 0 else None,
                "term": terms[number],
                "copies": {
                    full.names[nodes[index]]: {
                        "state": STATE_NAMES[states[index]],
                        "counter": counters[index],
                        "size_bytes": sizes[index],
                    }
                    for index in range(starts[number], starts[number + 1])
                },
            }
            for number in range(full.partitions)
        ],
    }


CopyRow = tuple[int, int, int, int, bool]
"""Partition, state, counter, epoch, and whether it leads."""


def partition_map_of(
    keys: KeyspaceCopy, keyspace: Keyspace, ownership: StoreOwnership, zone_id: ZoneId
) -> PublishedMap | None:
    """The partition map of any zone; None where there is none yet. Raises RecordNotReadableError."""
    if ownership.has(zone_id):
        return store_map(ownership, zone_id)
    return published_map(keys, keyspace, zone_id)


def store_map(ownership: StoreOwnership, zone_id: ZoneId) -> PublishedMap:
    """Make the map of a zone of the ring, with the copies on servers that take part. Its version is that of the
    last result, its sequence the number of the ring's last event; a partition's term is the epoch of its
    primary. A counter is the least that every owner has; sizes are not known."""
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
