"""A thousand seeds (``make soak``). ``SIMULATOR_SEEDS=500-1500`` runs others."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

import pytest

from app.cli.simulate_run import command_of
from rebalance.simulation.run import simulate
from tests.simulation.seeds import simulation_of


def outcome(seed: int) -> tuple[int, int, str]:
    """Partitions, steps, and how the run broke: empty when every invariant held."""
    report = simulate(simulation_of(seed))
    broken = f"{command_of(report.simulation)}: {report.broken}" if report.broken else ""
    return report.simulation.partitions, report.steps, broken


@pytest.mark.soak
def test_a_thousand_seeds() -> None:
    """Every seed runs to its end, so that one bad seed does not hide others; each broken one is named."""
    first, _, last = os.environ.get("SIMULATOR_SEEDS", "0-999").partition("-")
    seeds = range(int(first), int(last or first) + 1)
    broken: list[str] = []
    sizes: Counter[int] = Counter()
    started, steps = time.perf_counter(), 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as workers:
        running = [workers.submit(outcome, seed) for seed in seeds]
        for number, done in enumerate(as_completed(running), 1):
            partitions, taken, failure = done.result()
            steps += taken
            sizes[partitions] += 1
            if failure:
                broken.append(failure)
                print(f"\n{failure}", flush=True)
            if number % 10 == 0 or number == len(seeds):
                elapsed_s = time.perf_counter() - started
                line = f"{number}/{len(seeds)} seeds, {steps} steps, {elapsed_s:.0f} s, {len(broken)} broken"
                print(f"\r{line}", end="", flush=True)
    print("\npartitions: seeds", ", ".join(f"{size}: {count}" for size, count in sorted(sizes.items())))
    assert not broken, "\n".join(broken)
