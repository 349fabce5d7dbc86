"""A metastore and one node as ``zonectl node`` runs it, with a member of a zone of each mode."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from app.supervision.child_plan import zonectl
from catalog.core.zone import ConsistencyMode, Zone, ZoneId, ZoneIntent
from rebalance.core.isolation import STOP_MS, fence_ms_of
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.limit_options import RESET_S
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from tests.integration.test_node_cluster import NodeCluster
from tests.ports import free_block

NODE, STORE = "n1", "store"
MODES = {7: ConsistencyMode.STRONG_CONSISTENCY, 8: ConsistencyMode.HIGH_AVAILABILITY}
STRONG, AVAILABLE = (PartitionId(ZoneId(zone), 0) for zone in MODES)
LEASE_S = 3
FENCE_S = fence_ms_of(RESET_S, LEASE_S) / 1_000
STOP_S = STOP_MS / 1_000
START_S = 90.0


class Sites(Protocol):
    """Where the two run: ``tests.cut_networks.CutNetworks``, or this machine."""

    def address(self, site: str) -> str: ...

    def command(self, site: str, argv: Sequence[str]) -> list[str]: ...


class Here:
    def address(self, site: str) -> str:
        return "127.0.0.1"

    def command(self, site: str, argv: Sequence[str]) -> list[str]:
        return list(argv)


class FencedNode:
    def __init__(self, directory: Path, keyspace: Keyspace, sites: Sites) -> None:
        self._directory = directory
        self._keyspace = keyspace
        self._sites = sites
        self._store_ports, self._member_ports = free_block(2), free_block(20)
        self._store: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self._sites.address(STORE)}:{self._store_ports[0]}"

    def start_metastore(self) -> None:
        """Returns once it serves."""
        client, peer = (f"http://{self._sites.address(STORE)}:{port}" for port in self._store_ports)
        command = [
            *(find_etcd().path, "--name", "test", "--data-dir", str(self._directory / STORE)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}", "--log-level", "warn"),
        ]
        self._store = spawn(self._sites.command(STORE, command), log=self._directory / "store.log")
        until(lambda: _is_healthy(client), START_S)

    def stop_metastore(self) -> None:
        if self._store is not None:
            self._store.kill()
            self._store.wait()

    def start_node(self, *options: str) -> None:
        ports = f"{self._member_ports.start}-{self._member_ports.stop - 1}"
        command = zonectl(
            *("node", "--name", NODE, "--host", self._sites.address(NODE), "--ports", ports),
            *("--metastore", self.endpoint, "--data-dir", str(self._directory / NODE), *options),
        )
        environment = {
            "ZONEKEEPER_METASTORE_PREFIX": self._keyspace.prefix,
            "ZONEKEEPER_NODE_LEASE_S": str(LEASE_S),
        }
        self.agent = spawn(
            self._sites.command(NODE, command), log=self._directory / "node.log", env=environment
        )

    async def found(self, cluster: NodeCluster) -> None:
        """Both partitions serve, and the node knows their zones."""
        for number, mode in MODES.items():
            zone = Zone(ZoneId(number), f"Z{number}", 1, 1, None, ("default",), consistency_mode=mode)
            await cluster.put(cluster.keyspace.intent(zone.zone_id), ZoneIntent(1, zone).encode())
        for partition in (STRONG, AVAILABLE):
            await cluster.write_stable(partition, NODE)
            await cluster.until(lambda partition=partition: cluster.settled(partition, NODE))
            await cluster.router.put(partition, "k", b"1", f"op-{partition}", limit_s=START_S)

    def member(self, partition: PartitionId) -> int | None:
        """Process id of the partition's member; None: none runs."""
        name = f"/members/{partition.zone_id}-{partition.partition}/"
        for process in self._children():
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if process.name() == "etcd" and name in command:
                    return process.pid
        return None

    def watchdog(self) -> psutil.Process | None:
        for process in self._children():
            with contextlib.suppress(psutil.Error):
                if any("watchdog_process" in part for part in process.cmdline()):
                    return process
        return None

    def log(self) -> str:
        return (self._directory / "node.log").read_text()

    def signal(self, number: signal.Signals) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)

    def close(self) -> None:
        if self.agent is not None:
            self.agent.send_signal(signal.SIGCONT)
            stop(self.agent, 30)
        self.stop_metastore()

    def _children(self) -> list[psutil.Process]:
        assert self.agent is not None
        try:
            return psutil.Process(self.agent.pid).children()
        except psutil.NoSuchProcess:
            return []


def until(condition: Callable[[], bool], limit_s: float) -> float:
    """Seconds until ``condition``. Blocks."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < limit_s, f"not within {limit_s:g} s"
        time.sleep(0.02)
    return time.monotonic() - begun


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
