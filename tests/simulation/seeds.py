"""Simulations by seed: many small ones, some larger, a few with thousands of partitions; and the first broken
invariant of some seeds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulator.control.run import Simulation, simulate

SIZES = (
    (780, 8, 5),
    (120, 24, 6),
    (15, 64, 7),
    (5, 200, 9),
    (50, 1_200, 20),
    (20, 2_000, 30),
    (10, 10_000, 100),
)
"""Shares of a thousand seeds: the number of them, of partitions, and of nodes at the start."""
LIMITED = 0.25
"""Share of all seeds with limits of moves."""


def simulation_of(seed: int) -> Simulation:
    rng = random.Random(f"size/{seed}")
    _, partitions, nodes = rng.choices(SIZES, [weight for weight, _, _ in SIZES])[0]
    events = rng.choice((8, 14, 20))
    cap = max(2, partitions // 4) if rng.random() < LIMITED else None
    return Simulation(seed, nodes, partitions, events, cluster_moves=cap)


def in_soak(*seeds: int) -> list[object]:
    """Seeds that ``make test`` leaves out."""
    return [pytest.param(seed, marks=pytest.mark.soak) for seed in seeds]


def first_broken(simulation: Simulation, seeds: int) -> str:
    """The first broken invariant of some seeds, from the simulation's own on; empty when all hold."""
    for seed in range(simulation.seed, simulation.seed + seeds):
        report = simulate(replace(simulation, seed=seed))
        if report.broken is not None:
            assert report.broken.step > 0
            return report.broken.invariant
    return ""
