"""Large zones from statement to last key: real server, controller, Spark and etcd, nodes that are only keys."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from aetcd import rpc

from app.supervision.child_plan import etcd_command, zonectl
from app.supervision.installation_state import Ports
from catalog.core.zone import Node, ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId, PartitionKeys
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.etcd_messages import range_end
from tests.e2e.installation import wait_for
from tests.fixtures.ports import free_block

NODES = 10
MEMBER_LIMIT = 1_000_000
PARTITIONS = 65_000
ZONES, ZONE_PARTITIONS = 16, 62_500
IDLE_S = 60
SETTLE_S = 10
LOOKS_S = 150
"""No node runs here, so the ALTER's operation never ends: it is looked at twice more, a minute apart, and then
left alone until a key changes."""
POLL_S = 0.02
KEYSPACE = Keyspace()


class Cluster:
    """etcd as ``zonectl up`` starts it, ``zonectl serve`` and ``zonectl controller``."""

    def __init__(self, directory: Path) -> None:
        client, peer, api = free_block(3)
        self.endpoint = f"127.0.0.1:{client}"
        self.url = f"http://127.0.0.1:{api}"
        self._log = directory / "bench.log"
        common = ("--metastore", self.endpoint, "--data-dir", str(directory / "data"))
        etcd = etcd_command(find_etcd().path, directory / "etcd", Ports(api, client, peer, {}))
        self.etcd = self._spawn(etcd)
        self.server = self._spawn(zonectl("serve", "--no-auth", "--migrate", "--port", str(api), *common))
        self.controller = self._spawn(zonectl("controller", *common))

    def _spawn(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        return spawn(command, log=self._log, env=dict(os.environ))

    def get(self, path: str) -> dict[str, object]:
        found: dict[str, object] = httpx.get(f"{self.url}{path}", timeout=60).json()
        return found

    def sql(self, text: str) -> None:
        response = httpx.post(f"{self.url}/api/v1/statements", json={"sql": text}, timeout=60)
        assert response.status_code == 200, response.text

    def stop(self) -> None:
        for process in (self.controller, self.server, self.etcd):
            stop(process, 20)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.stop()


async def get_ready(cluster: Cluster) -> None:
    """Register nodes that live as long as the store and have no process: nothing more is asked of them here."""
    wait_for("the stores", lambda: cluster.get("/readyz")["ready"], 60)
    store = EtcdMetastore([cluster.endpoint])
    for number in range(NODES):
        record = NodeRecord(Node(f"n{number}", member_limit=MEMBER_LIMIT), f"incarnation-{number}")
        await store.commit(Txn((), (Put(KEYSPACE.node(record.node.name), record.encode()),)))
    await store.close()
    wait_for("Spark", lambda: cluster.get("/readyz")["spark"] == "ready", 120)


async def seconds_to(
    cluster: Cluster, statements: list[str], partitions: int, last: Callable[[PartitionKeys], str], keys: int
) -> tuple[float, float]:
    """Seconds from the first statement to the last zone's target, and until there are so many partition keys.

    Counting keys holds etcd up, so it begins with the ``last`` key of the last zone's last partition.
    """
    zone_id = ZoneId(len(statements))
    below = KEYSPACE.partitions
    count = rpc.RangeRequest(key=below.encode(), range_end=range_end(below), count_only=True)
    store = EtcdMetastore([cluster.endpoint], timeout_s=60)
    before = await store.get(KEYSPACE.target_pointer(zone_id))
    async with rpc.insecure_channel(cluster.endpoint) as channel:
        stub = rpc.KVStub(channel)
        begun = time.perf_counter()
        for statement in statements:
            cluster.sql(statement)
        while await store.get(KEYSPACE.target_pointer(zone_id)) == before:
            await asyncio.sleep(POLL_S)
        placed = time.perf_counter() - begun
        number = PartitionId(zone_id, partitions - 1)
        while await store.get(last(KEYSPACE.partition(number))) is None:
            await asyncio.sleep(POLL_S)
        while (await stub.Range(count)).count < keys:
            await asyncio.sleep(POLL_S)
        await store.close()
        return placed, time.perf_counter() - begun


def show(name: str, figure: str) -> None:
    print(f"{name:<62} {figure}")


def memory(process: subprocess.Popen[bytes]) -> str:
    """The most that the process itself has held, its children left out."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
    return f"{int(peak) / 1024:,.0f} MB"


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    """Processor seconds that each process has used since it began; Spark's are the controller's children."""
    controller = psutil.Process(cluster.controller.pid)
    groups = {
        "zonectl controller": [controller],
        "its Spark": controller.children(recursive=True),
        "zonectl serve": [psutil.Process(cluster.server.pid)],
        "etcd": [psutil.Process(cluster.etcd.pid)],
    }
    return {
        name: sum(sum(process.cpu_times()[:2]) for process in processes) for name, processes in groups.items()
    }


async def test_a_zone_of_65000_partitions(cluster: Cluster) -> None:
    await get_ready(cluster)
    create = [f"CREATE ZONE big (PARTITIONS {PARTITIONS}, REPLICAS 1)"]
    _, seconds = await seconds_to(cluster, create, PARTITIONS, lambda keys: keys.stable, 2 * PARTITIONS)
    show("CREATE of 65,000 partitions, to the last stable key", f"{seconds:.2f} s")
    before = cpu_seconds(cluster)
    alter = ["ALTER ZONE big SET (REPLICAS 3)"]
    placed, seconds = await seconds_to(cluster, alter, PARTITIONS, lambda keys: keys.pending, 3 * PARTITIONS)
    show("ALTER of 65,000 partitions, to the last pending key, Spark warm", f"{seconds:.2f} s")
    show("... of it, to the stored target", f"{placed:.2f} s")
    # What follows a burst (the mirror's last events, etcd's own work) is over then.
    await asyncio.sleep(SETTLE_S)
    settled = cpu_seconds(cluster)
    for name, used in settled.items():
        show(f"... processor time of {name}", f"{used - before[name]:.2f} s")
    await asyncio.sleep(LOOKS_S)
    settled = cpu_seconds(cluster)
    await asyncio.sleep(IDLE_S)
    for name, used in cpu_seconds(cluster).items():
        share = (used - settled[name]) / IDLE_S
        show(f"idle at 65,000 partitions: {name}", f"{share:.2%} of a core over {IDLE_S} s")


async def test_a_million_partitions(cluster: Cluster) -> None:
    await get_ready(cluster)
    statements = [f"CREATE ZONE z{n} (PARTITIONS {ZONE_PARTITIONS}, REPLICAS 3)" for n in range(ZONES)]
    keys = 2 * ZONES * ZONE_PARTITIONS
    _, seconds = await seconds_to(cluster, statements, ZONE_PARTITIONS, lambda keys: keys.stable, keys)
    show("CREATE of 1,000,000 partitions in 16 zones, to the last key", f"{seconds:.1f} s")
    show("... memory of zonectl controller, at the most", memory(cluster.controller))
    show("... memory of zonectl serve, which mirrors every key", memory(cluster.server))
    show("... memory of etcd", memory(cluster.etcd))
