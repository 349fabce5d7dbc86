"""Readers and writers of a store zone, through the shipped client and the server, while ALTERs move it, and
nodes, store servers and controllers are killed and stopped, on a whole installation.

One copy at a time goes: when the last one does, the partition is lost until it is back."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.cli.main import main
from rebalance.store.core.store_limits import StoreLimits
from tests.e2e.installation import Installation, wait_for, without_spark
from tests.linearizability.checker import violations
from tests.linearizability.faults import OF_STORES, Fault, Rebalance, plan, settle, strike_all
from tests.linearizability.history import write
from tests.linearizability.load import BUSY_PAUSE_S, Load, Way, load

SEED = int(os.environ.get("SOAK_SEED", "1"))
REBALANCES = int(os.environ.get("SOAK_REBALANCES", "50"))
NODES, ZONE = 4, "STORED"
CLIENTS = {Way.DIRECT: 4, Way.ROUTED: 2}
CONVERGENCE_S = 180.0
MISSED_S = StoreLimits().ttl_ms / 1_000 + 1.0
OF_SERVERS = frozenset((Fault.KILL_NODE, Fault.KILL_STORE, Fault.PAUSE_STORE))


def rebalances(seed: int, count: int) -> list[Rebalance]:
    """Two copies at least, and one server at most goes in each, and none beside the controller that would see
    it."""
    chosen = [each for each in plan(seed, 3 * count, OF_STORES) if each.replicas > 1][:count]
    milder = []
    for rebalance in chosen:
        faults = {strike.fault for strike in rebalance.strikes}
        servers = [strike for strike in rebalance.strikes if strike.fault in OF_SERVERS]
        servers = [] if Fault.KILL_CONTROLLER in faults else servers[:1]
        others = [strike for strike in rebalance.strikes if strike.fault not in OF_SERVERS]
        strikes = sorted((*servers, *others), key=lambda strike: strike.after_s)
        milder.append(replace(rebalance, strikes=tuple(strikes)))
    return milder


def has_every_copy(whole: Installation, replicas: int) -> bool:
    """True with every copy, also those of the server that went last: a node that is away is no place for a copy
    meanwhile."""
    healthy = [
        {copy["node"] for copy in partition["copies"] if copy["state"] == "HEALTHY"}
        for partition in whole.partitions(ZONE)
    ]
    return len(whole.processes("store serve")) == NODES and all(len(nodes) == replicas for nodes in healthy)


def judged(running: Load, kept: Path) -> None:
    """``kept``: where the history is left when nothing explains it."""
    history = running.recorder.history()
    unexplained = violations(history, own_order=True)
    if unexplained or running.errors:
        write(kept, history)
        print(f"the history is in {kept}")
    assert not running.errors, running.errors[:3]
    assert not unexplained, "\n".join(map(str, unexplained[:3]))
    for way in CLIENTS:
        assert running.figures[way].puts, way
        assert running.figures[way].gets, way
        print(f"{way.value}: {running.figures[way]}")


@pytest.mark.soak
async def test_rebalances_of_a_store_zone(tmp_path: Path) -> None:
    whole = Installation(tmp_path / "data", NODES, without_spark(tmp_path))
    await asyncio.to_thread(whole.start)
    try:
        with capture_logs():
            created = f"CREATE ZONE {ZONE} (PARTITIONS 8, REPLICAS 3) STORAGE PROFILES ['bulk']"
            await asyncio.to_thread(whole.execute, created)
            async with load(
                [whole.url], ZONE, SEED, clients=CLIENTS, pause_s=BUSY_PAUSE_S, tls=whole.tls, login=whole.login
            ) as running:
                strikes = 0
                for number, rebalance in enumerate(rebalances(SEED, REBALANCES), 1):
                    (result,) = await asyncio.to_thread(whole.sql, rebalance.statement(ZONE))
                    done = await asyncio.to_thread(strike_all, whole, rebalance.strikes)
                    # Until a server that went is missed, views show its copies as they were.
                    await asyncio.sleep(MISSED_S)
                    await asyncio.to_thread(settle, whole, result, CONVERGENCE_S)
                    whole_again = partial(has_every_copy, whole, rebalance.replicas)
                    await asyncio.to_thread(wait_for, "every copy", whole_again, CONVERGENCE_S)
                    strikes += len(done)
                    print(f"{number}/{REBALANCES} {rebalance.statement(ZONE)} {done}", flush=True)
                keys = await running.read_back()
            print(f"{keys} keys, {len(running.recorder.operations)} operations, {strikes} kills and pauses")
            judged(running, tmp_path / "history.jsonl")
    finally:
        await asyncio.to_thread(whole.stop)
    for store in sorted((tmp_path / "data" / "nodes").glob("*/store")):
        assert main(["store", "fsck", str(store)]) == 0
