"""A metastore and nodes as ``zonectl node`` runs them, each at a site of its own, with links between them that
tests slow and cut."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from pathlib import Path

from app.supervisor_plan import zonectl
from rebalance.core.keys import Keyspace
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from tests.cut_networks import CutNetworks

STORE = "store"
"""The metastore's site."""
CLIENT_PORT, PEER_PORT = 2379, 2380
MEMBER_PORTS = "20000-20019"
START_S = 60.0
LEASE_S = 3


class CutNodes:
    """``networks`` have a site ``STORE`` and one for each node, by its name."""

    def __init__(self, networks: CutNetworks, keyspace: Keyspace, directory: Path) -> None:
        self._networks = networks
        self._keyspace = keyspace
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def endpoint(self) -> str:
        return f"{self._networks.address(STORE)}:{CLIENT_PORT}"

    def start_metastore(self) -> None:
        """Returns once it serves, also to this process."""
        address = self._networks.address(STORE)
        client, peer = f"http://{address}:{CLIENT_PORT}", f"http://{address}:{PEER_PORT}"
        command = [
            *(find_etcd().path, "--name", "test", "--data-dir", str(self._directory / STORE)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}", "--log-level", "warn"),
        ]
        self._spawn(STORE, command)
        deadline = time.monotonic() + START_S
        while not _is_healthy(client):
            assert time.monotonic() < deadline, f"no metastore within {START_S} s: {self._log(STORE)}"
            time.sleep(0.05)

    def start(self, *names: str) -> None:
        for name in names:
            options = {
                "name": name,
                "host": self._networks.address(name),
                "ports": MEMBER_PORTS,
                "metastore": self.endpoint,
                "data-dir": str(self.data_dir(name)),
            }
            command = zonectl("node", *(part for key, value in options.items() for part in (f"--{key}", value)))
            self._spawn(name, command)

    def data_dir(self, name: str) -> Path:
        return self._directory / name

    def stop(self) -> None:
        """Nodes first: they say goodbye to the metastore."""
        for process in reversed(tuple(self._processes.values())):
            stop(process, 30)
        self._processes.clear()

    def _spawn(self, site: str, command: tuple[str, ...] | list[str]) -> None:
        environment = {
            "ZONEKEEPER_METASTORE_PREFIX": self._keyspace.prefix,
            "ZONEKEEPER_NODE_LEASE_S": str(LEASE_S),
            "ZONEKEEPER_NODE_MEMBER_QUOTA_MB": "4096",
        }
        self._processes[site] = spawn(
            self._networks.command(site, command), log=self._log(site), env=environment
        )

    def _log(self, site: str) -> Path:
        return self._directory / f"{site}.log"


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
