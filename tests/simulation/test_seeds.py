"""Some seeds, each run to its end; that a seed means one run; and that broken decisions do not go unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rebalance.core.admission import bulk_write
from rebalance.core.assignments import guarded_write
from rebalance.core.keyspace.txn import Compare
from simulator.control.run import Simulation, simulate
from tests.simulation.seeds import first_broken, in_soak


@pytest.mark.row("I3-019", "I3-049")
@pytest.mark.parametrize("seed", [*in_soak(1, 2, 6), 5, 7, 8])
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
from simulator.control.run import Simulation, simulate
from tests.simulation.seeds import first_broken
reports = [simulate(Simulation(3, events=8)), simulate(Simulation(3, 7, 60, 8, bulk=True))]
print(json.dumps([(each.digest, each.steps, each.virtual_s) for each in reports]))
"""


@pytest.mark.row("I3A-002", "I3A-003", "I3A-011", "I3A-012", "I3A-013")
@pytest.mark.parametrize("strategy", ["update", "cancel"])
@pytest.mark.parametrize("seed", [0, *in_soak(1, 2, 3)])
def test_invariants_hold_in_the_other_strategies(strategy: str, seed: int) -> None:
    """I3A-002, I3A-003, I3A-011..013: with real agents, faults and bursts of targets."""
    report = simulate(Simulation(seed, nodes=5, partitions=8, events=14, strategy=strategy))
    assert report.broken is None


def test_a_seed_is_one_run() -> None:
    """Run a seed twice in this process, and in processes whose sets and dictionaries of strings are ordered
    otherwise."""
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


@pytest.mark.thorough("the seeds hold above; this is of what they would find")
def test_decisions_without_their_guards_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch decisions that ignore what was written between a read and the write that follows it."""

    def no_guards(_observed: guarded_write.Observed, *_names: str) -> tuple[Compare, ...]:
        return ()

    with monkeypatch.context() as mutant:
        mutant.setattr(guarded_write.Observed, "guards", no_guards)
        reports = (simulate(Simulation(seed, nodes=6, partitions=24, events=25)) for seed in range(1, 9))
        caught = next(report for report in reports if report.broken is not None)
    assert simulate(caught.simulation).broken is None
    assert caught.broken is not None
    assert caught.broken.invariant in (
        "the last target is reached when events stop",
        "pending absent implies planned absent",
        "stable equals what the group applied last",
        "trigger revision never decreases",
    )


@pytest.mark.thorough("the seeds hold above; this is of what they would find")
def test_an_event_that_is_processed_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger is not compared: a handler repeats what was done."""
    for module in (guarded_write, bulk_write):
        monkeypatch.setattr(module, "decode_trigger", lambda value: -1)
    assert first_broken(Simulation(7, nodes=6, partitions=24, events=25), seeds=4) == (
        "trigger revision never decreases"
    )
