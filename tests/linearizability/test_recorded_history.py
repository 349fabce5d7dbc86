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
from tests.linearizability.faults import OF_GROUPS, plan, settle, strike_all
from tests.linearizability.history import write
from tests.linearizability.load import BUSY_PAUSE_S, CLIENTS, PAUSE_S, Load, load

pytestmark = pytest.mark.slow("three rebalances with kills, under load")

SEED = int(os.environ.get("SOAK_SEED", "1"))
REBALANCES = int(os.environ.get("SOAK_REBALANCES", "50"))
SLICE = 3
NODES = 4
PARTITIONS = 2
ZONE, ZONE_OF_ALL = "RECORDED", "RECORDED_ALL"
CONVERGENCE_S = 180.0


def test_a_plan_follows_from_its_seed() -> None:
    """The same seed, the same plan; the first rebalances of a long plan are those of a short one."""
    assert plan(5, 50)[:3] == plan(5, 3)
    assert plan(5, 3) != plan(6, 3)
    strikes = {strike.fault for rebalance in plan(5, SLICE) for strike in rebalance.strikes}
    assert strikes == set(OF_GROUPS)
    targets = [(each.replicas, each.region) for each in plan(5, 50)]
    assert all(before != after for before, after in itertools.pairwise(targets))


async def run_through(directory: Path, seed: int, rebalances: int, pause_s: float) -> None:
    whole = Installation(directory / "data", NODES, without_spark(directory))
    await asyncio.to_thread(whole.start)
    print(f"seed {seed}, {rebalances} rebalances", flush=True)
    try:
        for zone, replicas in ((ZONE, "REPLICAS 3"), (ZONE_OF_ALL, "REPLICAS ALL, QUORUM SIZE 2")):
            created = f"CREATE ZONE {zone} (PARTITIONS {PARTITIONS}, {replicas})"
            await asyncio.to_thread(whole.execute, created)
        begun = time.monotonic()
        async with (
            load([whole.url], ZONE, seed, pause_s=pause_s, tls=whole.tls, login=whole.login) as regular,
            load([whole.url], ZONE_OF_ALL, seed, pause_s=pause_s, tls=whole.tls, login=whole.login) as of_all,
        ):
            loads = {ZONE: regular, ZONE_OF_ALL: of_all}
            for number, rebalance in enumerate(plan(seed, rebalances)):
                statements = f"{rebalance.statement(ZONE)}; {rebalance.statement_for_all(ZONE_OF_ALL)}"
                results = await asyncio.to_thread(whole.sql, statements)
                done = await asyncio.to_thread(strike_all, whole, rebalance.strikes)
                for result in results:
                    await asyncio.to_thread(settle, whole, result, CONVERGENCE_S)
                at_s = time.monotonic() - begun
                print(f"{number + 1}/{rebalances} {at_s:.0f} s {statements} {done}", flush=True)
            keys = {zone: await running.read_back() for zone, running in loads.items()}
        took_s = time.monotonic() - begun
        for zone, running in loads.items():
            print(f"{zone}: {keys[zone]} keys in {took_s:.0f} s, seed {seed}")
            assert_linearizable(running, directory / f"{zone}.jsonl")
            await asyncio.to_thread(whole.execute, f"DROP ZONE {zone}")
        wait_for("the end of all members", lambda: not whole.processes("etcd", "/members/"), CONVERGENCE_S)
        held = whole.directory / "nodes"
        wait_for("the end of all data", lambda: not list(held.glob("*/members/*")), CONVERGENCE_S)
    finally:
        await asyncio.to_thread(whole.stop)


def assert_linearizable(running: Load, kept: Path) -> None:
    """Check the history of one zone. ``kept``: where the history is left when it is not linearizable."""
    history = running.recorder.history()
    found = violations(history, own_order=True)
    if found or running.errors:
        write(kept, history)
        print(f"the history is in {kept}")
    assert not running.errors, running.errors[:3]
    assert not found, "\n".join(map(str, found[:3]))
    assert all(running.figures[way].puts and running.figures[way].gets for way in CLIENTS)
    print(f"{len(history)} operations, all of it linearizable")
    for way in CLIENTS:
        print(f"{way.value}: {running.figures[way]}")
    print(f"{running.network.broken} connections of the lossy network broke")
    assert running.network.broken


@pytest.mark.row("I3-059", "I3-060", "IEP-007", "IEP-054")
@pytest.mark.timeout(1_800)
async def test_three_rebalances(tmp_path: Path) -> None:
    """IEP-007, IEP-054, I3-059, I3-060: clients that go straight to the groups, through the server, and over a
    network that loses answers, see one linearizable register a key; every acknowledged put is there in the
    end. The very same clients do so in a regular zone and in one with REPLICAS ALL."""
    with capture_logs():
        await run_through(tmp_path, SEED, SLICE, PAUSE_S)


@pytest.mark.soak
async def test_many_rebalances(tmp_path: Path) -> None:
    """Run as above, with fifty rebalances."""
    with capture_logs():
        await run_through(tmp_path, SEED, REBALANCES, BUSY_PAUSE_S)
