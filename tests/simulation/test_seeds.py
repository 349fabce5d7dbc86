"""Some seeds, each run to its end; that a seed means one run; and that broken decisions do not go unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rebalance.core import bulk_write, guarded_write
from rebalance.core.admission import Loads
from rebalance.core.txn import Compare, KeyValue
from rebalance.simulation.run import Simulation, simulate


@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7, 8])
def test_invariants_hold_with_agents(seed: int) -> None:
    """S090, I3-019, I3-049: crashes, pauses, lost answers and late requests break no invariant, and the last
    target is reached when they stop."""
    report = simulate(Simulation(seed, nodes=5, partitions=8, events=10))
    assert report.broken is None
    assert report.switches > 0


@pytest.mark.parametrize("seed", [100, 101, 102, 104])
def test_invariants_hold_in_bulk(seed: int) -> None:
    report = simulate(Simulation(seed, nodes=12, partitions=400, events=10, bulk=True))
    assert report.broken is None
    assert report.switches > 0


SCRIPT = """
import json
from rebalance.simulation.run import Simulation, simulate
reports = [simulate(Simulation(3, events=8)), simulate(Simulation(3, 7, 60, 8, bulk=True))]
print(json.dumps([(each.digest, each.steps, each.virtual_s) for each in reports]))
"""


@pytest.mark.parametrize("strategy", ["update", "cancel"])
def test_invariants_hold_in_the_other_strategies(strategy: str) -> None:
    """I3A-002, I3A-003, I3A-011..013: with real agents, faults and bursts of targets."""
    assert first_broken(Simulation(0, nodes=5, partitions=8, events=14, strategy=strategy), seeds=4) == ""


@pytest.mark.parametrize(
    "wanted",
    [
        *(Simulation(seed, partitions=16, events=10, cluster_moves=2) for seed in range(2)),
        Simulation(4, partitions=16, events=12, strategy="update", cluster_moves=3),
        Simulation(105, nodes=12, partitions=400, events=10, bulk=True, cluster_moves=40),
    ],
    ids=lambda wanted: str(wanted.seed),
)
def test_limits_hold_and_everything_arrives(wanted: Simulation) -> None:
    """Caps hold whenever a move begins, none begins in a pause, controllers crash as ever, and the last target
    is reached under the cap."""
    report = simulate(wanted)
    assert report.broken is None
    assert report.switches > 0
    assert report.events["limits"] > 1


def test_moves_that_nobody_counts_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission that takes the cluster for idle each time."""
    monkeypatch.setattr(Loads, "add", lambda self, zone_id, move, count=1: None)
    broken = first_broken(Simulation(0, partitions=16, events=10, cluster_moves=2), seeds=4)
    assert broken == "no more partitions move than the cluster's limit"


def test_a_seed_is_one_run() -> None:
    """In this process twice, and in processes whose sets and dictionaries of strings are ordered otherwise."""
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(json.dumps(json.loads(done.stdout)))
    here = [simulate(Simulation(3, events=8)) for _ in range(2)]
    assert len(digests) == 1
    first = json.loads(digests.pop())[0]
    assert [[each.digest, each.steps, each.virtual_s] for each in here] == [first, first]
    assert simulate(Simulation(4, events=8)).digest != first[0]


def test_decisions_without_their_guards_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at what was written between a read and the write that follows it."""

    def no_guards(*read: tuple[str, KeyValue | None]) -> tuple[Compare, ...]:
        return ()

    monkeypatch.setattr(guarded_write, "guards_of", no_guards)
    assert first_broken(Simulation(8, nodes=6, partitions=24, events=25), seeds=4) in (
        "pending absent implies planned absent",
        "stable equals what the group applied last",
    )


def test_an_event_that_is_processed_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger is not compared: a handler repeats what was done."""
    for module in (guarded_write, bulk_write):
        monkeypatch.setattr(module, "decode_trigger", lambda value: -1)
    assert first_broken(Simulation(7, nodes=6, partitions=24, events=25), seeds=4) == (
        "trigger revision never decreases"
    )


def first_broken(simulation: Simulation, seeds: int) -> str:
    """The first broken invariant of some seeds, from the simulation's own on; empty when all hold."""
    for seed in range(simulation.seed, simulation.seed + seeds):
        report = simulate(replace(simulation, seed=seed))
        if report.broken is not None:
            assert report.broken.step > 0
            return report.broken.invariant
    return ""
