"""A partition of 1 GB of 4 KiB values moves to another server while it is written: how fast, what puts take
meanwhile, and the same under a limit of bandwidth. BENCH_MOVE_MB: another size."""

from __future__ import annotations

import asyncio
import os
import random
from itertools import count
from pathlib import Path
from time import perf_counter

import pytest

from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.data.zone_router import ZoneRouter
from rebalance.store.shell.lmdb_disk import stored
from tests.bench.figures import percentile
from tests.fixtures.cut_nodes import STORE, LoopbackSites
from tests.fixtures.store_nodes import ZONE, StoreNodes, store_nodes

NAMES = ("n1", "n2", "n3", "n4")
SIZE_MB = int(os.environ.get("BENCH_MOVE_MB", "1024"))
VALUE_BYTES = 4 << 10
CHANGES = 16
"""Changes of one write that fills the partition."""
FILLERS, WRITERS = 16, 4
UNDISTURBED_S = 10.0
LIMIT_MB_S = 20
MOVE_S = 600.0
PARTITION = PartitionId(ZONE, 0)


async def fill(client: ZoneRouter) -> None:
    numbers = iter(range(0, SIZE_MB << 20 >> 12, CHANGES))

    async def work() -> None:
        for first in numbers:
            puts = (
                client.put(PARTITION, f"key-{number:08d}", random.randbytes(VALUE_BYTES), f"fill-{number}")
                for number in range(first, first + CHANGES)
            )
            await asyncio.gather(*puts)

    await asyncio.gather(*(work() for _ in range(FILLERS)))


class Writers:
    """Writers that put single values all the time. ``seconds``: of each put since ``start_over``."""

    def __init__(self, client: ZoneRouter) -> None:
        self.seconds: list[float] = []
        self._client = client
        self._began = perf_counter()

    async def run(self, task: int) -> None:
        chooser = random.Random(task)
        for number in count():
            key, value = f"key-{chooser.randrange(SIZE_MB << 8):08d}", random.randbytes(VALUE_BYTES)
            begun = perf_counter()
            await self._client.put(PARTITION, key, value, f"{task}-{number}")
            self.seconds.append(perf_counter() - begun)

    def start_over(self) -> None:
        self.seconds, self._began = [], perf_counter()

    def report(self, name: str) -> float:
        """p99, in seconds."""
        took_s = perf_counter() - self._began
        p50, p99 = (percentile(self.seconds, share) for share in (0.5, 0.99))
        rate = len(self.seconds) / took_s
        print(f"{name:<32} {rate:6,.0f} puts/s   p50 {1e3 * p50:6.1f} ms   p99 {1e3 * p99:6.1f} ms", flush=True)
        return p99


async def is_cleared(nodes: StoreNodes, name: str) -> bool:
    """True if the node's server has no rows of the partition any more."""
    with stored(nodes.files(name)) as reader:
        return not reader.rows((ZONE, 0), b"", 1)


async def move(nodes: StoreNodes, writers: Writers, name: str, target: tuple[str, ...], usual_s: float) -> None:
    """Move one copy to the server that has none, and print its speed."""
    writers.start_over()
    begun = perf_counter()
    await nodes.move({0: target})
    await nodes.converged(MOVE_S)
    took_s = perf_counter() - begun
    p99 = writers.report(name)
    speed = f"{SIZE_MB / took_s:6.1f} MB/s in {took_s:.1f} s"
    print(f"{name:<32} {speed}; p99 is {p99 / usual_s:.1f} times that undisturbed", flush=True)


@pytest.mark.slow("a partition of 1 GB is written, and moves twice")
async def test_a_large_partition_moves(tmp_path: Path) -> None:
    async with store_nodes(tmp_path, LoopbackSites(STORE, *NAMES), NAMES, {0: ("n1", "n2")}) as nodes:
        client = ZoneRouter(nodes, time_limit_s=120.0)
        begun = perf_counter()
        await fill(client)
        print(f"\nload {os.getloadavg()[0]:.1f}; {SIZE_MB} MB are there after {perf_counter() - begun:.0f} s")
        writers = Writers(client)
        tasks = [asyncio.create_task(writers.run(task)) for task in range(WRITERS)]
        try:
            await asyncio.sleep(UNDISTURBED_S)
            usual_s = writers.report("undisturbed")
            await move(nodes, writers, "move without a limit", ("n1", "n3"), usual_s)
            await nodes.until("the end of the copy that was left", lambda: is_cleared(nodes, "n2"), MOVE_S)
            limits = Put(nodes.world.keyspace.limits, Limits(node_bytes_s=LIMIT_MB_S << 20).encode())
            await nodes.world.store.commit(Txn((), (limits,)))
            await move(nodes, writers, f"move at {LIMIT_MB_S} MB/s", ("n1", "n4"), usual_s)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        print(f"load {os.getloadavg()[0]:.1f}")
