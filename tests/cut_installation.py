"""A whole installation whose links are cut: three members of the metastore, a server, a controller and three
nodes, each at a site of its own and started by its own command, as on eight machines. Clients are at ``HERE``.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rebalance.core.keys import Keyspace
from tests.cut_networks import CutNetworks, cut_networks
from tests.cut_nodes import CLIENT_PORT, CutNodes
from tests.e2e.installation import MARK, Installation, wait_for, without_spark

STORES = ("m1", "m2", "m3")
SERVER, CONTROLLER = "server", "controller"
NODES = ("n1", "n2", "n3")
SITES = (*STORES, SERVER, CONTROLLER, *NODES)
API_PORT = 7_400
ATTRIBUTES = {
    name: json.dumps({"name": name, **{f"not_{other}": "yes" for other in NODES if other != name}})
    for name in NODES
}
"""So that a NODES FILTER picks any two: those that are not the third."""


class CutInstallation(Installation):
    """What ``Installation`` offers of the API and of ``zonectl``, over ``networks`` with all ``SITES``. What
    starts processes is called in the main thread: they die with the thread that started them. ``controller``:
    environment of that process alone."""

    def __init__(
        self,
        networks: CutNetworks,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        controller: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, len(NODES), {**without_spark(directory), **(environment or {})})
        self.networks = networks
        self._controller = controller
        self.sites = CutNodes(networks, Keyspace(), directory, STORES, {**self.environment, MARK: self.mark})

    def start(self) -> float:
        """Returns after the API answers and all nodes live: the seconds that it took."""
        begun = time.monotonic()
        self.sites.start_metastore()
        options = {"metastore": self.sites.endpoint}
        served = {"host": self.networks.address(SERVER), "port": str(API_PORT)}
        self.sites.start_service(
            SERVER, "serve", {**options, **served, "data-dir": self._data_dir(SERVER)}, "--migrate"
        )
        options = {**options, "data-dir": self._data_dir(CONTROLLER)}
        self.sites.start_service(CONTROLLER, "controller", options, environment=self._controller)
        self.start_nodes(*NODES)
        wait_for("nodes", self.is_whole)
        return time.monotonic() - begun

    def start_nodes(self, *names: str) -> None:
        """Also those that were killed, on their data."""
        self.sites.start(*names, attributes=ATTRIBUTES)

    def stop(self) -> int:
        self.networks.heal()
        for site in SITES:
            if self.sites.runs(site):
                self.sites.process(site).send_signal(signal.SIGCONT)
        self.sites.stop()
        self.assert_nothing_is_left()
        return 0

    @property
    def url(self) -> str:
        return f"http://{self.networks.address(SERVER)}:{API_PORT}"

    def metastore_leader(self) -> str:
        """The site of the member that a majority of the metastore's members follows. Blocks until there is
        one."""
        leader: str = wait_for("the metastore's leader", self._metastore_leader)
        return leader

    def stop_metastore(self, *sites: str) -> None:
        """Killed, of all members without ``sites``: their addresses refuse connections from then on."""
        self.sites.kill(*(sites or STORES))

    def start_metastore(self) -> None:
        """Every member that was stopped, on its data; returns once all of them serve."""
        self.sites.start_metastore()

    @contextmanager
    def frozen_agents(self, *names: str) -> Iterator[None]:
        """SIGSTOP of the nodes' agents for the length of the block; their members run on and serve."""
        agents = [self.sites.process(name) for name in names]
        for agent in agents:
            agent.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for agent in agents:
                agent.send_signal(signal.SIGCONT)

    def cut_from_metastore(self, *sites: str, one_way: bool = False) -> None:
        """What ``sites`` send to the metastore's members, and what they get from them unless ``one_way``."""
        for site in sites:
            for store in STORES:
                self.networks.cut(site, store, one_way=one_way)

    def _data_dir(self, site: str) -> str:
        return str(self.sites.data_dir(site))

    def _metastore_leader(self) -> str | None:
        told = {site: self._member_status(site) for site in STORES if self.sites.runs(site)}
        named = [status.get("leader") for status in told.values()]
        for site, status in told.items():
            own = status.get("header", {}).get("member_id")
            if own and status.get("leader") == own and 2 * named.count(own) > len(STORES):
                return site
        return None

    def _member_status(self, site: str) -> dict[str, Any]:
        url = f"http://{self.networks.address(site)}:{CLIENT_PORT}/v3/maintenance/status"
        try:
            answer = httpx.post(url, json={}, trust_env=False, timeout=5)
        except httpx.TransportError:
            return {}
        return dict(answer.json()) if answer.status_code == httpx.codes.OK else {}


@contextmanager
def cut_installation(
    directory: Path,
    environment: Mapping[str, str] | None = None,
    controller: Mapping[str, str] | None = None,
) -> Iterator[CutInstallation]:
    """It runs for the length of the block. Ask ``cut_networks.missing`` first."""
    with cut_networks(*SITES) as networks:
        whole = CutInstallation(networks, directory, environment, controller)
        try:
            whole.start()
            yield whole
        finally:
            whole.stop()
