"""The placement kernels alone, on one thread, beside two baselines of the same run.

*Hash only* mixes every key and keeps one running minimum: no placement can be faster. *Chunked argmin* is the
plain numpy kernel.
"""

from __future__ import annotations

import numpy as np

from rebalance.kernels import rendezvous
from rebalance.kernels.balanced import Placed, PlacementProblem, balance
from rebalance.kernels.compiled import compiled
from rebalance.kernels.rendezvous import node_dictionary, node_terms_of, place_hashed
from rebalance.kernels.rendezvous_compiled import BLOCK, Keys, mix, partition_term
from tests.bench.figures import ratio, report, timed
from tests.fixtures.balanced_events import SHAPES, Zone, moved_replicas, spreads
from tests.fixtures.kernels import only

PARTITIONS, NODES, REPLICAS = 1_000_000, 100, 3
NAMES = tuple(f"node-{number}" for number in range(NODES))


@compiled
def hash_only(terms: Keys, partitions: int) -> np.uint64:
    lowest = np.full(BLOCK, np.uint64(0xFFFF_FFFF_FFFF_FFFF))
    base = np.zeros(BLOCK, dtype=np.uint64)
    for start in range(0, partitions, BLOCK):
        for lane in range(BLOCK):
            base[lane] = partition_term(np.int64(start + lane))
        for term in terms:
            for lane in range(BLOCK):
                lowest[lane] = min(lowest[lane], mix(base[lane] + term))
    return lowest.min()


def test_rendezvous() -> None:
    dictionary = node_dictionary(NAMES)
    terms = node_terms_of(dictionary.hashes)
    numbers = np.arange(PARTITIONS, dtype=np.int64)
    limit = report("hash only: 1M partitions, 100 nodes", timed(lambda: hash_only(terms, PARTITIONS), 9))
    with only("numpy"):
        argmin = report("chunked argmin, R=3", timed(lambda: place_hashed(dictionary, numbers, REPLICAS), 5))
    each = {}
    for replicas in (3, 5, 7):
        seconds = timed(lambda r=replicas: place_hashed(dictionary, numbers, r), 9)
        each[replicas] = report(f"rendezvous compiled, R={replicas}", seconds)
    print(f"{'R=3 against the hash-only limit':<62} {each[3] / limit:.2f} times its time")
    print(f"{'R=3 against the chunked argmin':<62} {argmin / each[3]:.1f} times as fast")
    for replicas in (5, 7):
        share = (each[replicas] / replicas) / (each[3] / 3)
        print(f"{f'R={replicas} per replica, against R=3':<62} {share:.2f}")
    assert rendezvous.COMPILED_KEYS_MIN < PARTITIONS * NODES


def test_balanced() -> None:
    plain = report(
        "rendezvous, 1M partitions, 100 nodes, R=3",
        timed(lambda: place_hashed(node_dictionary(NAMES), range(PARTITIONS), REPLICAS), 9),
    )
    problem = PlacementProblem(NAMES, PARTITIONS, REPLICAS, REPLICAS)
    created = report("balanced: creation", timed(lambda: balance(problem), 9))
    print(f"{'balanced creation against rendezvous':<62} {created / plain:.2f} times its time")
    before = Placed(NAMES, balance(problem), REPLICAS)
    for name, nodes in (("a node joins", (*NAMES, "joined")), ("a node leaves", NAMES[1:])):
        changed = PlacementProblem(nodes, PARTITIONS, REPLICAS, REPLICAS, before)
        seconds = report(f"balanced: {name}", timed(lambda p=changed: balance(p), 9))
        ratio(f"balanced: {name}, against creation", seconds, created)
        moved = moved_replicas(before, nodes, balance(changed))
        print(f"{'... replicas moved':<62} {moved:,}")


def test_balanced_events() -> None:
    """Evenness and moves over the shapes of the property test."""
    for shape in SHAPES:
        steps = list(Zone(shape, seed=7).steps(64))
        moved, bound = sum(step.moved for step in steps), sum(step.bound for step in steps)
        worst = max((step.moved / step.bound for step in steps if step.bound), default=1.0)
        most = max(max(spreads(step)) for step in steps)
        print(f"{f'balanced, 64 events: {shape.name}':<62} moves {moved / max(bound, 1):.4f} of the least, "
              f"worst event {worst:.3f}, max - min {most}")  # fmt: skip
