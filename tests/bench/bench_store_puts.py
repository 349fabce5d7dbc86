"""Puts into a store zone of three copies on the disk: one client process with 64 tasks, beside a bare commit of
LMDB on the same file system."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import lmdb
import psutil
import pytest

from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.core.store_messages import AnswerCode, WriteRequest
from rebalance.store.shell.store_client import StoreChannel, server_url
from tests.bench.figures import percentile, report, timed
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ring_writer import RingWriter
from tests.fixtures.store_processes import StoreProcesses
from tests.fixtures.store_trio import ZONE

NAMES = ("n1", "n2", "n3")
PARTITIONS = 64
LISTS = [tuple(NAMES[(number + place) % 3] for place in range(3)) for number in range(PARTITIONS)]
SECONDS = 10.0
LIMIT_S = 30.0
VALUE = b"x" * 100


def bare_commits(directory: Path) -> list[float]:
    """One row a commit, synced."""
    with lmdb.Environment(str(directory), map_size=1 << 30) as environment:
        numbers = iter(range(1_000_000))

        def commit() -> None:
            with environment.begin(write=True) as txn:
                txn.put(b"%08d" % next(numbers), VALUE)

        return timed(commit, 300)


async def put_all(clients: dict[str, StoreChannel], task: int, until: float, seconds: list[float]) -> None:
    number = 0
    while time.perf_counter() < until:
        partition = (task + number) % PARTITIONS
        began = time.perf_counter()
        client = clients[LISTS[partition][0]]
        key = b"key-%d-%d" % (task, number % 1_000)
        write = WriteId(f"{task}-{number}-{began}")
        request = WriteRequest(0, write, ZONE, partition, (KeyChange(key, VALUE),))
        answer = await client.ask(request, LIMIT_S)
        assert answer.code is AnswerCode.DONE, answer
        seconds.append(time.perf_counter() - began)
        number += 1


@pytest.mark.slow("three server processes, and ten seconds of puts for each number of tasks")
async def test_puts(tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    report("bare commit of LMDB, synced", bare_commits(tmp_path))
    servers = StoreProcesses(tmp_path, etcd_server.endpoint, keyspace)
    writer = RingWriter(metastore, keyspace, ttl_ms=5_000)
    writing = asyncio.create_task(writer.run())
    try:
        for name in NAMES:
            await servers.start(name)
        while len(writer.state.cluster.servers) < len(NAMES):
            await asyncio.sleep(0.05)
        await writer.start_zone(ZONE, LISTS)
        for partition in range(PARTITIONS):
            await servers.client.put((ZONE, partition), b"first", b"")
        writing.cancel()
        clients = {name: StoreChannel(server_url("127.0.0.1", servers.port(name))) for name in NAMES}
        for tasks in (1, 64):
            await measured(servers, clients, tasks)
        for client in clients.values():
            await client.close()
    finally:
        writing.cancel()
        servers.close()


async def measured(servers: StoreProcesses, clients: dict[str, StoreChannel], tasks: int) -> None:
    processes = [psutil.Process(servers.pid(name)) for name in NAMES]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    own, began = time.process_time(), time.perf_counter()
    seconds: list[float] = []
    await asyncio.gather(*(put_all(clients, task, began + SECONDS, seconds) for task in range(tasks)))
    took, client_s = time.perf_counter() - began, time.process_time() - own
    spent = [sum(process.cpu_times()[:2]) - early for process, early in zip(processes, before, strict=True)]
    puts = len(seconds)
    p50, p99 = (1e3 * percentile(seconds, share) for share in (0.5, 0.99))
    print(
        f"{tasks} tasks: {puts / took:,.0f} puts/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms; processor time a put: "
        f"servers {1e6 * sum(spent) / puts:.0f} us together, client {1e6 * client_s / puts:.0f} us"
    )
