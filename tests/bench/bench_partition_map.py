"""The merge of single maps and the encoding of full ones, beside plain baselines of the same run.

*Sort only* orders as many numbers and does nothing else: no merge can be faster that begins with a sort.
*Dicts* is the plain merge of the core, on a hundredth of the partitions.
"""

from __future__ import annotations

import json
import tracemalloc

import numpy as np

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap, union
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.late_affinity import states_by_partition
from rebalance.kernels.partition_map import (
    OWNING,
    FullArrays,
    MapHeader,
    SingleArrays,
    decode_map,
    encode_integers,
    encode_map,
    encode_states,
    merge,
)
from rebalance.kernels.rendezvous import place
from tests.bench.figures import ratio, report, timed

PARTITIONS, NODES, REPLICAS = 1_000_000, 1_000, 3
NAMES = tuple(f"node-{number:04d}" for number in range(NODES))
HEADER = MapHeader(1, 40, 2, 1, 7)


def singles(partitions: int, ideal: np.ndarray, moving: float) -> list[SingleArrays]:
    """Share of each node; ``moving`` of the copies are being filled, counters are all different."""
    random = np.random.default_rng(1)
    counters = random.integers(0, 1 << 30, partitions)
    numbers = np.repeat(np.arange(partitions, dtype=np.int32), ideal.shape[1])
    nodes = ideal.reshape(-1)
    order = np.argsort(nodes, kind="stable")
    numbers, cuts = numbers[order], np.cumsum(np.bincount(nodes, minlength=NODES))[:-1]
    leads = (np.arange(len(nodes)) % ideal.shape[1] == 0)[order]
    states = np.where((random.random(len(nodes)) < moving) & ~leads, 0, OWNING).astype(np.uint8)
    columns = (numbers, states, counters[numbers], counters[numbers] // 10, np.full(len(nodes), 3), leads)
    return [SingleArrays(*each) for each in zip(*(np.split(column, cuts) for column in columns), strict=True)]


def test_merge() -> None:
    ideal = place(NAMES, range(PARTITIONS), REPLICAS)
    parts = singles(PARTITIONS, ideal, 0.01)
    numbers = np.concatenate([each.partitions for each in parts])
    least = report("sort only: 3M numbers", timed(lambda: np.argsort(numbers, kind="stable"), 5))
    seconds = report(
        "merge: 1M partitions, 1,000 nodes, R=3", timed(lambda: merge(NAMES, parts, PARTITIONS), 5)
    )
    ratio("merge against the sort alone", seconds, least)
    few = singles(PARTITIONS // 100, place(NAMES, range(PARTITIONS // 100), REPLICAS), 0.01)
    plain = {
        name: SingleMap(
            ZoneId(1),
            name,
            TopologyVersion(1),
            1,
            {
                int(number): CopyReport(CopyState.OWNING, int(counter))
                for number, counter in zip(each.partitions, each.counters, strict=True)
            },
        )
        for name, each in zip(NAMES, few, strict=True)
    }

    def with_dicts() -> list[dict[str, CopyState]]:
        whole = union(ZoneId(1), TopologyVersion(1), "a", 1, plain)
        return states_by_partition(whole, PARTITIONS // 100)

    dicts = report("dicts: 10,000 partitions, states only", timed(with_dicts, 3))
    ratio("merge against dicts, for as many partitions", seconds, dicts * 100)
    tracemalloc.start()
    merge(NAMES, parts, PARTITIONS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{'memory of the merge, with its result':<62} {peak / 1e6:.0f} MB")
    assert seconds < 5


def sizes(title: str, full: FullArrays) -> None:
    copies = full.copies
    states = len(encode_states(full.states)) * 8 / copies
    counters = len(encode_integers(full.counters[full.starts[:-1]])) * 8 / copies
    print(f"{title + ': states':<62} {states:.3f} bits a copy")
    print(f"{title + ': counters':<62} {counters:.2f} bits a copy")
    print(f"{title + ': the whole':<62} {len(encode_map(HEADER, full)) * 8 / copies:.2f} bits a copy")
    assert states < 2


def test_encoding() -> None:
    ideal = place(NAMES, range(PARTITIONS), REPLICAS)
    for title, moving in (("at rest", 0.0), ("1 % moving", 0.01), ("half moving", 0.5)):
        full = merge(NAMES, singles(PARTITIONS, ideal, moving), PARTITIONS)
        sizes(title, full)
    full = merge(NAMES, singles(PARTITIONS, ideal, 0.01), PARTITIONS)
    document = [[int(full.states[index]), int(full.nodes[index])] for index in range(30_000)]
    plain = report("json of 30,000 copies, states and nodes", timed(lambda: json.dumps(document), 3))
    seconds = report("encode: 3M copies", timed(lambda: encode_map(HEADER, full), 3))
    ratio("encode against json, for as many copies", seconds, plain * 100)
    data = encode_map(HEADER, full)
    report("decode: 3M copies", timed(lambda: decode_map(data), 3))
