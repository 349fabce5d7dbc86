"""Shared fixtures: real servers on free ports, started once a session."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rebalance.core.keys import Keyspace
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.ports import free_block

pytest_plugins = ["tests.fixtures.databases"]

# The same examples in each run, so that what fails fails again; `make soak` draws others.
# Nothing depends on how fast an example is drawn or run: a machine may be busy.
_AT_ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", _AT_ANY_PACE, derandomize=True)
settings.register_profile("random", _AT_ANY_PACE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# What a script starts in its background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_prefixes = itertools.count(1)

START_S = 60.0
CALL_S = 30.0
"""What one call of a healthy etcd may take on a busy machine."""


@dataclass
class EtcdServer:
    """A real single-member etcd of the tests'; ``restart`` keeps its data and ports."""

    directory: Path
    client_port: int
    peer_port: int
    process: subprocess.Popen[bytes]
    options: tuple[str, ...] = ()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process = _start_etcd(self.directory, self.client_port, self.peer_port, self.options)


def _start_etcd(
    directory: Path, client_port: int, peer_port: int, options: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    process = spawn(
        [
            *(find_etcd().path, "--name", "test", "--data-dir", str(directory / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}", "--log-level", "warn"),
            *options,
        ],
        log=directory / "etcd.log",
    )
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{client}/health", timeout=5) as answer:
                if b'"true"' in answer.read():
                    return process
        except OSError:
            pass
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"etcd did not start:\n{(directory / 'etcd.log').read_text()[-2000:]}")
        time.sleep(0.05)


def start_etcd_server(*options: str) -> EtcdServer:
    """``options`` for etcd's command line."""
    directory = Path(tempfile.mkdtemp(prefix="zonekeeper-etcd-"))
    ports = free_block(2)
    process = _start_etcd(directory, ports[0], ports[1], options)
    return EtcdServer(directory, ports[0], ports[1], process, options)


def stop_etcd_server(server: EtcdServer) -> None:
    stop(server.process)
    shutil.rmtree(server.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """One etcd for the session: tests keep apart by prefix. Do not kill it; use ``own_etcd`` for that."""
    server = start_etcd_server()
    yield server
    stop_etcd_server(server)


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd of the test's own, to be killed and restarted."""
    server = start_etcd_server()
    yield server
    stop_etcd_server(server)


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace(f"test-{os.getpid()}-{next(_prefixes)}/")


@pytest.fixture
async def metastore(etcd_server: EtcdServer) -> AsyncIterator[EtcdMetastore]:
    """A client of the session's etcd; keep to the ``keyspace`` fixture's prefix."""
    client = EtcdMetastore([etcd_server.endpoint], CALL_S)
    yield client
    await client.close()
