"""A zone's map as servers read it: whole, not there yet, or damaged; never one for the other."""

from __future__ import annotations

import numpy as np
import pytest
from sortedcontainers import SortedList

from app.views.partition_map import published_map
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.partition_maps.partition_map import ZoneMapPointer
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.kernels.partition_map import FullArrays, MapHeader, encode_map
from rebalance.metastore.mirror import KeyspaceCopy

ZONE = ZoneId(7)
KEYSPACE = Keyspace("z/")
CHUNKS = KEYSPACE.zone_map_chunks(ZONE, 3)
FULL = FullArrays(
    ("n1",),
    *(np.array([0, 1], np.int64), np.array([0], np.int32), np.array([0], np.uint8)),
    *(np.array([5], np.int64), np.array([9], np.int64), np.array([0], np.int32), np.array([1], np.int64)),
)
DATA = encode_map(MapHeader(7, 1, 0, 0, 3), FULL)
HALVES = [DATA[:20], DATA[20:]]


def keys(chunks: list[bytes]) -> KeyspaceCopy:
    pointer = ZoneMapPointer(TopologyVersion(1, 0), 3, "c1", len(HALVES), len(DATA), 1, 2, 3)
    stored = {f"{CHUNKS}{number:05d}": chunk for number, chunk in enumerate(chunks)}
    stored[KEYSPACE.zone_map(ZONE)] = pointer.encode()
    items = {key: KeyValue(key, value, 1, 1, 1) for key, value in stored.items()}
    return KeyspaceCopy("z/", 1, items, SortedList(items))


@pytest.mark.parametrize("more", [[], [b"of an attempt that was given up"]])
def test_the_chunks_that_the_pointer_names_are_the_map(more: list[bytes]) -> None:
    published = published_map(keys([*HALVES, *more]), KEYSPACE, ZONE)
    assert published is not None
    assert (published.data, published.full.names) == (DATA, ("n1",))


def test_a_map_whose_chunks_are_not_all_there_yet_is_none() -> None:
    assert published_map(keys(HALVES[:1]), KEYSPACE, ZONE) is None


@pytest.mark.parametrize("chunk", [b"", b"\xff\xfe", b'{"v":2}', bytes(len(DATA) - 20), HALVES[1] + b"x"])
def test_a_damaged_chunk_is_not_readable(chunk: bytes) -> None:
    """Neither no map nor an error that nothing expected."""
    with pytest.raises(RecordNotReadableError) as error:
        published_map(keys([HALVES[0], chunk]), KEYSPACE, ZONE)
    assert error.value.key == CHUNKS
