"""Stall of a put when the store server that leads a third of the partitions is killed: the server alone, whose
agent reports it, and a whole node, whose heartbeat must become too old."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import psutil
import pytest

from rebalance.store.core.store_limits import StoreLimits
from tests.bench.figures import percentile
from tests.e2e.installation import Installation, wait_for, without_spark
from zonekeeper_client import Mode, ZoneClient

KILLS, TASKS = 3, 16
BEFORE_S, AFTER_S = 3.0, 12.0
ZONE = "LED"
TTL_S = StoreLimits().ttl_ms / 1_000


def server_of(whole: Installation, name: str) -> psutil.Process:
    (process,) = whole.processes("store serve", f"--name {name} ")
    return process


def agent_of(whole: Installation, name: str) -> psutil.Process:
    """Agent of the node: its server is its child."""
    parent = server_of(whole, name).parent()
    assert parent is not None
    return parent


def is_ready(whole: Installation) -> bool:
    return whole.is_whole() and len(whole.processes("store serve")) == whole.nodes


async def stall(whole: Installation, victim: psutil.Process) -> tuple[float, float]:
    """The longest put from the kill on, and the median before it, in seconds."""
    async with ZoneClient(
        [whole.url], mode=Mode.DIRECT, tls=whole.tls, **whole.login, time_limit_s=60
    ) as client:
        seconds: list[tuple[float, float]] = []

        async def write(task: int) -> None:
            chooser = random.Random(task)
            while True:
                begun = monotonic()
                await client.put(ZONE, f"key-{chooser.randrange(10_000)}", "x" * 100)
                seconds.append((begun, monotonic() - begun))

        tasks = [asyncio.create_task(write(task)) for task in range(TASKS)]
        await asyncio.sleep(BEFORE_S)
        kill_at = monotonic()
        victim.send_signal(signal.SIGKILL)
        await asyncio.sleep(AFTER_S)
        for task in tasks:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    before = [took for begun, took in seconds if begun + took < kill_at]
    after = [took for begun, took in seconds if begun + took >= kill_at]
    return max(after), percentile(before, 0.5)


@pytest.mark.slow("an installation, and some kills with the time that a node takes to be back")
@pytest.mark.parametrize(
    ("victim", "limit_s"), [(server_of, 2.0), (agent_of, TTL_S + 2.0)], ids=["server", "node"]
)
def test_the_longest_stall_of_a_put(
    tmp_path: Path, victim: Callable[[Installation, str], psutil.Process], limit_s: float
) -> None:
    whole = Installation(tmp_path / "data", 3, without_spark(tmp_path))
    whole.start()
    try:
        whole.execute(f"CREATE ZONE {ZONE} (PARTITIONS 96, REPLICAS 3) STORAGE PROFILES ['bulk']", 300)
        for number in range(KILLS):
            wait_for("all store servers", lambda: is_ready(whole))
            load = os.getloadavg()[0]
            longest_s, usual_s = asyncio.run(stall(whole, victim(whole, f"n{number % 3 + 1}")))
            print(
                f"\nkill {number + 1}, load {load:.1f}: the longest put {longest_s:.2f} s of {limit_s:.0f} s, "
                f"the median before {1e3 * usual_s:.1f} ms",
                flush=True,
            )
    finally:
        whole.stop()
