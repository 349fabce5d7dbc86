"""A thousand seeds of each kind (``make soak``). ``SIMULATOR_SEEDS=500-1500`` runs others."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import pytest

from simulator.commands import command_of
from simulator.control.run import Simulation, simulate
from tests.simulation.seeds import simulation_of
from tests.simulation.staying_seeds import staying

Outcome = tuple[int, int, str, tuple[str, ...]]
"""Partitions, steps, how the run broke (empty when every invariant held), and what held partitions up."""


def healed(seed: int) -> Outcome:
    return outcome(simulation_of(seed))


def unhealed(seed: int) -> Outcome:
    return outcome(staying(seed))


def outcome(simulation: Simulation) -> Outcome:
    report = simulate(simulation)
    broken = f"{command_of(report.simulation)}: {report.broken}" if report.broken else ""
    return simulation.partitions, report.steps, broken, tuple(report.held.values())


def outcomes(run: Callable[[int], Outcome]) -> Iterator[Outcome]:
    """Outcomes of all seeds, each run to its end, so that one bad seed does not hide others."""
    first, _, last = os.environ.get("SIMULATOR_SEEDS", "0-999").partition("-")
    seeds = range(int(first), int(last or first) + 1)
    started, steps, broken = time.perf_counter(), 0, 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as workers:
        running = [workers.submit(run, seed) for seed in seeds]
        for number, done in enumerate(as_completed(running), 1):
            _, taken, failure, _ = done.result()
            steps += taken
            broken += bool(failure)
            if failure:
                print(f"\n{failure}", flush=True)
            if number % 10 == 0 or number == len(seeds):
                elapsed_s = time.perf_counter() - started
                line = f"{number}/{len(seeds)} seeds, {steps} steps, {elapsed_s:.0f} s, {broken} broken"
                print(f"\r{line}", end="", flush=True)
            yield done.result()
    print()


@pytest.mark.soak
def test_a_thousand_seeds() -> None:
    """Each broken one is named."""
    found = list(outcomes(healed))
    sizes = Counter(partitions for partitions, *_ in found)
    print("partitions: seeds", ", ".join(f"{size}: {count}" for size, count in sorted(sizes.items())))
    broken = [failure for _, _, failure, _ in found if failure]
    assert not broken, "\n".join(broken)


@pytest.mark.soak
def test_a_thousand_seeds_that_do_not_heal() -> None:
    """Each converges or names its cause, and no acknowledged put is gone."""
    found = list(outcomes(unhealed))
    held = Counter(cause.partition(":")[0] for *_, causes in found for cause in causes)
    print("partitions held up:", dict(held), "seeds with any:", sum(bool(causes) for *_, causes in found))
    broken = [failure for _, _, failure, _ in found if failure]
    assert not broken, "\n".join(broken)
