"""Puts and gets of a store zone beside those of a zone of etcd clusters: one installation, one client process,
in turns, on one machine; and beside a bare commit of LMDB on its file system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lmdb
import psutil
import pytest

from tests.bench.figures import percentile, ratio, report, timed
from tests.e2e.installation import Installation, without_spark
from zonekeeper_client import Mode, ZoneClient

TURNS, TURN_S = 3, 4.0
TASKS = (1, 64)
VALUE = "x" * 100
KEYS = 1_000
ENGINES = {
    "etcd": ("PLAIN", "(PARTITIONS 4, REPLICAS 3)", ("etcd", "/members/")),
    "store": ("BULKY", "(PARTITIONS 64, REPLICAS 3) STORAGE PROFILES ['bulk']", ("store serve",)),
}
"""Zone, its options, and the words in the command lines of the processes that keep it."""

Call = Callable[[str, str], Awaitable[object]]


@dataclass
class Spent:
    """``seconds`` of each call; ``took_s`` of all, ``servers_s`` and ``client_s`` of processors meanwhile."""

    seconds: list[float] = field(default_factory=list)
    took_s: float = 0.0
    servers_s: float = 0.0
    client_s: float = 0.0

    def line(self, name: str) -> str:
        calls = len(self.seconds)
        p50, p99 = (1e3 * percentile(self.seconds, share) for share in (0.5, 0.99))
        spent = f"servers {1e6 * self.servers_s / calls:.0f} us, client {1e6 * self.client_s / calls:.0f} us"
        return (
            f"{name:<24} {calls / self.took_s:8,.0f}/s   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   "
            f"processor time of each: {spent}"
        )


def bare_commits(directory: Path) -> list[float]:
    """One row a commit, synced."""
    directory.mkdir()
    with lmdb.Environment(str(directory), map_size=1 << 30) as environment:
        numbers = iter(range(1_000_000))

        def commit() -> None:
            with environment.begin(write=True) as txn:
                txn.put(b"%08d" % next(numbers), VALUE.encode())

        return timed(commit, 300)


async def spend(spent: Spent, processes: Sequence[psutil.Process], call: Call, zone: str, tasks: int) -> None:
    """One turn of so many tasks."""

    async def work(task: int) -> None:
        number = 0
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await call(zone, f"key-{task}-{number % KEYS}")
            spent.seconds.append(time.perf_counter() - begun)
            number += 1

    before = [sum(process.cpu_times()[:2]) for process in processes]
    own, begun = time.process_time(), time.perf_counter()
    end = begun + TURN_S
    await asyncio.gather(*(work(task) for task in range(tasks)))
    spent.took_s += time.perf_counter() - begun
    spent.client_s += time.process_time() - own
    spent.servers_s += sum(sum(process.cpu_times()[:2]) for process in processes) - sum(before)


async def compare(whole: Installation, bare_s: float) -> None:
    processes = {name: whole.processes(*words) for name, (_, _, words) in ENGINES.items()}
    async with ZoneClient([whole.url], mode=Mode.DIRECT, tls=whole.tls, **whole.login) as client:

        async def put(zone: str, key: str) -> object:
            return await client.put(zone, key, VALUE)

        async def get(zone: str, key: str) -> object:
            return await client.get(zone, key)

        for kind, call in {"put": put, "get": get}.items():
            for tasks in TASKS:
                spent = {name: Spent() for name in ENGINES}
                for turn in range(TURNS + 1):
                    for name, (zone, _, _) in ENGINES.items():
                        counted = spent[name] if turn else Spent()
                        await spend(counted, processes[name], call, zone, tasks)
                for name in ENGINES:
                    print(spent[name].line(f"{kind}, {name}, {tasks} tasks"))
                p50 = {name: percentile(spent[name].seconds, 0.5) for name in ENGINES}
                ratio(f"{kind} of {tasks} tasks, store against etcd", p50["store"], p50["etcd"])
                if kind == "put" and tasks == 1:
                    ratio("put of one task, store against a bare commit", p50["store"], bare_s)


@pytest.mark.slow("an installation, and turns of each engine, call and number of tasks")
def test_puts_and_gets(tmp_path: Path) -> None:
    whole = Installation(tmp_path / "data", 3, without_spark(tmp_path))
    whole.start()
    try:
        for zone, options, _ in ENGINES.values():
            whole.execute(f"CREATE ZONE {zone} {options}", 300)
        print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        bare_s = report("bare commit of LMDB, synced", bare_commits(tmp_path / "bare"))
        asyncio.run(compare(whole, bare_s))
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        whole.stop()
