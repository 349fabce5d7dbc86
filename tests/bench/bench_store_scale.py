"""Thousands of copies in each of three store servers: memory, idle processor time, a zone that begins, and the
longest stall of one client's puts while a server joins, takes partitions, and while one is killed."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import psutil
import pytest

from catalog.core.zone import STORE_ENGINE, ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Txn, delete_below
from rebalance.data.zone_router import ZoneRouter
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.groups import Route
from rebalance.store.shell.store_client import server_url
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ring_writer import RingWriter
from tests.fixtures.store_client import Ports
from tests.fixtures.store_processes import StoreProcesses

NAMES = ("n1", "n2", "n3")
LARGE, SMALL = ZoneId(1), ZoneId(2)
PARTITIONS = {LARGE: 4_096, SMALL: 904}
MOVED = 96
IDLE_S = 60.0
VALUE = b"x" * 100
LIMIT_S = 300.0


def lists_of(partitions: int) -> list[tuple[str, ...]]:
    return [tuple(NAMES[(number + place) % 3] for place in range(3)) for number in range(partitions)]


def anonymous_mib(pid: int) -> float:
    """Anonymous memory of the process in MiB, without what is mapped of the store's file."""
    line = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line.group(1)) / 1024 if line is not None else 0.0


class Leaders(Ports):
    """The server that led the partition at the start is asked first."""

    def __init__(self, servers: StoreProcesses) -> None:
        super().__init__(lambda: [servers.port(name) for name in servers.listening])
        self._servers = servers

    def route(self, partition: PartitionId) -> Route:
        first = NAMES[partition.partition % 3]
        ports = (self._servers.port(name) for name in sorted(self._servers.listening, key=first.__ne__))
        return Route(tuple(server_url("127.0.0.1", port) for port in ports), engine=STORE_ENGINE)


class Putter:
    """One client that puts one value after the other. ``stall_s``: the longest put since it was set to 0, from
    its first attempt to its answer."""

    def __init__(self, servers: StoreProcesses) -> None:
        self.stall_s = 0.0
        self.seconds: list[float] = []
        self._client = ZoneRouter(Leaders(servers), time_limit_s=LIMIT_S)

    async def run(self) -> None:
        try:
            for number in count():
                began = time.perf_counter()
                partition = PartitionId(LARGE, number * 7 % PARTITIONS[LARGE])
                await self._client.put(partition, "key", VALUE, f"w{number}")
                took = time.perf_counter() - began
                self.stall_s = max(self.stall_s, took)
                self.seconds.append(took)
        finally:
            await self._client.close()


@asynccontextmanager
async def putting(servers: StoreProcesses) -> AsyncIterator[Putter]:
    putter = Putter(servers)
    task = asyncio.create_task(putter.run())
    try:
        yield putter
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def begun(servers: StoreProcesses, zone: ZoneId) -> None:
    """Every server leads partitions of the zone."""
    for partition in range(3):
        answer = await servers.client.put((zone, partition), b"first", b"")
        assert answer.revision > 0


async def until_members(writer: RingWriter, number: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(writer.state.cluster.servers) != number:
            await asyncio.sleep(0.02)


def cpu_s(servers: StoreProcesses) -> list[float]:
    return [sum(psutil.Process(servers.pid(name)).cpu_times()[:2]) for name in servers.names]


@pytest.mark.slow("four server processes with 5,000 copies, idle for 20 seconds")
async def test_scale(tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    servers = StoreProcesses(tmp_path, etcd_server.endpoint, keyspace)
    writer = RingWriter(metastore, keyspace, ttl_ms=5_000)
    writing = asyncio.create_task(writer.run())
    try:
        for name in NAMES:
            await servers.start(name)
        await until_members(writer, len(NAMES))
        for zone, partitions in PARTITIONS.items():
            began = time.perf_counter()
            await writer.start_zone(zone, lists_of(partitions))
            await begun(servers, zone)
            print(f"zone of {partitions:,} partitions begins: {time.perf_counter() - began:.2f} s")
        await asyncio.sleep(5.0)
        await idle(servers)
        async with putting(servers) as putter:
            await asyncio.sleep(5.0)
            print(
                f"puts undisturbed: p50 {1e3 * sorted(putter.seconds)[len(putter.seconds) // 2]:.1f} ms,"
                f" longest {1e3 * putter.stall_s:.0f} ms"
            )
            await joined(servers, writer, putter)
            await moved(servers, writer, putter)
        print("after the moves:")
        await idle(servers)
        async with putting(servers) as putter:
            await killed(servers, writer, putter, metastore, keyspace)
    finally:
        writing.cancel()
        servers.close()


async def idle(servers: StoreProcesses) -> None:
    for name in servers.names:
        # A machine that is too busy for heartbeats shows nothing.
        assert psutil.Process(servers.pid(name)).status() != psutil.STATUS_ZOMBIE, servers.log(name)[-1]
    before = cpu_s(servers)
    await asyncio.sleep(IDLE_S)
    shares = [100 * (late - early) / IDLE_S for early, late in zip(before, cpu_s(servers), strict=True)]
    sizes = [anonymous_mib(servers.pid(name)) for name in servers.names]
    for name, share, size in zip(servers.names, shares, sizes, strict=True):
        print(f"{name}: idle {share:.1f} % of a core, {size:.0f} MiB of anonymous memory")


async def joined(servers: StoreProcesses, writer: RingWriter, putter: Putter) -> None:
    putter.stall_s = 0.0
    await servers.start("n4")
    await until_members(writer, 4)
    await asyncio.sleep(10.0)
    print(f"a server joins: longest put {1e3 * putter.stall_s:.0f} ms")


async def moved(servers: StoreProcesses, writer: RingWriter, putter: Putter) -> None:
    """A copy of each of some partitions goes to the new server."""
    lists = lists_of(PARTITIONS[LARGE])
    lists[:MOVED] = [(*nodes[:2], "n4") for nodes in lists[:MOVED]]
    putter.stall_s = 0.0
    await writer.set_targets(LARGE, lists)
    await asyncio.sleep(15.0)
    print(f"{MOVED} copies move: longest put {1e3 * putter.stall_s:.0f} ms")


async def killed(
    servers: StoreProcesses,
    writer: RingWriter,
    putter: Putter,
    metastore: EtcdMetastore,
    keyspace: Keyspace,
) -> None:
    """Kill a server as beside an agent that lives: the heartbeat's key goes at once."""
    putter.stall_s = 0.0
    servers.kill("n2")
    await metastore.commit(Txn((), (delete_below(f"{keyspace.exchange_servers}n2/"),)))
    await until_members(writer, 3)
    await asyncio.sleep(10.0)
    print(f"a server is killed: longest put {1e3 * putter.stall_s:.0f} ms")
