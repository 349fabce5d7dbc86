"""Readers and writers through rebalances, kills and pauses, on a whole installation: is what they saw
possible?"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.e2e.installation import Installation, wait_for, without_spark
from tests.linearizability.checker import violations
from tests.linearizability.faults import Fault, plan, settle, strike_all
from tests.linearizability.history import write
from tests.linearizability.load import Way, load

SEED = int(os.environ.get("SOAK_SEED", "1"))
REBALANCES = int(os.environ.get("SOAK_REBALANCES", "50"))
SLICE = 3
NODES = 4
PARTITIONS = 3
ZONE = "RECORDED"
CONVERGENCE_S = 180.0


def test_a_plan_follows_from_its_seed() -> None:
    """The same seed, the same plan; the first rebalances of a long plan are those of a short one."""
    assert plan(5, 50)[:3] == plan(5, 3)
    assert plan(5, 3) != plan(6, 3)
    strikes = {strike.fault for rebalance in plan(5, SLICE) for strike in rebalance.strikes}
    assert strikes == set(Fault)
    targets = [(each.replicas, each.region) for each in plan(5, 50)]
    assert all(before != after for before, after in itertools.pairwise(targets))


async def run_through(directory: Path, seed: int, rebalances: int) -> None:
    whole = Installation(directory / "data", NODES, without_spark(directory))
    await asyncio.to_thread(whole.start)
    print(f"seed {seed}, {rebalances} rebalances", flush=True)
    try:
        await asyncio.to_thread(whole.execute, f"CREATE ZONE {ZONE} (PARTITIONS {PARTITIONS}, REPLICAS 3)")
        begun = time.monotonic()
        async with load([whole.url], ZONE, seed) as running:
            for number, rebalance in enumerate(plan(seed, rebalances)):
                statement = rebalance.statement(ZONE)
                (result,) = await asyncio.to_thread(whole.sql, statement)
                done = await asyncio.to_thread(strike_all, whole, rebalance.strikes)
                await asyncio.to_thread(settle, whole, result, CONVERGENCE_S)
                at_s = time.monotonic() - begun
                print(f"{number + 1}/{rebalances} {at_s:.0f} s {statement} {done}", flush=True)
            keys = await running.read_back()
        took_s = time.monotonic() - begun
        history = running.recorder.history()
        found = violations(history)
        if found or running.errors:
            write(directory / "history.jsonl", history)
            print(f"seed {seed}; the history is in {directory / 'history.jsonl'}")
        assert not running.errors, running.errors[:3]
        assert not found, "\n".join(map(str, found[:3]))
        assert all(figures.puts and figures.gets for figures in running.figures.values())
        print(f"{len(history)} operations on {keys} keys in {took_s:.0f} s, all of it linearizable")
        for way in Way:
            print(f"{way.value}: {running.figures[way]}")
        print(f"{running.network.broken} connections of the lossy network broke")
        assert running.network.broken
        await asyncio.to_thread(whole.execute, f"DROP ZONE {ZONE}")
        wait_for("the end of all members", lambda: not whole.processes("etcd", "/members/"), CONVERGENCE_S)
        held = whole.directory / "nodes"
        wait_for("the end of all data", lambda: not list(held.glob("*/members/*")), CONVERGENCE_S)
    finally:
        await asyncio.to_thread(whole.stop)


@pytest.mark.timeout(1_800)
async def test_three_rebalances(tmp_path: Path) -> None:
    """IEP-007, IEP-054, I3-059, I3-060: clients that go straight to the groups, through the server, and over a
    network that loses answers, see one linearizable register a key; every acknowledged put is there in the
    end."""
    with capture_logs():
        await run_through(tmp_path, SEED, SLICE)


@pytest.mark.soak
async def test_many_rebalances(tmp_path: Path) -> None:
    """As above, with fifty rebalances."""
    with capture_logs():
        await run_through(tmp_path, SEED, REBALANCES)
