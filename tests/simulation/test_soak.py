"""A thousand seeds (``make soak``). ``SIMULATOR_SEEDS=500-1500`` runs others."""

from __future__ import annotations

import os
import sys
import time

import pytest

from app.cli.simulate_run import command_of
from rebalance.simulation.run import simulate
from tests.simulation.seeds import simulation_of


@pytest.mark.soak
def test_a_thousand_seeds() -> None:
    """Every seed runs to its end, so that one bad seed does not hide others; each broken one is named."""
    first, _, last = os.environ.get("SIMULATOR_SEEDS", "0-999").partition("-")
    seeds = range(int(first), int(last or first) + 1)
    broken: list[str] = []
    started, steps, largest = time.perf_counter(), 0, 0
    for number, seed in enumerate(seeds, 1):
        report = simulate(simulation_of(seed))
        steps += report.steps
        largest = max(largest, report.simulation.partitions)
        if report.broken is not None:
            broken.append(f"{command_of(report.simulation)}: {report.broken}")
            print(f"\n{broken[-1]}", flush=True)
        if number % 10 == 0 or number == len(seeds):
            elapsed_s = time.perf_counter() - started
            line = f"{number}/{len(seeds)} seeds, {steps} steps, {elapsed_s:.0f} s, {len(broken)} broken"
            print(f"\r{line}, up to {largest} partitions", end="", flush=True)
    print(file=sys.stdout)
    assert not broken, "\n".join(broken)
