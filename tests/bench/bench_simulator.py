"""Virtual time over processor time of the simulator with real agents: one seed, best of BENCH_RUNS (1)."""

from __future__ import annotations

import os
import time

import pytest

from simulator.control.run import Simulation, simulate

RUNS = int(os.environ.get("BENCH_RUNS", "1"))


@pytest.mark.parametrize(
    "wanted",
    [Simulation(1, nodes=10, partitions=64, events=20), Simulation(1, nodes=40, partitions=512, events=20)],
    ids=lambda each: f"{each.nodes} nodes, {each.partitions} partitions",
)
def test_simulator(wanted: Simulation) -> None:
    """Processor time beside the wall's: other work on the machine is not in it."""
    figures = []
    for _ in range(RUNS):
        begun = time.process_time()
        report = simulate(wanted)
        assert report.broken is None
        figures.append((time.process_time() - begun, report.elapsed_s, report.virtual_s, report.steps))
    processor_s, elapsed_s, virtual_s, steps = min(figures)
    name = f"{wanted.nodes} nodes, {wanted.partitions} partitions"
    print(
        f"{name:<32} {virtual_s:.1f} s of virtual time in {processor_s:.1f} s of processor time "
        f"({elapsed_s:.1f} s of the wall's): {virtual_s / processor_s:.1f} times; {steps} steps"
    )
