"""Which simulation belongs to a seed: many small ones, some larger, a few with thousands of partitions."""

from __future__ import annotations

import random

from rebalance.simulation.run import Simulation

SIZES = (
    (780, 8, 5),
    (120, 24, 6),
    (15, 64, 7),
    (5, 200, 9),
    (50, 1_200, 20),
    (20, 2_000, 30),
    (10, 10_000, 100),
)
"""Of a thousand seeds: how many, with how many partitions, on how many nodes at the start."""


def simulation_of(seed: int) -> Simulation:
    rng = random.Random(f"size/{seed}")
    _, partitions, nodes = rng.choices(SIZES, [weight for weight, _, _ in SIZES])[0]
    return Simulation(seed, nodes, partitions, rng.choice((8, 14, 20)))
