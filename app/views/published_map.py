"""The published partition map of a zone, as the keyspace mirror has it: for the REST API and for SQL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.partition_maps.zone_map import ZoneMapPointer
from rebalance.kernels.partition_map import STATE_NAMES, FullArrays
from rebalance.kernels.partition_map_codec import DamagedMapError, decode_map
from rebalance.metastore.mirror import KeyspaceCopy

MAP_MEDIA_TYPE = "application/vnd.zonekeeper.partition-map"


@dataclass(frozen=True, slots=True)
class PublishedMap:
    """``data`` are the bytes as they are stored (``rebalance/tech-notes/partition-map.md``)."""

    pointer: ZoneMapPointer
    data: bytes
    full: FullArrays


def published_map(keys: KeyspaceCopy, keyspace: Keyspace, zone_id: ZoneId) -> PublishedMap | None:
    """None when there is none, or when its chunks are not all in the mirror yet. Raises
    RecordNotReadableError."""
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
