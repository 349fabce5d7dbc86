"""A real ``zonectl serve`` of the test's own, over a real etcd in which three nodes live."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from catalog.core.zone import Node
from rebalance.core.keys import Keyspace
from rebalance.core.records import NodeRecord
from tests.conftest import EtcdServer
from tests.ports import free_block

NODES = ("n1", "n2", "n3")
START_S = 120.0


def register_nodes(etcd: EtcdServer, keyspace: Keyspace, member_limit: int = 100) -> None:
    """Nodes that live as long as the prefix: no lease ends them, and nothing of them runs."""
    for name in NODES:
        record = NodeRecord(Node(name, member_limit=member_limit), "test")
        body = {
            "key": base64.b64encode(keyspace.node(name).encode()).decode(),
            "value": base64.b64encode(record.encode()).decode(),
        }
        url = f"http://{etcd.endpoint}/v3/kv/put"
        httpx.post(url, json=body, trust_env=False, timeout=30).raise_for_status()


class ApiServer:
    """``start`` may be called again after ``stop`` or ``kill``: address and catalog stay."""

    def __init__(
        self,
        directory: Path,
        etcd: EtcdServer,
        keyspace: Keyspace,
        catalog_url: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_block(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = directory / f"server-{self.port}.log"
        self._environment = {
            **os.environ,
            "ZONEKEEPER_METASTORE": etcd.endpoint,
            "ZONEKEEPER_METASTORE_PREFIX": keyspace.prefix,
            "ZONEKEEPER_CATALOG_URL": catalog_url,
            "ZONEKEEPER_DATA_DIR": str(directory),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "app.cli", "serve", "--migrate", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + START_S
        while not self._has_nodes():
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _has_nodes(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/api/v1/nodes", trust_env=False, timeout=10)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and len(answer.json()["nodes"]) == len(NODES)


def with_data(client: httpx.Client, address: str) -> tuple[str, dict[str, Any]]:
    """The first page of a statement of the SQL protocol that has rows, and its address. On a slow machine there
    are others before it, while the statement runs."""
    for _ in range(90):
        page: dict[str, Any] = client.get(address).raise_for_status().json()
        if "data" in page:
            return address, page
        address = urlsplit(page["nextUri"]).path
    raise AssertionError(page)


@contextmanager
def serving(
    directory: Path,
    etcd: EtcdServer,
    keyspace: Keyspace,
    catalog_url: str,
    count: int = 1,
    member_limit: int = 100,
    environment: Mapping[str, str] | None = None,
) -> Iterator[list[ApiServer]]:
    """Servers over one catalog and one etcd prefix; nodes that would hold ``member_limit`` members each.
    ``environment``: settings of theirs."""
    register_nodes(etcd, keyspace, member_limit)
    servers = [ApiServer(directory, etcd, keyspace, catalog_url, environment) for _ in range(count)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()
