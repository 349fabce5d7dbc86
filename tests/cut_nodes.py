"""A metastore and nodes as ``zonectl node`` runs them, each at a site of its own, with links between them that
tests slow and cut."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.supervision.child_plan import zonectl
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
    """``networks`` have a site for each of ``stores``, the metastore's members, and for each node, by its name.
    ``environment``: of every process."""

    def __init__(
        self,
        networks: CutNetworks,
        keyspace: Keyspace,
        directory: Path,
        stores: Sequence[str] = (STORE,),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._networks = networks
        self._directory = directory
        self._stores = tuple(stores)
        self._environment = {
            "ZONEKEEPER_METASTORE_PREFIX": keyspace.prefix,
            "ZONEKEEPER_NODE_LEASE_S": str(LEASE_S),
            "ZONEKEEPER_NODE_MEMBER_QUOTA_MB": "4096",
            **(environment or {}),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def endpoint(self) -> str:
        """Of every member of the metastore, with commas between them."""
        return ",".join(f"{self._networks.address(site)}:{CLIENT_PORT}" for site in self._stores)

    def start_metastore(self) -> None:
        """The members that do not run; those that stopped go on with their data. Returns once all serve, also
        to this process."""
        for site in self._stores:
            if not self.runs(site):
                self._spawn(site, self._member_command(site))
        deadline = time.monotonic() + START_S
        for site in self._stores:
            while not _is_healthy(f"http://{self._networks.address(site)}:{CLIENT_PORT}"):
                assert time.monotonic() < deadline, f"no metastore within {START_S} s: {self.log(site)}"
                time.sleep(0.05)

    def start(self, *names: str, attributes: Mapping[str, str] | None = None) -> None:
        """``attributes``: by node, JSON."""
        for name in names:
            options = {
                "name": name,
                "attributes": (attributes or {}).get(name, "{}"),
                "host": self._networks.address(name),
                "ports": MEMBER_PORTS,
                "metastore": self.endpoint,
                "data-dir": str(self.data_dir(name)),
            }
            self.start_service(name, "node", options)

    def start_service(
        self,
        site: str,
        command: str,
        options: Mapping[str, str],
        *flags: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``zonectl command`` there. ``environment``: of this process alone."""
        parts = (part for key, value in options.items() for part in (f"--{key}", value))
        self._spawn(site, zonectl(command, *flags, *parts), environment)

    def data_dir(self, name: str) -> Path:
        return self._directory / name

    def runs(self, site: str) -> bool:
        return site in self._processes and self._processes[site].poll() is None

    def process(self, site: str) -> subprocess.Popen[bytes]:
        """What was started there last: of a node its agent, whose members are children of it."""
        return self._processes[site]

    def kill(self, *sites: str) -> None:
        """Of a node: its members die with it. ``start`` and ``start_metastore`` bring back what was killed."""
        for site in sites:
            process = self._processes[site]
            process.kill()
            process.wait()

    def stop(self) -> None:
        """The metastore last: nodes say goodbye to it."""
        for site in sorted(self._processes, key=lambda site: site in self._stores):
            stop(self._processes[site], 30)
        self._processes.clear()

    def log(self, site: str) -> Path:
        return self._directory / f"{site}.log"

    def _member_command(self, site: str) -> list[str]:
        urls = {each: f"http://{self._networks.address(each)}" for each in self._stores}
        client, peer = f"{urls[site]}:{CLIENT_PORT}", f"{urls[site]}:{PEER_PORT}"
        return [
            *(find_etcd().path, "--name", site, "--data-dir", str(self.data_dir(site))),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{each}={url}:{PEER_PORT}" for each, url in urls.items())),
            *("--log-level", "warn"),
        ]

    def _spawn(self, site: str, command: Sequence[str], own: Mapping[str, str] | None = None) -> None:
        self._processes.pop(site, None)
        self._processes[site] = spawn(
            self._networks.command(site, command), log=self.log(site), env={**self._environment, **(own or {})}
        )


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
